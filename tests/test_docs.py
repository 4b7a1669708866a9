"""Every example and command of README and docs: run, or checked as far as it can be here."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest
import typer

from pages import ON_SPARK, PAGES, README, ROOT, blocks, commands, run_examples
from streamshed import cli
from streamshed.jobs import Job

KINDS = {"bash", "java", "python", "sql", "text", "toml"}
"""What a block can be. `python` runs and prints the `text` after it; the options of `bash` are
checked; `toml` is a job; `sql` runs in tests/test_database.py; `java` is Flink's."""
EXTERNAL = {"docker", "export", "spark-submit"}
"""Programs that are not ours: their arguments are not checked."""

page_of = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@page_of
def test_every_block_says_what_it_is(page):
    for kind, _, line in blocks(page):
        assert kind in KINDS, f"{page.name}, line {line}: {kind or 'no kind'}"


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(block.kind == "python" for block in blocks(page))
        and (page == README or page not in ON_SPARK)
    ],
    ids=lambda page: page.name,
)
def test_the_examples_print_what_they_say(page):
    assert run_examples(page, {}, skip="pyspark" if page == README else None)


def test_the_examples_print_something():
    said = [block for page in PAGES for block in blocks(page) if block.kind == "text"]
    assert len(said) > 20


# -- commands -------------------------------------------------------------------------------------


@page_of
def test_the_commands_are_there_with_their_options(page):
    for command, line in commands(page):
        words = shlex.split(command)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # variables in front
            words.pop(0)
        program, *arguments = words
        where = f"{page.name}, line {line}: {command}"
        if program.startswith(".venv/bin/"):
            program = program.removeprefix(".venv/bin/")
        if program == "make":
            targets = [word for word in arguments if "=" not in word]
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            for target in targets:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), where
        elif program == "pip":
            check_install(arguments, where)
        elif program == "streamshed":
            check_streamshed(arguments, where)
        elif program == "python":
            check_python(arguments, where)
        else:
            assert program in EXTERNAL, where


def check_install(arguments, where):
    assert arguments[0] == "install", where
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for word in arguments[1:]:
        for extra in re.findall(r"\[(.*?)\]", word):
            assert set(extra.split(",")) <= set(extras), where


def check_streamshed(arguments, where):
    """Parse a command as the command line does, without running it."""
    group = typer.main.get_command(cli.app)
    name, *rest = arguments
    assert name in group.commands, where
    if name == "cluster":
        rest = rest[: next(i for i, word in enumerate(rest) if word == "python")]
    if ">" in rest:
        rest = rest[: rest.index(">")]
    # Raises a usage error for options and arguments that are not there.
    group.commands[name].make_context(name, rest)


def check_python(arguments, where):
    if arguments[0] == "-m":
        path = ROOT / "src" / (arguments[1].replace(".", "/") + ".py")
        assert path.is_file(), where
    else:
        assert (ROOT / arguments[0]).is_file(), where


def test_the_commands_name_every_command():
    """The page of commands has each of them."""
    group = typer.main.get_command(cli.app)
    said = {
        shlex.split(command)[1]
        for command, _ in commands(ROOT / "docs" / "jobs.md")
        if command.startswith("streamshed ")
    }
    assert said == {name for name, command in group.commands.items() if not command.hidden}


# -- other blocks ---------------------------------------------------------------------------------


def test_job_files_are_jobs(monkeypatch, tmp_path):
    monkeypatch.setenv("BROKERS", "broker:9092")
    jobs = [block for page in PAGES for block in blocks(page) if block.kind == "toml"]
    assert jobs
    for number, job in enumerate(jobs):
        file = tmp_path / f"{number}.toml"
        file.write_text(job.content, encoding="utf-8")
        assert "rows with equal keys" in Job.load(file).explain()


@page_of
def test_the_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[)#]", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_every_policy_has_its_part_and_its_chart():
    from streamshed.policies import NAMED

    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    for name in NAMED:
        assert f"### `{name}`" in page
        assert f"(images/policy-{name}.svg)" in page


def test_the_architecture_names_every_module_of_the_engine():
    """Whoever looks for a file finds it on the page, and what the page names is there."""
    source = ROOT / "src"
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    named = set(
        re.findall(r"[\w/]+\.py", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    )
    for name in named:
        assert name in there or any(path.endswith(f"/{name}") for path in there), name
    for path in there:
        _, room, *rest = path.split("/")
        if room in ("engine", "kernels", "plan") and rest[-1] != "__init__.py":
            assert any(path.endswith(f"/{name}") for name in named), path
