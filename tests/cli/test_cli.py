"""The command line: what it prints, and how it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fake_queries import Query
from streamshed import StreamshedError, __version__, cli, join, terminal

JOB = str(Path(__file__).parents[2] / "examples" / "jobs" / "rate.toml")
WINDOW = ["--on", "k", "--within", "10 minutes", "--time", "ts"]


def run(*arguments: str, code: int = 0):
    done = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def files(tmp_path):
    """Two streams: NAME=PATH, and the tables."""
    random = np.random.default_rng(0)
    tables = {
        name: pa.table(
            {
                "k": random.integers(0, 20, 200),
                "ts": pa.array(np.sort(random.integers(0, 3600, 200))).cast(pa.timestamp("s")),
                "price": random.random(200),
            }
        )
        for name in "ab"
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return [f"{name}={tmp_path / name}.parquet" for name in tables], tables


SAID = join("a", "b").on("k").within("10 minutes", time="ts")


def test_replay_prints_the_ledger_and_writes_the_results(files, tmp_path):
    inputs, tables = files
    out = tmp_path / "results.parquet"
    done = run("replay", *inputs, *WINDOW, "--out", out)
    expected = SAID.replay(tables)
    assert done.stdout.strip() == str(expected.ledger)
    written = pq.read_table(out)
    assert written.num_rows == expected.table.num_rows > 100
    assert written["a"].to_pylist() == expected.table["a"].to_pylist()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.parquet",
        "b.parquet",
        "results.parquet",
    ]


def test_replay_writes_the_columns_that_are_chosen(files, tmp_path):
    inputs, tables = files
    out = tmp_path / "results.parquet"
    chosen = ["--select", "b.price", "--select", "b.k"]
    done = run("replay", *inputs, *WINDOW, *chosen, "--out", out)
    expected = SAID.select("b.price", "b.k").replay(tables)
    assert done.stdout.strip() == str(SAID.replay(tables).ledger)
    assert pq.read_table(out).to_pylist() == expected.table.to_pylist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*WINDOW], SAID),
        (["--on", "a=k", "--on", "b=k", *WINDOW[2:]], SAID),
        ([*WINDOW[:4], "--time", "a=ts", "--time", "b=ts", "--late", "5 s"], SAID),
        (
            [*WINDOW, "--clock", "max", "--keep-total", "20"],
            SAID.within("10 minutes", time="ts", clock="max").keep(total=20),
        ),
        ([*WINDOW, "--keep-memory", "50 MB"], SAID.keep(memory="50 MB")),
        (
            [*WINDOW, "--keep-rows", "9", "--shed-column", "price"],
            SAID.keep(rows=9).shed(column="price"),
        ),
        (
            [*WINDOW, "--keep-rows", "9", "--shed", "random", "--seed", "7", "--partial", "2"],
            SAID.keep(rows=9).shed("random").seed(7).partial(2),
        ),
        (["--on", "k", "--last", "5", "--time", "ts"], join("a", "b").on("k").last(5, time="ts")),
        (["--on", "k", "--last", "5"], join("a", "b").on("k").last(5)),
    ],
)
def test_the_options_of_replay_say_a_join(files, options, said):
    inputs, tables = files
    assert run("replay", *inputs, *options).stdout.strip() == str(said.count(tables))


def test_replay_of_streams_named_by_a_column(files, tmp_path):
    _, tables = files
    both = pa.concat_tables(
        [rows.append_column("who", pa.array([name] * 200)) for name, rows in tables.items()]
    ).sort_by("ts")
    pq.write_table(both, tmp_path / "both.parquet")
    done = run("replay", f"events={tmp_path}/both.parquet", "--by", "who", *WINDOW)
    expected = join(by="who").on("k").within("10 minutes", time="ts").count(both)
    assert done.stdout.strip() == str(expected)


def test_late_rows_are_noted(files, tmp_path):
    inputs, tables = files
    shuffled = tables["a"].take(np.random.default_rng(0).permutation(200))
    pq.write_table(shuffled, tmp_path / "a.parquet")
    done = run("replay", *inputs, *WINDOW)
    assert "note: rows came out of order" in done.stderr
    assert sum(not line.startswith("compiling") for line in done.stderr.splitlines()) == 1


def test_compile_writes_the_kernels_of_a_join_to_a_folder_and_an_archive(monkeypatch, tmp_path):
    from streamshed import precompile
    from streamshed.kernels import kernel_files
    from streamshed.kernels.merge import running_maximum

    class Tiny:
        def warm(self):
            running_maximum(np.arange(3), np.zeros(3, bool), 0)

    monkeypatch.setattr(precompile, "_operators", lambda _: [Tiny()])
    folder, archive = tmp_path / "folder", tmp_path / "kernels.zip"
    done = run("compile", "exact", code=2)
    assert "there is no join 'exact' to compile" in done.stderr
    done = run("compile", "density", "--to", str(folder), "--archive", str(archive))
    assert "key:density: " in done.stderr
    assert f"kernels in {folder} and {archive}" in done.stdout
    names = {path.name for path in folder.iterdir()}
    assert names == {*zipfile.ZipFile(archive).namelist()} == {*kernel_files.used()}
    assert any(name.startswith("merge.running_maximum-") for name in names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "a.parquet", *WINDOW], ["'a.parquet'", "clicks=clicks.parquet"]),
        (["replay", "a=1", "a=2", *WINDOW], ["'a'", "twice"]),
        (["replay", "a=1", *WINDOW], ["'a'", "at least two"]),
        (["replay", "a=no.parquet", "b=no.parquet", *WINDOW], ["stream 'a'", "no.parquet"]),
        (["replay", "a=1", "b=2", "--on", "k"], ["stream 'a'", "'1'"]),
        (["replay", "a=1", "b=2", "--on", "k", "--within", "1 s"], ["--time"]),
        (["replay", "a=1", "b=2", "--on", "k", "--within", "soon", "--time", "ts"], ["'soon'"]),
        (["replay", "a=1", "b=2", "--on", "k", "--on", "a=x"], ["'k'", "--on clicks=ad_id"]),
        (
            ["replay", "a=1", "b=2", "--on", "a.x = b.x", "--last", "5"],
            ["--on 'a.x = b.x'", "key columns only", "STREAM=COLUMN"],
        ),
        (["replay", "a=1", "b=2", *WINDOW, "--shed", "oldst"], ["'oldst'", "oldest"]),
        (["replay", "a=1", "b=2", *WINDOW, "--select", "c.x"], ["no stream 'c'", "'a', 'b'"]),
        (["replay", "a=1", "b=2", *WINDOW, "--clock", "mid"], ["'mid'", "'min' or 'max'"]),
        # None of these takes the time that Spark needs to start.
        (["run", "no.toml"], ["'no.toml'", "No such file"]),
        (["run", "no.toml", "--dry-run", "--set", "x"], ["'x'", "spark.executor.memory=4g"]),
        (["sample", JOB, "to", "--keys", "2"], ["`keys` is 2.0", "from 0 to 1"]),
        (["sample", JOB, "to", "--for", "soon"], ["the time is 'soon'"]),
        (["tune", JOB, "gone"], ["'gone'", "sample.json: No such file"]),
        (["tune", JOB, "--write", "no/job.toml"], ["--write", "no folder 'no'"]),
        (["tune", JOB, "--html", "no/a.html"], ["--html", "no folder 'no'"]),
        (["demo", "--here", "--chart", "no/a.svg"], ["--chart", "no folder 'no'"]),
        (["inspect", "gone"], ["no checkpoint of a join in 'gone'"]),
        (["savepoint", "gone", "to"], ["no checkpoint of a join in 'gone'"]),
        (["demo", "--policy", "oldst"], ["'oldst'", "did you mean 'oldest'?"]),
        (["demo", "--here", "--policy", "oldst"], ["'oldst'", "did you mean 'oldest'?"]),
        (
            ["demo", "--policy", "oldest", "--policy", "random"],
            ["one policy", "'random'", "--here"],
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments, words, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run(*arguments, code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


def test_a_run_that_fails_leaves_the_earlier_results_alone(files, tmp_path):
    inputs, _ = files
    out = tmp_path / "results.parquet"
    out.write_text("earlier")
    broken = pa.table({"k": [1], "ts": pa.array([2**62], pa.timestamp("us"))})
    pq.write_table(broken, tmp_path / "b.parquet")
    done = run("replay", *inputs, *WINDOW, "--out", out, code=2)
    assert "stream 'b', column 'ts'" in done.stderr
    assert out.read_text() == "earlier"
    assert not list(tmp_path.glob(".*"))
    done = run("replay", *inputs, *WINDOW, "--out", tmp_path / "no folder" / "x", code=2)
    assert "cannot be written" in done.stderr


JAVA = """#!/bin/sh
echo 'openjdk version "11.0.2" 2019-01-15' >&2
"""


@pytest.mark.parametrize("command", ["demo", "cluster"])
def test_what_needs_spark_says_so_where_it_cannot_run(command, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    shown = run(command, code=2).stderr
    for words in ("Java: not found", "17 or later", "JAVA_HOME", "demo --here"):
        assert words in shown
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o755)
    assert "11.0.2" in run(command, code=2).stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'streamshed[spark]'" in run(command, code=2).stderr


def test_workers_of_spark_are_this_python_with_this_package(monkeypatch):
    monkeypatch.setattr(terminal, "java_version", lambda: (17, ""))
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    terminal.prepare_spark()
    terminal.prepare_spark()
    package = Path(cli.__file__).parents[2]
    assert os.environ["PYTHONPATH"] == f"{package}{os.pathsep}elsewhere"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_doctor_says_what_is_there_and_what_to_do(monkeypatch, tmp_path):
    shown = run("doctor").stdout
    for words in (
        "python",
        "numba",
        "pyarrow",
        "java",
        "kernel cache",
        "/dev/shm",
        "cores",
        "port",
    ):
        assert words in shown
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    monkeypatch.setenv("STREAMSHED_CACHE", "off")
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    found = {check["what"]: check for check in json.loads(run("doctor", "--json", code=1).stdout)}
    assert found["java"]["state"] == "bad"
    assert "set JAVA_HOME" in found["java"]["remedy"]
    assert f"export PYSPARK_PYTHON={sys.executable}" in found["python of workers"]["remedy"]
    assert "STREAMSHED_CACHE" in found["kernel cache"]["remedy"]
    assert "SPARK_LOCAL_IP" in found["host name"]["remedy"]


def test_doctor_knows_versions_that_do_not_fit(monkeypatch):
    pytest.importorskip("pyspark")
    own = {"protobuf": "5.29.3", "pandas": "3.0.1", "altair": "5.1"}
    known = cli.doctor.version
    monkeypatch.setattr(cli.doctor, "version", lambda name: own.get(name) or known(name))
    monkeypatch.setattr(cli.doctor, "java_version", lambda: (25, 'openjdk version "25"'))
    # As protobuf does where code was made for a newer one.
    monkeypatch.setitem(sys.modules, cli.doctor._MESSAGES, None)
    found = {check["what"]: check for check in json.loads(run("doctor", "--json", code=1).stdout)}
    assert found["protobuf"]["remedy"] == "pip install 'protobuf>=6.33'"
    assert (found["protobuf"]["state"], found["protobuf"]["found"]) == ("bad", "5.29.3, not >=6.33")
    assert "'pandas<3,>=2.2'" in found["pandas"]["remedy"]
    assert (found["altair"]["state"], found["pyarrow"]["state"]) == ("warning", "ok")
    assert (found["java"]["state"], found["java"]["found"]) == ("warning", 'openjdk version "25"')
    assert "set JAVA_HOME" in found["java"]["remedy"]
    assert found["state of Spark"]["state"] == "bad"
    assert "pip install --upgrade 'protobuf>=6.33'" in found["state of Spark"]["remedy"]


def test_doctor_knows_what_is_scarce(monkeypatch, tmp_path):
    """Memory, shared memory, cores and ports: each with what to do."""
    known = cli.doctor._limit
    limits = {"memory.max": 1e9, "cpu.max": 0.5}
    monkeypatch.setattr(cli.doctor, "_limit", lambda name: limits.get(name) or known(name))
    monkeypatch.setattr(cli.doctor.os, "access", lambda *_: False)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another job has it
            taken.bind(("127.0.0.1", 8321))
            taken.listen()
        shown = run("doctor", "--json").stdout
    found = {check["what"]: check for check in json.loads(shown)}
    remedies = {
        "memory": "lower spark.driver.memory",
        "/dev/shm": "STREAMSHED_SHARED_MEMORY=off",
        "cores": "local[2]",
        "port 8321": "streamshed run --page",
    }
    for what, remedy in remedies.items():
        assert found[what]["state"] == "warning", what
        assert remedy in found[what]["remedy"]


@pytest.mark.parametrize(
    ("host", "token", "told"),
    [("127.0.0.1", None, False), ("0.0.0.0", None, True), ("0.0.0.0", "hunter2", False)],
)
def test_run_says_where_its_page_is(host, token, told, monkeypatch, tmp_path):
    """Also the token that was drawn for others; one that was given is a secret."""
    pytest.importorskip("pyspark")
    query = Query(1)
    query.awaitTermination = lambda _: True
    session = SimpleNamespace(streams=SimpleNamespace(addListener=print), stop=lambda: None)
    monkeypatch.setattr("streamshed.jobs.Job.session", lambda _job, **_settings: session)
    monkeypatch.setattr("streamshed.jobs.Job.start", lambda _job, _session: query)
    monkeypatch.setattr("streamshed.spark.ledgers", lambda _query: {})
    example = Path(__file__).parents[2] / "examples" / "jobs" / "rate.toml"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if token is not None:
        monkeypatch.setenv("STREAMSHED_TOKEN", token)
    done = run("run", str(example), "--page", "0", "--host", host)
    assert re.search(r"^live page: http://\S+:\d+/", done.stderr, re.MULTILINE)
    assert ("token=" in done.stderr) == told


def test_the_version():
    assert run("--version").stdout == f"streamshed {__version__}\n"


def test_replay_of_folders_and_patterns_and_a_ledger_as_json(files, tmp_path):
    _, tables = files
    for name, table in tables.items():
        (tmp_path / name).mkdir()
        for part in range(4):
            piece = table.slice(50 * part, 50)
            pq.write_table(piece, tmp_path / name / f"{part}.parquet")
    (tmp_path / "a" / "_ignored").mkdir()
    pq.write_table(tables["a"], tmp_path / "a" / "_ignored" / "0.parquet")
    inputs = [f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}/[0-9].parquet"]
    expected = SAID.count(tables)
    assert run("replay", *inputs, *WINDOW).stdout.strip() == str(expected)
    found = json.loads(run("replay", *inputs, *WINDOW, "--json").stdout)
    assert found["results"] == expected.results
    assert found["streams"]["a"]["arrived"] == 200
    gone = ["a=" + str(tmp_path / "no*.parquet"), inputs[1]]
    assert "there are no Parquet files at" in run("replay", *gone, *WINDOW, code=2).stderr
    # Columns of results are checked even if these are only counted.
    wrong = run("replay", *inputs, *WINDOW, "--select", "a.prise", code=2).stderr
    assert "no column 'prise'" in wrong


JOB = """
checkpoint = "c"
[sources.a]
format = "parquet"
path = "a.parquet"
[sources.b]
format = "parquet"
path = "b.parquet"
[join]
on = "k"
within = { duration = "10 minutes", time = "ts" }
in_order = ["b", "a"]
unmatched = ["a"]
[sink]
format = "noop"
"""


def test_replay_joins_as_a_job_file_says(files, tmp_path):
    pytest.importorskip("pyspark")
    inputs, tables = files
    job, out = tmp_path / "job.toml", tmp_path / "out.parquet"
    job.write_text(JOB)
    expected = SAID.in_order("b", "a").unmatched("a").replay(tables)
    for named in ([], inputs):
        done = run("replay", "--job", job, *named, "--out", out)
        assert done.stdout.strip() == str(expected.ledger)
        assert pq.read_table(out).to_pylist() == expected.table.to_pylist()
    for option, value in (("--on", "k"), ("--keep-rows", "5"), ("--seed", "0"), ("--late", "1 s")):
        refused = run("replay", "--job", job, option, value, code=2).stderr
        assert f"{option} and --job are both given" in refused
    assert "as in --job job.toml" in run("replay", *inputs, code=2).stderr


def test_help_needs_neither_compiler_nor_arrow():
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from streamshed import cli\n"
        "assert 'reproduce' in CliRunner().invoke(cli.app, ['--help']).stdout\n"
        "print([name for name in ('numba', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_command_of_a_package_that_is_gone_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cli.app, "registered_commands", [*cli.app.registered_commands])
    cli._add(EntryPoint("survey", "package_that_is_gone:survey", cli.PLUGINS))
    refused = run("survey", "--far", code=2).stderr
    for words in ("'survey'", "package_that_is_gone", "pip install 'streamshed[lab]'"):
        assert words in refused


def test_other_errors_are_not_hidden(monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli.doctor, "version", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run("doctor")
    assert not issubclass(RuntimeError, StreamshedError)
