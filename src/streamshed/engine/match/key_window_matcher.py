"""The matcher of throttled streams that share a key, outside the loop."""

from __future__ import annotations

from streamshed.engine.match.key_windows import key_windows_layout
from streamshed.engine.match.keys import KeyWindowState
from streamshed.engine.match.matcher import Matcher
from streamshed.kernels.core import Field, Memory, Shape, make
from streamshed.plan.plan import Plan


class KeyWindowMatcher(Matcher):
    """Finds rows by their key, and in which basic windows they are."""

    def __init__(self, plan: Plan, shape: Shape, memory: Memory) -> None:
        super().__init__(plan, shape, memory)
        assert plan.throttle is not None
        layout = self.layout()
        self.state = make(KeyWindowState, layout, shape, memory, self.prefix)
        windows = [stream.window or 0 for stream in plan.streams]
        self.state.part[:] = plan.throttle.lengths(windows)

    def layout(self) -> dict[str, Field]:
        """The arrays."""
        return key_windows_layout(len(self.plan.streams))
