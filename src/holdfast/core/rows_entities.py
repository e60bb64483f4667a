"""Rows that follow from facts about gates, entities and their locks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import events as e
from . import gates as gating
from . import requests as r
from .acquiring import lock_set_of
from .model import Level, LogLine

if TYPE_CHECKING:
    from .rows import Rows
    from .state import State

GATES, LOCKS, TIMEOUT = "gates", "locks", "locks-timeout"


def _gates_set(state: State, event: e.GatesSet, rows: Rows) -> None:
    due = gating.next_check(event.gates)
    rows.agenda[state.id, GATES] = None if due is None else rows.at(state.id, GATES, due, r.CheckGates())
    for gate in event.gates:
        if gate.kind == "after" and not gate.is_met:
            # Asked again with every change of the gates; whoever was asked remembers it once.
            other, item = gating.awaited(gate)[0], f"await/{state.id}"
            rows.agenda[other, item] = rows.at(other, item, state.at, r.AwaitEnd(state.id, state.tenant))


def _entities_found(state: State, event: e.EntitiesFound, rows: Rows) -> None:
    if not event.ids:
        rows.log(state, LogLine("there is no entity to work upon: steps for entities do nothing", Level.WARNING))


def _entities_queued(state: State, event: e.EntitiesQueued, rows: Rows) -> None:
    rows.place(state, event.ticket, 0, event.watch, lock_set_of(state))
    if state.policy.lock_timeout:
        due = state.at + state.policy.lock_timeout
        rows.agenda[state.id, TIMEOUT] = rows.at(state.id, TIMEOUT, due, r.TimeOutLocks(event.ticket))


def _entities_watched(state: State, event: e.EntitiesWatched, rows: Rows) -> None:
    queued = rows.entities_queued.get(state.id)
    if queued is not None:
        queued.watch = event.watch
    else:
        rows.entities_watching[state.id] = event.watch


def _entities_locked(state: State, event: e.EntitiesLocked, rows: Rows) -> None:
    queued = rows.entities_queued.get(state.id)
    if queued is not None:
        queued.fence, queued.since, queued.watch = event.fence, state.at, ""
    elif event.ticket == event.fence:
        rows.place(state, event.ticket, event.fence, "", lock_set_of(state))
        return  # it never waited
    else:
        rows.entities_granted[state.id] = (event.fence, state.at)
        rows.entities_watching.pop(state.id, None)
    _stop_waiting(state, rows)


def _entities_released(state: State, event: e.EntitiesReleased, rows: Rows) -> None:
    # What came and went within one commit leaves no trace: nothing can have been done under it.
    rows.entities_queued.pop(state.id, None)
    rows.entities_granted.pop(state.id, None)
    rows.entities_watching.pop(state.id, None)
    for lost in [key for key in rows.entities_lost if key[2] == state.id]:
        del rows.entities_lost[lost]
    rows.entities_released[state.id] = None
    _stop_waiting(state, rows)
    wake(event.woken, state.at, rows)


def _entity_lost(state: State, event: e.EntityLost, rows: Rows) -> None:
    rows.entities_lost[state.tenant, event.entity, state.id] = None
    by = f" by {event.by}" if event.by else ""
    rows.log(state, LogLine(f"{event.entity} was taken away{by}", Level.WARNING))
    wake(event.woken, state.at, rows)


def _stop_waiting(state: State, rows: Rows) -> None:
    rows.agenda[state.id, LOCKS] = None
    if state.policy.lock_timeout:
        rows.agenda[state.id, TIMEOUT] = None


def wake(executions: Iterable[str], at: int, rows: Rows) -> None:
    """They look again whether they can have their entities. In the commit that makes room: it cannot be lost."""
    for execution in executions:
        rows.agenda[execution, LOCKS] = rows.at(execution, LOCKS, at, r.TryLocks())


def _end_awaited(state: State, event: e.EndAwaited, rows: Rows) -> None:
    if state.status.is_ended:
        _tell_end(state, event.execution, rows)


def end(state: State, rows: Rows) -> None:
    """The execution has ended."""
    for execution in state.awaited_by:
        _tell_end(state, execution, rows)
    if not gating.all_met(state.gates):
        rows.agenda[state.id, GATES] = None
        for gate in state.gates:
            if gate.kind == "after" and not gate.is_met:
                rows.agenda[gating.awaited(gate)[0], f"await/{state.id}"] = None


def _tell_end(state: State, execution: str, rows: Rows) -> None:
    item = f"heard/{state.id}"
    rows.agenda[execution, item] = rows.at(execution, item, state.at, r.HearEnd(state.id, int(state.status)))


FOLLOW: dict[type, Callable[[State, Any, Rows], None]] = {
    e.GatesSet: _gates_set,
    e.EntitiesFound: _entities_found,
    e.EntitiesQueued: _entities_queued,
    e.EntitiesWatched: _entities_watched,
    e.EntitiesLocked: _entities_locked,
    e.EntitiesReleased: _entities_released,
    e.EntityLost: _entity_lost,
    e.EndAwaited: _end_awaited,
}
