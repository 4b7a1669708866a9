"""Tables of PostgreSQL, read as Arrow; and tables of changes, read as they grow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import pyarrow as pa

from streamshed.arguments import column_name
from streamshed.columns import no_rows
from streamshed.errors import InputError, SpecError, StreamshedError

_FIRST_PAUSE = 0.1
_URL = re.compile(r"postgres(ql)?://\S+")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Postgres:
    """A table of PostgreSQL; made by `postgres`.

    Attributes:
        url: of the database.
        table: its name, with that of the schema before a dot if need be.
        version: the column by which rows are told that were added since, or None.
        every: seconds between two looks at the table, at least.
        patience: seconds for which a database that cannot be reached is tried again.
    """

    url: str
    table: str
    version: str | None = None
    every: float = 1.0
    patience: float = 10.0

    def __repr__(self) -> str:
        return f"<table {self.table!r} of {self._place}>"

    @property
    def _place(self) -> str:
        """The database, without a password."""
        scheme, _, place = self.url.partition("?")[0].partition("//")
        return f"{scheme}//{place.rpartition('@')[2]}"

    @property
    def has_password(self) -> bool:
        """Whether the URL has a password, before the host or among the settings.

        Examples:
            >>> postgres("postgres://ann:secret@host/db", "facts").has_password
            True
            >>> postgres("postgres://ann@host:5432/db", "facts").has_password
            False
        """
        place, _, settings = self.url.partition("?")
        user = place.partition("//")[2].rpartition("@")[0]
        secret = {name for name, _ in parse_qsl(settings)} & {"password", "sslpassword"}
        return bool(user.partition(":")[2] or secret)

    def rows(self, what: str) -> pa.Table:
        """All rows of the table.

        Args:
            what: what they are, as it shall stand in a message.
        """
        return self._asked(what, f"SELECT * FROM {self._named}")

    def schema(self, what: str, columns: str = "*") -> pa.Schema:
        """The columns of the table, or some of them."""
        return self._asked(what, f"SELECT {columns} FROM {self._named} LIMIT 0").schema

    def news(self, what: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table, and those that are added; an empty batch if there are none now.

        A row is read once all transactions have ended that were there before its own: a version
        below those already read can then appear no more.
        """
        assert self.version is not None
        version = quoted(self.version)
        chosen = ", ".join(quoted(name) for name in columns)
        settled = "age(xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)"
        nothing = no_rows(self.schema(what, chosen))
        last, looked = None, -self.every
        while True:
            if time.monotonic() < looked + self.every:
                yield nothing
                continue
            looked = time.monotonic()
            after = f"{version} > {last}" if last is not None else "TRUE"
            found = self._asked(
                what,
                f"SELECT {chosen}, {version} AS __version FROM {self._named}"
                f" WHERE {after} AND {settled} ORDER BY {version}",
            )
            if found.num_rows:
                last = found.column("__version")[-1].as_py()
            yield from found.select(columns).combine_chunks().to_batches() or [nothing]

    @property
    def _named(self) -> str:
        return ".".join(quoted(part) for part in self.table.split("."))

    def _asked(self, what: str, query: str) -> pa.Table:
        """What a query finds; a database that cannot be reached is tried again for a while."""
        driver = _driver(what)

        def ask() -> pa.Table:
            with driver.connect(self.url, autocommit=True) as open_, open_.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetch_arrow_table()

        try:
            return _patiently(ask, driver.OperationalError, self.patience)
        except driver.OperationalError as error:
            raise InputError(
                f"{what}: {self._place} cannot be reached, for {self.patience:g} seconds now"
                f" ({_words(error)}); see that the server runs and may be connected to, then go on"
                " from the last checkpoint, or start anew"
            ) from error
        except driver.Error as error:
            raise InputError(
                f"{what}: table {self.table!r} of {self._place} cannot be read ({_words(error)});"
                " check the names of the table and of its columns"
            ) from error


def postgres(
    url: str,
    table: str,
    *,
    version: str | None = None,
    every: float = 1.0,
    patience: float = 10.0,
) -> Postgres:
    """Use a table of PostgreSQL as the rows of a relation, or as its changes.

    Args:
        url: The URL of the database, as in `"postgresql://user@host:5432/name"`.
        table: The name of the table, as in `"pairs"` or `"public.pairs"`.
        version: A column that is larger in each row than in all rows added before, such as a
            `bigserial`. The table is then a table of changes, which is read as it grows.
        every: The shortest time in seconds between two reads of such a table.
        patience: How many seconds to retry if the database cannot be reached.

    Example:
        >>> from streamshed import postgres, relation
        >>> log = postgres("postgresql://me:secret@db/shop", "pair_changes", version="version")
        >>> log
        <table 'pair_changes' of postgresql://db/shop>
        >>> relation(changes=log, name="pair")
        <relation 'pair'>
    """
    where = "postgres()"
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise SpecError(f"{where}: the URL is {url!r}; give one as 'postgresql://user@host/name'")
    column_name(table, f"{where}: the table")
    if version is not None:
        column_name(version, f"{where}: `version`")
    for said, name in ((every, "every"), (patience, "patience")):
        if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said < 1e9:
            raise SpecError(f"{where}: `{name}` is {said!r}; give seconds, 0 or more")
    return Postgres(url, table, version, every, patience)


def quoted(name: str) -> str:
    """A name as it stands in a query.

    Examples:
        >>> quoted("my table")
        '"my table"'
    """
    return '"' + name.replace('"', '""') + '"'


def _patiently(ask: Callable[[], Found], failure: type[Exception], patience: float) -> Found:
    """Ask until it succeeds, with pauses that become longer; the last failure is raised."""
    until, pause = time.monotonic() + patience, _FIRST_PAUSE
    while True:
        try:
            return ask()
        except failure:
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause *= 2


def _driver(what: str) -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise StreamshedError(
            f"{what}: PostgreSQL needs a driver that is not installed ({error}); install"
            " streamshed[postgres]"
        ) from error
    return dbapi


def _words(error: Exception) -> str:
    return " ".join(str(error).split())
