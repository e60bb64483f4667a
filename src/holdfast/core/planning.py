"""What a start would do, said before anything happens: which blocks, entities and locks, how many jobs, and the worst
that can come of each step.

The start is really decided, and thrown away: whatever would be wrong is wrong here with the same words. It goes on
where a real one would wait, behind gates and for blocks that are asked which entities they need, with what is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import events as e
from . import program as p
from . import requests as r
from .acquiring import Road
from .begin import begin
from .entity_locks import Contention, goes_with
from .folding import fold
from .model import Failure, JobKind, JobSpec, Problem, Status
from .reads import ContentionKey, Missing, Need, Reads
from .state import State, open_state
from .views import error_view, hooks_of
from .views_plan import PlannedBlock, PlannedClaim, PlannedEntity, PlannedGate, PlannedStep, StartPlan
from .views_shared import FlagView
from .worst import Worst, judge


def plan(request: r.StartExecution, now: int, reads: Reads) -> StartPlan | Need:
    """Refuses what a start would refuse."""
    try:
        return _plan(request, now, reads)
    except Missing as missing:
        return Need(missing.keys)


def _plan(request: r.StartExecution, now: int, reads: Reads) -> StartPlan:
    state = open_state(request.execution)
    decided, _ = begin(state, request, now, reads)
    fold(state, now, decided)
    program = reads.program(state.definition)
    assert program is not None
    view = StartPlan(state.workflow, state.workflow_version)
    failure = _failure(decided)
    if failure is not None and failure.kind == "invalid":
        view.problems = _problems(failure)
        return view
    view.blocks = [_block(spec) for spec in {(s.block, s.version): s for s in state.specs}.values()]
    view.gates = [PlannedGate(g.kind, g.what, g.is_met, g.due, g.deadline) for g in state.gates]
    view.rollback = state.policy.rollback
    view.works_on_entities = state.policy.works_on_entities
    if failure is None and state.status is Status.BLOCKED_WAITING:
        decided = _on(state, now, reads, program)
        failure = _failure(decided)
    asked = [event for event in decided if isinstance(event, e.JobScheduled) and event.kind is JobKind.ACQUIRE]
    view.asks = [program.label(event.step) for event in asked]
    if asked:
        road = Road(state, now, reads, program)
        road.acquired(())
        fold(state, now, road.events)
        failure = _failure(road.events)
        if failure is not None and failure.kind == "no-entities":
            failure = None  # those blocks may name some
        decided = [*decided, *road.events]
    view.refusal = error_view(failure)
    view.is_blocked = any(isinstance(event, e.EntitiesQueued) for event in decided)
    _entities(view, state, decided, reads)
    _steps(view, state, program)
    return view


def _on(state: State, now: int, reads: Reads, program: p.Program) -> list[e.Event]:
    """As if its gates were met."""
    road = Road(state, now, reads, program)
    road.at_gates(())
    fold(state, now, road.events)
    return road.events


def _failure(decided: Iterable[e.Event]) -> Failure | None:
    return next((event.failure for event in decided if isinstance(event, e.ExecutionFailed)), None)


def _problems(failure: Failure) -> list[Problem]:
    return [Problem(each["code"], each["message"], path=each["path"], help=each["help"]) for each in failure.details]


def _block(spec: JobSpec) -> PlannedBlock:
    return PlannedBlock(
        spec.block, spec.version, spec.pure, spec.idempotent, hooks_of(spec), spec.accepts_unknown, spec.is_pivot
    )


# --- entities and locks ------------------------------------------------------------------------------------
def _entities(view: StartPlan, state: State, decided: Iterable[e.Event], reads: Reads) -> None:
    found = next((event for event in decided if isinstance(event, e.EntitiesFound)), None)
    if found is None:
        return
    types = dict(zip(found.ids, found.types, strict=True))
    modes = dict(zip((*found.ids, *found.around), (*found.modes, *found.around_modes), strict=True))
    asked = {id: modes[id] for id in sorted(modes)}
    for type in found.types:
        view.counts[type] = view.counts.get(type, 0) + 1
    there = reads.contention(ContentionKey(state.tenant, tuple(asked))) if asked else Contention()
    claims: dict[str, list[PlannedClaim]] = {}
    for claim in sorted(there.claims, key=lambda claim: (not claim.fence, -claim.priority, claim.ticket)):
        is_ahead = bool(claim.fence) or claim.priority >= state.policy.priority
        if claim.entity in asked and is_ahead and not goes_with(claim.mode, asked[claim.entity]):
            one = PlannedClaim(claim.execution, claim.mode.name, bool(claim.fence), claim.since)
            claims.setdefault(claim.entity, []).append(one)
    flags: dict[str, list[FlagView]] = {}
    for flag in there.flags:
        flags.setdefault(flag.entity, []).append(FlagView(flag.execution, flag.kind, flag.reason, flag.at))
    view.entities = [
        PlannedEntity(id, types.get(id, ""), mode.name, id in types, claims.get(id, []), flags.get(id, []))
        for id, mode in asked.items()
    ]


# --- steps -------------------------------------------------------------------------------------------------
def _steps(view: StartPlan, state: State, program: p.Program) -> None:
    outline = program.outline(state.specs)
    worst = judge(outline, state.specs, state.policy, program.label)
    view.is_more = outline.is_more
    total: int | None = 0
    for each, bad in zip(outline.steps, worst, strict=True):
        many = view.counts.get(each.type, 0) if each.type else 1
        jobs = many * each.times if each.times else None
        total = None if total is None or jobs is None else total + jobs
        batches = program.batches(many) if each.type else []
        view.steps.append(_step(program.label(each.step), state.specs[each.spec], each, bad, jobs, batches, view.asks))
    view.jobs = total


def _step(
    label: str, spec: JobSpec, each: p.Outlined, bad: Worst, jobs: int | None, batches: list[int], asks: list[str]
) -> PlannedStep:
    block = f"{spec.block}:{spec.version}" if spec.version else spec.block
    return PlannedStep(
        label, block, each.type, jobs, bool(each.why), each.why,
        bool(asks) and bool(each.type), batches, bad.verdict, bad.fails, bad.lost,
    )  # fmt: skip
