"""What holds for every test, doctests included."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# numba numbers the files of its on-disk cache without a lock: two processes that compile the same
# function for different types at once can each write file 1, and the index then names the wrong
# machine code. So each test process of `-n` keeps a cache of its own. numba reads the variable when
# it is first imported, hence here and not in a fixture.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["NUMBA_CACHE_DIR"] = str(Path(__file__).parent / ".numba_cache" / worker)

# Left to itself Spark starts its Python workers with the first python3 of the PATH, which need not
# be the one of this environment.
os.environ["PYSPARK_PYTHON"] = sys.executable

# The first example of a test may compile a kernel: a time limit per example would call that a bug.
# In CI the same examples are tried each time; new ones are sought at home.
settings.register_profile("streamshed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("streamshed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each of several processes do whole files: the kernels of a file are compiled once then.

    All that needs Spark is done by one process, as a second session would find no room.
    """
    for item in items:
        place = "spark" if item.get_closest_marker("spark") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(place))
