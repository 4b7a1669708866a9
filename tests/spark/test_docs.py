"""The examples of README and docs that need Spark, in a folder with three streams."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from pages import ON_SPARK, README, blocks, run_examples

SCHEMA = "session long, ts timestamp, price double"


@pytest.fixture
def streams(files):
    """A folder for each stream."""
    seconds = pa.array(range(60)).cast(pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"session": [n % 7 for n in range(60)], "ts": seconds, "price": [1.0] * 60})
    inputs = type(files)(files.folder / "in")
    inputs.write([dict.fromkeys(("impressions", "clicks", "orders"), rows)])
    return inputs.folder


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_the_examples_run(page, spark, streams):
    # Java has a working directory of its own.
    here = streams.parent
    places = {'"in/': f'"{here}/in/', '"state"': f'"{here}/state"', '"out"': f'"{here}/out"'}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    names: dict[str, object] = {"spark": spark}
    for path in streams.iterdir():
        names[path.name] = spark.readStream.schema(SCHEMA).parquet(str(path))
    try:
        ran = run_examples(page, names, replace=places)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
        if "listener" in names:
            spark.streams.removeListener(names["listener"])
        logging.getLogger().setLevel(logging.WARNING)
    assert ran == sum(block.kind == "python" for block in blocks(page))
    if page != README:
        assert "query" in names or "chained" in names
