"""What could have been: the most results that any policy could make, had it known the future."""

from importlib.util import find_spec

from streamshed.errors import StreamshedError

if find_spec("scipy") is None:
    raise StreamshedError("bounds need SciPy: install streamshed[lab]")

from streamshed_lab.offline.bounds import Bound, most_results

__all__ = ["Bound", "most_results"]
