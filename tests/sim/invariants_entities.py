"""What must hold of entities, their locks and the way back, in every simulated world; see `invariants`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core import events as e
from holdfast.core.entity_locks import EntityClaim
from holdfast.core.model import Effect, JobKind, Mode, Status, Undo
from holdfast.core.subjects import Progress
from holdfast.store.records import Batch, Header

from .base import Violation
from .checks import on_commit, on_end, on_event
from .models_entities import ACCEPTS_UNKNOWN
from .shadow import Shadow

if TYPE_CHECKING:
    from .world import World

#: said again here, not taken from the core: (held, asked) that go together
_TOGETHER = frozenset(
    {(Mode.IS, Mode.IS), (Mode.IS, Mode.IX), (Mode.IS, Mode.S), (Mode.IX, Mode.IS), (Mode.IX, Mode.IX),
     (Mode.S, Mode.IS), (Mode.S, Mode.S)}
)  # fmt: skip
_NONE: dict[Any, Any] = {}
_COMPLETED = (Status.COMPLETED, Status.COMPLETED_ACK)


# --- locks -----------------------------------------------------------------------------------------------
@on_commit
def entities_are_held_as_the_history_says(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    """Both ways, all or nothing, and given back in the commit that ends it."""
    tables, state = world.tables.about_entities, shadow.state
    places = tables.of.get(header.id, _NONE)
    if not places and not state.ticket:
        return
    if shadow.is_ended:
        if places:
            shadow.broken("I-22", f"it has ended with a place at {sorted(id for _, id in places)}")
        return
    rows = {id: tables.at[tenant, id][header.id] for tenant, id in places}
    known = {each.id: each.mode for each in state.subjects.values() if each.progress is not Progress.LOST}
    known |= state.around
    if not state.ticket or rows.keys() != known.keys():
        shadow.broken("I-23", f"it has a place at {sorted(rows)}, and should have at {sorted(known)}")
    fences = {row.fence for row in rows.values()}
    if len(fences) > 1:
        shadow.broken("I-24", f"it holds some of its entities and waits for others: {sorted(fences)}")
    if fences - {state.fence} or any(row.ticket != state.ticket for row in rows.values()):
        shadow.broken("I-21", f"it holds its entities under {state.fence}, its rows say {sorted(fences)}")
    if not state.fence:
        world.reach("entities waited for")
        watching = [row.entity for row in rows.values() if row.is_watching]
        if watching != [state.watch]:
            shadow.broken("I-18", f"it watches {state.watch}, its rows say {watching}")


@on_commit
def holders_go_together_and_nobody_is_overtaken(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    tables = world.tables.about_entities
    for place in tables.of.get(header.id, _NONE):
        here = tables.at[place]
        mine = here[header.id]
        for other in here.values():
            if other.execution == header.id or _go_together(other, mine):
                continue
            owner = world.shadows.get(other.execution)
            if owner is None or owner.is_ended:
                shadow.broken("I-23", f"{other.execution} has a place at {place[1]}, and is not there any more")
            if mine.fence and other.fence:
                shadow.broken(
                    "I-20", f"it holds {place[1]} with {other.execution}: {mine.mode.name}, {other.mode.name}"
                )
            if mine.fence and not other.fence and _rank(other) < _rank(mine) and other.priority == mine.priority:
                shadow.broken("I-25", f"it has {place[1]}, for which {other.execution} waits since before it came")


def _go_together(one: EntityClaim, other: EntityClaim) -> bool:
    return (one.mode, other.mode) in _TOGETHER


def _rank(claim: EntityClaim) -> tuple[int, int]:
    return (-claim.priority, claim.ticket)


@on_event(e.EntitiesLocked)
def fences_of_entities_only_grow(world: World, shadow: Shadow, event: e.EntitiesLocked) -> None:
    if event.fence in world.entity_fences:
        shadow.broken("I-21", f"fence {event.fence} is given a second time")
    world.entity_fences.add(event.fence)
    if event.ticket != event.fence:
        world.reach("entities granted after waiting")
    for subject in shadow.state.subjects.values():
        if world.fenced.get(subject.id, 0) > event.fence and subject.mode is Mode.X:
            shadow.broken("I-21", f"{subject.id} is held under {event.fence}, after {world.fenced[subject.id]}")
        world.fenced[subject.id] = max(event.fence, world.fenced.get(subject.id, 0))


@on_event(e.JobScheduled)
def nothing_is_done_to_what_is_not_held(world: World, shadow: Shadow, event: e.JobScheduled) -> None:
    if event.entity and event.kind is not JobKind.VERIFY:
        state = shadow.state
        if not state.fence or event.entity in state.lost:
            shadow.broken("I-20", f"job {event.job} is for {event.entity}, which it does not hold")


# --- the way back ----------------------------------------------------------------------------------------
@on_event(e.RollbackPlanned)
def the_plan_is_what_is_left(world: World, shadow: Shadow, event: e.RollbackPlanned) -> None:
    hidden = [job for job in world.witness.left_by(shadow.id) if job not in event.jobs]
    if hidden:
        shadow.broken("I-32", f"what jobs {hidden} did is there, and is not in the plan {list(event.jobs)}")
    if shadow.planned:
        shadow.broken("I-32", "rollback is planned twice")


@on_event(e.EntrySettled)
def settled_once_and_undone_only_if_it_is(world: World, shadow: Shadow, event: e.EntrySettled) -> None:
    if event.job in shadow.settled or event.job not in shadow.planned:
        shadow.broken("I-32", f"job {event.job} is settled as {event.outcome.name}, and was not to be, or was before")
    world.undos[event.outcome.name] += 1
    if event.outcome is Undo.UNDONE and world.witness.is_applied(shadow.id, event.job):
        shadow.broken("I-33", f"job {event.job} is said to be undone, and its device shows what it did")


@on_event(e.JobScheduled)
def only_what_may_be_undone_is(world: World, shadow: Shadow, event: e.JobScheduled) -> None:
    if event.kind is not JobKind.ROLLBACK:
        return
    entry, spec = shadow.state.ledger[event.about], shadow.state.specs[event.spec]
    if spec.is_pivot or not spec.has_rollback:
        shadow.broken("I-32", f"job {event.about} is to be undone, and its block {spec.block} cannot be")
    if (entry.effect is Effect.UNKNOWN or entry.unknown) and spec.block not in ACCEPTS_UNKNOWN:
        shadow.broken("I-32", f"job {event.about} is to be undone, although nobody knows whether it took effect")


@on_event(e.EffectVerified)
def what_was_seen_is_there(world: World, shadow: Shadow, event: e.EffectVerified) -> None:
    world.reach("effect looked at")
    is_there = world.witness.is_applied(shadow.id, event.job)
    if event.effect is (Effect.NONE if is_there else Effect.DONE):
        shadow.broken("I-33", f"job {event.job} is found to be {event.effect.name}, and its device shows otherwise")


@on_event(e.ExecutionFailed, e.ExecutionCancelled, e.ExecutionCompleted)
def every_entry_is_settled(world: World, shadow: Shadow, event: Any) -> None:
    missing = [job for job in shadow.planned if job not in shadow.settled]
    if missing:
        shadow.broken("I-32", f"it ends, and nothing was said about undoing jobs {missing}")
    if shadow.planned and not isinstance(event, e.ExecutionCompleted):
        left = tuple(sorted(job for job in shadow.planned if shadow.settled[job] is not Undo.UNDONE))
        if left != tuple(sorted(event.residue)):
            shadow.broken("I-34", f"jobs {list(left)} were not undone, the verdict names {list(event.residue)}")


# --- what is left behind ---------------------------------------------------------------------------------
@on_commit
def what_is_in_doubt_is_flagged(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    if not shadow.is_ended or not shadow.state.subjects:
        return
    flagged = {entity for id, entity, _ in world.tables.about_entities.flags if id == header.id}
    is_acked = shadow.state.status > Status.CANCELLED
    if is_acked:
        if flagged:
            shadow.broken("I-50", f"it is acknowledged, and {sorted(flagged)} are still flagged")
        return
    deeds = world.witness.deeds
    left = world.witness.left_by(header.id)
    if shadow.state.status in _COMPLETED:
        left = [job for job in left if job not in shadow.succeeded]
    bare = {deeds[header.id, job].entity for job in left} - flagged - {""}
    if bare:
        shadow.broken("I-50", f"it left something at {sorted(bare)}, and no flag says so")


@on_commit
def the_inventory_changes_with_the_end(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    """What blocks asked of it is there from the commit that completes the execution, or never."""
    if not shadow.asked:
        return
    entities = world.tables.about_entities.entities
    if shadow.state.status is Status.COMPLETED and any(row.execution == header.id for row in batch.history):
        lacking = [id for id in shadow.asked if entities["default", id].facts.get("by") != header.id]
        if lacking:
            shadow.broken("I-51", f"it has completed, and {sorted(lacking)} do not say what its blocks asked for")
        world.reach("inventory changed")
    elif shadow.state.status not in _COMPLETED:
        early = [row.id for row in entities.values() if row.facts.get("by") == header.id]
        if early:
            shadow.broken("I-51", f"it has not completed, and {sorted(early)} were changed for it")
    if shadow.is_ended and world.tables.about_entities.changes.get(header.id):
        shadow.broken("I-36", "it has ended, and changes are kept for it")


@on_end
def nothing_is_held_by_nobody(world: World) -> None:
    tables = world.tables.about_entities
    for tenant, claim in tables.claims():
        raise Violation("I-22", f"when all has ended, {claim.execution} has a place at {claim.entity} of {tenant}")
    for id, shadow in world.shadows.items():
        for job, outcome in shadow.settled.items():
            if outcome is Undo.UNDONE and world.witness.is_applied(id, job):
                shadow.broken("I-33", f"job {job} was said to be undone, and now its device shows what it did")
