"""What holds for every test, doctests included."""

import os
import sys

import pytest
from hypothesis import settings

# Left to itself Spark starts its Python workers with the first python3 of the PATH, which need not
# be the one of this environment.
os.environ["PYSPARK_PYTHON"] = sys.executable

# The first example of a test may compile a kernel: a time limit per example would call that a bug.
# In CI the same examples are tried each time; new ones are sought at home.
settings.register_profile("streamshed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("streamshed")

LONG = (
    "tests/spark/test_stream.py",
    "tests/engine/test_contract.py",
    "tests/engine/match/test_conditions.py",
    "tests/engine/observe/test_estimator.py",
    "tests/engine/gate/test_throttled_equalities.py",
    "tests/oracles/test_oracles.py",
    "tests/engine/gate/test_harvest_fractions.py",
    "tests/spark/test_hypercube.py",
)
"""The files that take longest, from the longest on."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files: one that begins last keeps a single process busy at the end."""
    rank = {file: place for place, file in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONG)))
