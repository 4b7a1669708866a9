"""Hooks of whoever stands in a policy's place, and has nothing to say of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streamshed.kernels import hooks
from streamshed.kernels.compiling import implements

State = TypeVar("State", bound=type)


def _announced(policy, core, batch, i):  # type: ignore[no-untyped-def]
    hooks.announced(policy.policy, core, batch, i)


def _urgency(policy, core, batch, i):  # type: ignore[no-untyped-def]
    return hooks.urgency(policy.policy, core, batch, i)


def _admits(policy, core, pool, key, stream, time, worth):  # type: ignore[no-untyped-def]
    return hooks.admits(policy.policy, core, pool, key, stream, time, worth)


def _victim(policy, core, pool, arrival):  # type: ignore[no-untyped-def]
    return hooks.victim(policy.policy, core, pool, arrival)


def _mark(policy, core, row):  # type: ignore[no-untyped-def]
    return hooks.mark(policy.policy, core, row)


def _produced(policy, core, key, stream, pattern, members, count):  # type: ignore[no-untyped-def]
    hooks.produced(policy.policy, core, key, stream, pattern, members, count)


_PASSED: dict[str, Callable[..., Any]] = {
    "announced": _announced,
    "urgency": _urgency,
    "admits": _admits,
    "victim": _victim,
    "mark": _mark,
    "produced": _produced,
}


def passes_on(*names: str) -> Callable[[State], State]:
    """Let a state hand hooks on to the policy that it holds in its field `policy`."""

    def register(state: State) -> State:
        for name in names:
            implements(getattr(hooks, name), state)(_PASSED[name])
        return state

    return register
