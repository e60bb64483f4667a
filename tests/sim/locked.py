"""A program that takes locks before its first step, whatever its steps are: contention without a language for it.

The locks are given back by what ends the execution, and by nothing else: that is what is to be tested.
"""

from __future__ import annotations

from typing import Any

from holdfast.core import program as p
from holdfast.core.locks import ask
from holdfast.core.model import DEFAULT_ENTITY, Failure
from holdfast.core.reads import LockKey, Reads
from holdfast.core.state import State

from .base import MS

#: between two locks, so that others come between them
PAUSE = 300 * MS


class Locked:
    """`names`: the locks, taken one after the other."""

    def __init__(self, inner: p.Program, names: tuple[str, ...]) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def advance(self, state: State, cause: p.Cause, now: int, reads: Reads) -> list[p.Command]:
        held = sum(hold.fence > 0 for hold in state.locks.values())
        match cause:
            case p.Begun():
                return self._take(0, state, now, reads)
            case p.LockGranted(name=name):
                return self._holding(self._names.index(name), state, now, reads)
            case p.LockBroken():
                return [p.Fail(Failure("deadlock", cause.why))]
            case p.TimerEnded() if held < len(self._names):
                return self._take(held, state, now, reads)
        if held < len(self._names):
            return []  # a signal, before it has begun
        return self._inner.advance(state, cause, now, reads)

    def _take(self, at: int, state: State, now: int, reads: Reads) -> list[p.Command]:
        name = self._names[at]
        seq, fence = ask(reads.lock(LockKey(state.tenant, DEFAULT_ENTITY, name)), state.id, 1)
        taken: list[p.Command] = [p.TakeLock(1, DEFAULT_ENTITY, name, seq, fence, (1,))]
        return taken + self._holding(at, state, now, reads) if fence else taken

    def _holding(self, at: int, state: State, now: int, reads: Reads) -> list[p.Command]:
        if at + 1 < len(self._names):
            return [p.SetTimer(1, now + PAUSE)]
        return self._inner.advance(state, p.Begun(), now, reads)
