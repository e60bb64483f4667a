"""Verify, for what executions share: locks and their queues, subscriptions, and the wake-ups on the agenda.

Each execution's own claims are compared with the fold of its history, both ways; each lock's queue with itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.ids import from_key
from holdfast.core.locks import Hold
from holdfast.core.rows import AgendaRow, ClaimRow, item_of
from holdfast.core.state import State
from holdfast.store.queries import Queries, storable

#: (invariant, what is wrong)
Wrong = tuple[str, str]
WAKING = (r.WakeLock, r.WakeSensor, r.BreakLock, r.LoseLock)


class Fences:
    """The greatest fence of each lock that a history names."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], int] = {}

    def see(self, event: e.Event) -> None:
        match event:
            case e.LockTaken() | e.LockGranted() | e.LockReleased() | e.LockForced():
                lock = (event.entity, event.name)
                self.known[lock] = max(self.known.get(lock, 0), event.fence)
            case _:
                pass


def wrong_with_execution(
    queries: Queries, state: State, fences: Fences, agenda: dict[str, AgendaRow]
) -> Iterator[Wrong]:
    """Takes the wake-ups out of `agenda`: what is left has other reasons."""
    waking = {item: agenda.pop(item) for item, row in list(agenda.items()) if isinstance(row.request, WAKING)}
    claims = {(row.entity, row.name, row.claim.seq): row for row in queries.claims_of(state.id)}
    if state.status.is_ended and claims:
        locks = sorted({f"{row.name} of {row.entity}" for row in claims.values()})
        yield "I-22", f"it has ended but still has claims to {', '.join(locks)}"
        claims = {}
    for hold in state.locks.values():
        yield from _wrong_with_hold(
            hold, claims.pop((storable(hold.entity), storable(hold.name), hold.seq), None), waking
        )
    for row in claims.values():
        how = "holds" if row.fence else "waits for"
        yield "I-23", f"it {how} lock {row.name} of {row.entity} according to its row, but not to the history"
    for (entity, name), fence in fences.known.items():
        head = queries.lock_head(state.tenant, entity, name)
        if head is None or head.fence < fence:
            said = "is not stored" if head is None else f"says {head.fence}"
            yield "I-21", f"the history knows fence {fence} of lock {name} of {entity}, its row {said}"
    yield from _wrong_with_waits(queries, state)
    yield from _wrong_with_wake_ups(state, waking)


def _wrong_with_hold(hold: Hold, row: ClaimRow | None, waking: dict[str, AgendaRow]) -> Iterator[Wrong]:
    lock = f"lock {hold.name} of {hold.entity}"
    if row is None:
        if item_of(r.LoseLock(hold.entity, hold.name, hold.seq, 0)) not in waking:
            how = "holds" if hold.fence else "waits for"
            yield "I-23", f"it {how} {lock} according to the history, but has no place there"
    elif row.claim.lane != hold.lane:
        yield "I-23", f"lane {hold.lane} has the claim to {lock}, its row says lane {row.claim.lane}"
    elif hold.fence and row.fence != hold.fence:
        yield "I-21", f"it holds {lock} under fence {hold.fence}, its row says {row.fence}"
    elif row.fence and not hold.fence and item_of(r.WakeLock(hold.entity, hold.name, hold.lane, 0)) not in waking:
        yield "I-18", f"it was granted {lock}, but nothing on the agenda tells lane {hold.lane}: it would wait for ever"


def _wrong_with_waits(queries: Queries, state: State) -> Iterator[Wrong]:
    known = {
        (storable(entity), kind, storable(name), lane)
        for lane, sensors in state.awaits.items()
        for entity, kind, name in sensors
    }
    stored = set(queries.waits_of(state.id))
    if state.status.is_ended and stored:
        yield "I-22", f"it has ended but still waits for {len(stored)} sensors"
        return
    for entity, kind, name, lane in sorted(known - stored):
        yield "I-18", f"lane {lane} waits for {kind} {name} of {entity}, but no change of it would wake it"
    for entity, kind, name, lane in sorted(stored - known):
        yield "I-22", f"a change of {kind} {name} of {entity} would wake lane {lane}, which does not wait for it"


def _wrong_with_wake_ups(state: State, waking: dict[str, AgendaRow]) -> Iterator[Wrong]:
    """Each has somebody to wake. Only that a lock was lost may reach an execution too late."""
    for item, row in waking.items():
        match row.request:
            case r.WakeLock(entity, name, lane, seq):
                hold = state.locks.get((entity, name, lane))
                is_expected = hold is not None and hold.seq == seq and not hold.fence
            case r.WakeSensor(lane):
                is_expected = lane in state.awaits
            case _:
                is_expected = True
        if not is_expected:
            yield "I-18", f"{item} is on the agenda, but not in the history"


def wrong_with_locks(queries: Queries) -> Iterator[tuple[str, str, str]]:
    """(invariant, execution, what is wrong) of queues by themselves."""
    holders = (
        "SELECT q.entity, q.name, min(q.execution), count(*) FROM lock_queue AS q WHERE q.fence > 0"
        " GROUP BY q.tenant, q.entity, q.name HAVING count(*) > 1 ORDER BY 1, 2 LIMIT 100"
    )
    for entity, name, execution, count in queries.rows(holders):
        yield "I-20", from_key(bytes(execution)), f"lock {name} of {entity} has {count} holders"
    unheld = (
        "SELECT q.entity, q.name, min(q.execution) FROM lock_queue AS q WHERE NOT EXISTS (SELECT 1 FROM lock_queue AS h"
        " WHERE h.tenant = q.tenant AND h.entity = q.entity AND h.name = q.name AND h.fence > 0)"
        " GROUP BY q.tenant, q.entity, q.name ORDER BY 1, 2 LIMIT 100"
    )
    for entity, name, execution in queries.rows(unheld):
        yield "I-25", from_key(bytes(execution)), f"nobody holds lock {name} of {entity}, yet it is waited for"
    overtaken = (
        "SELECT q.entity, q.name, min(q.execution) FROM lock_queue AS q JOIN lock_queue AS h ON h.tenant = q.tenant"
        " AND h.entity = q.entity AND h.name = q.name AND h.fence > 0 AND h.seq > q.seq WHERE q.fence = 0"
        " GROUP BY q.tenant, q.entity, q.name ORDER BY 1, 2 LIMIT 100"
    )
    for entity, name, execution in queries.rows(overtaken):
        yield "I-25", from_key(bytes(execution)), f"it was overtaken at lock {name} of {entity}"
    numbers = (
        "SELECT q.entity, q.name, min(q.execution) FROM lock_queue AS q LEFT JOIN locks AS l ON l.tenant = q.tenant"
        " AND l.entity = q.entity AND l.name = q.name WHERE l.fence IS NULL OR l.next_seq <= q.seq OR"
        " (q.fence > 0 AND l.fence <> q.fence) GROUP BY q.tenant, q.entity, q.name ORDER BY 1, 2 LIMIT 100"
    )
    for entity, name, execution in queries.rows(numbers):
        yield "I-21", from_key(bytes(execution)), f"the numbers of lock {name} of {entity} are behind its queue"
