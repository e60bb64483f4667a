"""Doing an execution again as a new one: whether that may be, and upon which of its entities. Pure.

The origin stays as it is. The new execution has the same definition and input and works upon exactly the entities
that are chosen here, whatever a selector would find today; where the origin never found out what it works upon, the
new one is started as the origin was.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .errors import NothingToRetry, UnsafeUnseen, WrongStatus
from .model import Effect, Gate, Status
from .state import State, in_doubt
from .subjects import Progress

_COMPLETED = (Status.COMPLETED, Status.COMPLETED_ACK)


class Upon(msgspec.Struct, frozen=True):
    """What a retry works upon."""

    entities: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    #: these and no others
    is_exact: bool = False


def check(state: State, force: bool = False) -> None:
    """Refuses where it may not be retried now."""
    if not state.status.is_ended:
        raise WrongStatus(
            f"execution {state.id} is {state.status.name}; only what has ended can be retried:"
            f" `holdfast cancel {state.id[:8]}` ends it"
        )
    is_unseen = state.status is Status.FAILED_UNSAFE or (state.status is Status.CANCELLED and in_doubt(state))
    if is_unseen and not force:
        raise UnsafeUnseen(
            f"execution {state.id} ended {state.status.name} and left something behind: see `holdfast ledger"
            f" {state.id[:8]}`, put it right and say so with `holdfast ack {state.id[:8]} --note TEXT`; or retry it"
            " with --force"
        )


def upon(state: State, types: Collection[str], failed: bool) -> Upon:
    """`types` are those of the entities that steps are done for. Refuses where nothing is left to do."""
    if not state.policy.works_on_entities or not state.subjects:
        was_found = state.policy.works_on_entities and bool(state.started_at)
        if failed and (state.status in _COMPLETED or was_found):
            raise NothingToRetry(
                f"nothing of execution {state.id} failed for an entity: it is {state.status.name} and worked upon"
                f" none; `holdfast retry {state.id[:8]}` without --failed does all of it again"
            )
        return Upon(state.entities, state.select, state.is_exact)
    subjects = state.subjects.values()
    if not failed:
        return Upon(tuple(subject.id for subject in subjects), is_exact=True)
    undone = {entry.entity for entry in state.ledger.values() if entry.effect is Effect.UNDONE}
    chosen = {
        subject.id
        for subject in subjects
        if subject.type in types and (subject.progress is not Progress.DONE or subject.id in undone)
    }
    if not chosen:
        where = f" in step {state.failed_step}, which is done for no entity" if state.failed_step else ""
        how = "completed" if state.status in _COMPLETED else f"{state.status.name}{where}"
        raise NothingToRetry(
            f"all entities of execution {state.id} are done ({how}); `holdfast retry {state.id[:8]}` without --failed"
            " does all of it again"
            + ("" if state.status in _COMPLETED else f", `holdfast resume {state.id[:8]}` carries on where it stands")
        )
    # What is only held while others are worked upon is held again.
    return Upon(
        tuple(subject.id for subject in subjects if subject.id in chosen or subject.type not in types), is_exact=True
    )


def gates_again(state: State, own: int, now: int) -> tuple[Gate, ...]:
    """Gates that came with the start of the origin, as if they came now; the first `own` are the workflow's."""
    return tuple(
        Gate(gate.kind, gate.what, gate.due, now + gate.deadline - state.created_at if gate.deadline else 0)
        for gate in state.gates[own:]
    )


def counts(state: State) -> tuple[int, ...]:
    """How many entities have come how far, in the order of `Progress`; empty where it works upon none."""
    if not state.subjects:
        return ()
    found = [0] * len(Progress)
    for subject in state.subjects.values():
        found[subject.progress] += 1
    return tuple(found)
