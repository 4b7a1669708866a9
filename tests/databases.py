"""A PostgreSQL server of our own, from the packages of the system."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PATIENCE = 60.0
USER = "tester"


def programs() -> Path:
    """The folder of the server's programs; the test is skipped if there is none."""
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    for program in filter(None, found):
        folder = Path(program).parent
        if (folder / "postgres").exists():
            return folder
    pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")


def _plain_user() -> list[str]:
    """What to put before a command so that it does not run as root, which the server refuses."""
    if os.getuid() != 0:
        return []
    user = _somebody()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _somebody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@dataclass
class Server:
    """A server on a free port of the loopback interface, with data of its own."""

    folder: Path
    programs: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait for an answer to a query: an open port may still refuse them."""
        from adbc_driver_postgresql import dbapi

        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *_plain_user(),
                    str(self.programs / "postgres"),
                    *("-D", str(self.folder / "data"), "-p", str(self.port)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
                    *("-c", "fsync=off", "-c", "max_connections=20"),
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(dbapi.OperationalError):
                self.run("SELECT 1")
                break
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError((self.folder / "log").read_text())
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it: the process that was started, and no other."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
            self.process = None

    def run(self, *queries: str) -> None:
        """Have queries carried out, each in a transaction of its own."""
        from adbc_driver_postgresql import dbapi

        for query in queries:
            with dbapi.connect(self.url) as connection:
                with connection.cursor() as cursor:
                    cursor.execute(query)
                connection.commit()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A running server, gone at the end with all of its data."""
    pytest.importorskip("adbc_driver_postgresql")
    found = programs()
    folder = Path(tempfile.mkdtemp(prefix="streamshed-postgres-"))
    try:
        if os.getuid() == 0:
            user = _somebody()
            os.chown(folder, user.pw_uid, user.pw_gid)
        subprocess.run(
            [
                *_plain_user(),
                str(found / "initdb"),
                *("-D", str(folder / "data"), "-U", USER, "-A", "trust", "--no-sync"),
                *("-E", "UTF8", "--locale=C"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        started = Server(folder, found, port)
        started.start()
        try:
            yield started
        finally:
            started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
