"""Builds wheels. A wheel with compiled kernels serves the compiler and platform they are for.

`make wheel` compiles the common kernels into `src/streamshed/_kernels` first. Without them the
wheel is pure Python, and every machine compiles for itself.
"""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Tags a wheel that has kernels, and pins the compiler that made them.

    Kernels are found by the version of numba and llvmlite; with any other they would be compiled
    anew, and the wheel would not keep its promise.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the tag and the pins."""
        kernels = Path(self.root, "src", "streamshed", "_kernels")
        if version == "editable" or not any(kernels.glob("*.kernel")):
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp{sys.version_info.major}{sys.version_info.minor}-none-{platform}"
        build_data["dependencies"] = [
            f"{name}=={importlib.metadata.version(name)}" for name in ("numba", "llvmlite")
        ]
