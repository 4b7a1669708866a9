"""Compiled kernels as files: in any of several folders, on any machine.

Entries are looked for in this order:

1. those that `adopt` was given, which are in memory;
2. the folder `_kernels` of the package, which wheels bring along;
3. the folders and zip archives that `STREAMSHED_KERNELS` lists, which are only read;
4. the folder that new ones are written to, see `writable_folder`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from numba.core import config

SUFFIX = ".kernel"
PACKAGE = Path(__file__).resolve().parent.parent

FOLDERS, WRITABLE = "STREAMSHED_KERNELS", "STREAMSHED_CACHE"
"""The variables that name folders to read, and the folder to write to."""
OFF = "off"
"""The value of `STREAMSHED_CACHE` with which nothing is written."""

_STALE = 30 * 24 * 3600

_log = logging.getLogger("streamshed")


class _Memory:
    """Entries that were handed to this process, or that it could not write."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def names(self) -> Iterable[str]:
        return tuple(self.held)

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)


class _Folder:
    """The entries of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> Iterable[str]:
        with contextlib.suppress(OSError):
            return [name for name in os.listdir(self.path) if name.endswith(SUFFIX)]
        return ()

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError):
            return (self.path / name).read_bytes()
        return None


class _Archive:
    """The entries of a zip file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @functools.cached_property
    def _zip(self) -> zipfile.ZipFile | None:
        with contextlib.suppress(OSError, zipfile.BadZipFile):
            return zipfile.ZipFile(self.path)
        return None

    def names(self) -> Iterable[str]:
        names = self._zip.namelist() if self._zip else []
        return [name for name in names if name.endswith(SUFFIX)]

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError, KeyError, zipfile.BadZipFile):
            return self._zip.read(name) if self._zip else None
        return None


_memory = _Memory()
_used: dict[str, bytes | Path] = {}
"""The entries that this process has loaded or made; where a file holds one, that."""


def sources() -> Iterator[_Memory | _Folder | _Archive]:
    """Yield where entries are looked for, in order."""
    yield _memory
    yield _Folder(PACKAGE / "_kernels")
    for text in os.environ.get(FOLDERS, "").split(os.pathsep):
        if text:
            yield _opened(Path(text))
    folder = writable_folder()
    if folder is not None:
        yield _Folder(folder)


@functools.cache
def _opened(path: Path) -> _Folder | _Archive:
    return _Archive(path) if path.is_file() else _Folder(path)


def find(name: str) -> bytes | None:
    """Read the entry of a name; None if there is none."""
    for source in sources():
        data = source.read(name)
        if data is not None:
            _used[name] = source.path / name if isinstance(source, _Folder) else data
            return data
    return None


def keep(name: str, data: bytes) -> None:
    """Write an entry, whole or not at all; without a folder it stays in memory."""
    folder = writable_folder()
    if folder is not None:
        try:
            _write(folder, name, data)
        except OSError as error:
            _log.debug("the kernel %s cannot be written: %s", name, error)
        else:
            _used[name] = folder / name
            return
    _used[name] = _memory.held[name] = data


def _write(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(unfinished, 0o666 & ~_umask())
        os.replace(unfinished, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    _remove_stale(folder, name)


@functools.cache
def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _remove_stale(folder: Path, name: str) -> None:
    """Remove entries for the same types that sources or versions of long ago have left."""
    same = name.rpartition("-")[0] + "-"
    for other in _Folder(folder).names():
        if other.startswith(same) and other != name:
            with contextlib.suppress(OSError):
                path = folder / other
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()


def writable_folder() -> Path | None:
    """Find the folder that new entries are written to; None: they stay in memory.

    The first of these that can be written to: `STREAMSHED_CACHE` (or nothing, if that says "off"),
    `NUMBA_CACHE_DIR`, the package's own `__pycache__`, the user's folder for caches, and one in the
    folder for temporary files, if nobody else can write there. Only the first two are final.
    """
    return _writable(os.environ.get(WRITABLE), config.CACHE_DIR)


@functools.cache
def _writable(asked: str | None, numbas: str | None) -> Path | None:
    if asked is not None and asked.lower() in ("", OFF):
        return None
    if asked or numbas:
        folder = Path(asked or Path(str(numbas)) / "streamshed").expanduser().absolute()
        if _can_write(folder):
            return folder
        _log.warning("compiled kernels are not kept: %s cannot be written to", folder)
        return None
    candidates = [PACKAGE / "__pycache__" / "kernels", *_caches_of_user()]
    for folder in candidates:
        if _can_write(folder):
            return folder
    return _private_folder()


def _caches_of_user() -> Iterator[Path]:
    for text, below in (
        (os.environ.get("XDG_CACHE_HOME"), "streamshed"),
        (os.environ.get("HOME"), ".cache/streamshed"),
    ):
        if text and Path(text).is_absolute():
            yield Path(text) / below


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _private_folder() -> Path | None:
    """A folder for temporary files that is ours alone: its code is run."""
    if not hasattr(os, "geteuid"):  # a system whose folder for temporary files is the user's own
        folder = Path(tempfile.gettempdir()) / "streamshed"
        return folder if _can_write(folder) else None
    try:
        folder = Path(tempfile.gettempdir()) / f"streamshed-{os.geteuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & 0o077 or not _can_write(folder):
        return None
    return folder


# -- to take elsewhere ---------------------------------------------------------------------------


def used() -> list[str]:
    """Name the entries that this process has loaded or made."""
    return sorted(_used)


def export() -> bytes:
    """Pack the entries that this process has loaded or made, as a zip file.

    A driver on one machine sends it, workers on others `adopt` it, and compile nothing.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _all_used():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def export_to(folder: Path) -> list[str]:
    """Copy the entries that this process has loaded or made to a folder; returns their names."""
    names = []
    for name, data in _all_used():
        _write(folder, name, data)
        names.append(name)
    return names


def adopt(packed: bytes) -> list[str]:
    """Take in what `export` has packed; returns the names. It is code: trust whom it is from."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        names = [name for name in archive.namelist() if name.endswith(SUFFIX)]
        _memory.held.update({name: archive.read(name) for name in names})
    return names


def _all_used() -> Iterator[tuple[str, bytes]]:
    for name in used():
        held = _used[name]
        data = held if isinstance(held, bytes) else _Folder(held.parent).read(name)
        if data is not None:
            yield name, data
