"""Parts of a page that a program writes, between their marks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def put(page: Path, parts: Mapping[str, str]) -> None:
    """Write parts of a page anew: each stands between `<!-- name -->` and `<!-- end -->`."""
    page.write_text(with_parts(page.read_text(encoding="utf-8"), parts), encoding="utf-8")


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """A page's text with parts written anew; a part without its mark is an error."""
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", "<!-- end -->"
        between = re.compile(f"{re.escape(begin)}.*?{end}", re.DOTALL)
        written = f"{begin}\n{part}\n{end}"
        text, found = between.subn(lambda _, written=written: written, text)  # type: ignore[misc]
        if not found:
            raise ValueError(f"the page has no part {begin}")
    return text
