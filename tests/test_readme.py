"""The examples of the README run as they stand, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_print_what_they_say():
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    printed, compared = "", 0
    for kind, content in blocks:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, str(README), "exec"), names)
            printed = out.getvalue()
        elif kind == "text":
            assert printed == content
            compared += 1
    assert compared == sum(kind == "python" for kind, _ in blocks) >= 3


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
