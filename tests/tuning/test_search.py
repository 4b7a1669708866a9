"""Tuning: recall against memory, and what is recommended."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import streamshed as ss
from streamshed import cli
from streamshed.estimates import Share
from streamshed.jobs.rewriting import rewrite, rewrite_file
from streamshed.join import spec_of
from streamshed.tuning import Cell, Tuning
from streamshed.tuning.archive import Archive
from streamshed.tuning.recall import halves_of, recall_of

WINDOW = 500
SAID = ss.join("a", "b").on("k").within(WINDOW, time="ts")


def archive(rows: int, seed: int, start: int = 0) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 400) ** 0.7
    return {
        name: pa.table(
            {
                "k": random.choice(399, rows, p=weights / weights.sum()),
                "ts": start + np.sort(random.integers(0, rows, rows)),
                "v": random.random(rows),
            }
        )
        for name in "ab"
    }


@pytest.fixture(scope="module")
def tuned():
    return SAID.tune(archive(8_000, 1), recall=0.7, policies=["random", "oldest"])


def test_the_exact_join_is_measured(tuned):
    first = archive(8_000, 1)
    assert tuned.results == SAID.count(first).results
    # The most rows in windows that are open at once, counted from the times alone.
    moments = np.arange(8_000)[:, None]
    held = sum(
        ((times <= moments) & (times >= moments - WINDOW)).sum(axis=1)
        for times in (table["ts"].to_numpy()[None, :] for table in first.values())
    ).max()
    assert 0.95 * held <= tuned.rows <= 1.02 * held


def test_every_cell_is_a_run_of_the_join(tuned):
    first = archive(8_000, 1)
    exact = SAID.count(first).results
    for cell in tuned.cells[::5]:
        made = SAID.keep(total=cell.rows).shed(cell.policy).count(first).results
        # The recall leaves out the time in which windows fill.
        assert abs(cell.recall.value - made / exact) < 0.06
        assert cell.recall.low <= cell.recall.value <= cell.recall.high
        assert 0 < cell.keys.value <= 1
    assert {cell.policy for cell in tuned.cells} == {"random", "oldest"}


def test_more_memory_makes_more_results(tuned):
    for policy in ("random", "oldest"):
        own = [cell for cell in tuned.cells if cell.policy == policy]
        assert [one.recall.value for one in own] == sorted(one.recall.value for one in own)
        assert [one.nbytes for one in own] == sorted(one.nbytes for one in own)


def test_an_archive_may_be_a_sample_by_itself(tuned):
    """Half of the keys stand for all of them: budgets and memory are those of all."""
    half = {
        name: table.filter(pa.compute.equal(pa.compute.bit_wise_and(table["k"], 1), 0))
        for name, table in archive(8_000, 1).items()
    }
    part = sum(table.num_rows for table in half.values()) / 16_000
    found = SAID.tune(half, recall=0.7, policies=["oldest"], sampled=part)
    assert found.sample == part
    assert abs(found.rows / tuned.rows - 1) < 0.1
    with pytest.raises(ss.SpecError, match=r"`sampled` is 0.* greater than 0"):
        SAID.tune(half, sampled=0.0)


def test_a_join_with_a_table_is_tuned():
    said = ss.join("a", "names", "b").on("k").within(WINDOW, time="ts")
    names = ss.table(pa.table({"k": range(0, 399, 2)}))
    inputs = {**archive(2_000, 1), "names": names}
    found = said.tune(inputs, recall=0.5, policies=["oldest"])
    assert found.results == said.count(inputs).results
    assert found.join == said.keep(total=found.best.rows).shed("oldest")


def test_the_recommendation_holds_on_what_comes_later(tuned):
    first, second = archive(8_000, 1), archive(8_000, 2, start=8_000)
    both = {name: pa.concat_tables([first[name], second[name]]) for name in first}
    exact = SAID.count(both).results - SAID.count(first).results
    made = tuned.join.count(both).results - tuned.join.count(first).results
    assert abs(made / exact - 0.7) < 0.02
    assert tuned.best is not None
    assert tuned.join == SAID.keep(total=tuned.best.rows).shed(tuned.best.policy)


def test_a_recall_beyond_all_budgets_needs_all_rows():
    found = SAID.tune(archive(2_000, 3), recall=0.999, policies=["random"], budgets=[20, 50])
    assert found.best is None
    assert found.join == SAID.keep(total=found.rows)
    assert f"keep all {found.rows:,} rows" in str(found)


def test_a_sample_of_keys_tells_the_same(tuned):
    sampled = SAID.tune(archive(8_000, 1), recall=0.7, policies=["random"], sample=0.5)
    assert 0.2 < sampled.sample < 0.8
    assert abs(sampled.rows / tuned.rows - 1) < 0.2
    assert sampled.best is not None
    assert abs(sampled.best.rows / tuned.best.rows - 1) < 0.25
    assert "of the keys" in str(sampled)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"recall": 1.5}, "`recall` is 1.5; give a number from 0 to 1"),
        ({"recall": 1}, "`recall` is 1; give a number between 0 and 1"),
        ({"policies": ["rando"]}, "no policy 'rando': did you mean 'random'"),
        ({"policies": "random"}, "`policies` is 'random'; give a list of names"),
        ({"policies": []}, r"`policies` is \[\]; give a list of names"),
        ({"budgets": [0]}, "the budget is 0; give a whole number, 1 or more"),
        ({"budgets": 50}, "`budgets` is 50; give a list of numbers of rows"),
        ({"budgets": []}, r"`budgets` is \[\]; give a list of numbers of rows"),
    ],
)
def test_what_tuning_refuses(arguments, says):
    with pytest.raises(ss.SpecError, match=says):
        SAID.tune(archive(300, 1), **{"policies": ["random"], **arguments})


def test_times_that_are_compared_with_other_columns_stay_what_they_are():
    clicks = archive(2_000, 3)["a"]
    orders = pa.table({"ts": pa.compute.add(clicks["ts"], 20), "seen": clicks["ts"]})
    said = ss.join("clicks", "orders").on("clicks.ts = orders.seen").within(50, time="ts")
    given = {"clicks": clicks, "orders": orders}
    tried = {"recall": 0.5, "policies": ["oldest"], "budgets": [20, 40]}
    assert said.tune(given, **tried).results == said.count(given).results


def test_no_row_of_a_reader_is_lost():
    given = archive(2_000, 3)
    readers = {name: table.to_reader(max_chunksize=100) for name, table in given.items()}
    said = {"recall": 0.5, "policies": ["oldest"], "budgets": [100, 300]}
    assert SAID.tune(readers, **said).results == SAID.count(given).results


def test_an_archive_without_results_or_rows_is_refused():
    apart = {"a": archive(300, 1)["a"], "b": archive(300, 1, start=10**6)["b"]}
    with pytest.raises(ss.InputError, match="makes no results on this archive"):
        SAID.tune(apart, policies=["random"])
    empty = {name: table.slice(0, 0) for name, table in apart.items()}
    with pytest.raises(ss.InputError, match="the inputs have no rows"):
        SAID.tune(empty, policies=["random"])


def test_recall_is_that_of_full_windows():
    """A short archive tells what a long one does, though its windows fill for half of it."""
    long = archive(8_000, 1)
    short = {
        name: table.filter(pa.compute.less(table["ts"], 1_100)) for name, table in long.items()
    }
    told = [
        SAID.tune(data, policies=["oldest"], budgets=[300]).cells[0].recall.value
        for data in (short, long)
    ]
    assert abs(told[0] - told[1]) < 0.05


@pytest.mark.parametrize("window", [1, 8])
def test_the_interval_is_that_of_the_time_to_come(window):
    """It holds the ratio of as long a time after the one that was measured, as often as it says.

    Parts of a window have their chance in common, as rows that are shed are missed in all of them.
    """
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        exact = random.poisson(1000, 96).astype(float)
        chance = np.repeat(random.beta(80, 20, 96 // window), window)
        made = random.binomial(exact.astype(int), chance).astype(float)
        share = recall_of(made[:64], exact[:64], 32, window)
        hits += share.low <= made[64:].sum() / exact[64:].sum() <= share.high
    assert 0.92 < hits / 600 < 0.98


def test_data_that_drift_are_said_to() -> None:
    made, exact = np.array([0.0, 0, 9, 9, 5, 5]), np.full(6, 10.0)
    assert halves_of(made, exact, 2, 2) == (0.9, 0.5)
    assert halves_of(np.array([5.0, 10, 0, 0, 0, 0]), np.array([10.0, 10, 0, 0, 0, 0]), 2, 2) == (
        0.5,
        1.0,
    )
    # Where rows come twice, what is not measured is compared, too.
    assert halves_of(made, exact, 4, 1) == (0.6, 0.5)

    def rows(seed: int, faster: int) -> pa.Table:
        """From 6,000 on rows come faster, of more keys: as many results, from more rows."""
        random = np.random.default_rng(seed)
        time = np.concatenate([np.arange(0, 6_000, 4), np.arange(6_000, 8_000, 4 // faster)])
        keys = np.where(time < 6_000, 300, 300 * faster**2)
        return pa.table({"k": (random.random(time.size) * keys).astype(np.int64), "ts": time})

    join = ss.join("a", "b").on("k").within(400, time="ts")
    for faster, drifts in ((1, False), (2, True)):
        found = join.tune(a=rows(1, faster), b=rows(2, faster), recall=0.8, policies=["oldest"])
        assert found.best is not None
        assert found.best.drifts == drifts
        assert ("The data drift" in found.recommendation()) == drifts


def test_a_burst_that_makes_most_results_is_said_to(tuned) -> None:
    """Its recall says little of the time to come."""
    assert tuned.burst < 0.1
    assert "burst" not in str(tuned)
    rows = np.arange(16_000)
    flood = pa.table({"k": [0] * 100, "ts": [6_120] * 100})
    rare = {name: pa.table({"k": rows * (1 + i), "ts": rows}) for i, name in enumerate("ab")}
    both = {name: pa.concat_tables([part, flood]) for name, part in rare.items()}
    found = SAID.tune(both, recall=0.7, policies=["oldest"])
    assert found.burst > 0.9
    assert "of the results come from one of 64 parts of the archive" in str(found)


def test_recall_that_varies_is_said_to() -> None:
    best = Cell("oldest", 9, 99, Share(0.9, 0.85, 0.95), None, 1.0, (0.9, 0.9))
    found = Tuning(SAID, 0.9, best, [best], 99, 999, 9)
    assert "in the future it may be as low as 85.0%; allow for that" in found.recommendation()
    sure = replace(best, recall=Share(0.9, 0.89, 0.91))
    assert replace(found, best=sure).recommendation().endswith("recall 90.0 % (89.0 to 91.0)")


def test_recall_beyond_the_budgets_tried_at_first_is_approached():
    """Both below the smallest of them and above the largest, the exact join is not the answer."""
    for wanted in (0.05, 0.99):
        found = SAID.tune(archive(8_000, 1), recall=wanted, policies=["random"])
        assert found.best is not None
        assert found.best.rows < found.rows
        assert wanted <= found.best.recall.value < wanted + 0.01


def test_luck_does_not_end_the_search() -> None:
    """The recall of what is recommended is that of other draws, too."""
    off = []
    for seed in range(1, 5):
        data = archive(1_500, seed)
        best = SAID.tune(data, recall=0.8, policies=["random"]).best
        read = Archive.read(spec_of(SAID), data, "time", 1.0).doubled()
        exact = read.exact()
        last = slice(read.filling(exact), None)
        made = [
            read.run("random", best.rows, again=100 + again).made[last].sum() for again in range(16)
        ]
        off.append(best.recall.value - np.mean(made) / exact.made[last].sum())
    assert np.abs(off).mean() < 0.006


def test_the_chart_shows_every_cell_and_needs_no_network(tuned, tmp_path):
    chart = tuned.plot().to_dict()
    values = json.dumps(chart)
    assert all(f'"rows": {cell.rows}' in values for cell in tuned.cells)
    tuned.save(tmp_path / "recall.html")
    text = (tmp_path / "recall.html").read_text()
    assert "<script src=" not in text
    assert len(text) > 500_000  # Vega is in it


JOB = """\
checkpoint = "checkpoint" # of the job

[sources.a]
format = "parquet"
path = "a"

[sources.b]
format = "parquet"
path = "b"

[join]
on = "k"
within = { duration = 500, time = "ts" } # the window
keep = { rows = 50 }
shed = "oldest"

[sink]
format = "noop"
"""


def test_the_command_tunes_a_job_and_writes_it(tmp_path):
    for name, table in archive(4_000, 1).items():
        (tmp_path / name).mkdir()
        pq.write_table(table.slice(0, 2_000), tmp_path / name / "0.parquet")
        pq.write_table(table.slice(2_000), tmp_path / name / "1.parquet")
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    out = tmp_path / "tuned.toml"
    options = ["--recall", "0.6", "--policy", "random", "--write", str(out), "--json"]
    done = CliRunner().invoke(cli.app, ["tune", str(job), *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[0])
    policy, rows = found["best"]
    assert f"keep(total={rows})" in found["recommendation"]
    assert found["results"] == SAID.count(archive(4_000, 1)).results
    assert found["bytes"] > 0
    assert (found["wanted"], found["sample"]) == (0.6, 1)
    assert any(cell["rows"] == rows and cell["recall"] >= 0.6 for cell in found["cells"])
    expected = JOB.replace('keep = { rows = 50 }\nshed = "oldest"\n', "").replace(
        "[join]\n", f'[join]\nkeep = {{ total = {rows} }}\nshed = "{policy}"\n'
    )
    assert out.read_text() == expected
    assert ss.Job.load(out).joined == SAID.keep(total=rows).shed(policy)


@pytest.mark.parametrize(
    "text",
    [
        '[join]\nkeep.total = 5\non = "k"\n',
        '[join]\non = "k"\n[join.keep]\nrows = { a = 5 }\n\n[sink]\nformat = "noop"\n',
        '[join]\non = "k"\n[join.shed.policy]\nname = "sketch"\ncopies = 5\n',
    ],
)
def test_a_budget_is_rewritten_wherever_it_stands(text):
    made = rewrite(text, 9, "random")
    assert 'keep = { total = 9 }\nshed = "random"' in made
    assert 'on = "k"' in made
    assert "copies" not in made


def test_paths_of_a_job_that_is_written_elsewhere_lead_where_they_led(tmp_path):
    """A job that tune has written runs as it is."""
    for name, table in archive(100, 1).items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet")
    job, out = tmp_path / "job.toml", tmp_path / "tuned" / "job.toml"
    out.parent.mkdir()
    job.write_text(JOB.replace('path = "b"', f"path = '{tmp_path}/b' # absolute"))
    joined = SAID.keep(total=9).shed("random")
    rewrite_file(job, out, joined, 9, "random")
    text = out.read_text()
    assert 'checkpoint = "../checkpoint" # of the job' in text
    assert 'path = "../a"' in text
    assert f"path = '{tmp_path}/b' # absolute" in text
    assert ss.Job.load(out).joined == joined
    job.write_text(JOB.replace('"checkpoint"', r'"check\u0070oint"'))
    with pytest.raises(ss.StreamshedError, match="write the new file into the folder of the old"):
        rewrite_file(job, out, joined, 9, "random")
    job.write_text(JOB)
    with pytest.raises(ss.StreamshedError, match=r"job\.toml' cannot be written: No such file"):
        rewrite_file(job, tmp_path / "no" / "job.toml", joined, 9, "random")


def test_a_job_file_that_cannot_be_changed_says_what_to_write():
    with pytest.raises(
        ss.StreamshedError, match=r"set in its table \[join\]: keep = { total = 9 }"
    ):
        rewrite('join = { on = "k" }\n', 9, None)
