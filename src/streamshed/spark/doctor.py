"""What the executors of a cluster lack to run a join, asked of them by a small job.

`examine` runs in their Python workers, and is sent there as it stands: the package may be what they
lack. So it imports nothing but Python's own modules, before it tries the others one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import functions as f

from streamshed.spark.settings import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = {
    "streamshed": "streamshed",
    "numpy": "numpy",
    "numba": "numba",
    "pyarrow": "pyarrow",
    "pandas": "pandas",
    "protobuf": "google.protobuf",
}
"""What workers import, by the name to install it by."""
_MATTERS = ("streamshed", "numba")
"""Those of which the version has to be that of the driver: otherwise its kernels do not fit."""
_ROOM = 64 << 20
"""Bytes of shared memory of a container that was left as it comes."""


def examine(seconds: float = 0.0) -> str:
    """Describe this worker, as JSON; take so long, so that all others have to say something too."""
    import importlib
    import importlib.metadata
    import os
    import platform
    import shutil
    import socket
    import time

    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "user": os.getuid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {},
        "missing": {},
    }
    for name, module in PACKAGES.items():
        try:
            importlib.import_module(module)
            found["packages"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # run from its sources
            found["packages"][name] = getattr(sys.modules[module], "__version__", "unknown")
        except Exception as error:
            found["missing"][name] = f"{type(error).__name__}: {error}"
    if not found["missing"]:
        files = importlib.import_module("streamshed.kernels.kernel_files")
        memory = importlib.import_module("streamshed.spark.shared_memory")
        folder, base = files.writable_folder(), memory.private_base()
        found["cache"] = None if folder is None else str(folder)
        found["shared"] = None if base is None else shutil.disk_usage(base).free
    time.sleep(seconds)
    return json.dumps(found)


def examined(session: SparkSession) -> list[dict[str, Any]]:
    """What the workers say of themselves, once for each host and user."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        tasks = 2 * cores(session)
        asked = f.udf(lambda _: examine(0.5), "string", useArrow=False)
        said = session.range(0, tasks, 1, tasks).select(asked("id").alias("said")).collect()
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found = [json.loads(row.said) for row in said]
    return list({(one["host"], one["user"]): one for one in found}.values())


def problems(worker: Mapping[str, Any], driver: Mapping[str, Any]) -> list[str]:
    """What a worker lacks, each with the remedy.

    Args:
        worker: what `examine` said there.
        driver: what it says here.
    """
    found = [
        f"{name} cannot be imported ({error}); install {name}=={driver['packages'].get(name)}"
        f" for {worker['executable']}"
        for name, error in worker["missing"].items()
    ]
    if (mine := _minor(driver["python"])) != (theirs := _minor(worker["python"])):
        found.append(f"its Python is {theirs}, and that of the driver {mine}; set PYSPARK_PYTHON")
    for name in _MATTERS:
        here, there = driver["packages"].get(name), worker["packages"].get(name)
        if there is not None and there != here:
            found.append(f"{name} is {there}, and {here} on the driver; install {name}=={here}")
    if worker["missing"]:
        return found
    if worker["cache"] is None:
        found.append(
            "no folder is writable, so what it compiles is lost with each worker; set"
            " STREAMSHED_CACHE, or compile ahead and set STREAMSHED_KERNELS"
        )
    if worker["shared"] is not None and worker["shared"] <= _ROOM:
        found.append(
            f"there are {worker['shared'] / 1e6:.0f} MB of shared memory; give its container more"
            " (--shm-size), or set STREAMSHED_SHARED_MEMORY=off"
        )
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
