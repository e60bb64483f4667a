"""Why an execution has not begun: gates that are open, and entities that others have."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.acquiring import lock_set_of
from holdfast.core.entity_locks import Contention, EntityClaim, first_block, is_before
from holdfast.core.gates import awaited
from holdfast.core.ids import short
from holdfast.core.model import Gate, Status
from holdfast.core.reads import ContentionKey
from holdfast.core.state import State
from holdfast.core.views import Reason, seconds
from holdfast.store.queries import Queries

Clock = Callable[[int], str]


def is_waiting(state: State) -> bool:
    """Whether it is in the queue for its entities."""
    return state.ticket > 0 and not state.fence and not state.status.is_ended


def contention_of(queries: Queries, state: State) -> Contention | None:
    """What is at the entity that it watches, if it waits for its entities."""
    if not is_waiting(state):
        return None
    found: Contention = queries.shared(ContentionKey(state.tenant, (state.watch,)))
    return found


def begins(state: State, there: Contention | None, now: int, clock: Clock) -> list[Reason]:
    if state.status is Status.BLOCKED_WAITING:
        return [_gate(state, gate, now, clock) for gate in state.gates if not gate.is_met]
    if is_waiting(state):
        return _entities(state, there or Contention(), now, clock)
    return []


def _gate(state: State, gate: Gate, now: int, clock: Clock) -> Reason:
    until = f"; given up at {clock(gate.deadline)}" if gate.deadline else ""
    left = f"{clock(gate.due)} ({seconds(max(0, gate.due - now))} left)"
    match gate.kind:
        case "not-before":
            return Reason("gate", f"may not begin before {left}{until}")
        case "window":
            return Reason("gate", f"waits for its window {gate.what}, which opens at {left}{until}")
        case "approval":
            asks = f": {gate.what}" if gate.what else ""
            text = f"waits for the approval of somebody with the role operator before it begins{asks}{until}"
            return Reason("approval", text, command=f"holdfast approve {short(state.id)}")
        case "after":
            other = awaited(gate)[0]
            text = f"waits until execution {short(other)} has ended{until}"
            return Reason("gate", text, command=f"holdfast why {short(other)}")
        case kind:
            return Reason("gate", f"waits for {kind} {gate.what}{until}")


def _entities(state: State, there: Contention, now: int, clock: Clock) -> list[Reason]:
    wanted = lock_set_of(state)
    count = f"{len(wanted)} entities" if len(wanted) != 1 else next(iter(wanted))
    what = f"waits since {clock(state.locked_at)} ({seconds(max(0, now - state.locked_at))}) for {count}"
    asked = {id: mode for id, mode in wanted.items() if id == state.watch}
    block = first_block(asked, there, state.id, state.ticket, state.policy.priority)
    if block is None:
        return [Reason("entity", f"{what}: it is its turn"), *_timeout(state, clock)]
    place = _place(state, there.claims)
    if block.claims:
        first = block.claims[0]
        alike = sum(bool(claim.fence) == bool(first.fence) for claim in block.claims)
        others = f" and {alike - 1} more" if alike > 1 else ""
        verb = "is held by" if first.fence else "is waited for, with more right to it, by"
        text = f"{what}: {block.entity} {verb} execution {short(first.execution)}{others} since {clock(first.since)}"
        reason = Reason("entity", f"{text}, {place}", command=f"holdfast why {short(first.execution)}")
    else:
        flag = block.flags[0]
        said = f" ({flag.reason})" if flag.reason else ""
        text = f"{what}: {block.entity} is in quarantine since execution {short(flag.execution)} left it in doubt{said}"
        command = f"holdfast ack {short(flag.execution)} --note NOTE"
        reason = Reason("quarantine", f"{text}, {place}", command=command)
    return [reason, *_timeout(state, clock)]


def _place(state: State, claims: tuple[EntityClaim, ...]) -> str:
    waiting = [claim for claim in claims if not claim.fence]
    ahead = [
        claim
        for claim in waiting
        if claim.execution != state.id and is_before(claim, state.ticket, state.policy.priority)
    ]
    return f"position {len(ahead) + 1} of {max(len(waiting), 1)} there"


def _timeout(state: State, clock: Clock) -> list[Reason]:
    if not state.policy.lock_timeout:
        return []
    return [Reason("timeout", f"gives up at {clock(state.locked_at + state.policy.lock_timeout)}")]
