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


@pytest.hookimpl(tryfirst=True)  # the groups are read by xdist's own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each of several processes do whole files, so that each kernel is compiled by one of them.

    All that needs Spark is done by one process, as a second session would find no room.
    """
    for item in items:
        # Whole folders are marked after this.
        needs_spark = "spark" in item.path.parts or item.get_closest_marker("spark")
        place = "spark" if needs_spark else str(item.path)
        item.add_marker(pytest.mark.xdist_group(place))
