"""Whatever happens, in whatever order: `safe` is never said while a witness outside shows an effect."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.codec import unpack_events
from holdfast.core.model import Effect, JobKind, JobStatus, Policy, Status, Undo
from holdfast.core.state import Job
from tests.core.hooked import BOOM, SPECS, Case

ENTITIES = ("", "sw1", "sw2", "all")
TYPES = {"all": "group", "sw1": "device", "sw2": "device"}
jobs = st.tuples(st.just("job"), st.sampled_from(list(SPECS)), st.sampled_from(ENTITIES))
#: the first of a branch is a job: a workflow says nothing more after it has failed
branches = st.lists(
    st.builds(lambda first, more: [first, *more], jobs, st.lists(st.one_of(jobs, st.just(("fail",))), max_size=4)),
    min_size=1,
    max_size=3,
)
policies = st.builds(Policy, rollback=st.sampled_from(["auto", "auto", "manual", "none"]))


class Witness:
    """Does what jobs say outside, and remembers it: by forward job, how often its effect is there."""

    def __init__(self, case: Case, draw: Any) -> None:
        self.case = case
        self.draw = draw
        self.there: dict[int, int] = {}

    def move(self) -> bool:
        """One thing happens; nothing is left to happen otherwise."""
        case = self.case
        jobs = [job for job in case.state.jobs.values() if not job.status.is_final]
        queued = [job for job in jobs if job.status is JobStatus.SENT]
        started = [job for job in jobs if job.status is JobStatus.STARTED]
        waiting = [job for job in jobs if job.status is JobStatus.RESCHEDULED and job.due < 1 << 50]
        if not (queued or started or waiting):
            return False
        job = self.draw(st.sampled_from([*queued, *started, *waiting]))
        if job.status is JobStatus.RESCHEDULED:
            case.now = max(case.now, job.due)
            case.when(r.ReleaseJob(job.id, job.attempt))
        elif job.status is JobStatus.SENT:
            case.claim(job.id)
        else:
            self.end(job)
        return True

    def end(self, job: Job) -> None:
        spec = list(SPECS.values())[job.spec]
        how = self.draw(st.sampled_from(["done", "done", "done", "failed", "nothing", "lost", "timeout"]))
        about = job.about or job.id
        match job.kind:
            case JobKind.VERIFY:
                self.look(job, how)
                return
            case JobKind.ROLLBACK:
                if how == "done" or (how in ("lost", "timeout", "failed") and self.draw(st.booleans())):
                    self.there[about] = 0
            case _:
                happens = how == "done" or (how in ("failed", "lost", "timeout") and self.draw(st.booleans()))
                if happens and not spec.pure:
                    times = self.there.get(about, 0)
                    self.there[about] = 1 if spec.idempotent else times + 1
                    assert self.there[about] == 1, "what may run once took effect twice"
        self.say(job, how)

    def look(self, job: Job, how: str) -> None:
        if how == "done":
            said = "applied" if self.there.get(job.about) else "not-applied"
            self.case.when(r.CompleteJob(job.id, job.attempt, said))
        else:
            self.say(job, how)

    def say(self, job: Job, how: str) -> None:
        case = self.case
        match how:
            case "done":
                case.when(r.CompleteJob(job.id, job.attempt, {"n": job.id}))
            case "failed":
                case.when(r.FailJob(job.id, job.attempt, BOOM))
            case "nothing":
                case.when(r.FailJob(job.id, job.attempt, BOOM, Effect.NONE))
            case _:
                kind = "worker-lost" if how == "lost" else "timeout"
                case.when(r.LoseJob(job.id, job.attempt, kind, "gone"))


@settings(max_examples=300, deadline=None)
@given(branches, policies, st.data())
def test_safe_is_never_said_in_vain(shape: list[list[Any]], policy: Policy, data: Any) -> None:
    case = Case(*shape, policy=policy, types=TYPES)
    witness = Witness(case, data.draw)
    cancels_after = data.draw(st.one_of(st.just(-1), st.just(-1), st.integers(0, 30)))
    for n in range(2000):
        if case.state.status.is_ended:
            break
        if n == cancels_after and case.state.status in (Status.RUNNING, Status.ERROR):
            case.when(r.CancelExecution())
        elif not witness.move():
            assert case.state.status is Status.ERROR, "nothing will ever move it"
            assert policy.rollback == "manual"
            case.when(r.GiveUp())
    assert case.state.status.is_ended, "every execution ends"
    there = {job for job, times in witness.there.items() if times}
    left = set(case.state.residue)
    if case.state.status is not Status.COMPLETED:
        assert there <= left, "an effect is there that the verdict does not name"
    assert (case.state.status is Status.FAILED_SAFE) <= (not left)
    assert not case.state.jobs
    event(case.state.status.name)
    if any(outcome is Undo.UNDONE for _, outcome in case.settlements()):
        event("something undone")
    _orderly(case)


def _orderly(case: Case) -> None:
    """Each entry is settled once, and never beneath a later effect that stays."""
    settled: dict[int, Undo] = {}
    planned: tuple[int, ...] = ()
    for _, body in case.history:
        for fact in unpack_events(body):
            if isinstance(fact, e.RollbackPlanned):
                planned = fact.jobs
            elif isinstance(fact, e.JobScheduled) and fact.kind is JobKind.ROLLBACK:
                above = [job for job in planned if job > fact.about and _overlap(case, job, fact.about)]
                assert all(settled.get(job) is Undo.UNDONE for job in above)
            elif isinstance(fact, e.EntrySettled):
                assert fact.job not in settled
                settled[fact.job] = fact.outcome
    if planned:
        assert set(settled) == set(planned)
        assert {job for job, outcome in settled.items() if outcome is not Undo.UNDONE} == set(case.state.residue)


def _overlap(case: Case, one: int, other: int) -> bool:
    first, second = case.state.ledger[one].entity, case.state.ledger[other].entity
    return first == second or not {first, second}.isdisjoint({"", "all"})
