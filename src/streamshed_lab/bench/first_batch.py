"""The first batch of a job, in a process of its own: prints the seconds that it took."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from streamshed_lab.bench.spark import (
    ROCKSDB,
    local_spark,
    measured_join,
    own_join,
    sources,
    use_newest_format,
)


def main(contender: str, files: Path) -> None:
    """Run one batch of a contender, with Spark started and nothing else done before."""
    with (
        TemporaryDirectory() as folder,
        local_spark(Path(folder), lambda line: None) as session,
    ):
        streams = sources(session, files, 1)
        use_newest_format(session, ROCKSDB)
        began = time.perf_counter()
        frame = measured_join().stream(streams) if contender == "streamshed" else own_join(streams)
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        query.awaitTermination()
        took = time.perf_counter() - began
    print(took)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
