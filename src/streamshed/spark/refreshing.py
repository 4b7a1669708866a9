"""A relation, or a table among the inputs, that is read anew while a query runs (`refresh`).

The driver reads it and hands out each version as files. A version counts for all batches that begin
at a moment or later. Spark writes down when a batch began, so that a batch that is done again has
the version that it had. Versions may be kept in a folder too, so that this also holds after a
restart of the driver. Running queries of Spark Connect get no new files: there, workers fetch them
from that folder.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import pickle
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark import SparkFiles

from streamshed.engine.checkpoint import from_ipc, ipc_buffer
from streamshed.errors import SpecError, StateError
from streamshed.plan.plan import Plan, RelationPlan
from streamshed.relations import Relation
from streamshed.spark.folders import checked_folder, file_system, written_at_once
from streamshed.spark.settings import context_of
from streamshed.spark.shipping import Writer, hand_out, path_of, private_folder, relation_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("streamshed.spark")

_HANDED = "/handed-out"
"""Where in the folder the files are that workers fetch from there."""
_AHEAD = 2_000_000
"""Microseconds from which on a version counts that is handed out now: batches that begin later find
it wherever they run, and so does a batch that is done again."""
_NEEDED = 600_000_000
"""Microseconds for which a version is kept in the folder after the next one counts: a batch that
began before, and lasts as long, is done again with it."""


@dataclass(frozen=True)
class Versions:
    """The versions that executors have, by the moments from which they count.

    Attributes:
        token: how the names of their files begin.
        first: the moment from which on they are known; before it there is the one that the query
            began with.
        folder: where workers fetch the files, if Spark does not hand them out.
    """

    token: str
    first: int | None = None
    folder: str | None = None

    def at(self, moment: int) -> tuple[RelationPlan, ...] | None:
        """The parts of the relation that count at a moment; None for those of the plan.

        Args:
            moment: when a batch began, in microseconds.
        """
        if self.first is not None and moment < self.first:
            raise StateError(
                f"the version of the relation in use at {_written(moment)} has been removed, and"
                f" the oldest left is of {_written(self.first)}; a batch that began then cannot be"
                " repeated"
            )
        begun = [name for name in self._names() if _since(name) <= moment]
        if not begun:
            if self.folder is not None:
                raise StateError(
                    f"this executor finds no version of the relation in {self.folder!r}; let"
                    " `versions` be a folder, or a URI, that the client and all executors share"
                )
            return None
        newest = max(begun, key=_since)
        self._fetch(newest)
        rows, parts = _version(newest)
        self._fetch(rows)
        return parts

    def _names(self) -> list[str]:
        """The files that say what counts from some moment on."""
        begin = f"{self.token}-since-"
        if self.folder is None:
            return [path.name for path in Path(SparkFiles.getRootDirectory()).glob(f"{begin}*")]
        system, root = file_system(self.folder)
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return [info.base_name for info in found if info.base_name.startswith(begin)]

    def _fetch(self, file: str) -> None:
        """Have a copy where all workers of this executor look for it."""
        if self.folder is None or path_of(file).is_file():
            return
        system, root = file_system(self.folder)
        copy = Path(SparkFiles.getRootDirectory()) / file
        begun = copy.with_name(f".{file}.{uuid.uuid4().hex}")
        with system.open_input_stream(f"{root}/{file}") as read, begun.open("wb") as written:
            shutil.copyfileobj(read, written)
        os.replace(begun, copy)


def _written(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment / 1e6))


def _since(file: str) -> int:
    return int(file.rpartition("-")[2])


@lru_cache(maxsize=2)
def _version(file: str) -> tuple[str, tuple[RelationPlan, ...]]:
    """The file that has the rows of a version, and its parts."""
    found: tuple[str, tuple[RelationPlan, ...]] = pickle.loads(path_of(file).read_bytes())
    return found


class _Kept(NamedTuple):
    """A version in the folder."""

    since: int
    digest: str


@dataclass(frozen=True)
class VersionFolder:
    """The versions of a relation in a folder: files of rows, and one for each version.

    Only the poller that began last writes: one that a driver has left behind must not add versions
    that the batches of another have not seen.

    Attributes:
        system: the file system.
        root: the folder there.
        relation: as a message names it.
        token: of the poller that began last.
    """

    system: fs.FileSystem
    root: str
    relation: str
    token: str

    @classmethod
    def of(cls, relation: Relation, token: str) -> VersionFolder | None:
        """The folder of a relation, from now on that of one poller; None if it has none."""
        if relation.versions is None:
            return None
        checked = checked_folder(relation.versions, f"{relation.what} {relation.name!r}: versions")
        system, root = file_system(checked)
        folder = cls(system, root.rstrip("/"), f"{relation.what} {relation.name!r}", token)
        with written_at_once(system, f"{folder.root}/owner") as file:
            file.write(token.encode())
        return folder

    def is_mine(self) -> bool:
        """Whether no other poller has begun since."""
        with self.system.open_input_stream(f"{self.root}/owner") as file:
            return bool(file.read() == self.token.encode())

    def kept(self) -> list[_Kept]:
        """The versions, in order."""
        names = (
            found.base_name.split("-") for found in self.system.get_file_info(self._selector())
        )
        return sorted(
            _Kept(int(name[1]), name[2]) for name in names if name[0] == "since" and len(name) == 3
        )

    def rows(self, digest: str, schema: pa.Schema) -> pa.RecordBatch:
        """The rows of a version."""
        with self.system.open_input_file(f"{self.root}/rows-{digest}") as file:
            rows = from_ipc(file.read_buffer())
        if missing := set(schema.names) - set(rows.schema.names):
            raise SpecError(
                f"{self.relation}: the versions in {self.root!r} lack the column"
                f" {min(missing)!r}, which the join needs now; give another folder"
            )
        return rows.select(schema.names)

    def keep(self, digest: str, rows: pa.RecordBatch) -> None:
        """Keep rows, of which a version will be."""
        path = f"{self.root}/rows-{digest}"
        if self.system.get_file_info(path).type == fs.FileType.NotFound:
            with written_at_once(self.system, path) as file:
                file.write(ipc_buffer(rows, compressed=True))

    def begin(self, version: _Kept) -> None:
        """Let a version count, and remove those that no batch needs any more."""
        with written_at_once(self.system, self._path(version)):
            pass
        kept = self.kept()
        over = [
            old for old, after in itertools.pairwise(kept) if after.since < version.since - _NEEDED
        ]
        for old in over:
            self.system.delete_file(self._path(old))
        left = kept[len(over) :]
        for digest in {old.digest for old in over} - {each.digest for each in left}:
            self.system.delete_file(f"{self.root}/rows-{digest}")
        needed = {name for each in left for name in _files(self.token, each)}
        for found in self.system.get_file_info(self._selector(_HANDED)):
            if found.base_name not in needed:
                self.system.delete_file(found.path)

    def hand_out(self, path: Path) -> None:
        """Let workers that fetch files from here find one."""
        to = f"{self.root}{_HANDED}/{path.name}"
        if self.system.get_file_info(to).type == fs.FileType.NotFound:
            with written_at_once(self.system, to) as written, path.open("rb") as file:
                shutil.copyfileobj(file, written)

    def take_back(self, version: _Kept) -> None:
        """Let a version not count after all."""
        self.system.delete_file(self._path(version))

    def _path(self, version: _Kept) -> str:
        return f"{self.root}/since-{version.since:020d}-{version.digest}"

    def _selector(self, below: str = "") -> fs.FileSelector:
        return fs.FileSelector(self.root + below, allow_not_found=True)


def _files(token: str, version: _Kept) -> tuple[str, str]:
    """The files that are handed out of a version: its rows, and from when on they count."""
    return f"{token}-rows-{version.digest}", f"{token}-since-{version.since}"


def follow(
    plan: Plan, rows: pa.RecordBatch | None, session: SparkSession, shards: int
) -> Versions | None:
    """Read a relation anew as often as it says, and hand out its versions.

    Args:
        plan: the join, with the relation as the user gave it.
        rows: as they were read now.
        session: of Spark.
        shards: in which the facts are divided.

    Returns:
        Where workers find the versions; None if it is read once.
    """
    assert plan.through is not None
    relation = plan.through.relation
    if relation.refresh is None or rows is None:
        return None
    said = f"{relation.what} {relation.name!r}: `refresh`"
    apart = context_of(session) is None
    if apart and relation.versions is None:
        raise SpecError(
            f"{said} needs `versions` on Spark Connect, whose running queries get no new files;"
            " give a folder, or a URI, that this process and the executors share"
        )
    token = uuid.uuid4().hex
    folder = VersionFolder.of(relation, token)
    poller = _Poller(plan, session, token, shards, folder, apart)
    first = poller.begin(rows)
    threading.Thread(target=poller.run, name=f"refresh {relation.name}", daemon=True).start()
    if not apart or relation.versions is None:
        return Versions(token, first)
    return Versions(token, first, checked_folder(relation.versions, "versions") + _HANDED)


@dataclass
class _Poller:
    """Reads a relation anew now and then, and hands it out if it has changed."""

    plan: Plan
    session: SparkSession
    token: str
    shards: int
    folder: VersionFolder | None
    apart: bool
    """Whether workers fetch from the folder what is handed out."""
    digest: str = ""
    place: Path = field(default_factory=private_folder)
    handed: dict[str, tuple[RelationPlan, ...]] = field(default_factory=dict)

    def begin(self, rows: pa.RecordBatch) -> int | None:
        """Hand out the versions that are kept, and the one that was read now if it is another.

        Returns:
            The moment from which on versions are known, if any were kept.
        """
        assert self.plan.through is not None
        kept = [] if self.folder is None else self.folder.kept()
        if self.folder is None or not kept:
            self.digest = _digest(rows)
            if self.folder is not None:
                self.folder.keep(self.digest, rows)
                self.folder.begin(_Kept(0, self.digest))
            if self.apart:
                self._hand_out(self.digest, rows)
                self._point(_Kept(0, self.digest))
            return None
        for version in kept:
            if version.digest not in self.handed:
                self._hand_out(
                    version.digest, self.folder.rows(version.digest, self.plan.through.schema)
                )
            self._point(version)
        self.digest = kept[-1].digest
        self._read(rows)
        return kept[0].since

    def run(self) -> None:
        """Do so until Spark stops, or another poller has the folder."""
        assert self.plan.through is not None
        relation = self.plan.through.relation
        assert relation.refresh is not None
        while True:
            time.sleep(relation.refresh / 1e6)
            if _is_stopped(self.session):
                return
            try:
                if self.folder is not None and not self.folder.is_mine():
                    return
                rows = relation_rows(replace(self.plan.through, relation=relation.anew()))
                if rows is not None:
                    self._read(rows)
            except Exception as error:
                if _is_stopped(self.session):
                    return
                logger.warning(
                    "%s %r cannot be read anew (%s); rows match what was read before",
                    relation.what,
                    relation.name,
                    error,
                )

    def _read(self, rows: pa.RecordBatch) -> None:
        """Hand out rows that were read now, if they have changed."""
        digest = _digest(rows)
        if digest == self.digest:
            return
        self._hand_out(digest, rows)
        ahead = _AHEAD
        version = _Kept(_now(self.session) + ahead, digest)
        if self.folder is not None:
            self.folder.keep(digest, rows)
            self.folder.begin(version := _Kept(_now(self.session) + ahead, digest))
            while _now(self.session) > version.since - _AHEAD // 2:
                # It took so long that a batch may begin before executors know of it.
                self.folder.take_back(version)
                ahead *= 2
                self.folder.begin(version := _Kept(_now(self.session) + ahead, digest))
        self._point(version)
        self.digest = digest
        assert self.plan.through is not None
        relation = self.plan.through.relation
        logger.info("%s %r has changed: %s rows", relation.what, relation.name, rows.num_rows)

    def _hand_out(self, digest: str, rows: pa.RecordBatch) -> None:
        """Let every executor have rows."""
        path = self.place / f"{self.token}-rows-{digest}"
        if digest in self.handed:  # long ago, maybe, and removed from the folder since
            return self._give(path)
        with Writer(path, self._give) as told:
            self.handed[digest] = told.parts(self.plan, rows, self.shards)[0]

    def _point(self, version: _Kept) -> None:
        """Let a version of rows that were handed out count from its moment on."""
        rows, since = _files(self.token, version)
        path = self.place / since
        path.write_bytes(pickle.dumps((rows, self.handed[version.digest])))
        self._give(path)

    def _give(self, path: Path) -> None:
        """Let every executor have a file."""
        if self.apart and self.folder is not None:
            self.folder.hand_out(path)
        else:
            hand_out(path, self.session)


def _now(session: SparkSession) -> int:
    """Microseconds of the clock by which Spark says when a batch began: its driver's."""
    if context_of(session) is not None:
        return time.time_ns() // 1000
    return int(session.sql("SELECT unix_micros(current_timestamp())").collect()[0][0])


def _is_stopped(session: SparkSession) -> bool:
    context = context_of(session)
    if context is None:
        client: Any = session
        return bool(client.is_stopped)
    return getattr(context, "_jsc", None) is None


def _digest(rows: pa.RecordBatch) -> str:
    """Differs for rows that differ."""
    return hashlib.sha256(ipc_buffer(rows)).hexdigest()
