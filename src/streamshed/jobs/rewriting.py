"""Changing the budget and the policy in a job file, and leaving all else as it stands."""

from __future__ import annotations

import json
from pathlib import Path

from streamshed.errors import StreamshedError
from streamshed.jobs.options import build
from streamshed.jobs.reading import JobError, Origin, read_text
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
    """Write a job file with another budget and policy: that of the join given."""
    made = rewrite(file.read_text(encoding="utf-8"), rows, policy)
    values, _ = read_text(made, str(to))
    again, _ = build(list(values["sources"]), values["join"])
    assert again == joined
    to.write_text(made + "\n", encoding="utf-8")


def _lines_of(origin: Origin, key: str) -> tuple[int, int]:
    """The first line of an option of the join, counted from 0, and the one after its last."""
    own = [line for keys, line in origin.lines.items() if keys[:2] == ("join", key)]
    return (min(own) - 1, max(own)) if own else (0, 0)


def _refused(said: list[str]) -> StreamshedError:
    return StreamshedError(
        f"the job file is not written as this command can change it; set in its table [join]: "
        f"{'; '.join(said)}"
    )
