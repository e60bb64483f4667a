"""What an execution does with rows that it shares with others: locks and sensors.

Three questions, each answered without acting: which facts a program's command makes (`facts`), what a wake-up
means (`answer`), and what has to be given back before an execution may end (`closing`). The last is the only
place where that is decided, whatever the reason for the end.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from . import events as e
from . import program as p
from . import requests as r
from .codec import pack
from .errors import LockNotHeld
from .locks import LOCK_EVENTS, Claim, Hold, Holds, LockEvent, after, change, find, force, release
from .model import Failure
from .reads import LockKey, Missing, Reads, SensorKey, WatchersKey
from .sensors import SENSOR_EVENTS, VALUE_LIMIT, Awaits
from .sensors import change as change_awaits
from .state import State

Sharing: TypeAlias = (
    p.TakeLock | p.ReleaseLock | p.ForceLock | p.SetSensor | p.ClearSensor | p.AwaitSensor | p.LeaveSensor
)
Waking: TypeAlias = r.WakeLock | r.WakeSensor | r.BreakLock | r.LoseLock | r.FreeLock

ENDINGS = frozenset({e.ExecutionCompleted, e.ExecutionFailed, e.ExecutionCancelled})
#: kinds of facts that are about shared rows
SHARED = frozenset({*LOCK_EVENTS, *SENSOR_EVENTS})


#: Characters a name of a lock, sensor or entity may have: they are index entries.
NAME_LIMIT = 200
#: Sensors of a name that begins so are views of locks.
LOCK_SENSOR = "lock-"


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LIMIT and text.isprintable()


# --- a program's wishes --------------------------------------------------------------------------------
def facts(command: Sharing, state: State, events: list[e.Event], reads: Reads) -> list[e.Event] | Failure:
    """The events of that command, after `events` of the same decision; or why it cannot be."""
    if isinstance(command, p.TakeLock | p.SetSensor | p.AwaitSensor):
        for text in (command.entity, command.name):
            if not is_name(text):
                message = (
                    f"{text[:40]!r} is no name of a lock, sensor or entity: 1 to {NAME_LIMIT} printable characters"
                )
                return Failure("invalid", message, code="HF0201")
    match command:
        case p.TakeLock(lane, entity, name, seq, fence, path, is_by_sensor):
            if fence:
                return [e.LockTaken(lane, entity, name, seq, fence, path, is_by_sensor)]
            return [e.LockQueued(lane, entity, name, seq, path)]
        case p.ReleaseLock(lane, entity, name, seq, heir, fence):
            if not _has_claim(state, events, (entity, name, lane), seq):
                return []  # taken away from it meanwhile, or given back already
            return [e.LockReleased(lane, entity, name, seq, heir, fence)]
        case p.ForceLock(entity, name, owner, owner_seq, heir, fence):
            return [e.LockForced(entity, name, owner, owner_seq, heir, fence, f"execution {state.id}")]
        case p.SetSensor(lane, entity, kind, name, value, version):
            size = len(pack(value))
            if size > VALUE_LIMIT:
                message = f"{kind} {name} of {entity}: {size:,} bytes are over the limit of {VALUE_LIMIT:,}"
                return Failure("value-too-large", message, code="HF0721")
            woken = _woken(command, state, events, reads)
            return [e.SensorChanged(lane, entity, kind, name, value, version, False, woken)]
        case p.ClearSensor(lane, entity, kind, name, version):
            woken = _woken(command, state, events, reads)
            return [e.SensorChanged(lane, entity, kind, name, None, version, True, woken)]
        case p.AwaitSensor(lane, entity, kind, name):
            return [e.SensorAwaited(lane, entity, kind, name)]
        case p.LeaveSensor(lane):
            return [e.SensorLeft(lane)] if _is_waiting(state, events, lane) else []
        case _:
            assert_never(command)


def _woken(
    command: p.SetSensor | p.ClearSensor, state: State, events: list[e.Event], reads: Reads
) -> tuple[tuple[str, int], ...]:
    """Lanes that wait for it, but for the one that changes it. Read here and not by the program: a wake-up that
    is forgotten is lost for ever."""
    sensor = (command.entity, command.kind, command.name)
    others = [x for x in reads.waiters(SensorKey(state.tenant, *sensor)) if x[0] != state.id]
    own = []
    if state.awaits or e.SensorAwaited in map(type, events):
        own = [(state.id, lane) for lane, sensors in _awaits(state, events).items() if sensor in sensors]
    return tuple(waiter for waiter in (*others, *own) if waiter != (state.id, command.lane))


# --- wake-ups --------------------------------------------------------------------------------------------
def answer(state: State, request: Waking, reads: Reads) -> tuple[list[e.Event], p.Cause | None]:
    """The facts, and what to tell the program. Neither, where it comes too late: nothing is wrong then."""
    if state.status.is_ended:
        if isinstance(request, r.FreeLock):
            raise _not_held(state, request)
        return [], None
    match request:
        case r.WakeLock(entity, name, lane, seq):
            hold = state.locks.get((entity, name, lane))
            if hold is None or hold.seq != seq or hold.fence:
                return [], None
            row = reads.lock(LockKey(state.tenant, entity, name))
            if row.holder is None or row.holder.seq != seq:
                return [], None  # taken away before it could be told; `LoseLock` is on its way
            return [e.LockGranted(lane, entity, name, seq, row.fence)], p.LockGranted(lane, entity, name)
        case r.WakeSensor(lane):
            return [], p.SensorMoved(lane) if lane in state.awaits else None
        case r.BreakLock(entity, name, lane, seq, why):
            hold = state.locks.get((entity, name, lane))
            if hold is None or hold.seq != seq or hold.fence:
                return [], None
            row = reads.lock(LockKey(state.tenant, entity, name))
            if row.holder is not None and row.holder.seq == seq:
                return [], None  # granted meanwhile: there is no cycle any more
            return [e.LockReleased(lane, entity, name, seq)], p.LockBroken(lane, entity, name, why)
        case r.LoseLock(entity, name, seq, fence, by):
            hold = find(state.locks, entity, name, seq)
            if hold is None:
                return [], None
            return _taken_away(hold, fence - 1, e.LockForced(entity, name, state.id, seq, by=by))
        case r.FreeLock(entity, name, seq, by):
            hold = find(state.locks, entity, name, seq)
            row = reads.lock(LockKey(state.tenant, entity, name))
            if hold is None or row.holder is None or row.holder.seq != seq:
                raise _not_held(state, request)
            heir, fence = force(row)
            forced = e.LockForced(entity, name, state.id, seq, heir_of(heir), fence, by)
            return _taken_away(hold, row.fence, forced)
        case _:
            assert_never(request)


def _taken_away(hold: Hold, fence: int, forced: e.LockForced) -> tuple[list[e.Event], p.Cause | None]:
    """A former holder goes on without the lock. One that did not know yet that it had been granted it had it all
    the same, and goes on too: it is in no queue any more."""
    if hold.fence:
        return [forced], None
    granted = e.LockGranted(hold.lane, hold.entity, hold.name, hold.seq, fence)
    return [granted, forced], p.LockGranted(hold.lane, hold.entity, hold.name)


def _not_held(state: State, request: r.FreeLock) -> LockNotHeld:
    return LockNotHeld(
        f"execution {state.id} does not hold lock {request.name} of {request.entity} any more; look again who does"
    )


# --- the end -----------------------------------------------------------------------------------------
def closing(state: State, events: list[e.Event], now: int, reads: Reads) -> list[e.Event]:
    """`events`; where they end the execution, with everything before the end that gives back what it shares: its
    locks go to their heirs and its places in queues are left in the very transition that ends it."""
    if not events or type(events[-1]) not in ENDINGS:
        return events
    if _has_place(state, events):
        woken = reads.watchers(WatchersKey(state.tenant, state.id))
        events = [*events[:-1], e.EntitiesReleased(woken), events[-1]]
    if not state.locks and not state.awaits and SHARED.isdisjoint(map(type, events)):
        return events
    given: list[e.Event] = []
    by_lock: dict[tuple[str, str], list[Hold]] = {}
    for hold in _holds(state, events).values():
        by_lock.setdefault((hold.entity, hold.name), []).append(hold)
    moves: dict[tuple[str, str], list[LockEvent]] = {}
    for event in events:
        if isinstance(event, LOCK_EVENTS):
            moves.setdefault((event.entity, event.name), []).append(event)
    # Sorted, so that deciding twice decides the same.
    for lock in sorted(by_lock):
        given += _given_back(state, lock, by_lock[lock], moves.get(lock, []), now, reads)
    given += [e.SensorLeft(lane) for lane in sorted(_awaits(state, events))]
    return [*events[:-1], *given, events[-1]]


def _has_place(state: State, events: list[e.Event]) -> bool:
    """Whether it holds entities, or waits for them, after these events."""
    has_place = state.ticket > 0
    for event in events:
        kind = type(event)
        if kind is e.EntitiesLocked or kind is e.EntitiesQueued:
            has_place = True
        elif kind is e.EntitiesReleased:
            has_place = False
    return has_place


def _given_back(
    state: State, lock: tuple[str, str], holds: list[Hold], moves: list[LockEvent], now: int, reads: Reads
) -> list[e.Event]:
    key = LockKey(state.tenant, *lock)
    row = reads.lock(key)
    for moved in moves:
        row = after(row, state.id, moved, now)
    given: list[e.Event] = []
    holder = row.holder.seq if row.holder is not None else 0
    # Queues are left first: nothing is inherited by a lane that ends in this transition too.
    for hold in sorted(holds, key=lambda hold: (hold.seq == holder, hold.seq)):
        heir, fence = release(row, hold.seq)
        if hold.seq == holder and heir is None and not row.is_whole:
            raise Missing(LockKey(state.tenant, *lock, window=row.next_seq))
        event = e.LockReleased(hold.lane, *lock, hold.seq, heir_of(heir), fence)
        row = after(row, state.id, event, now)
        given.append(event)
    return given


# --- the execution's own claims and waits, after the events of this decision ------------------------------
def heir_of(claim: Claim | None) -> tuple[str, int, int] | None:
    """How commands and events name an heir."""
    return None if claim is None else (claim.execution, claim.lane, claim.seq)


def _has_claim(state: State, events: list[e.Event], key: tuple[str, str, int], seq: int) -> bool:
    """Looks from the end: what is given back was mostly taken a moment ago, and a program may give back a thousand
    locks in one transition."""
    for event in reversed(events):
        if type(event) not in SHARED or not isinstance(event, LOCK_EVENTS):
            continue
        if isinstance(event, e.LockForced):
            if (event.owner, event.entity, event.name, event.owner_seq) == (state.id, *key[:2], seq):
                return False
        elif (event.entity, event.name, event.lane) == key:
            return event.seq == seq and not isinstance(event, e.LockReleased)
    hold = state.locks.get(key)
    return hold is not None and hold.seq == seq


def _is_waiting(state: State, events: list[e.Event], lane: int) -> bool:
    for event in reversed(events):
        if isinstance(event, e.SensorAwaited | e.SensorLeft) and event.lane == lane:
            return isinstance(event, e.SensorAwaited)
    return lane in state.awaits


def _holds(state: State, events: list[e.Event]) -> Holds:
    holds = dict(state.locks)
    for event in events:
        if isinstance(event, LOCK_EVENTS):
            change(holds, state.id, event, 0)
    return holds


def _awaits(state: State, events: list[e.Event]) -> Awaits:
    awaits = dict(state.awaits)
    for event in events:
        if isinstance(event, SENSOR_EVENTS):
            change_awaits(awaits, event)
    return awaits
