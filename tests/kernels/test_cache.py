import importlib
import json
import logging
import os
import platform
import subprocess
import sys
import textwrap
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from streamshed.engine.loop import run
from streamshed.kernels import cache, codegen, kernel_files
from streamshed.kernels.compiling import compiled_for, kernel, loop
from streamshed.policies.base import NoState
from streamshed.policies.oldest import OldestState

VALUES = np.arange(5)

POLICY = """
    from typing import NamedTuple

    import numpy as np

    from helper import FACTOR, worth
    from streamshed.kernels import hooks
    from streamshed.kernels.compiling import implements, loop


    class Mine(NamedTuple):
        values: np.ndarray


    @implements(hooks.queue_priority, Mine)
    def promise(policy, core, batch, i):
        return worth(policy.values[i]) * FACTOR + 0


    @loop
    def total(policy):
        promised = 0
        for i in range(policy.values.size):
            promised += hooks.queue_priority(policy, policy, policy, i)
        return promised
"""
HELPER = """
    from streamshed.kernels.compiling import kernel

    FACTOR = 2


    @kernel
    def worth(value):
        return value + 1
"""


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache of its own, empty."""
    monkeypatch.setenv(kernel_files.WRITABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_files, "_used", {})
    monkeypatch.setattr(kernel_files._memory, "held", {})
    return tmp_path / "cache"


@pytest.fixture
def policy(monkeypatch, tmp_path):
    """Writes a policy and its helper as modules of their own, and imports them anew."""
    sources = tmp_path / "sources"
    sources.mkdir()
    monkeypatch.syspath_prepend(sources)

    def written(policy=POLICY, helper=HELPER):
        for name, text in (("helper", helper), ("guest", policy)):
            (sources / f"{name}.py").write_text(textwrap.dedent(text))
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("guest")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield written
    for name in ("helper", "guest"):
        sys.modules.pop(name, None)


def called(guest):
    """The result, and whether it was found in a cache."""
    result = guest.total(guest.Mine(VALUES))
    return result, bool(guest.total.stats.cache_hits)


def fresh():
    """A driver that this process has not compiled yet."""

    def sums(values):
        total = 0
        for value in values:
            total += value
        return total

    return loop(sums)


def test_a_driver_is_compiled_once(folder):
    first, second = fresh(), fresh()
    assert first(VALUES) == second(VALUES) == 10
    assert not first.stats.cache_hits
    assert second.stats.cache_hits
    (entry,) = folder.iterdir()
    assert kernel_files.used() == [entry.name]
    (about,) = second._cache.entries()
    assert about["driver"].endswith("fresh.<locals>.sums")


def test_an_edited_policy_is_compiled_anew_and_an_old_one_found_again(folder, policy):
    assert called(policy()) == (30, False)
    assert called(policy()) == (30, True)
    assert called(policy(POLICY.replace("+ 0", "+ 1"))) == (35, False)
    assert called(policy(helper=HELPER.replace("value + 1", "value + 2"))) == (40, False)
    assert called(policy(helper=HELPER.replace("FACTOR = 2", "FACTOR = 3"))) == (45, False)
    assert called(policy()) == (30, True)


def test_a_policy_that_is_not_there_disturbs_nobody(folder, policy):
    guest = policy()
    called(guest)
    driver, state = guest.total, guest.Mine
    assert compiled_for(driver, state)
    del sys.modules["guest"], sys.modules["helper"]
    assert compiled_for(driver, state)
    assert fresh()(VALUES) == 10
    names = kernel_files.used()
    packed = kernel_files.export()
    assert kernel_files.adopt(packed) == names


def test_policies_of_one_name_are_told_apart(folder, policy, monkeypatch, tmp_path):
    guest = policy()
    called(guest)
    twin = tmp_path / "sources" / "twin.py"
    twin.write_text(textwrap.dedent(POLICY).replace("+ 0", "+ 1"))
    assert called(importlib.import_module("twin")) == (35, False)
    assert called(guest)[0] == 30
    del sys.modules["twin"]


def test_kernels_are_found_in_folders_and_archives_that_are_only_read(
    folder, monkeypatch, tmp_path
):
    fresh()(VALUES)
    packed = tmp_path / "kernels.zip"
    packed.write_bytes(kernel_files.export())
    shipped = tmp_path / "shipped"
    kernel_files.export_to(shipped)
    assert {*zipfile.ZipFile(packed).namelist()} == {path.name for path in shipped.iterdir()}
    monkeypatch.setenv(kernel_files.WRITABLE, kernel_files.OFF)
    for place in (packed, shipped):
        monkeypatch.setenv(
            kernel_files.FOLDERS, os.pathsep.join([str(tmp_path / "none"), str(place)])
        )
        found = fresh()
        assert found(VALUES) == 10
        assert found.stats.cache_hits


def test_kernels_are_handed_from_process_to_process(folder, monkeypatch):
    fresh()(VALUES)
    packed = kernel_files.export()
    monkeypatch.setenv(kernel_files.WRITABLE, kernel_files.OFF)
    alone = fresh()
    alone(VALUES)
    assert not alone.stats.cache_hits
    kernel_files._memory.held.clear()
    kernel_files.adopt(packed)
    given = fresh()
    given(VALUES)
    assert given.stats.cache_hits


@pytest.mark.parametrize("damaged", [b"", b"nonsense", None])
def test_a_damaged_entry_is_compiled_anew(folder, damaged):
    fresh()(VALUES)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-9] if damaged is None else damaged)
    anew = fresh()
    assert anew(VALUES) == 10
    assert not anew.stats.cache_hits
    assert cache._payload(entry.read_bytes())


def test_a_function_whose_source_is_unknown_stays_in_memory(folder):
    space = {"__name__": "nowhere", "loop": loop}
    exec("@loop\ndef one(values):\n    return values.size", space)
    assert space["one"](VALUES) == 5
    assert not folder.exists() or not [*folder.iterdir()]


def test_what_closures_hold_is_no_secret_of_the_cache(folder):
    def adding(amount):
        def added(values):
            return values[0] + amount

        return loop(added)

    assert adding(1)(VALUES) == 1
    assert adding(2)(VALUES) == 2


def test_writers_and_readers_do_not_meet_halfway(folder):
    entries = [cache._packed({"writer": n}, bytes([n]) * 200_000) for n in range(8)]
    stop = threading.Event()

    def write(data):
        for _ in range(20):
            kernel_files._write(folder, f"same{kernel_files.SUFFIX}", data)

    def read():
        found = set()
        while not stop.is_set():
            data = kernel_files._Folder(folder).read(f"same{kernel_files.SUFFIX}")
            if data is not None:
                found.add(cache._payload(data)[0])
        return found

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(write, data) for data in entries]:
            writer.result()
        stop.set()
        for reader in readers:
            assert reader.result() <= {*range(8)}
    assert [path.name for path in folder.iterdir()] == [f"same{kernel_files.SUFFIX}"]


# -- where it is written --------------------------------------------------------------------------


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No folder is named, none belongs to the user, and the package's cannot be written to."""
    for name in (kernel_files.WRITABLE, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(kernel_files, "PACKAGE", blocked / "package")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    kernel_files._writable.cache_clear()
    yield tmp_path
    kernel_files._writable.cache_clear()


def test_the_first_folder_that_can_be_written_to_is_taken(nowhere, monkeypatch):
    private = nowhere / f"streamshed-{os.geteuid()}"
    assert kernel_files.writable_folder() == private
    assert private.stat().st_mode & 0o777 == 0o700
    for name, at in (("HOME", ".cache/streamshed"), ("XDG_CACHE_HOME", "streamshed")):
        kernel_files._writable.cache_clear()
        monkeypatch.setenv(name, str(nowhere / name))
        assert kernel_files.writable_folder() == nowhere / name / at
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(nowhere / "numba"))
    assert kernel_files.writable_folder() == nowhere / "numba" / "streamshed"
    monkeypatch.setenv(kernel_files.WRITABLE, str(nowhere / "own"))
    assert kernel_files.writable_folder() == nowhere / "own"
    monkeypatch.setenv(kernel_files.WRITABLE, kernel_files.OFF)
    assert kernel_files.writable_folder() is None


def test_a_named_folder_that_cannot_be_written_to_is_said(nowhere, monkeypatch, caplog):
    monkeypatch.setenv(kernel_files.WRITABLE, str(nowhere / "file" / "below"))
    assert kernel_files.writable_folder() is None
    assert "cannot be written to" in caplog.text
    assert fresh()(VALUES) == 10


@pytest.mark.parametrize("trick", ["open", "link", "other"])
def test_a_temporary_folder_that_others_reach_is_not_trusted(nowhere, monkeypatch, trick):
    private = nowhere / f"streamshed-{os.geteuid()}"
    if trick == "link":
        (nowhere / "elsewhere").mkdir(mode=0o700)
        private.symlink_to(nowhere / "elsewhere")
    else:
        private.mkdir(mode=0o700)
    if trick == "open":
        private.chmod(0o777)
    if trick == "other":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        private.rename(nowhere / f"streamshed-{os.geteuid()}")
    assert kernel_files.writable_folder() is None
    assert fresh()(VALUES) == 10


STRANGER = """
    import json, os, pwd, sys

    def unknown(_):
        raise KeyError("uid")

    pwd.getpwuid = unknown
    from pathlib import Path
    from streamshed.kernels import kernel_files
    kernel_files.PACKAGE = Path(os.devnull) / "package"  # which nobody can write to, not even root
    import numpy as np
    from streamshed.kernels.merge import running_maximum
    running_maximum(np.arange(3), np.zeros(3, bool), 0)
    hits = sum(running_maximum.stats.cache_hits.values())
    print(json.dumps([str(kernel_files.writable_folder()), kernel_files.used(), hits]))
"""


def test_a_user_without_a_name_or_a_home_can_run(tmp_path):
    """Two processes at once, and a third that finds what they have compiled."""
    kept = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"} & {*os.environ}
    environment = {name: os.environ[name] for name in kept} | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(STRANGER)]

    def run():
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    with ThreadPoolExecutor(2) as pool:
        both = [*pool.map(lambda _: run(), range(2))]
    place, used, hits = run()
    assert hits == 1
    assert Path(place) == tmp_path / f"streamshed-{os.geteuid()}"
    assert [one[1] for one in both] == [used, used]
    assert used == [path.name for path in Path(place).iterdir()]


# -- what it is compiled for ----------------------------------------------------------------------


@pytest.fixture
def plain(monkeypatch):
    """No setting of numba says for which processor to compile."""
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)


def test_the_baseline_serves_every_machine(plain, monkeypatch):
    everything = dict.fromkeys(codegen.NEEDED["x86-64-v3"], True)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: everything)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert codegen.baseline() == "x86-64-v3"
    monkeypatch.setitem(everything, "avx2", False)
    assert codegen.baseline() is None
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert codegen.baseline() == "generic"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert codegen.baseline() is None


@pytest.mark.parametrize("setting", ["CPU_NAME", "CPU_FEATURES"])
def test_the_settings_of_numba_win(plain, monkeypatch, setting):
    monkeypatch.setattr(numba.config, setting, "generic")
    assert codegen.baseline() is None


def test_kernels_are_made_for_the_baseline_and_other_functions_are_not(folder):
    made = codegen.kernel_codegen()
    if made.baseline is None:
        pytest.skip("this machine is no x86-64-v3, or numba was told otherwise")
    driver = fresh()
    driver(VALUES)
    (result,) = driver.overloads.values()
    assert result.library.codegen is made
    assert made.magic_tuple()[1:] == (made.baseline, "")
    assert f"{made.baseline}" in next(driver._cache.entries())["processor"]
    usual = numba.njit(driver.py_func)
    usual(VALUES)
    (other,) = usual.overloads.values()
    assert other.library.codegen is not made


# -- what is said ---------------------------------------------------------------------------------


def test_what_takes_long_to_compile_is_said_once(folder, monkeypatch, caplog):
    monkeypatch.setattr(cache, "_LONG", 0.0)
    monkeypatch.setattr(cache._notice, "said", False)
    with caplog.at_level(logging.WARNING, "streamshed"), cache.compiling_for("a test"):
        fresh()(VALUES)
        fresh()(VALUES.astype(float))
    assert [record.message for record in caplog.records] == [
        "compiling kernels (a test), which takes some seconds; later processes load them from "
        f"{folder}"
    ]


@pytest.mark.parametrize(
    ("state", "purpose"), [(OldestState, "loop.run with oldest"), (NoState, "loop.run")]
)
def test_what_is_said_names_the_policy_if_there_is_one(state, purpose):
    kind = numba.types.NamedTuple([numba.int64] * len(state._fields), state)
    assert cache._purpose(run.py_func, [kind]) == purpose


def test_nothing_is_said_to_whom_it_is_too_much(folder, monkeypatch, caplog):
    monkeypatch.setattr(cache, "_LONG", 0.0)
    monkeypatch.setattr(cache._notice, "said", False)
    monkeypatch.setenv(cache.QUIET, "1")
    fresh()(VALUES)
    assert not caplog.records


# -- kernels and numba's own functions ------------------------------------------------------------


@kernel
def doubled(value):
    return 2 * value


@kernel
def first_of(state):
    return doubled(state.values[0])


def test_functions_of_numba_call_kernels_unless_these_take_states(policy):
    @numba.njit
    def twice(value):
        return doubled(value)

    assert twice(3) == 6

    @numba.njit
    def first(state):
        return first_of(state)

    with pytest.raises(TypeError, match="compile the caller by @kernel"):
        first(policy().Mine(VALUES))


def test_kernels_call_functions_of_numba_unless_these_take_states(folder, policy):
    @numba.njit
    def last(values):
        return values[1]

    @numba.njit
    def size(state):
        return state.values.size

    @loop
    def plain(values):
        return last(values)

    @loop
    def stateful(state):
        return size(state)

    assert plain(VALUES) == 1
    with pytest.raises(TypeError, match="make it one by @kernel"):
        stateful(policy().Mine(VALUES))


def test_a_kernel_that_fails_says_why_from_the_cache_too(folder):
    def failing():
        def refuse(values):
            if values.size > 3:
                raise ValueError("too many")
            return values.size

        return loop(refuse)

    for found in (False, True):
        refuse = failing()
        with pytest.raises(ValueError, match="too many"):
            refuse(VALUES)
        assert bool(refuse.stats.cache_hits) is found
