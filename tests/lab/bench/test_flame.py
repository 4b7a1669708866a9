"""Flame graphs: the kernels of a loop, below each other, with their part of its time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from streamshed.errors import StreamshedError
from streamshed_lab.bench.flame import drawn, flame_graph, loops_of
from streamshed_lab.bench.profiling import Frame

SVG = "{http://www.w3.org/2000/svg}"


def titles(text: str) -> list[str]:
    return [found.text or "" for found in ET.fromstring(text).iter(f"{SVG}title")]


def test_a_kernel_is_as_wide_as_its_time_and_stands_on_its_caller() -> None:
    left, right = Frame("streamshed.a.left", 7, 0.5), Frame("streamshed.b.<right>", 1, 0.2)
    graph = ET.fromstring(drawn(Frame("all", 0, 0.0, [Frame("run", 1, 0.3, [right, left])]), "x"))
    boxes = {}
    for group in graph.iter(f"{SVG}g"):
        box, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert box is not None
        assert title is not None
        name = (title.text or "").partition(":")[0]
        boxes[name] = {side: float(box.attrib[side]) for side in ("x", "y", "width")}
    assert boxes["a.left"]["width"] == pytest.approx(600, abs=1)
    assert boxes["b.<right>"]["width"] == pytest.approx(240, abs=1)
    assert boxes["b.<right>"]["x"] == pytest.approx(600, abs=1)
    assert boxes["a.left"]["y"] == boxes["b.<right>"]["y"] < boxes["run"]["y"] < boxes["all"]["y"]


def test_the_kernels_of_a_loop_are_found() -> None:
    found = {one.partition(":")[0] for one in titles(flame_graph("keyed", "in bulk"))}
    assert {"all", "engine.bulk.probe.probe_part", "engine.bulk.probe._key_number"} <= found


def test_what_cannot_be_drawn_says_so() -> None:
    with pytest.raises(StreamshedError, match=r"no benchmark 'key'.*Did you mean 'keyed'"):
        loops_of("key")
    with pytest.raises(StreamshedError, match=r"'starting' has no loop to draw; give one of"):
        loops_of("starting")
    with pytest.raises(StreamshedError, match=r"no loop 'oldst'.*Did you mean 'oldest'"):
        flame_graph("keyed", "oldst")
