"""The examples of the README and of pages run as they stand, and print what is said."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
PAGES = {README: 1, DOCS / "guide.md": 3, DOCS / "network.md": 1}
"""Pages with examples, and how many these have at least."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_print_what_they_say(page):
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    printed, compared = "", 0
    for kind, content in blocks:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, str(page), "exec"), names)
            printed = out.getvalue()
        elif kind == "text":
            assert printed == content
            compared += 1
    assert compared == sum(kind == "python" for kind, _ in blocks) >= PAGES[page]


@pytest.mark.parametrize("page", [README, *DOCS.glob("*.md")], ids=lambda page: page.name)
def test_the_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[)#]", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_architecture_names_every_module_of_the_engine():
    """Whoever looks for a file finds it on the page, and what the page names is there."""
    source = README.parent / "src"
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    named = set(re.findall(r"[\w/]+\.py", (DOCS / "architecture.md").read_text(encoding="utf-8")))
    for name in named:
        assert name in there or any(path.endswith(f"/{name}") for path in there), name
    for path in there:
        _, room, *rest = path.split("/")
        if room in ("engine", "kernels", "plan") and rest[-1] != "__init__.py":
            assert any(path.endswith(f"/{name}") for name in named), path
