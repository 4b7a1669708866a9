"""The notebooks of the examples run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from databases import server

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"


def cells(name: str) -> list[str]:
    """The code of a notebook."""
    book = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert book["nbformat"] == 4
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


def run(name: str) -> None:
    names: dict[str, object] = {}
    for number, code in enumerate(cells(name)):
        exec(compile(code, f"{name}, cell {number}", "exec"), names)


def test_each_is_here():
    found = {path.stem for path in FOLDER.glob("*.ipynb")}
    assert found == {"attribution", "honeypots", "postgres", "sensors"}


@pytest.mark.parametrize("name", ["attribution", "honeypots", "sensors"])
def test_a_notebook_runs(name):
    run(name)


def test_the_notebook_of_postgres_runs(monkeypatch):
    with server() as started:
        monkeypatch.setenv("DATABASE_URL", started.url)
        run("postgres")


def test_no_notebook_keeps_what_it_printed():
    """So that a diff shows what was changed."""
    for path in FOLDER.glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), path.name
