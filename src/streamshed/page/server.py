"""The page's server: it looks at queries once a second, and tells browsers what is new."""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from streamshed.errors import InputError
from streamshed.page.figures import Figures, figures, prometheus

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

KEPT = 600
"""Batches of each query that a browser is told of when it comes."""
LOOKERS = 32
"""Browsers that may look at once."""
_EVERY = 1.0
"""Seconds between looks at a query."""

_STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
    "/uPlot.LICENSE": ("uPlot.LICENSE", "text/plain; charset=utf-8"),
}
_HEADERS = {
    # Nothing is loaded from elsewhere, and no other page may show this one or learn its address.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(
    queries: StreamingQuery | Iterable[StreamingQuery],
    port: int = 8321,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> Page:
    """Serve a web page that shows running queries.

    The page has rates, memory and the budget, rows shed, late or filtered, recall with its
    interval, how far the query is behind its source, and the times of batches; `/metrics` has the
    same figures for Prometheus. It never shows the contents of rows, and changes nothing.

    Args:
        queries: the query that `.writeStream….start()` returned, or several.
        port: the port to listen on; 0 for any free port.
        host: the address to listen on. By default only this machine can connect.
        token: the token that a browser must send (`?token=…`), and Prometheus as a bearer token. If
            other machines can connect and you give none, a random one is made; `.url` has it.

    Returns:
        The page; `.url` is its address, and `.close()` ends it.

    Raises:
        InputError: the port is taken, or the address is not of this machine.
    """
    some: list[Any] = [queries] if hasattr(queries, "lastProgress") else [*cast(Any, queries)]
    for query in some:
        if not hasattr(query, "lastProgress"):
            raise InputError(
                f"serve(): a {type(query).__name__} was given; give the query that"
                " .writeStream….start() returns, or a list of them"
            )
    if token is None and not _is_loopback(host):
        token = secrets.token_urlsafe(16)
    try:
        return Page(some, host, port, token)
    except OSError as error:
        raise InputError(
            f"serve(): the page cannot listen at {host}:{port} ({error.strerror or error}); give"
            " another `port`, or 0 for any that is free"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Page:
    """A page that shows running queries; made by `serve`."""

    def __init__(
        self, queries: Iterable[StreamingQuery], host: str, port: int, token: str | None
    ) -> None:
        self._watched = [_Watched(query) for query in queries]
        self._token = token
        self._closed = threading.Event()
        self._server = _Server((host, port), _Handler)
        self._server.page = self
        at = f"[{host}]" if ":" in host else host
        self._address = f"http://{at}:{self._server.server_address[1]}/"
        self._local = _is_loopback(host)
        for work in (self._server.serve_forever, self._watch):
            threading.Thread(target=work, name="streamshed page", daemon=True).start()

    @property
    def url(self) -> str:
        """The address, with the token if there is one."""
        return self._address + (f"?token={self._token}" if self._token else "")

    def close(self) -> None:
        """Stop listening; queries run on."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._closed.is_set():
            for watched in self._watched:
                watched.look()
            self._closed.wait(_EVERY)

    # -- what handlers ask for -------------------------------------------------------------------

    def admits(self, given: str | None, host: str) -> bool:
        """Whether a request may see figures.

        Without a token it must come to an address of this machine by its name: a page from
        elsewhere, whose name was made to lead here, does not.
        """
        if self._token is not None:
            return given is not None and hmac.compare_digest(given.encode(), self._token.encode())
        name = urlsplit(f"//{host}").hostname or ""
        return self._local and _is_loopback(name)

    def metrics(self) -> str:
        """The newest figures, for Prometheus."""
        return prometheus(
            {
                one.name: (one.active, one.batches[-1] if one.batches else None)
                for one in self._watched
            }
        )

    def news(self, seen: dict[str, int]) -> Figures:
        """What a browser that has seen so many batches of each query has not seen yet."""
        told = []
        for one in self._watched:
            first = seen.get(one.id, 0)
            batches = list(one.batches)
            fresh = batches[max(0, len(batches) - (one.done - first)) :] if one.done > first else []
            seen[one.id] = one.done
            told.append(
                {
                    "id": one.id,
                    "name": one.name,
                    "active": one.active,
                    "failed": one.failed,
                    "status": one.status,
                    "batches": fresh,
                }
            )
        return {"time": time.time(), "queries": told}

    @property
    def closed(self) -> threading.Event:
        """Set when the page is closed."""
        return self._closed


class _Watched:
    """A query, and the figures of its last batches."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.id = str(query.runId)
        self.name = str(query.name or query.id)
        self.batches: deque[Figures] = deque(maxlen=KEPT)
        self.done = 0
        """Batches seen, those that are forgotten included."""
        self._last = -1
        """The last batch that was looked at, with rows or without."""
        self.active, self.failed, self.status = True, False, "starting"

    def look(self) -> None:
        """See what is new; a query whose session has ended is over."""
        try:
            self._look()
        except Exception:  # Java may be gone at any moment, and the page must not end the job
            self.active, self.status = False, "stopped"

    def _look(self) -> None:
        self.active = self.query.isActive
        self.failed = not self.active and self.query.exception() is not None
        self.status = str(self.query.status["message"]) if self.active else "stopped"
        for told in self._fresh():
            self._last = int(told["batchId"])
            if told["numInputRows"]:
                newest = figures(told, self.batches[-1] if self.batches else None)
                self.batches.append(newest)
                self.done += 1

    def _fresh(self) -> list[Any]:
        """What Spark says of the batches that are new, the oldest first.

        Java keeps the last hundred; to fetch and read all of them for each batch would take most of
        the time of the page.
        """
        java = getattr(self.query, "_jsq", None)
        found: list[Any] = []
        if java is not None:
            last = java.lastProgress()
            if last is None or int(last.batchId()) <= self._last:
                return []
            kept = java.recentProgress()
            for place in reversed(range(len(kept))):
                if int(kept[place].batchId()) <= self._last:
                    break
                found.append(json.loads(kept[place].json()))
            return found[::-1]
        last = self.query.lastProgress
        if last is None or int(last["batchId"]) <= self._last:
            return []
        for progress in self.query.recentProgress:
            told: Any = progress if isinstance(progress, dict) else json.loads(progress.json)
            if told["batchId"] > self._last:
                found.append(told)
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    page: Page

    def __init__(self, *arguments: Any) -> None:
        self.lookers = threading.BoundedSemaphore(LOOKERS)
        super().__init__(*arguments)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    """Answers a browser, or Prometheus; reads only."""

    server: _Server
    server_version = "streamshed"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """Answer."""
        url = urlsplit(self.path)
        if url.path in _STATIC:
            name, kind = _STATIC[url.path]
            self._answer((files(__package__) / "static" / name).read_bytes(), kind)
        elif url.path not in {"/events", "/metrics"}:
            self._answer(b"there is no such page\n", status=HTTPStatus.NOT_FOUND)
        elif not self._admitted(url.query):
            self._answer(b"a token is needed: ?token=...\n", status=HTTPStatus.UNAUTHORIZED)
        elif url.path == "/metrics":
            text = self.server.page.metrics().encode()
            self._answer(text, "text/plain; version=0.0.4; charset=utf-8")
        elif self.server.lookers.acquire(blocking=False):
            try:
                self._events()
            finally:
                self.server.lookers.release()
        else:
            self._answer(b"too many look already\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _admitted(self, query: str) -> bool:
        kind, _, bearer = self.headers.get("Authorization", "").partition(" ")
        given = (
            bearer
            if kind.lower() == "bearer"
            else next(iter(parse_qs(query).get("token", [])), None)
        )
        return self.server.page.admits(given, self.headers.get("Host", ""))

    def _answer(
        self, body: bytes, kind: str = "text/plain; charset=utf-8", status: int = HTTPStatus.OK
    ) -> None:
        self._begin(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)

    def _events(self) -> None:
        """Tell what is new once a second, until one of both goes away."""
        self.close_connection = True
        self._begin(HTTPStatus.OK, "text/event-stream")
        self.end_headers()
        page, seen = self.server.page, dict[str, int]()
        while self.command != "HEAD":
            self.wfile.write(b"data: " + json.dumps(page.news(seen)).encode() + b"\n\n")
            self.wfile.flush()
            if page.closed.wait(_EVERY):
                break

    def log_message(self, *_: object) -> None:
        """Log nothing: addresses have tokens in them."""
