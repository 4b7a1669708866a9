"""Job files: what they say, how they are refused, and their schema."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import jsonschema
import pytest

import streamshed as ss
from streamshed.jobs import Job, JobError
from streamshed.jobs import job as job_module
from streamshed.jobs.options import build, described, options
from streamshed.jobs.reading import read_file, read_text
from streamshed.jobs.schema import FILE, job_schema, schema_text

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.toml"))
EXAMPLES = sorted((HERE.parents[1] / "examples" / "jobs").glob("*.toml"))
VARIABLES = ("FUNNEL", "READINGS", "KAFKA", "KAFKA_LOGIN", "CHECKPOINT", "TMPDIR")
SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, f"/nowhere/{name.lower()}")
    monkeypatch.setenv("STREAMSHED_TEST_SECRET", SECRET)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_job_gets_its_message(file):
    lines = file.read_text().splitlines()
    expected = [line.removeprefix("#! ") for line in lines if line.startswith("#! ")]
    with pytest.raises(JobError) as refused:
        Job.load(file)
    found = [text.replace(str(file), "") for text in refused.value.problems]
    assert [text.replace(str(file.parent), "FOLDER") for text in found] == expected
    assert SECRET not in str(refused.value)


def test_there_are_many_bad_jobs():
    assert len(BAD) >= 60


def test_a_job_file_that_is_not_there(tmp_path):
    with pytest.raises(JobError, match=r"gone\.toml' cannot be read: .*No such file"):
        Job.load(tmp_path / "gone.toml")


def test_a_job_in_python_says_where_it_is_wrong():
    with pytest.raises(JobError, match=r"^sources\.a\.format: Spark does not read .*'parquet'\?$"):
        Job(
            sources={"a": {"format": "parket", "path": "a", "schema": "k long"}},
            join={"on": "k"},
            sink={"format": "noop"},
            checkpoint="c",
        )


# -- the schema -----------------------------------------------------------------------------------


def test_the_published_schema_is_up_to_date():
    assert FILE.read_text() == schema_text(), "run: streamshed schema > src/…/job.schema.json"


def test_the_schema_is_a_schema_and_takes_the_examples():
    checker = jsonschema.Draft202012Validator
    checker.check_schema(job_schema())
    for file in EXAMPLES:
        values, _ = read_file(file)
        checker(job_schema()).validate(values)


def test_our_check_agrees_with_that_of_others():
    """Whatever the schema refuses in the corpus, others refuse by the same schema."""
    checker = jsonschema.Draft202012Validator(json.loads(FILE.read_text()))
    for file in BAD:
        if file.stem.startswith(("key-", "missing-", "type-")):
            text = file.read_text()
            try:
                values, _ = read_text(text, "job.toml")
            except JobError:
                continue
            ours = file.stem not in (
                "missing-path",
                "missing-schema",
                "missing-window",
                "missing-on",
            )
            assert checker.is_valid(values) != ours, file.stem


# -- what is said ---------------------------------------------------------------------------------

JOINS = [
    ss.join("a", "b").on("k", "l").within("10 minutes", time="ts", late="5 s", clock="max"),
    ss.join("a", "b").on(a="x", b=["y"]).last({"a": 5, "b": 7}, time="ts").keep(rows={"a": 3}),
    ss.join("a", "b", "c").on("a.x = b.x", "b.y = c.z").last(10).keep(total=5).shed("sketch"),
    ss.join("a", "b").on("room", ss.near("heat", 0.5)).last(10).weigh(column={"a": "i", "b": "j"}),
    ss.join("a", "b").on(ss.cosine("v", at_least=0.5)).last(10).throttle("keep up", boost=2),
    ss.join("a", "b").on(ss.inner_product({"a": "v", "b": "w"}, at_least=1)).last(10),
    ss.join(by="who").on("k").within({"x": "1 h"}, otherwise="1 min", time="ts").partial(3),
    ss.join("a", "b").on("k").last(9).keep(total=5).shed(ss.policies.Sketch(copies=50)),
    ss.join("a", "b").on("k").last(9).keep(total=5).shed(column={"a": "x", "b": "y"}),
    ss.join("a", "b").on("k").last(9).queue(rows=5).throttle(rows_per_second=3).select("a", "b.x"),
    ss.join("a", "b").on("k").within(5, time="t").throttle(comparisons_per_second=5).seed(7),
    ss.join("a", "b").on("k").within(5, time="t").aggregate("a.x", over=9, quantiles=[0.5]),
    ss.join("a", "b").on("k").within(5, time="t").keep(total=5).spill(to="/x", deadline=4),
    ss.join("a", "b").on("k").last(9).keep(total=5).estimate(rate=0.25),
    ss.join("a", "b").on("k").within(5, time="t").keep(memory="5 MB").in_order("a", "b"),
    ss.join("a", "b").on("k").within(5, time="t").between("b", "a", 1, 4).unmatched("a"),
    ss.join(*"abc").on("k").within(5, time="t").between("b", "a", 1, 4).between("c", "b", 0, 2),
    ss.join("a", "b").on("k").within(5, time="t").first(per="b", last_touch=True),
    ss.join("a", "b").on("k").within(5, time="t").factorised(),
]


@pytest.mark.parametrize("said", JOINS, ids=str)
def test_a_join_is_described_and_built_again(said):
    found = described(said)
    made, problems = build([], json.loads(json.dumps(found)))
    assert (problems, made) == ([], said)
    join_schema = {**job_schema()["properties"]["join"], "$defs": job_schema()["$defs"]}
    jsonschema.validate(json.loads(json.dumps(found)), join_schema)


def test_every_method_of_a_join_is_an_option_and_described_above():
    methods = {
        name
        for name, one in inspect.getmembers(ss.Join, inspect.isfunction)
        if not name.startswith("_") and one.__annotations__.get("return") in ("Join", "Self")
    }
    assert set(options()) == methods
    assert methods - {"through"} == {name for said in JOINS for name in described(said)} & methods


def test_a_relation_is_a_file_or_a_table(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1], "b": [2], "until": [9]}), tmp_path / "pairs.parquet")
    file = tmp_path / "job.toml"
    file.write_text(
        'checkpoint = "c"\n[sources.r]\nformat = "rate"\n[sources.s]\nformat = "rate"\n'
        '[join]\non = "value"\nlast = 5\n[join.through]\nr = "a"\ns = "b"\n'
        'relation = { data = "pairs.parquet", name = "pair" }\n[sink]\nformat = "noop"\n'
    )
    assert "through(<relation 'pair'>, r='a', s='b')" in repr(Job.load(file).joined)
    with pytest.raises(ss.SpecError, match="a job file cannot hold, such as a relation"):
        described(Job.load(file).joined)


WITH_TABLE = """
checkpoint = "c"
[sources.views]
format = "parquet"
path = "views"
schema = "user long, ts timestamp"
[sources.users]
format = "csv"
path = "users"
schema = "id long, name string"
streaming = false
refresh = "1 hour"
versions = "read"
[join]
on = { views = "user", users = "id" }
within = { duration = "1 minute", time = { views = "ts", users = "ts" } }
[sink]
format = "noop"
"""


def test_a_source_that_does_not_stream_is_a_table(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(WITH_TABLE)
    job = Job.load(file)
    assert "users" in job.explain()
    assert isinstance(job.schemas["users"], ss.relations.Table)
    assert job.sources["users"]["path"] == str(tmp_path / "users")
    assert job.sources["users"]["versions"] == str(tmp_path / "read")


def test_a_job_of_python_is_that_of_the_file(monkeypatch):
    loaded = Job.load(HERE.parents[1] / "examples" / "jobs" / "files.toml")
    made = ss.Job(**{**loaded.mapping(), "join": loaded.joined})
    assert made.joined == loaded.joined
    assert made.explain() == loaded.explain()
    assert made.sources == loaded.sources


def test_paths_are_relative_to_the_file_and_uris_are_not(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(
        'checkpoint = "state/x"\n[sources.a]\nformat = "rate"\n[sources.b]\nformat = "rate"\n'
        '[join]\non = "value"\nlast = 5\n[sink]\nformat = "parquet"\npath = "s3://bucket/out"\n'
        '[stream]\nlate_to = "late"\nresume = "saved"\n'
    )
    job = Job.load(file)
    assert job.checkpoint == str(tmp_path / "state/x")
    assert job.sink["path"] == "s3://bucket/out"
    assert job.stream["late_to"] == str(tmp_path / "late")
    assert job.stream["resume"] == str(tmp_path / "saved")


class Builder:
    """A builder of sessions that notes what it is told."""

    def __init__(self):
        self.conf = {}

    def config(self, name, value):
        self.conf[name] = value
        return self

    def appName(self, name):  # noqa: N802 - Spark's name
        return self

    def master(self, name):
        return self

    def getOrCreate(self):  # noqa: N802 - Spark's name
        return self


@pytest.mark.parametrize(
    ("master", "settings", "daemon"),
    [
        ("local[2]", {}, "streamshed.spark.daemon"),
        ("local[2]", {"spark.python.daemon.module": "pyspark.daemon"}, "pyspark.daemon"),
        ("spark://there:7077", {}, None),
    ],
)
def test_workers_here_share_what_they_import(master, settings, daemon, monkeypatch):
    """Where executors lack the package, theirs must be able to say so."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(job_module, "prepare_spark", lambda: None)
    monkeypatch.setattr(Job, "_warm", lambda self: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    job = Job.load(HERE.parents[1] / "examples" / "jobs" / "files.toml")
    made = ss.Job(**{**job.mapping(), "join": job.joined, "spark": {"master": master}})
    assert made.session(**settings).conf.get("spark.python.daemon.module") == daemon


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_explain_themselves(file):
    explained = Job.load(file).explain()
    assert explained.startswith("join(")
    assert "budget" in explained


def test_lines_are_those_of_the_keys():
    text = "\n".join(
        [
            "# a comment = 1",
            'a = """',
            "b = 2",
            '"""',
            "[x.'y z']",
            "c = [ # with a [ bracket",
            "  1, { d = ']', e = [2,",
            "  3] },",
            "]",
            "\"q.r\".s = '#'",
            "[[t]]",
            "u = 1",
            "[[t]]",
            "u = 1979-05-27 07:32:00",
            "[t.v]",
            "w = 1.5",
        ]
    )
    _, origin = read_text(text, "f")
    assert dict(origin.lines) == {
        ("a",): 2,
        ("x", "y z"): 5,
        ("x", "y z", "c"): 6,
        ("x", "y z", "c", 0): 7,
        ("x", "y z", "c", 1): 7,
        ("x", "y z", "c", 1, "d"): 7,
        ("x", "y z", "c", 1, "e"): 7,
        ("x", "y z", "c", 1, "e", 0): 7,
        ("x", "y z", "c", 1, "e", 1): 8,
        ("x", "y z", "q.r"): 10,
        ("x", "y z", "q.r", "s"): 10,
        ("t",): 13,
        ("t", 0): 11,
        ("t", 0, "u"): 12,
        ("t", 1): 13,
        ("t", 1, "u"): 14,
        ("t", 1, "v"): 15,
        ("t", 1, "v", "w"): 16,
    }


def test_a_variable_can_be_written_as_text(monkeypatch):
    values, origin = read_text('a = "$${HOME} and ${STREAMSHED_TEST_SECRET}"', "f")
    assert values == {"a": f"${{HOME}} and {SECRET}"}
    assert origin.hide(values["a"]) == "${HOME} and ${STREAMSHED_TEST_SECRET}"
