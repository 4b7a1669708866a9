"""Importing the modules of the laboratory, which need packages that the product does without."""

from __future__ import annotations

import importlib
from types import ModuleType

from streamshed.errors import StreamshedError

PAPERS = {
    "existence": "streamshed_lab.experiments.existence",
    "grubjoin": "streamshed_lab.experiments.grubjoin",
    "msketch": "streamshed_lab.experiments.msketch",
    "policies": "streamshed_lab.experiments.policies",
    "snjoin": "streamshed_lab.experiments.snjoin",
    "star": "streamshed_lab.experiments.star",
}
"""Where the experiments of each paper are, and those of all policies."""


def lab_module(name: str) -> ModuleType:
    """Import a module.

    Raises:
        StreamshedError: if a package that it needs is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise StreamshedError(
            f"{error.name} is not installed; get it with pip install 'streamshed[lab]'"
        ) from error
