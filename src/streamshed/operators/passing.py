"""Hooks of whoever stands in a policy's place, and has nothing to say of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streamshed.kernels import hooks, pacing
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


def _inserted(policy, core, row, pattern, worth):  # type: ignore[no-untyped-def]
    hooks.inserted(policy.policy, core, row, pattern, worth)


def _removed(policy, core, row):  # type: ignore[no-untyped-def]
    hooks.removed(policy.policy, core, row)


def _restored(policy, core, row, marked):  # type: ignore[no-untyped-def]
    hooks.restored(policy.policy, core, row, marked)


def _followed(policy, sample, row, pattern, results, rate):  # type: ignore[no-untyped-def]
    hooks.followed(policy.policy, sample, row, pattern, results, rate)


def _unfollowed(policy, sample, row, expired):  # type: ignore[no-untyped-def]
    hooks.unfollowed(policy.policy, sample, row, expired)


def _wanted(parts, core, lane, other, offset, row):  # type: ignore[no-untyped-def]
    return pacing.wanted(parts.policy, core, lane, other, offset, row)


def _farthest(parts, core, lane, other):  # type: ignore[no-untyped-def]
    return pacing.farthest(parts.policy, core, lane, other)


def _due(parts, time):  # type: ignore[no-untyped-def]
    return pacing.due(parts.policy, time)


def _let_in(parts, core, stream):  # type: ignore[no-untyped-def]
    return pacing.let_in(parts.policy, core, stream)


def _worked(parts, core, stream, work):  # type: ignore[no-untyped-def]
    pacing.worked(parts.policy, core, stream, work)


def _outlived(parts, core, lane):  # type: ignore[no-untyped-def]
    return pacing.outlived(parts.policy, core, lane)


_PASSED: dict[str, Callable[..., Any]] = {
    "announced": _announced,
    "urgency": _urgency,
    "admits": _admits,
    "victim": _victim,
    "mark": _mark,
    "produced": _produced,
    "inserted": _inserted,
    "removed": _removed,
    "restored": _restored,
    "followed": _followed,
    "unfollowed": _unfollowed,
    "wanted": _wanted,
    "farthest": _farthest,
    "due": _due,
    "let_in": _let_in,
    "worked": _worked,
    "outlived": _outlived,
}


def passes_on(*names: str) -> Callable[[State], State]:
    """Let a state hand hooks on to the policy that it holds in its field `policy`."""

    def register(state: State) -> State:
        for name in names:
            hook = getattr(hooks, name, None) or getattr(pacing, name)
            implements(hook, state)(_PASSED[name])
        return state

    return register
