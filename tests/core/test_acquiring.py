"""From NEW to RUNNING: given events, when a request comes, then these events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.errors import CannotResume, ChangedHands, LockNotHeld
from holdfast.core.inventory import Flag
from holdfast.core.lifecycle import QUIET_START
from holdfast.core.model import Actor, Effect, Failure, Gate, JobKind, JobStatus, Mode, Policy, Retry
from holdfast.core.model import Status as S
from holdfast.core.subjects import Progress
from tests.core.fleet import BOUND, SPECS, Crew, Fleet, execution_id

ONE, TWO, THREE = (execution_id(n) for n in (1, 2, 3))


def bound(**given: Any) -> Policy:
    return msgspec.structs.replace(BOUND, **given)


def kinds(events: list[e.Event]) -> list[type]:
    return [type(event) for event in events]


def statuses(fleet: Fleet, n: int) -> list[S]:
    """All it went through, in order."""
    found: list[S] = []
    for _, events in fleet.history[execution_id(n)]:
        for event in events:
            match event:
                case e.PhasesPassed(statuses=passed):
                    found += passed
                case e.ExecutionResumed() | e.ExecutionReplayed():
                    found.append(S.SCHEDULED)
                case e.CancelRequested():
                    found.append(S.CANCELLING)
                case e.ErrorRaised():
                    found.append(S.ERROR)
                case e.ExecutionFailed(status=status):
                    found.append(status)
                case e.ExecutionCancelled():
                    found.append(S.CANCELLED)
                case e.ExecutionCompleted():
                    found.append(S.COMPLETED)
                case _:
                    pass
    return found


def failure(fleet: Fleet, n: int) -> Failure:
    found = fleet.state(n).failure
    assert found is not None
    return found


def nothing_left(fleet: Fleet, n: int) -> None:
    """No claim, no job, no item on the agenda of an execution that has ended."""
    id = execution_id(n)
    assert fleet.state(n).status.is_ended
    assert not [claim for claim in fleet.tables.live() if claim.execution == id]
    assert not [item for owner, item in fleet.tables.agenda if owner == id]
    assert not [job for owner, job in fleet.tables.jobs if owner == id]
    assert (fleet.state(n).ticket, fleet.state(n).fence, fleet.state(n).watch) == (0, 0, "")


# --- the quiet way -----------------------------------------------------------------------------------------
def test_without_contention_everything_up_to_the_first_jobs_is_one_commit() -> None:
    fleet = Fleet("a", "b")
    began = fleet.start(1, "b", "a", crew=Crew(jobs=True))
    assert kinds(began) == [
        e.ExecutionStarted, e.BlocksPinned, e.PolicySet, e.EntitiesFound, e.EntitiesLocked, e.PhasesPassed,
        e.LaneAdvanced, e.JobScheduled, e.JobScheduled,
    ]  # fmt: skip
    assert began[3] == e.EntitiesFound(("a", "b"), ("device", "device"), (Mode.X, Mode.X))
    assert began[4] == e.EntitiesLocked(1, 1)
    assert began[5] == e.PhasesPassed(QUIET_START)
    assert [job.entity for job in began[7:] if isinstance(job, e.JobScheduled)] == ["a", "b"]
    assert fleet.holders() == {"a": [ONE], "b": [ONE]}
    fleet.work(1)
    assert statuses(fleet, 1) == [*QUIET_START, S.COMPLETED]
    assert [s.progress for s in fleet.state(1).subjects.values()] == [Progress.DONE] * 2
    nothing_left(fleet, 1)


def test_the_end_gives_everything_back_in_its_own_transition() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    assert kinds(fleet.tell(1, "done")) == [e.EntitiesReleased, e.ExecutionCompleted]
    assert fleet.holders() == {}


def test_subjects_are_sorted_by_type_then_id() -> None:
    fleet = Fleet("b", "a")
    fleet.tables.add("x", "rack")
    fleet.tables.add("b/1", "interface", "b")
    fleet.start(1, "x", "b/1", "b", "a")
    assert [s.id for s in fleet.state(1).subjects.values()] == ["a", "b", "b/1", "x"]


# --- discovery ---------------------------------------------------------------------------------------------
def test_all_unknown_ids_are_listed_and_nothing_is_begun() -> None:
    fleet = Fleet("a")
    ended = fleet.start(1, "a", "nobody", "nothing")[-2:]
    assert ended[0] == e.PhasesPassed((S.NEW, S.VALID, S.READY, S.RESOURCE_DISCOVERY))
    assert (failure(fleet, 1).code, failure(fleet, 1).details) == ("HF0731", {"entities": ["nobody", "nothing"]})
    assert fleet.state(1).status is S.FAILED_SAFE
    nothing_left(fleet, 1)


def test_whoever_starts_it_on_some_entities_means_these_and_no_others() -> None:
    fleet = Fleet("a", "b", "c")
    wants = [p.Wanted("ids", ("b",)), p.Wanted("ids", ("c",), is_added=True)]
    fleet.start(1, "a", crew=Crew(wants=wants))
    assert [s.id for s in fleet.state(1).subjects.values()] == ["a", "c"]
    fleet.tell(1, "done")
    fleet.start(2, crew=Crew(wants=wants))
    assert [s.id for s in fleet.state(2).subjects.values()] == ["b", "c"]


def test_selectors_of_the_start_and_of_the_workflow_and_relations_are_one_set() -> None:
    fleet = Fleet("a", "b")
    fleet.tables.add("a/1", "interface", "a")
    fleet.tables.add("a/2", "port", "a")
    fleet.start(1, "a", crew=Crew(wants=[p.Wanted("children", type="interface")]))
    assert [s.id for s in fleet.state(1).subjects.values()] == ["a", "a/1"]
    fleet.start(2, select=("type == port",), crew=Crew(wants=[p.Wanted("parent")]))
    assert [s.id for s in fleet.state(2).subjects.values()] == ["a", "a/2"]
    only = p.Wanted("select", test=lambda row: row.id > "a", type="device")
    fleet.start(3, crew=Crew(wants=[only]))
    assert [s.id for s in fleet.state(3).subjects.values()] == ["b"]


def test_what_lies_between_a_part_and_the_whole_is_known() -> None:
    fleet = Fleet("a")
    fleet.tables.add("a/c", "card", "a")
    fleet.tables.add("a/c/x", "board", "a/c")
    fleet.tables.add("a/c/x/1", "interface", "a/c/x")
    fleet.start(1, "a/c", "a/c/x/1")
    found = {s.id: (s.within, s.above) for s in fleet.state(1).subjects.values()}
    assert found == {"a/c/x/1": ("a", "a/c"), "a/c": ("a", "")}
    fleet.rebuild(1)
    fleet.tell(1, "done")
    fleet.start(2, "a", "a/c", "a/c/x/1")
    found = {s.id: (s.within, s.above) for s in fleet.state(2).subjects.values()}
    assert found == {"a": ("", ""), "a/c/x/1": ("a", "a/c"), "a/c": ("a", "")}


def test_a_selector_that_cannot_be_read_ends_at_new() -> None:
    fleet = Fleet("a")
    fleet.start(1, select=("a", "type == device"))
    assert statuses(fleet, 1) == [S.FAILED_SAFE]
    assert failure(fleet, 1).kind == "invalid"


def test_entities_for_a_workflow_that_works_on_none_are_a_problem() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(Policy()))
    assert (statuses(fleet, 1), failure(fleet, 1).code) == ([S.FAILED_SAFE], "HF0739")


def test_a_group_becomes_its_members_and_is_itself_locked_against_changes() -> None:
    fleet = Fleet()
    fleet.tables.add("core", "group", "", "all")
    fleet.tables.add("all", "group")
    fleet.tables.add("a", "device", "", "core")
    fleet.tables.add("b", "device", "", "all")
    fleet.start(1, "all")
    assert [s.id for s in fleet.state(1).subjects.values()] == ["a", "b"]
    assert fleet.state(1).around == {"all": Mode.S, "core": Mode.S}
    fleet.start(2, "core")
    assert fleet.state(2).watch == "a"


def test_a_step_that_runs_on_groups_makes_them_subjects() -> None:
    fleet = Fleet()
    fleet.tables.add("all", "group")
    fleet.tables.add("a", "device", "", "all")
    specs = (msgspec.structs.replace(SPECS[0], run_on="group"),)
    fleet.start(1, "all", crew=Crew(specs=specs))
    assert [s.id for s in fleet.state(1).subjects.values()] == ["all", "a"]
    assert fleet.state(1).around == {}


def test_what_subjects_are_parts_of_is_held_with_an_intention() -> None:
    fleet = Fleet()
    fleet.tables.add("rack", "rack")
    fleet.tables.add("a", "device", "rack")
    fleet.tables.add("a/1", "interface", "a")
    fleet.tables.add("a/2", "interface", "a")
    began = fleet.start(1, "a/1")
    assert fleet.state(1).around == {"a": Mode.IX, "rack": Mode.IX}
    assert next(x for x in began if isinstance(x, e.EntitiesFound)).within == ("rack",)
    fleet.start(2, "a/2")
    assert fleet.state(2).status is S.RUNNING
    fleet.start(3, "a")
    assert fleet.state(3).watch == "a"
    fleet.start(4, "a/1")
    assert (fleet.state(4).status, fleet.state(4).watch) == (S.SCHEDULED, "a")  # behind 3, which waits for the whole


def test_a_parent_that_is_not_in_the_inventory_is_no_parent() -> None:
    fleet = Fleet()
    fleet.tables.add("a", "device", "gone")
    fleet.start(1, "a")
    assert (fleet.state(1).status, fleet.state(1).around) == (S.RUNNING, {})


def test_no_entity_at_all() -> None:
    fleet = Fleet()
    fleet.start(1, crew=Crew(jobs=True))
    assert statuses(fleet, 1) == [*QUIET_START, S.COMPLETED]
    assert "no entity" in fleet.tables.logs[0]
    fleet.start(2, crew=Crew(bound(requires_entities=True)))
    assert statuses(fleet, 2) == [*QUIET_START[:4], S.FAILED_SAFE]
    assert failure(fleet, 2).code == "HF0732"


# --- ACQUIRE jobs ------------------------------------------------------------------------------------------
def test_blocks_are_asked_which_entities_they_need() -> None:
    fleet = Fleet("a", "b", "c")
    asked = fleet.start(1, "a", crew=Crew(asks=2))
    assert asked[-3:] == [
        e.PhasesPassed(QUIET_START[:4]),
        e.JobScheduled(1, 0, 0, 2, {"n": 0}, kind=JobKind.ACQUIRE),
        e.JobScheduled(2, 0, 1, 2, {"n": 1}, kind=JobKind.ACQUIRE),
    ]
    assert fleet.holders() == {}
    fleet.claim(1, 1)
    assert kinds(fleet.finish(1, 1, {"ids": ["b"]})) == [e.JobSucceeded]
    fleet.rebuild(1)
    fleet.claim(1, 2)
    found = fleet.finish(1, 2, ["c", "type == device"])
    assert kinds(found)[:3] == [e.JobSucceeded, e.EntitiesFound, e.EntitiesLocked]
    assert found[3] == e.PhasesPassed(QUIET_START[4:])
    assert sorted(fleet.holders()) == ["a", "b", "c"]
    assert fleet.state(1).jobs == {}
    assert fleet.state(1).ledger == {}
    assert fleet.crew(1).told[-1] == p.Begun()
    fleet.rebuild(1)


def test_an_acquire_job_is_tried_again_and_its_failure_ends_the_others() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=3))
    broken = Failure("block-error", "no answer")
    fleet.claim(1, 1)
    assert kinds(fleet.when(1, r.FailJob(1, 1, broken))) == [e.JobRescheduled]
    fleet.sleep(fleet.state(1).jobs[1].due)
    fleet.claim(1, 1)
    fleet.claim(1, 2)
    ended = fleet.when(1, r.FailJob(1, 2, broken))
    assert kinds(ended) == [
        e.JobFailed, e.JobStopAsked, e.JobCancelled, e.JobCancelled, e.ExecutionFailed,
    ]  # fmt: skip
    assert statuses(fleet, 1) == [*QUIET_START[:4], S.FAILED_SAFE]
    assert failure(fleet, 1).kind == "acquire-failed"
    nothing_left(fleet, 1)


def test_a_lost_worker_is_no_end_for_an_acquire_job() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=1))
    fleet.claim(1, 1)
    assert kinds(fleet.when(1, r.LoseJob(1, 1, "worker-lost", "gone"))) == [e.JobRescheduled, e.JobReleased]


@pytest.mark.parametrize("answer", [7, {"id": "a"}, [1], {"ids": 3}, [{"name": "a"}], {"select": ["nonsense"]}])
def test_an_answer_that_says_no_entities_fails_safe(answer: Any) -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=1))
    fleet.claim(1, 1)
    fleet.finish(1, 1, answer)
    assert (fleet.state(1).status, failure(fleet, 1).kind) == (S.FAILED_SAFE, "acquire-failed")
    nothing_left(fleet, 1)


def test_an_acquired_id_that_nobody_knows_fails_safe() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=1))
    fleet.claim(1, 1)
    fleet.finish(1, 1, [{"id": "z"}])
    assert (fleet.state(1).status, failure(fleet, 1).code) == (S.FAILED_SAFE, "HF0731")


def test_a_signal_during_discovery_is_kept_and_tells_nobody() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=1))
    assert fleet.tell(1, "done") == []
    assert fleet.state(1).status is S.RESOURCE_DISCOVERY


# --- locks -------------------------------------------------------------------------------------------------
def test_who_comes_second_waits_and_is_woken_by_the_commit_that_gives_back() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    queued = fleet.start(2, "a", "b")
    assert queued[-2:] == [e.PhasesPassed(QUIET_START[:6]), e.EntitiesQueued(2, "a")]
    assert fleet.holders() == {"a": [ONE]}
    assert fleet.tell(1, "done")[0] == e.EntitiesReleased((TWO,))
    assert [row.request for row in fleet.tables.agenda.values()] == [r.TryLocks()]
    assert fleet.wake()[:2] == [e.EntitiesLocked(3, 2), e.PhasesPassed(QUIET_START[6:])]
    assert statuses(fleet, 2) == list(QUIET_START)
    assert fleet.holders() == {"a": [TWO], "b": [TWO]}
    assert fleet.crew(2).told[-1] == p.Begun()
    fleet.rebuild(2)


def test_a_waiter_watches_the_next_entity_that_it_cannot_have() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    fleet.start(2, "b")
    fleet.start(3, "a", "b")
    fleet.tell(1, "done")
    assert fleet.wake() == [e.EntitiesWatched("b")]
    fleet.tell(2, "done")
    fleet.wake()
    assert fleet.state(3).status is S.RUNNING


def test_nobody_overtakes_on_conflict_and_everybody_passes_without() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.start(1, "a")
    fleet.start(2, "a", "b")
    fleet.start(3, "b", "c")
    assert (fleet.state(3).status, fleet.state(3).watch) == (S.SCHEDULED, "b")  # free, but 2 was there before
    fleet.start(4, "c", crew=Crew(bound(is_shared=True)))
    assert fleet.state(4).status is S.SCHEDULED  # behind 3
    fleet.when(3, r.CancelExecution())
    fleet.wake()
    assert fleet.state(4).status is S.RUNNING
    nothing_left(fleet, 3)


def test_a_higher_priority_goes_first() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a")
    fleet.start(3, "a", priority=5)
    assert fleet.state(3).policy.priority == 5
    fleet.tell(1, "done")
    fleet.wake()
    assert [fleet.state(n).status for n in (2, 3)] == [S.SCHEDULED, S.RUNNING]


def test_shared_locks_go_together() -> None:
    fleet = Fleet("a")
    shared = bound(is_shared=True)
    fleet.start(1, "a", crew=Crew(shared))
    fleet.start(2, "a", crew=Crew(shared))
    assert fleet.holders() == {"a": [ONE, TWO]}


def test_an_entity_that_is_gone_before_the_lock() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    fleet.start(2, "a", "b")
    del fleet.tables.entities["b"]
    fleet.tell(1, "done")
    fleet.wake()
    assert statuses(fleet, 2) == [*QUIET_START[:7], S.FAILED_SAFE]
    assert (failure(fleet, 2).code, failure(fleet, 2).details) == ("HF0734", {"entities": ["b"]})
    nothing_left(fleet, 2)


def test_a_workflow_that_does_not_wait_names_who_is_in_the_way() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a", crew=Crew(bound(on_conflict="fail")))
    assert statuses(fleet, 2) == [*QUIET_START[:6], S.FAILED_SAFE]
    assert (failure(fleet, 2).code, failure(fleet, 2).details) == ("HF0736", {"entity": "a", "execution": ONE})
    nothing_left(fleet, 2)


def test_waiting_for_locks_ends_with_its_timeout_and_lets_others_pass() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    fleet.start(2, "a", "b", crew=Crew(bound(lock_timeout=5_000_000)))
    fleet.start(3, "b")
    until = fleet.state(2).locked_at + 5_000_000
    fleet.sleep(until - 1000)
    assert fleet.state(2).status is S.SCHEDULED
    fleet.sleep(until)
    assert statuses(fleet, 2) == [*QUIET_START[:6], S.FAILED_SAFE]
    assert failure(fleet, 2).code == "HF0737"
    nothing_left(fleet, 2)
    assert fleet.state(3).status is S.RUNNING


def test_what_waits_for_a_time_stays_on_the_agenda_when_it_is_asked_too_early() -> None:
    """Clocks of engines differ: whoever asks first may be ahead of the store."""
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a", crew=Crew(bound(lock_timeout=5_000_000)))
    assert fleet.when(2, r.TimeOutLocks(fleet.state(2).ticket)) == []
    fleet.sleep(fleet.state(2).locked_at + 5_000_000)
    assert fleet.state(2).status is S.FAILED_SAFE
    nothing_left(fleet, 2)


def test_a_timeout_goes_with_the_grant() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a", crew=Crew(bound(lock_timeout=5_000_000)))
    fleet.tell(1, "done")
    fleet.wake()
    assert fleet.tables.agenda == {}


@pytest.mark.parametrize("kind", ["suspect", "quarantine"])
def test_whoever_requires_clean_entities_is_told_who_left_them(kind: str) -> None:
    fleet = Fleet("a")
    fleet.tables.flags.append(Flag("a", THREE, kind, "half done"))
    fleet.start(1, "a", crew=Crew(bound(requires_clean=True)))
    assert statuses(fleet, 1) == [*QUIET_START[:7], S.FAILED_SAFE]
    assert failure(fleet, 1).code == "HF0733"
    assert THREE in failure(fleet, 1).message


def test_a_suspect_may_be_locked_and_what_is_quarantined_may_not() -> None:
    fleet = Fleet("a", "b")
    fleet.tables.flags += [Flag("a", THREE, "suspect"), Flag("b", THREE, "quarantine")]
    fleet.start(1, "a")
    fleet.start(2, "b")
    assert [fleet.state(n).status for n in (1, 2)] == [S.RUNNING, S.SCHEDULED]
    fleet.tables.flags.clear()
    fleet.when(2, r.TryLocks())
    assert fleet.state(2).status is S.RUNNING


# --- cancel before it runs -----------------------------------------------------------------------------------
def test_cancelled_in_the_queue_nothing_is_left_and_others_are_woken() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    fleet.start(2, "a", "b", crew=Crew(bound(lock_timeout=5_000_000)))
    fleet.start(3, "b")
    assert kinds(fleet.when(2, r.CancelExecution())) == [e.CancelRequested, e.EntitiesReleased, e.ExecutionCancelled]
    assert statuses(fleet, 2) == [*QUIET_START[:6], S.CANCELLING, S.CANCELLED]
    nothing_left(fleet, 2)
    fleet.wake()
    assert fleet.state(3).status is S.RUNNING


def test_cancelled_during_discovery_running_jobs_are_drained() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(asks=2))
    fleet.claim(1, 1)
    fleet.when(1, r.CancelExecution())
    assert fleet.state(1).status is S.CANCELLING
    fleet.finish(1, 1, ["a"])
    assert statuses(fleet, 1) == [*QUIET_START[:4], S.CANCELLING, S.CANCELLED]
    nothing_left(fleet, 1)


def test_a_wake_up_for_what_has_ended_means_nothing() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.tell(1, "done")
    for request in (r.TryLocks(), r.TimeOutLocks(1), r.CheckGates(), r.HearEnd(TWO, int(S.COMPLETED))):
        assert fleet.when(1, request) == []


# --- taken away ----------------------------------------------------------------------------------------------
def test_an_entity_is_taken_away_and_what_ran_there_is_unknown() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a", "b", crew=Crew(bound(rollback="none"), jobs=True))
    fleet.start(2, "a")
    fleet.claim(1, 1)
    lost = fleet.when(1, r.FreeEntity("a", 1, "ann"))
    assert kinds(lost) == [
        e.EntityLost, e.JobStopAsked, e.JobFailed, e.ErrorRaised, e.JobCancelled, e.EntitiesReleased, e.ExecutionFailed,
    ]  # fmt: skip
    assert lost[0] == e.EntityLost("a", "ann", (TWO,))
    assert (failure(fleet, 1).kind, failure(fleet, 1).code) == ("lock-lost", "HF0735")
    assert fleet.state(1).status is S.FAILED_UNSAFE
    assert fleet.state(1).subjects[0].progress is Progress.LOST
    fleet.wake()
    assert fleet.state(2).status is S.RUNNING
    late = fleet.when(1, r.CompleteJob(1, 1, "done"))
    assert late == [e.ResultRefused(1, 1, True, "done")]


def test_others_drain_before_the_verdict_and_the_lost_entity_is_free_at_once() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a", "b", crew=Crew(bound(rollback="none"), jobs=True))
    fleet.claim(1, 1)
    fleet.claim(1, 2)
    fleet.when(1, r.FreeEntity("a", 1))
    assert fleet.state(1).status is S.ERROR
    assert fleet.holders() == {"b": [ONE]}
    fleet.rebuild(1)
    fleet.start(2, "a")
    assert fleet.state(2).status is S.RUNNING
    assert fleet.state(2).fence > 1
    fleet.finish(1, 2)
    assert fleet.state(1).status is S.FAILED_UNSAFE
    nothing_left(fleet, 1)


def test_what_only_looks_leaves_nothing_behind_when_its_entity_is_taken() -> None:
    fleet = Fleet("a")
    pure = (msgspec.structs.replace(SPECS[0], pure=True),)
    fleet.start(1, "a", crew=Crew(specs=pure, jobs=True))
    fleet.claim(1, 1)
    assert e.JobFailed(1, 1, failure_of := fleet_failure("a"), Effect.NONE) in fleet.when(1, r.FreeEntity("a", 1))
    assert failure_of.kind == "lock-lost"
    assert fleet.state(1).status is S.FAILED_SAFE


def fleet_failure(entity: str) -> Failure:
    return Failure(
        "lock-lost",
        f"{entity} was taken away while it was worked upon; whatever is done there now, others may do too",
        code="HF0735",
        details={"entities": [entity]},
    )


def test_the_whole_is_taken_with_its_parts() -> None:
    fleet = Fleet("a")
    fleet.tables.add("a/1", "interface", "a")
    fleet.tables.add("a/2", "interface", "a")
    fleet.start(1, "a/1", "a/2", crew=Crew(jobs=True))
    fleet.start(2, "a")
    lost = [x.entity for x in fleet.when(1, r.FreeEntity("a", 1)) if isinstance(x, e.EntityLost)]
    assert lost == ["a", "a/1", "a/2"]
    fleet.wake()
    assert fleet.state(2).status is S.RUNNING


@pytest.mark.parametrize("request_", [r.FreeEntity("a", 7), r.FreeEntity("b", 1), r.FreeEntity("a", 0)])
def test_only_what_is_held_under_that_fence_can_be_taken(request_: r.FreeEntity) -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a")
    with pytest.raises(LockNotHeld):
        fleet.when(1, request_)
    fleet.tell(1, "done")
    with pytest.raises(LockNotHeld):
        fleet.when(1, r.FreeEntity("a", 1))


def test_what_is_being_undone_is_given_up_where_the_entity_is_taken() -> None:
    fleet = Fleet("a", "b")
    specs = (msgspec.structs.replace(SPECS[0], has_rollback=True, retry=Retry()),)
    fleet.start(1, "a", "b", crew=Crew(specs=specs, jobs=True))
    fleet.claim(1, 1)
    fleet.finish(1, 1)
    fleet.claim(1, 2)
    fleet.when(1, r.FailJob(2, 1, Failure("block-error", "no"), Effect.NONE))
    assert fleet.state(1).status is S.ROLLBACK
    back = next(job for job in fleet.state(1).jobs.values() if job.kind is JobKind.ROLLBACK)
    assert (back.entity, back.status) == ("a", JobStatus.SENT)
    fleet.claim(1, back.id)
    fleet.when(1, r.FreeEntity("a", 1))
    assert fleet.state(1).status is S.FAILED_UNSAFE
    nothing_left(fleet, 1)


def test_what_waits_for_another_try_to_undo_it_is_given_up_where_the_entity_is_taken() -> None:
    fleet = Fleet("a")
    specs = (msgspec.structs.replace(SPECS[0], has_rollback=True, retry=Retry()),)
    fleet.start(1, "a", crew=Crew(specs=specs, jobs=True))
    fleet.claim(1, 1)
    fleet.when(1, r.CancelExecution())
    fleet.finish(1, 1)
    back = next(job for job in fleet.state(1).jobs.values() if job.kind is JobKind.ROLLBACK)
    fleet.claim(1, back.id)
    fleet.when(1, r.FailJob(back.id, 1, Failure("block-error", "not yet")))
    assert fleet.state(1).jobs[back.id].status is JobStatus.RESCHEDULED
    fleet.when(1, r.FreeEntity("a", 1))
    assert fleet.state(1).status is S.CANCELLED
    assert fleet.state(1).residue == (1,)
    nothing_left(fleet, 1)


# --- resume and replay ---------------------------------------------------------------------------------------
def fail_half_way(fleet: Fleet, n: int, *entities: str, policy: Policy = BOUND) -> None:
    """The first entity was done, the second failed."""
    fleet.start(n, *entities, crew=Crew(msgspec.structs.replace(policy, rollback="none"), jobs=True))
    fleet.claim(n, 1)
    fleet.finish(n, 1)
    fleet.claim(n, 2)
    fleet.when(n, r.FailJob(2, 1, Failure("block-error", "no"), Effect.NONE))
    assert fleet.state(n).status is S.FAILED_UNSAFE


def test_resume_locks_again_and_carries_on_in_one_commit() -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b")
    resumed = fleet.when(1, r.ResumeExecution())
    assert kinds(resumed)[:3] == [e.ExecutionResumed, e.EntitiesLocked, e.PhasesPassed]
    assert resumed[2] == e.PhasesPassed(QUIET_START[6:])
    assert fleet.state(1).fence > 1
    assert fleet.crew(1).told[-1] == p.CarryOn()
    fleet.rebuild(1)
    fleet.work(1)
    assert fleet.state(1).status is S.COMPLETED
    assert [job.entity for job in resumed if isinstance(job, e.JobScheduled)] == ["b"]


@pytest.mark.parametrize("forced", [False, True])
def test_resume_waits_for_its_entities_and_then_carries_on(forced: bool) -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b")
    fleet.start(2, "b")
    assert kinds(fleet.when(1, r.ResumeExecution(is_forced=forced, accepts_changes=True))) == [
        e.ExecutionResumed,
        e.EntitiesQueued,
    ]
    assert fleet.state(1).status is S.SCHEDULED
    fleet.rebuild(1)
    fleet.tell(2, "done")
    fleet.wake()
    assert fleet.state(1).status is S.RUNNING
    assert fleet.crew(1).told[-1] == p.CarryOn(forced)


def test_replay_waits_for_its_entities_and_then_goes_again() -> None:
    fleet = Fleet("a", "b")
    fleet.start(1, "a", "b", crew=Crew(jobs=True))
    fleet.work(1)
    fleet.start(2, "a")
    fleet.when(1, r.ReplayExecution("start", is_forced=True))
    assert fleet.state(1).status is S.SCHEDULED
    fleet.tell(2, "done")
    fleet.wake()
    assert fleet.crew(1).told[-1] == p.GoAgain()


def test_a_replay_that_never_got_its_entities_still_goes_again_when_resumed() -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b")
    fleet.start(2, "a")
    fleet.when(1, r.ReplayExecution("start", is_forced=True))
    fleet.when(1, r.CancelExecution())
    assert fleet.state(1).status is S.CANCELLED
    fleet.tell(2, "done")
    fleet.when(1, r.ResumeExecution(accepts_changes=True))
    assert fleet.crew(1).told[-1] == p.GoAgain()


def test_resume_is_refused_where_others_had_the_entities_since() -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b")
    fleet.start(2, "b")
    fleet.tell(2, "done")
    with pytest.raises(ChangedHands, match=f"execution {TWO} had b since"):
        fleet.when(1, r.ResumeExecution())
    fleet.when(1, r.ReplayExecution("end", accepts_changes=True))
    assert fleet.state(1).status is S.RUNNING


def test_a_resumed_run_does_not_carry_on_behind_somebody_who_was_before_it_in_the_queue() -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b")
    fleet.start(2, "a", crew=Crew(bound(is_shared=True)))
    fleet.start(3, "a")
    fleet.when(1, r.ResumeExecution())  # nobody has changed anything yet
    fleet.rebuild(1)
    fleet.tell(2, "done")
    fleet.wake()
    assert [fleet.state(n).status for n in (1, 3)] == [S.SCHEDULED, S.RUNNING]
    fleet.tell(3, "done")
    fleet.wake()
    assert (fleet.state(1).status, fleet.state(1).residue) == (S.FAILED_UNSAFE, (1,))
    assert failure(fleet, 1).code == "HF0738"
    nothing_left(fleet, 1)
    with pytest.raises(ChangedHands, match=f"execution {THREE} had a since"):
        fleet.when(1, r.ResumeExecution())
    fleet.when(1, r.ResumeExecution(accepts_changes=True))
    assert fleet.state(1).status is S.RUNNING


def test_who_only_looked_or_worked_beside_it_did_not_change_it() -> None:
    fleet = Fleet("a")
    fleet.tables.add("a/1", "interface", "a")
    fleet.tables.add("a/2", "interface", "a")
    fail_half_way(fleet, 1, "a/1", "a/2")
    fleet.tables.add("a/3", "interface", "a")
    fleet.start(2, "a/3")
    fleet.start(3, "a", crew=Crew(bound(is_shared=True)))
    fleet.tell(2, "done")
    fleet.wake()
    fleet.tell(3, "done")
    fleet.when(1, r.ResumeExecution())
    fleet.start(4, "a")
    assert (fleet.state(1).status, fleet.state(4).watch) == (S.RUNNING, "a")


@pytest.mark.parametrize("verb", [r.ResumeExecution(accepts_changes=True), r.ReplayExecution("start", is_forced=True)])
def test_who_waited_for_the_end_of_a_quarantine_is_woken_when_it_is_resumed(verb: Any) -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b", policy=bound(on_unsafe="quarantine"))
    fleet.start(2, "a")
    assert (fleet.state(2).status, fleet.state(2).watch) == (S.SCHEDULED, "a")
    fleet.when(1, verb)
    fleet.rebuild(1)
    assert fleet.tables.flags == []
    fleet.wake()  # otherwise each would wait for the other, for ever
    assert [fleet.state(n).status for n in (1, 2)] == [S.SCHEDULED, S.RUNNING]
    fleet.tell(2, "done")
    fleet.wake()
    assert fleet.state(1).status is S.RUNNING


def test_resume_is_refused_where_something_was_undone() -> None:
    fleet = Fleet("a", "b")
    specs = (msgspec.structs.replace(SPECS[0], has_rollback=True),)
    fleet.start(1, "a", "b", crew=Crew(specs=specs, jobs=True))
    fleet.claim(1, 1)
    fleet.finish(1, 1)
    fleet.claim(1, 2)
    fleet.when(1, r.FailJob(2, 1, Failure("block-error", "no"), Effect.NONE))
    fleet.work(1)
    assert fleet.state(1).status is S.FAILED_SAFE
    with pytest.raises(CannotResume, match="rolled back"):
        fleet.when(1, r.ResumeExecution())


def test_an_earlier_run_is_not_forgotten_when_the_locks_cannot_be_had_again() -> None:
    fleet = Fleet("a", "b")
    fail_half_way(fleet, 1, "a", "b", policy=bound(lock_timeout=5_000_000))
    fleet.start(2, "b")
    fleet.when(1, r.ResumeExecution(accepts_changes=True))
    fleet.sleep(fleet.now + 6_000_000)
    assert (fleet.state(1).status, fleet.state(1).residue) == (S.FAILED_UNSAFE, (1,))
    assert failure(fleet, 1).code == "HF0737"
    del fleet.tables.entities["a"]
    fleet.when(1, r.ResumeExecution(accepts_changes=True))
    assert (fleet.state(1).status, failure(fleet, 1).code) == (S.FAILED_UNSAFE, "HF0734")
    nothing_left(fleet, 1)


def test_a_resumed_execution_that_is_cancelled_in_the_queue_undoes_nothing_it_does_not_hold() -> None:
    fleet = Fleet("a", "b")
    specs = (msgspec.structs.replace(SPECS[0], has_rollback=True),)
    fleet.start(1, "a", "b", crew=Crew(bound(rollback="none"), specs=specs, jobs=True))
    fleet.claim(1, 1)
    fleet.finish(1, 1)
    fleet.claim(1, 2)
    fleet.when(1, r.FailJob(2, 1, Failure("block-error", "no"), Effect.NONE))
    fleet.start(2, "a")
    fleet.when(1, r.ResumeExecution(accepts_changes=True))
    state = fleet.state(1)
    state.policy = bound(rollback="auto")
    fleet.when(1, r.CancelExecution())
    assert (state.status, state.residue) == (S.CANCELLED, (1,))
    assert fleet.holders() == {"a": [TWO]}


def test_resumed_parts_are_locked_with_what_they_are_parts_of_now() -> None:
    fleet = Fleet("b", "c")
    fleet.tables.add("a", "device", "b")
    fleet.tables.add("d", "device", "b")
    fail_half_way(fleet, 1, "a", "d")
    fleet.tables.add("a", "device", "c")
    resumed = fleet.when(1, r.ResumeExecution())
    assert kinds(resumed)[:3] == [e.ExecutionResumed, e.EntitiesFound, e.EntitiesLocked]
    assert fleet.state(1).around == {"b": Mode.IX, "c": Mode.IX}
    assert fleet.state(1).subjects[0].progress is Progress.DONE
    fleet.rebuild(1)


def test_a_lost_entity_is_locked_again_when_it_is_resumed() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a", crew=Crew(bound(rollback="none"), jobs=True))
    fleet.claim(1, 1)
    fleet.when(1, r.FreeEntity("a", 1))
    fleet.when(1, r.ResumeExecution(is_forced=True))
    assert fleet.holders() == {"a": [ONE]}
    assert fleet.state(1).subjects[0].progress is Progress.REACHED


def test_one_that_never_ran_cannot_be_resumed() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a", crew=Crew(bound(on_conflict="fail")))
    with pytest.raises(CannotResume, match="never began"):
        fleet.when(2, r.ResumeExecution(actor=Actor("ann")))


# --- a definition that no longer works -------------------------------------------------------------------------
class Broken(Crew):
    """Since an upgrade it cannot be asked any more."""

    def wanted(self, input: Any) -> tuple[p.Wanted, ...]:
        if self.told == ["broken"]:
            raise RuntimeError("a bug")
        return ()


def test_a_program_that_breaks_behind_a_gate_ends_its_execution_and_no_other() -> None:
    fleet = Fleet("a")
    crew = Broken()
    fleet.start(1, "a", crew=crew, gates=(Gate("approval"),))
    crew.told = ["broken"]  # type: ignore[list-item]
    fleet.when(1, r.MeetGate())
    assert (fleet.state(1).status, failure(fleet, 1).kind) == (S.FAILED_SAFE, "program-error")
    nothing_left(fleet, 1)


def test_a_definition_that_does_not_compile_any_more_ends_what_waits_for_its_locks() -> None:
    fleet = Fleet("a")
    fleet.start(1, "a")
    fleet.start(2, "a")
    fleet.tables.refused.add((2).to_bytes(16, "big"))
    fleet.tell(1, "done")
    fleet.wake()
    assert (fleet.state(2).status, failure(fleet, 2).kind) == (S.FAILED_SAFE, "program-error")
    nothing_left(fleet, 2)
