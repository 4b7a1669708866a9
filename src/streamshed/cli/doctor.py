"""The commands `doctor` and `compile`."""

from __future__ import annotations

import importlib
import json as json_
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from streamshed.cli.app import app
from streamshed.terminal import java_version, print_table, spark_session


@app.command("compile")
def compile_(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Joins: common, key, equalities or distance, alone or with a policy: key:density."
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Copy the kernels to this folder.")] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Pack the kernels into this zip file.")
    ] = None,
) -> None:
    """Compile the kernels of joins ahead of time.

    Without --to and --archive they go to the cache of this machine. On other machines, set
    STREAMSHED_KERNELS to the folder or the archive; kernels found there are not compiled again.
    """
    from streamshed.kernels.kernel_files import writable_folder
    from streamshed.precompile import Compiled, compile_ahead, write

    def tell(compiled: Compiled) -> None:
        typer.echo(f"{compiled.name}: {compiled.seconds:.1f} s", err=True)

    compile_ahead(what or ["common"], tell)
    number = write(to, archive)
    places = [str(place) for place in (to, archive) if place is not None]
    where = " and ".join(places) or str(
        writable_folder() or "memory only, as no folder is writable"
    )
    typer.echo(f"{number} kernels in {where}")


# -- doctor ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    found: str
    state: Literal["ok", "warning", "bad"] = "ok"
    remedy: str = ""


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    on_executors: Annotated[
        bool,
        typer.Option("--on-executors", help="Also check the executors of Spark."),
    ] = False,
) -> None:
    """Check whether joins can run on this machine, and say what to do about each problem.

    With --on-executors, a small job runs on the cluster of spark-submit or of the variable MASTER
    and checks its executors. The exit code is 1 if joins cannot run, here or on Spark.
    """
    checks = [found for check in _CHECKS for found in check()]
    if json:
        typer.echo(json_.dumps([asdict(check) for check in checks]))
    else:
        table = Table("what", "found", "", "what to do")
        colours = {"ok": "green", "warning": "yellow", "bad": "red"}
        for check in checks:
            state = f"[{colours[check.state]}]{check.state}[/]"
            table.add_row(check.what, check.found, state, check.remedy)
        print_table(table)
    lacking = on_executors and not _examine_executors()
    if lacking or any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def _examine_executors() -> bool:
    """Show what the executors have; returns whether they lack nothing."""
    with spark_session("doctor") as session:
        from streamshed.spark.doctor import examine, examined, problems

        driver, workers = json_.loads(examine()), examined(session)
    table = Table("executor", "user", "python", "kernels are written to", "shared memory", "lacks")
    lacking = False
    for worker in workers:
        lacks = problems(worker, driver)
        lacking |= bool(lacks)
        shared = worker.get("shared")
        table.add_row(
            worker["host"],
            str(worker["user"]),
            worker["python"],
            worker.get("cache") or "",
            "none" if shared is None else f"{shared / 1e6:,.0f} MB",
            "\n".join(lacks) or "nothing",
        )
    print_table(table)
    return not lacking


_PACKAGES = {
    "numpy": "",
    "numba": "",
    "pyarrow": "",
    "pyspark": "spark",
    "pandas": "spark",
    "protobuf": "spark",
    "duckdb": "frames",
    "altair": "charts",
    "vl-convert-python": "charts",
}
"""What is used, and the extra that brings it; without Spark joins run in this process."""
_NICE = ("frames", "charts")
"""Extras without which joins run all the same."""
_MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"
"""What Spark's Python workers say to the state store; it is made for some versions of protobuf."""
_NEWEST_JAVA = 21
"""The newest Java that Spark's releases are tested with."""


def _packages() -> Iterator[Check]:
    yield Check("python", f"{sys.version.split()[0]}, {sys.executable}")
    yield Check("streamshed", str(importlib.import_module("streamshed").__version__))
    needed = _needed()
    for package, extra in _PACKAGES.items():
        state: Literal["warning", "bad"] = "warning" if extra in _NICE else "bad"
        brings = f"pip install 'streamshed[{extra}]'" if extra else "pip install streamshed"
        try:
            found = version(package)
        except PackageNotFoundError:
            yield Check(package, "not installed", state, brings)
            continue
        wanted = needed.get((package, extra), "")
        if _fits(found, wanted):
            yield Check(package, found)
        else:
            yield Check(
                package, f"{found}, not {wanted}", state, f"pip install '{package}{wanted}'"
            )


def _needed() -> dict[tuple[str, str], str]:
    """The versions that this package asks for, by the name of a package and the extra."""
    try:
        said = requires("streamshed") or []
    except PackageNotFoundError:  # it runs from its sources
        return {}
    found = (re.match(r"([\w-]+)([^;]*)(?:; extra == ['\"](\w+)['\"])?", one) for one in said)
    return {(one[1], one[3] or ""): one[2].strip() for one in found if one is not None}


def _fits(found: str, wanted: str) -> bool:
    """Whether a version is one of those that are wanted.

    Examples:
        >>> _fits("2.10.1", "<3,>=2.2"), _fits("2.1", ">=2.2"), _fits("3.0", "<3,>=2.2")
        (True, False, False)
    """

    def numbers(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]

    for bound in filter(None, wanted.split(",")):
        if bound.startswith(">=") and numbers(found) < numbers(bound):
            return False
        if bound.startswith("<") and "=" not in bound and numbers(found) >= numbers(bound):
            return False
    return True


def _java() -> Iterator[Check]:
    number, said = java_version()
    if number < 17:
        remedy = "install Java 17 or later, or set JAVA_HOME to where it is; only Spark needs it"
        yield Check("java", said, "bad", remedy)
    elif number > _NEWEST_JAVA:
        remedy = f"Spark is tested with Java 17 and {_NEWEST_JAVA}: if it fails, set JAVA_HOME"
        yield Check("java", said, "warning", remedy)
    else:
        yield Check("java", said)


def _spark() -> Iterator[Check]:
    """Whether Spark's Python can speak with its state store."""
    try:
        importlib.import_module("pyspark")
    except ImportError:
        return  # which is said above
    try:
        importlib.import_module(_MESSAGES)
    except Exception as error:  # protobuf has errors of its own for what does not fit
        reason = str(error).strip().partition("\n")[0]
        wanted = _needed().get(("protobuf", "spark"), "")
        remedy = f"pip install --upgrade 'protobuf{wanted}': without it every query fails"
        yield Check("state of Spark", f"protobuf: {reason}", "bad", remedy)
    else:
        yield Check("state of Spark", "its messages can be read")


def _workers() -> Iterator[Check]:
    """The Python that Spark's workers would be, if a program is started by `python` alone."""
    try:
        from streamshed.spark.settings import problem_of_workers
    except ImportError:
        return
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    problem = problem_of_workers(python)
    if problem is None:
        yield Check("python of workers", python)
        return
    yield Check(
        "python of workers",
        f"{python}, {problem}",
        "warning",
        f"export PYSPARK_PYTHON={sys.executable}; streamshed run and demo set it themselves",
    )


def _memory() -> Iterator[Check]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    free = sizes.get("MemAvailable", 0)
    found = f"{free / 1e9:.1f} GB of {sizes.get('MemTotal', 0) / 1e9:.1f} GB available"
    limit = _limit("memory.max")
    if limit is not None:
        found += f", this container may use {limit / 1e9:.1f} GB"
        free = min(free, int(limit))
    remedy = "Spark's JVM takes 1 GB by itself: free some, or lower spark.driver.memory"
    yield Check("memory", found) if free > 2e9 else Check("memory", found, "warning", remedy)


def _shared_memory() -> Iterator[Check]:
    folder = Path("/dev/shm")
    try:
        room = os.statvfs(folder)
        free, writable = room.f_bavail * room.f_frsize, os.access(folder, os.W_OK)
    except OSError:
        free, writable = 0, False
    found = f"{free / 1e6:,.0f} MB free" if writable else "not writable"
    remedy = (
        "workers hand over joins there: give a container more with --shm-size=2g, or set "
        "STREAMSHED_SHARED_MEMORY=off"
    )
    enough = writable and free > 256e6
    yield Check("/dev/shm", found) if enough else Check("/dev/shm", found, "warning", remedy)


def _cores() -> Iterator[Check]:
    able = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{able} of {os.cpu_count()} for this process"
    quota = _limit("cpu.max")
    remedy = "start Spark with as many as it may use, as in master = 'local[2]'"
    if quota is not None and quota < (able or 1):
        yield Check("cores", f"{found}, this container may use {quota:g}", "warning", remedy)
    else:
        yield Check("cores", found)


def _limit(name: str) -> float | None:
    """A limit of this control group: bytes of memory, or cores."""
    try:
        words = Path("/sys/fs/cgroup", name).read_text().split()
    except OSError:
        return None
    if not words or words[0] == "max":
        return None
    return float(words[0]) / (float(words[1]) if len(words) > 1 else 1)


def _ports() -> Iterator[Check]:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        yield Check(
            "host name",
            f"{name!r} has no address",
            "warning",
            "export SPARK_LOCAL_IP=127.0.0.1, or enter the name in /etc/hosts",
        )
    else:
        yield Check("host name", f"{name!r} is {address}")
    for port, whose, remedy in (
        (4040, "Spark's page", "Spark takes the next one; or set spark.ui.enabled = false"),
        (8321, "the page of a job", "choose another with streamshed run --page"),
    ):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                found = f"for {whose}: {error.strerror}"
                yield Check(f"port {port}", found, "warning", remedy)
            else:
                yield Check(f"port {port}", f"free, for {whose}")


def _kernels() -> Iterator[Check]:
    from streamshed.engine.loop import run
    from streamshed.kernels.compiling import compiled_for
    from streamshed.kernels.kernel_files import writable_folder
    from streamshed.policies import NAMED, ByColumn, Exact, Importance, Policy

    folder = writable_folder()
    yield (
        Check("kernel cache", str(folder))
        if folder is not None
        else Check(
            "kernel cache",
            "no folder is writable",
            "warning",
            "every process compiles anew: set STREAMSHED_CACHE to a folder",
        )
    )
    policies: dict[str, type[Policy]] = {"exact": Exact, **NAMED, "by column": ByColumn}
    del policies[Importance.name]  # which has no part in joins on a shared key
    ready = [name for name, policy in policies.items() if compiled_for(run, policy.state)]
    missing = [name for name in policies if name not in ready]
    if not missing:
        yield Check("kernels", "joins on a shared key: cached for every policy")
        return
    yield Check(
        "kernels",
        f"joins on a shared key: cached for {', '.join(ready) or 'no policy'}; compiled when used: "
        f"{', '.join(missing)}",
        "ok",
        "streamshed compile key compiles them ahead of time",
    )


_CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _packages,
    _java,
    _spark,
    _workers,
    _memory,
    _shared_memory,
    _cores,
    _ports,
    _kernels,
)
