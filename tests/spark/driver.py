"""A query in a process of its own, to be killed.

It goes on from its checkpoint if there is one, and at the end leaves what the sink holds and the
ledger beside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pyarrow.parquet as pq

import streaming
from clusters import RELEVANCE, clustered_frame
from disturbances import Disturbance, DisturbedClusterProcessor, DisturbedProcessor
from queries import (
    CLUSTERED,
    KEYED,
    POLLED,
    SPILLED,
    STREAMED,
    joined,
    polled_join,
    spilled_join,
    with_changes,
)
from streamshed.spark import streaming as runtime

# The package has a function of the module's name.
clusters = importlib.import_module("streamshed.spark.cluster_join")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("policy")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--resume")
    parser.add_argument("--disturb", nargs=3, action="append", default=[])
    options = parser.parse_args()
    struck = [
        Disturbance(int(batch), moment, action, options.folder / f"_struck-{batch}-{moment}")
        for batch, moment, action in options.disturb
    ]
    runtime.JoinProcessor = lambda *args: DisturbedProcessor(struck, *args)
    clusters.ClusterProcessor = lambda *args: DisturbedClusterProcessor(struck, *args)
    files, session = streaming.Files(options.folder), streaming.session(options.master)
    if options.policy == CLUSTERED:
        ran = files.finish(clustered_frame(files, session, RELEVANCE))
    else:
        join = {
            SPILLED: lambda: spilled_join(options.folder / "_disk"),
            POLLED: lambda: polled_join(options.folder),
            STREAMED: lambda: with_changes(joined(STREAMED), options.folder, session),
            KEYED: lambda: with_changes(joined(KEYED), options.folder, session),
        }.get(options.policy, lambda: joined(options.policy))()
        ran = files.run(session, join, shards=options.shards, resume=options.resume)
    pq.write_table(ran.table, options.folder / "_results.parquet")
    ledger = {"streams": streaming.counts(ran.ledger), "results": ran.ledger.results}
    (options.folder / "_ledger.json").write_text(json.dumps(ledger))


if __name__ == "__main__":
    main()
