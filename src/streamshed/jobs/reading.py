"""Reading a job file: TOML with the line of every key, and variables of the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamshed.errors import SpecError

Keys = tuple[str | int, ...]
"""The way to a value in a job: `("sources", "clicks", "format")`."""

_VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''[\s\S]*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'",
    re.DOTALL,
)


class JobError(SpecError):
    """A job that cannot run: change the job file.

    Attributes:
        problems: each thing that is wrong, with its line where there is a file.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Origin:
    """Where a job was read, to say where it is wrong; of a job made in Python nothing is known."""

    file: str | None = None
    lines: Mapping[Keys, int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What variables of the environment held, by their names; no message repeats it."""
    replaced: frozenset[Keys] = frozenset()
    """The values that have variables in them."""

    def hide(self, text: str) -> str:
        """A text without what variables of the environment held."""
        for name, value in self.secrets.items():
            if len(value) > 3:
                text = text.replace(value, f"${{{name}}}")
        return text

    def problem(self, keys: Keys, text: str) -> str:
        """A message with the place that it is about."""
        text = self.hide(text)
        where = ".".join(map(str, keys))
        said = f"{where}: {text}" if where else text
        if self.file is None:
            return said
        known = next((keys[:n] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), None)
        line = f":{self.lines[known]}" if known is not None else ""
        return f"{self.file}{line}: {said}"


def read_file(path: Path) -> tuple[dict[str, Any], Origin]:
    """The values of a job file with variables replaced, and where they stand."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise JobError([f"the job file {str(path)!r} cannot be read: {why}"]) from error
    return read_text(text, str(path))


def read_text(text: str, file: str) -> tuple[dict[str, Any], Origin]:
    r"""The values of the text of a job file with variables replaced, and where they stand.

    Example:
        >>> values, origin = read_text("[join]\nkeep = { total = 5 }\n", "job.toml")
        >>> origin.problem(("join", "keep", "total"), "it is small")
        'job.toml:2: join.keep.total: it is small'
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (?:line (\d+)|end of document)", str(error))
        line = place[1] if place and place[1] else str(text.rstrip("\n").count("\n") + 1)
        said = re.sub(r" \(at .*\)$", "", str(error))
        raise JobError([f"{file}:{line}: this is not TOML: {said}"]) from error
    return replaced(values, Origin(file, dict(_Lines(text).found())))


def replaced(values: Any, origin: Origin) -> tuple[Any, Origin]:
    """The values of a job with variables of the environment replaced, and where they stand."""
    secrets: dict[str, str] = {}
    problems: list[str] = []
    found: set[Keys] = set()

    def variable(match: re.Match[str], keys: Keys) -> str:
        escaped, name = match.groups()
        if escaped:
            return f"${{{name}}}"
        found.add(keys)
        if not _NAME.fullmatch(name):
            said = f"{match[0]!r} names no variable of the environment; write ${{NAME}}, or "
            problems.append(origin.problem(keys, f"{said}'$${{{name}}}' for the text itself"))
        elif name not in os.environ:
            said = f"the variable {name} is not set in the environment; set it, as in {name}=…"
            problems.append(origin.problem(keys, f"{said} streamshed run"))
        else:
            secrets[name] = os.environ[name]
        return os.environ.get(name, "")

    def replace_in(value: Any, keys: Keys) -> Any:
        if isinstance(value, Mapping):
            return {name: replace_in(part, (*keys, name)) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [replace_in(part, (*keys, place)) for place, part in enumerate(value)]
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: variable(match, keys), value)
        return value

    values = replace_in(values, ())
    if problems:
        raise JobError(problems)
    return values, replace(origin, secrets=secrets, replaced=frozenset(found))


class _Lines:
    """Finds the line of every key in a text that is known to be TOML.

    Python's reader does not tell them.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def found(self) -> Iterator[tuple[Keys, int]]:
        """The way to each key, and its line."""
        table: Keys = ()
        arrays: dict[Keys, int] = {}
        self._skip()
        while self.at < len(self.text):
            line = self._line()
            if self.text.startswith("[", self.at):
                several = self.text.startswith("[[", self.at)
                self.at += 2 if several else 1
                table = self._within(self._key(), arrays)
                self.at += 2 if several else 1
                if several:
                    arrays[table] = arrays.get(table, -1) + 1
                    yield table, line
                    table = (*table, arrays[table])
                yield table, line
            else:
                yield from self._pair(table)
            self._skip()

    @staticmethod
    def _within(key: Keys, arrays: Mapping[Keys, int]) -> Keys:
        """The way to a table, through the last elements of the arrays of tables it is in."""
        way: Keys = ()
        for place, name in enumerate(key):
            way = (*way, name)
            if way in arrays and place < len(key) - 1:
                way = (*way, arrays[way])
        return way

    def _pair(self, table: Keys) -> Iterator[tuple[Keys, int]]:
        line = self._line()
        way = (*table, *self._key())
        for end in range(len(table) + 1, len(way) + 1):
            yield way[:end], line
        self.at += 1  # =
        self._skip()
        yield from self._value(way)

    def _value(self, way: Keys) -> Iterator[tuple[Keys, int]]:
        string = _STRING.match(self.text, self.at)
        if string:
            self.at = string.end()
        elif self.text[self.at] == "[":
            yield from self._elements(way)
        elif self.text[self.at] == "{":
            self.at += 1
            self._skip()
            while self.text[self.at] != "}":
                yield from self._pair(way)
                self._comma()
            self.at += 1
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\r\n":
                self.at += 1

    def _elements(self, way: Keys) -> Iterator[tuple[Keys, int]]:
        self.at += 1
        self._skip()
        place = 0
        while self.text[self.at] != "]":
            yield (*way, place), self._line()
            yield from self._value((*way, place))
            self._comma()
            place += 1
        self.at += 1

    def _comma(self) -> None:
        self._skip()
        if self.text[self.at] == ",":
            self.at += 1
            self._skip()

    def _key(self) -> Keys:
        parts: list[str] = []
        while True:
            self._skip()
            string = _STRING.match(self.text, self.at)
            bare = string or _BARE.match(self.text, self.at)
            assert bare is not None
            parts.append(tomllib.loads(f"x = {bare[0]}")["x"] if string else bare[0])
            self.at = bare.end()
            self._skip()
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1
