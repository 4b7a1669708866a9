"""Changing the budget and the policy in a job file, and leaving all else as it stands."""

from __future__ import annotations

import json
import os
from pathlib import Path

from streamshed.errors import StreamshedError
from streamshed.jobs.job import with_paths
from streamshed.jobs.options import build
from streamshed.jobs.reading import JobError, Keys, Origin, read_text
from streamshed.join import Join

_CHANGED = ("keep", "shed")


def rewrite(text: str, rows: int, policy: str | None) -> str:
    r"""The text of a job file with another budget and policy.

    Args:
        text: The job file.
        rows: The rows that all streams together may keep.
        policy: The policy, or None for that of the join by default.

    Example:
        >>> print(rewrite('[join]\non = "k" # the key\nkeep = { total = 5 }\n', 9, "output"))
        [join]
        keep = { total = 9 }
        shed = "output"
        on = "k" # the key
    """
    values, origin = read_text(text, "")
    lines = text.splitlines()
    for option in sorted((_lines_of(origin, key) for key in _CHANGED), reverse=True):
        del lines[slice(*option)]
    header = origin.lines.get(("join",))
    said = [f"keep = {{ total = {rows} }}"]
    if policy is not None:
        said.append(f"shed = {json.dumps(policy)}")
    if header is None or lines[header - 1].strip().partition("#")[0].strip() != "[join]":
        raise _refused(said)
    lines[header:header] = said
    made = "\n".join(lines).rstrip("\n")
    try:
        found, _ = read_text(made, "")
    except JobError as error:
        raise _refused(said) from error
    expected = {name: one for name, one in values["join"].items() if name not in _CHANGED}
    expected["keep"] = {"total": rows}
    if policy is not None:
        expected["shed"] = policy
    if found != {**values, "join": expected}:
        raise _refused(said)
    return made


def rewrite_file(file: Path, to: Path, joined: Join, rows: int, policy: str | None) -> None:
    """Write a job file with another budget and policy: that of the join given.

    Paths in it lead where they led, also from another folder.
    """
    made = rewrite(file.read_text(encoding="utf-8"), rows, policy)
    made = _moved(made, file.absolute().parent, to.absolute().parent)
    values, _ = read_text(made, str(to))
    again, _ = build(list(values["sources"]), values["join"])
    assert again == joined
    try:
        to.write_text(made + "\n", encoding="utf-8")
    except OSError as error:
        raise StreamshedError(f"{str(to)!r} cannot be written: {error.strerror}") from error


def _moved(text: str, folder: Path, to: Path) -> str:
    """The text of a job file with its relative paths as they are seen from another folder."""
    if folder == to:
        return text
    values, origin = read_text(text, "")
    lines = text.splitlines()

    def change(keys: Keys, path: str) -> str:
        seen = Path(os.path.relpath(folder / path, to)).as_posix()
        at = origin.lines[keys] - 1
        for quote in "\"'":
            lines[at] = lines[at].replace(f"{quote}{path}{quote}", f"{quote}{seen}{quote}", 1)
        return seen

    expected = with_paths(values, change)
    made = "\n".join(lines)
    if read_text(made, "")[0] != expected:
        raise StreamshedError(
            "the paths in the job file are not written as this command can change them; write the "
            f"new file into the folder of the old one, {str(folder)!r}"
        )
    return made


def _lines_of(origin: Origin, key: str) -> tuple[int, int]:
    """The first line of an option of the join, counted from 0, and the one after its last."""
    own = [line for keys, line in origin.lines.items() if keys[:2] == ("join", key)]
    return (min(own) - 1, max(own)) if own else (0, 0)


def _refused(said: list[str]) -> StreamshedError:
    return StreamshedError(
        f"the job file is not written as this command can change it; set in its table [join]: "
        f"{'; '.join(said)}"
    )
