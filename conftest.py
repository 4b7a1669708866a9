"""What holds for every test, doctests included."""

import os
import sys

from hypothesis import settings

# Left to itself Spark starts its Python workers with the first python3 of the PATH, which need not
# be the one of this environment.
os.environ["PYSPARK_PYTHON"] = sys.executable

# The first example of a test may compile a kernel: a time limit per example would call that a bug.
# In CI the same examples are tried each time; new ones are sought at home.
settings.register_profile("streamshed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("streamshed")
