"""A stateful processor that is loaded where its first rows come.

Before the first batch Spark opens the state once on the driver, in a Python process of its own.
To load all that a join imports takes seconds there, and this module is enough to open the state.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    import pandas as pd

STATE = "join"
"""The name of the state in Spark's store."""
KEY = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("number", LongType()),
        StructField("part", IntegerType()),
    ]
)
VALUE = StructType([StructField("about", StringType()), StructField("bytes", BinaryType())])
"""One map holds everything: each state that Spark opens costs as much as a thousand rows. The types
are not in SQL: Java would be asked to parse them, in every task."""


class Deferred(StatefulProcessor):
    """Another processor, whose only state is the map.

    Args:
        processor: the other one.
    """

    def __init__(self, processor: StatefulProcessor) -> None:
        self.pickled = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]

    def init(self, handle: Any) -> None:
        """Open the state."""
        self.state = handle.getMapState(STATE, KEY, VALUE)

    def getMapState(self, name: str, key: Any, value: Any) -> Any:  # noqa: N802 - Spark's name
        """The state that was opened: this stands for the handle when the other one asks."""
        assert (name, key, value) == (STATE, KEY, VALUE)
        return self.state

    @cached_property
    def processor(self) -> StatefulProcessor:
        """The other one."""
        found: StatefulProcessor = pickle.loads(self.pickled)
        found.init(self)  # type: ignore[arg-type]
        return found

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,
        initialState: pd.DataFrame,  # noqa: N803 - Spark's name
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> None:
        """Hand it on."""
        self.processor.handleInitialState(key, initialState, timerValues)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Hand them on."""
        yield from self.processor.handleInputRows(key, rows, timerValues)

    def close(self) -> None:
        """Close the other one, if it was loaded."""
        if "processor" in self.__dict__:
            self.processor.close()
