"""From NEW to RUNNING: gates, discovery, locks; and the entities that are taken away on the way.

Everything that can happen at once happens in one transition, and the statuses it went through are one fact. It waits
at three places only: behind gates, for blocks that say which entities they need, and in the lock queue. Nothing is held
before everything is held.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, assert_never

from . import discovery
from . import events as e
from . import gates as gating
from . import ledger as ledgers
from . import program as p
from . import requests as r
from .entity_locks import Block, EntityClaim, first_block, goes_with
from .errors import ChangedHands, LockNotHeld, NothingToApprove, Refused
from .inventory import Found
from .lifecycle import QUIET_START
from .model import Effect, Failure, Gate, JobKind, JobStatus, Mode, Status
from .reads import ContentionKey, FoundKey, Missing, Reads, TicketKey, TooLong, TraceKey, WatchersKey
from .state import Job, State
from .subjects import Progress

Beginning: TypeAlias = r.CheckGates | r.TryLocks | r.TimeOutLocks | r.AwaitEnd | r.HearEnd | r.MeetGate

T = TypeVar("T")
#: Behind everybody of the same priority: the place of somebody who has none yet.
_LAST = 1 << 62


class Road:
    """One transition's way through the statuses before RUNNING. `state` stands where it begins."""

    __slots__ = ("events", "now", "passed", "program", "reads", "state")

    def __init__(self, state: State, now: int, reads: Reads, program: p.Program | None = None) -> None:
        self.state = state
        #: read when it is needed: not to wait for locks
        self.program = program
        self.now = now
        self.reads = reads
        self.events: list[e.Event] = []
        self.passed: list[Status] = []

    # --- gates -------------------------------------------------------------------------------------------
    def set_out(self, gates: tuple[Gate, ...]) -> None:
        """Valid: on to the first step, or to wherever it has to wait."""
        self.passed += [Status.NEW, Status.VALID]
        failure = None
        for gate in gates:
            if gate.kind == "after":
                other = gating.awaited(gate)[0]
                status = self.reads.header_status(other, self.state.tenant)
                if status is not None and Status(status).is_ended and failure is None:
                    gates, failure = gating.hear(gates, other, Status(status))
        self.at_gates(gates, failure)

    def at_gates(self, gates: tuple[Gate, ...], failure: Failure | None = None) -> None:
        """All of them are looked at together, whichever of them has changed."""
        seen = gating.look(gates, self.now)
        failure = failure or gating.overdue(seen, self.now)
        is_open = failure is None and gating.all_met(seen)
        if not is_open and self.passed:
            self.passed.append(Status.BLOCKED_WAITING)
            self._flush()
        if seen != self.state.gates:
            self.events.append(e.GatesSet(seen))
        if failure is not None:
            self._fail(failure)
        elif is_open:
            self._ready()

    def _ready(self) -> None:
        self.passed += [Status.READY, Status.RESOURCE_DISCOVERY]
        if self.state.policy.works_on_entities:
            self._discover()
        else:
            self.passed += QUIET_START[QUIET_START.index(Status.RESOURCES_DISCOVERED) :]
            self._flush()

    # --- discovery ---------------------------------------------------------------------------------------
    def _discover(self) -> None:
        catch = self._resolve(())
        if catch is None:
            return
        jobs = self._say(self._asking)
        if jobs is None:
            return
        if not jobs:
            self._found(catch)
            return
        self._flush()
        self.events += jobs

    def _asking(self, program: p.Program) -> list[e.JobScheduled]:
        """A job for each block that has to be asked which entities it needs."""
        state, reads = self.state, self.reads
        if state.is_exact:
            return []
        return [
            e.JobScheduled(job, 0, ask.step, ask.spec, reads.keep(state.id, ask.input), kind=JobKind.ACQUIRE)
            for job, ask in enumerate(program.acquires(reads.load(state.id, state.input), state.specs), state.next_job)
        ]

    def acquired(self, results: Iterable[tuple[int, object]]) -> None:
        """All blocks have said what they need: (step, what it said)."""
        said = list(results)
        wishes = self._say(lambda program: [wish for each in said for wish in self._wishes(program, *each)])
        catch = None if wishes is None else self._resolve(wishes)
        if catch is not None:
            self._found(catch)

    def _wishes(self, program: p.Program, step: int, result: object) -> list[p.Wanted]:
        value = self.reads.load(self.state.id, result)
        try:
            return discovery.answered(value, program, self.state.tenant, self.reads)
        except (discovery.Unreadable, Refused) as error:
            said = error.message if isinstance(error, Refused) else str(error)
            label = program.label(step)
            message = f"step {label} was asked which entities it needs: {said}"
            raise _Hopeless(Failure("acquire-failed", message, code="HF0731", step=label)) from None

    def not_acquired(self, failure: Failure, step: int, siblings: Iterable[Job]) -> None:
        """A block failed for good to say what it needs."""
        for job in siblings:
            if job.status is JobStatus.STARTED:
                self.events.append(e.JobStopAsked(job.id, "another step could not say which entities it needs"))
            self.events.append(e.JobCancelled(job.id, job.attempt))
        label = self._label(step)
        message = f"step {label} could not say which entities it needs: {failure.message}"
        self._fail(Failure("acquire-failed", message, code=failure.code, step=label, cause=failure))

    def _resolve(self, more: Iterable[p.Wanted]) -> discovery.Catch | None:
        """Nothing: it has failed."""
        state = self.state
        if state.is_exact:
            catch = discovery.exactly(state.tenant, state.entities, self.reads)
            if catch.unknown:
                self._fail(discovery.unknown_entities(catch.unknown))
                return None
            return catch
        wanted = self._say(
            lambda program: [
                *asked_for(program, state.entities, state.select),
                *self._own(program),
                *more,
            ]
        )
        if wanted is None:
            return None
        catch = discovery.resolve(state.tenant, wanted, self.reads)
        if catch.unknown:
            self._fail(discovery.unknown_entities(catch.unknown))
            return None
        return catch

    def _own(self, program: p.Program) -> list[p.Wanted]:
        """What the workflow wants by itself: whoever starts it on some entities means these and no others."""
        wanted = program.wanted(self.reads.load(self.state.id, self.state.input))
        if not self.state.entities and not self.state.select:
            return list(wanted)
        return [each for each in wanted if each.is_added or each.kind not in ("ids", "select")]

    def _found(self, catch: discovery.Catch) -> None:
        state = self.state
        mode = Mode.S if state.policy.is_shared else Mode.X
        works_on_groups = any(spec.run_on == "group" for spec in state.specs)
        found = discovery.found_event(catch.found, mode, works_on_groups, state.tenant, self.reads)
        if not found.ids and state.policy.requires_entities:
            message = "there is no entity to work upon, and the workflow requires some; see what its selectors find"
            self._fail(Failure("no-entities", message, code="HF0732"))
            return
        self.events.append(found)
        self.passed += [Status.RESOURCES_DISCOVERED, Status.SCHEDULED]
        self.lock(_asked(found))

    # --- locks -------------------------------------------------------------------------------------------
    def lock(self, asked: dict[str, Mode]) -> None:
        """All of it, or a place in the queue."""
        state, policy = self.state, self.state.policy
        if not asked:
            self._run()
            return
        key = ContentionKey(state.tenant, tuple(asked))
        try:
            found = self.reads.contention(key)
        except Missing as missing:
            if state.ticket:
                raise
            # Whatever is found, it takes a number; and deciding once more about ten thousand entities takes its time.
            raise Missing(*missing.keys, TicketKey(state.id)) from None
        if found.missing:
            self.passed.append(Status.LOCKING)
            gone = ", ".join(found.missing[: discovery.SHOWN])
            message = f"gone since it was discovered: {gone}; start again, or take it out of the selection"
            self._fail(Failure("entity-gone", message, code="HF0734", details={"entities": list(found.missing)}))
            return
        suspects = [flag for flag in found.flags if flag.execution != state.id and flag.entity in asked]
        if policy.requires_clean and suspects:
            self.passed.append(Status.LOCKING)
            first = suspects[0]
            message = (
                f"{first.entity} was left in doubt by execution {first.execution}"
                + (f" ({first.reason})" if first.reason else "")
                + "; look at it, then `holdfast ack` that execution"
            )
            listed = [{"entity": flag.entity, "execution": flag.execution, "kind": flag.kind} for flag in suspects]
            self._fail(Failure("suspect-entity", message, code="HF0733", details={"entities": listed}))
            return
        block = first_block(asked, found, state.id, state.ticket or _LAST, policy.priority)
        if block is None and state.is_wary and (claim := _since(state, self.reads)) is not None:
            self.passed.append(Status.LOCKING)
            self._fail(_changed_meanwhile(claim))
        elif block is None:
            fence = self.reads.ticket(TicketKey(state.id))
            self.events.append(e.EntitiesLocked(fence, state.ticket or fence))
            self._run()
        elif policy.on_conflict == "fail":
            self._fail(_in_the_way(block))
        elif not state.ticket:
            self._flush()
            self.events.append(e.EntitiesQueued(self.reads.ticket(TicketKey(state.id)), block.entity))
        elif block.entity != state.watch:
            self.events.append(e.EntitiesWatched(block.entity))

    def lock_again(self) -> None:
        """Resumed or replayed: the same entities, and what they are parts of now."""
        state = self.state
        types = {subject.id: subject.type for subject in state.subjects.values()}
        groups = [id for id, mode in state.around.items() if mode is Mode.S]
        ids = tuple(sorted({*types, *groups}))
        read = self.reads.found(FoundKey(state.tenant, ids)) if ids else ()
        # The order of subjects is theirs for life, whatever they are called now.
        found = {each.id: Found(each.id, types.get(each.id, each.type), each.parent, each.groups) for each in read}
        if not types.keys() <= found.keys():
            self.lock(dict.fromkeys(sorted(types), Mode.X))  # says which of them is gone
            return
        mode = Mode.S if state.policy.is_shared else Mode.X
        again = discovery.found_event(found, mode, "group" in types.values(), state.tenant, self.reads)
        if dict(zip(again.around, again.around_modes, strict=True)) != state.around:
            self.events.append(again)
        self.lock(_asked(again))

    def time_out(self) -> None:
        waited = (self.now - self.state.locked_at) // 1_000_000
        message = f"waited {waited} s for its entities, the last time for {self.state.watch}; nothing was begun"
        self._fail(Failure("lock-timeout", message, code="HF0737", details={"entity": self.state.watch}))

    # --- where it ends ---------------------------------------------------------------------------------------
    def _run(self) -> None:
        self.passed += [Status.LOCKING, Status.LOCKED, Status.RUNNING]
        self._flush()

    def _fail(self, failure: Failure) -> None:
        """Nothing was done in this run; what an earlier run left is left."""
        self._flush()
        left = ledgers.residue(self.state.ledger)
        verdict = Status.FAILED_UNSAFE if left else Status.FAILED_SAFE
        self.events.append(e.ExecutionFailed(verdict, left, failure))

    def _flush(self) -> None:
        if self.passed:
            self.events.append(e.PhasesPassed(tuple(self.passed)))
            self.passed = []

    def _say(self, ask: Callable[[p.Program], T]) -> T | None:
        """What the program says; nothing where it cannot, and the execution has failed then: no other suffers."""
        try:
            if self.program is None:
                self.program = self.reads.program(self.state.definition)
            assert self.program is not None, "the definition of an execution is kept as long as the execution"
            return ask(self.program)
        except Missing:
            raise
        except _Hopeless as hopeless:
            self._fail(hopeless.failure)
        except TooLong as error:
            self._fail(Failure("value-too-large", str(error), code="HF0701"))
        except Refused as refused:
            self._fail(Failure("program-error", refused.message, code=refused.code))
        except Exception as bug:
            text = "".join(traceback.format_exception(bug))[-2000:]
            self._fail(Failure("program-error", f"{type(bug).__name__}: {bug}", traceback=text))
        return None

    def _label(self, step: int) -> str:
        try:
            program = self.program or self.reads.program(self.state.definition)
        except Refused:
            return str(step)
        return program.label(step) if program else str(step)


class _Hopeless(Exception):
    """Nothing can come of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def asked_for(program: p.Program, ids: tuple[str, ...], select: tuple[str, ...]) -> list[p.Wanted]:
    """What the start of an execution asked for; refuses a selector that cannot be read."""
    wanted = [p.Wanted("ids", ids)] if ids else []
    return [*wanted, *(program.selector(text) for text in select)]


def _asked(found: e.EntitiesFound) -> dict[str, Mode]:
    asked = dict(zip((*found.ids, *found.around), (*found.modes, *found.around_modes), strict=True))
    return {id: asked[id] for id in sorted(asked)}


def lock_set_of(state: State) -> dict[str, Mode]:
    """Everything the execution locks, or will, sorted by id; without what was taken away from it."""
    asked = {subject.id: subject.mode for subject in state.subjects.values() if subject.progress is not Progress.LOST}
    asked |= state.around
    return {id: asked[id] for id in sorted(asked)}


def _in_the_way(block: Block) -> Failure:
    if block.claims:
        first = block.claims[0]
        verb = "holds" if first.fence else "waits for"
        who, what = first.execution, f"execution {first.execution} {verb} {block.entity}"
    else:
        who, what = block.flags[0].execution, f"execution {block.flags[0].execution} left {block.entity} quarantined"
    message = f"{what}, and the workflow does not wait for its entities; start it again later"
    return Failure("lock-conflict", message, code="HF0736", details={"entity": block.entity, "execution": who})


# --- requests --------------------------------------------------------------------------------------------
def answer(state: State, request: Beginning, now: int, reads: Reads) -> list[e.Event]:
    """The facts. None, where it comes too late: nothing is wrong then."""
    if isinstance(request, r.AwaitEnd):
        is_known = request.execution in state.awaited_by and not state.status.is_ended
        return [] if is_known or request.tenant != state.tenant else [e.EndAwaited(request.execution)]
    if isinstance(request, r.MeetGate):
        number = _gate_of(state, request)
        gate = state.gates[number]
        if gate.is_met:
            return []  # asked again, perhaps because the first answer was lost
    road = Road(state, now, reads)
    match request:
        case r.MeetGate(is_approved=is_approved, note=note, actor=actor):
            if is_approved:
                road.at_gates(gating.meet(state.gates, number, actor.name, note))
            else:
                road.at_gates(state.gates, gating.rejected(number, gate, actor.name, note))
        case r.CheckGates():
            if state.status is Status.BLOCKED_WAITING:
                road.at_gates(state.gates)
        case r.HearEnd(execution=execution, status=status):
            if state.status is Status.BLOCKED_WAITING:
                road.at_gates(*gating.hear(state.gates, execution, Status(status)))
        case r.TryLocks():
            if state.status is Status.SCHEDULED:
                road.lock(lock_set_of(state))
        case r.TimeOutLocks(ticket=ticket):
            is_over = now >= state.locked_at + state.policy.lock_timeout
            if state.status is Status.SCHEDULED and state.ticket == ticket and is_over:
                road.time_out()
        case _:
            assert_never(request)
    return road.events


def _gate_of(state: State, request: r.MeetGate) -> int:
    waiting = [n for n, gate in enumerate(state.gates) if gate.kind == "approval" and not gate.is_met]
    number = request.gate if request.gate >= 0 else (waiting[0] if waiting else -1)
    is_there = 0 <= number < len(state.gates) and state.gates[number].kind == "approval"
    if not is_there or (state.status is not Status.BLOCKED_WAITING and not state.gates[number].is_met):
        raise NothingToApprove(
            f"execution {state.id} is {state.status.name} and waits for no such word; `holdfast why` says for what"
        )
    return number


def acquired(state: State, job: Job, result: Any, failure: Failure | None, now: int, reads: Reads) -> list[e.Event]:
    """One of the blocks that were asked which entities they need has answered, or failed for good."""
    road = Road(state, now, reads)
    others = [other for other in state.jobs.values() if other.id != job.id]
    if failure is not None:
        road.not_acquired(failure, job.step, [other for other in others if not other.status.is_final])
    elif all(other.status.is_final for other in others):
        said = {job.id: (job.step, result)} | {other.id: (other.step, other.result) for other in others}
        road.acquired(said[id] for id in sorted(said))
    return road.events


def cause_of(state: State) -> p.Cause:
    """What the program is told once everything is locked."""
    match state.go_on:
        case "carry-on":
            return p.CarryOn()
        case "forced":
            return p.CarryOn(is_forced=True)
        case "again":
            return p.GoAgain()
        case _:
            return p.Begun()


def is_running(events: list[e.Event]) -> bool:
    """Whether these facts lead to the first step."""
    last = events[-1] if events else None
    return isinstance(last, e.PhasesPassed) and last.statuses[-1] is Status.RUNNING


# --- who changed what meanwhile ------------------------------------------------------------------------------
def refuse_if_changed(state: State, reads: Reads) -> None:
    """Another execution had one of its entities since, in a way that does not go with having it: what this one knows
    of it may be wrong."""
    claim = _since(state, reads) if state.subjects else None
    if claim is not None:
        raise ChangedHands(_had_since(claim))


def _since(state: State, reads: Reads) -> EntityClaim | None:
    own = {subject.id: subject.mode for subject in state.subjects.values()} | state.around
    for claim in reads.trace(TraceKey(state.tenant, state.id)):
        mode = own.get(claim.entity)
        if mode is not None and not goes_with(claim.mode, mode):
            return claim
    return None


def _changed_meanwhile(claim: EntityClaim) -> Failure:
    """It was resumed, and waited for its entities behind somebody who did not just look."""
    details = {"entity": claim.entity, "execution": claim.execution}
    return Failure("changed-hands", _had_since(claim), code=ChangedHands.code, details=details)


def _had_since(claim: EntityClaim) -> str:
    return (
        f"execution {claim.execution} had {claim.entity} since, and may have changed it;"
        " `--accept-changes` resumes all the same"
    )


# --- taken away ------------------------------------------------------------------------------------------
def take_away(state: State, request: r.FreeEntity, reads: Reads) -> tuple[list[e.Event], Failure, list[Job]]:
    """The entity, and with it whatever is a part of it: the facts, the failure that is, and the jobs that were undoing
    something there. Jobs at work there may have done anything; those that only look may go on."""
    held = lock_set_of(state)
    if state.status.is_ended or not state.fence or state.fence != request.fence or request.entity not in held:
        raise LockNotHeld(f"execution {state.id} does not hold {request.entity} under fence {request.fence} any more")
    lost = [request.entity]
    parents = {each.id: each.parent for each in reads.found(FoundKey(state.tenant, tuple(held)))}
    lost += [id for id in held if id != request.entity and _is_within(id, request.entity, parents)]
    woken = reads.watchers(WatchersKey(state.tenant, state.id))
    events: list[e.Event] = [e.EntityLost(id, request.by, woken if id == request.entity else ()) for id in lost]
    by = f" by {request.by}" if request.by else ""
    failure = Failure(
        "lock-lost",
        f"{request.entity} was taken away{by} while it was worked upon; whatever is done there now, others may do too",
        code="HF0735",
        details={"entities": lost},
    )
    places = set(lost)
    undoing = []
    for job in state.jobs.values():
        if job.entity not in places or job.status.is_final or job.kind is JobKind.VERIFY:
            continue
        if job.kind is JobKind.ROLLBACK:
            undoing.append(job)
        if job.status is not JobStatus.STARTED:
            events.append(e.JobCancelled(job.id, job.attempt))
            continue
        events.append(e.JobStopAsked(job.id, failure.message))
        is_harmless = job.kind is JobKind.ROLLBACK or state.specs[job.spec].pure
        events.append(e.JobFailed(job.id, job.attempt, failure, Effect.NONE if is_harmless else Effect.UNKNOWN))
    return events, failure, undoing


def _is_within(id: str, whole: str, parents: dict[str, str]) -> bool:
    seen = set()
    while id and id not in seen:
        seen.add(id)
        id = parents.get(id, "")
        if id == whole:
            return True
    return False
