"""The fenced blocks of README and docs: how each kind is checked is in test_docs.py.

`PYTHONPATH=tests python -m pages PAGE…` writes what the examples of pages without Spark print now.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ON_SPARK = [README, ROOT / "docs" / "spark.md", ROOT / "docs" / "coming-from.md"]
"""Pages whose `python` blocks need Spark, as far as these name it; tests/spark runs them."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    kind: str
    content: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        yield Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)


def needs_spark(page: Path) -> bool:
    """Whether any example of a page needs Spark."""
    return page in ON_SPARK


def run_examples(
    page: Path,
    names: dict[str, object],
    skip: str | None = None,
    replace: Mapping[str, str] | None = None,
) -> int:
    """Run the `python` blocks of a page in order, and compare what they print.

    Args:
        page: the page.
        names: what the examples find defined.
        skip: leave out blocks that have this text.
        replace: texts of the blocks, and what stands in their place here.

    Returns:
        How many blocks ran.
    """
    ran, printed = 0, None
    for block in blocks(page):
        if block.kind == "python":
            printed = None
            if skip is None or skip not in block.content:
                code = block.content
                for text, other in (replace or {}).items():
                    code = code.replace(text, other)
                printed = _printed(page, block._replace(content=code), names)
                ran += 1
        elif block.kind == "text" and printed is not None:
            assert printed == block.content, f"{page.name}, line {block.line}"
            printed = None
    return ran


def write_outputs(page: Path, skip: str) -> None:
    """Write what the examples of a page print into the `text` blocks after them."""
    names: dict[str, object] = {}
    text, printed = page.read_text(encoding="utf-8"), None
    for block in list(blocks(page)):
        if block.kind == "python":
            printed = None if skip in block.content else _printed(page, block, names)
        elif block.kind == "text" and printed is not None:
            text = text.replace(f"```text\n{block.content}```", f"```text\n{printed}```", 1)
            printed = None
    page.write_text(text, encoding="utf-8")


def _printed(page: Path, block: Block, names: dict[str, object]) -> str:
    out = io.StringIO()
    # Empty lines in front, so that a traceback has the line of the page.
    code = compile("\n" * (block.line - 1) + block.content, str(page), "exec")
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def commands(page: Path) -> Iterator[tuple[str, int]]:
    """The commands of the `bash` blocks of a page, without comments, with their lines."""
    for kind, content, line in blocks(page):
        if kind == "bash":
            joined = content.replace("\\\n", " ")
            for offset, text in enumerate(joined.splitlines()):
                command = re.sub(r"(^|\s)#.*", "", text).strip()
                if command:
                    yield command, line + offset


if __name__ == "__main__":
    for _page in sys.argv[1:]:
        write_outputs(Path(_page), skip="pyspark")
