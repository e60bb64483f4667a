"""What a failed run leaves: the classification, verifying, going back, waiting for a word, acknowledging."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.attempts import LOSS_LIMIT
from holdfast.core.errors import CannotResume, NoteMissing, NothingToUndo, WrongStatus
from holdfast.core.lanes import Op
from holdfast.core.model import Actor, Effect, JobKind, JobStatus, Policy, Status, Undo
from holdfast.core.undoing import outcome_of
from tests.core.hooked import BOOM, Case, kinds

UNDONE, FAILED, NOT, SKIPPED = Undo.UNDONE, Undo.ROLLBACK_FAILED, Undo.NOT_COMPENSABLE, Undo.SKIPPED_BELOW_FAILURE
ADA, BOB = Actor("ada"), Actor("bob")


def job(block: str, entity: str = "") -> tuple[Any, ...]:
    return ("job", block, entity)


FAIL = ("fail",)


# --- the classification: what each way to end an attempt means ------------------------------------------------
@pytest.mark.parametrize(
    ("block", "end", "verdict"),
    [
        ("pure", lambda case: case.failed(1), Status.FAILED_SAFE),
        ("pure", lambda case: case.lost(1, "timeout"), Status.FAILED_SAFE),
        ("plain", lambda case: case.done(1, effect=Effect.NONE), Status.FAILED_SAFE),
        ("plain", lambda case: case.done(1), Status.FAILED_UNSAFE),
        ("plain", lambda case: case.failed(1, Effect.NONE), Status.FAILED_SAFE),
        ("plain", lambda case: case.failed(1), Status.FAILED_UNSAFE),
        ("plain", lambda case: case.lost(1), Status.FAILED_UNSAFE),
        ("plain", lambda case: case.lost(1, "timeout"), Status.FAILED_UNSAFE),
        ("idem", lambda case: case.failed(1, is_permanent=True), Status.FAILED_UNSAFE),
    ],
)
def test_safe_means_that_nothing_can_have_happened(block: str, end: Any, verdict: Status) -> None:
    case = Case([job(block, "sw1"), FAIL])
    end(case)
    assert case.state.status is verdict
    assert case.state.residue == ((1,) if verdict is Status.FAILED_UNSAFE else ())
    assert case.flags == ({"sw1": "suspect"} if verdict is Status.FAILED_UNSAFE else {})


def test_a_job_that_never_started_is_safe() -> None:
    case = Case([job("plain", "sw1")])
    assert kinds(case.when(r.CancelExecution())) == ["CancelRequested", "JobCancelled", "ExecutionCancelled"]
    assert case.state.residue == ()
    assert not case.flags


def test_an_unknown_attempt_that_may_repeat_converges_to_done() -> None:
    case = Case([job("idem", "sw1"), FAIL])
    case.lost(1)
    case.done(1)
    assert case.state.ledger[1].effect is Effect.DONE
    assert case.state.ledger[1].unknown == 0


def test_what_is_undone_is_safe() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    events = case.done(1, {"before": "v1"})
    assert kinds(events)[-3:] == ["ErrorRaised", "RollbackPlanned", "JobScheduled"]
    made = events[-1]
    assert made == e.JobScheduled(2, 0, 0, 3, {"n": 0}, 1, "sw1", JobKind.ROLLBACK, 1)
    assert case.state.status is Status.ROLLBACK
    events = case.done(2)
    assert kinds(events) == ["JobSucceeded", "EntrySettled", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_SAFE
    assert case.state.ledger[1].effect is Effect.UNDONE
    assert case.state.failure is not None
    assert case.state.failure.message == "on purpose", "the cause stays"
    assert not case.flags


# --- the order -------------------------------------------------------------------------------------------------
def test_one_chain_goes_backwards_one_after_the_other() -> None:
    case = Case([job("undo", "sw1"), job("undo", "sw1"), job("undo", "sw1"), FAIL])
    for n in (1, 2, 3):
        case.done(n)
    undone = []
    while case.undoing:
        ((about, hook),) = case.undoing.items()
        undone.append(about)
        case.done(hook)
    assert undone == [3, 2, 1]
    assert case.state.status is Status.FAILED_SAFE


def test_chains_of_different_entities_go_in_parallel_and_stop_alone() -> None:
    case = Case(
        [job("undo", "sw1"), job("undo", "sw1")],
        [job("undo", "sw2"), job("undo", "sw2")],
        [job("plain", "sw3")],
    )
    # Jobs 1, 2, 3 in the lanes; then 4 on sw1, 5 on sw2, and sw3 fails with nothing done.
    case.done(1)
    case.done(2)
    case.done(4)
    assert case.claim(5) == 1
    case.failed(3, Effect.NONE)
    assert case.state.status is Status.ERROR, "job 5 is drained first"
    case.when(r.CompleteJob(5, 1))
    assert case.state.status is Status.ROLLBACK
    assert set(case.undoing) == {4, 5}
    case.failed(case.undoing[4], is_permanent=True)
    assert case.outcomes == {1: SKIPPED, 2: Undo.NOT_TRIED, 4: FAILED, 5: Undo.NOT_TRIED}
    case.done(case.undoing[5])
    case.done(case.undoing[2])
    assert case.outcomes == {1: SKIPPED, 2: UNDONE, 4: FAILED, 5: UNDONE}
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.residue == (1, 4)
    assert case.flags == {"sw1": "suspect"}
    assert sorted(job for job, _ in case.settlements()) == [1, 2, 4, 5], "each exactly once"


@pytest.mark.parametrize("kind", ["", "group"])
def test_a_wide_job_waits_for_everything_above_it_and_holds_everything_below(kind: str) -> None:
    wide = "all" if kind else ""
    types = {"all": "group", "sw1": "device", "sw2": "device"}
    case = Case([*(job("undo", entity) for entity in ("sw1", "sw2", wide, "sw1", "sw2")), FAIL], types=types)
    for n in range(1, 6):
        case.done(n)
    assert set(case.undoing) == {4, 5}
    case.done(case.undoing[4])
    assert set(case.undoing) == {5}
    case.done(case.undoing[5])
    assert set(case.undoing) == {3}
    case.done(case.undoing[3])
    assert set(case.undoing) == {1, 2}
    case.done(case.undoing[1])
    case.done(case.undoing[2])
    assert case.state.status is Status.FAILED_SAFE


def test_a_wide_job_is_not_undone_beneath_an_effect_that_stays() -> None:
    case = Case([job("undo", "sw1"), job("undo"), job("undo", "sw1"), job("undo", "sw2"), FAIL])
    for n in range(1, 5):
        case.done(n)
    case.failed(case.undoing[3], is_permanent=True)
    assert case.state.status is Status.ROLLBACK
    case.done(case.undoing[4])
    assert case.outcomes == {1: SKIPPED, 2: SKIPPED, 3: FAILED, 4: UNDONE}
    assert case.state.status is Status.FAILED_UNSAFE


def test_global_jobs_one_after_the_other_are_undone_in_reverse() -> None:
    case = Case([job("undo"), job("undo"), job("undo"), FAIL])
    for n in (1, 2, 3):
        case.done(n)
    undone = []
    while case.undoing:
        ((about, hook),) = case.undoing.items()
        undone.append(about)
        case.done(hook)
    assert undone == [3, 2, 1]


def test_a_part_is_undone_before_the_whole_it_belongs_to() -> None:
    types = {"sw1": "device", "sw1/e0": "interface", "sw2/e0": "interface"}
    case = Case([job("undo", "sw1"), job("undo", "sw1/e0"), job("undo", "sw2/e0"), FAIL], types=types,
                within={"sw1/e0": "sw1", "sw2/e0": "sw2"})  # fmt: skip
    for n in (1, 2, 3):
        case.done(n)
    assert set(case.undoing) == {2, 3}, "nothing was done to sw2 itself"
    case.failed(case.undoing[2], is_permanent=True)
    case.done(case.undoing[3])
    assert case.outcomes == {1: SKIPPED, 2: FAILED, 3: UNDONE}


@pytest.mark.parametrize("device", ["sw1", ""])
def test_a_part_of_a_part_is_undone_before_the_part(device: str) -> None:
    """Also where the outermost whole is not worked upon, or nothing was done to it."""
    types = {"sw1": "device", "sw1/c1": "card", "sw1/c1/e0": "interface", "sw1/e9": "interface"}
    within = dict.fromkeys(["sw1/c1", "sw1/c1/e0", "sw1/e9"], "sw1")
    if not device:
        del types["sw1"]
    jobs = [job("undo", "sw1/c1"), job("undo", "sw1/c1/e0"), job("undo", "sw1/e9"), FAIL]
    case = Case(jobs, types=types, within=within, above={"sw1/c1/e0": "sw1/c1"})
    for n in (1, 2, 3):
        case.done(n)
    assert set(case.undoing) == {2, 3}
    case.failed(case.undoing[2], is_permanent=True)
    case.done(case.undoing[3])
    assert case.outcomes == {1: SKIPPED, 2: FAILED, 3: UNDONE}


# --- what cannot be undone ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("blocks", "outcomes"),
    [
        (["undo", "pivot"], {1: SKIPPED, 2: NOT}),
        (["pivot", "undo"], {1: NOT, 2: UNDONE}),
        (["undo", "plain"], {1: SKIPPED, 2: NOT}),
        (["plain", "undo"], {1: NOT, 2: UNDONE}),
        (["undo", "plain", "undo"], {1: SKIPPED, 2: NOT, 3: UNDONE}),
    ],
)
def test_an_entry_that_cannot_be_undone_stops_its_chain(blocks: list[str], outcomes: dict[int, Undo]) -> None:
    # A second entity, so that there is a way back at all.
    case = Case([job("undo", "other"), *(job(block, "sw1") for block in blocks), FAIL])
    for n in range(1, len(blocks) + 2):
        case.done(n)
    while case.undoing:
        case.done(next(iter(case.undoing.values())))
    assert case.outcomes == {1: UNDONE} | {n + 1: outcome for n, outcome in outcomes.items()}
    assert case.state.status is Status.FAILED_UNSAFE
    assert set(case.state.residue) == {n + 1 for n, outcome in outcomes.items() if outcome is not UNDONE}
    reasons = {n: entry.reason for n, entry in case.state.ledger.items() if entry.undo is NOT}
    assert all(reasons.values())


def test_unknown_is_undone_only_by_a_rollback_that_takes_that() -> None:
    sure = Case([job("undo", "sw1"), job("undo", "sw2")])
    sure.done(1)
    sure.lost(2)
    sure.done(sure.undoing[1])
    assert sure.outcomes == {1: UNDONE, 2: NOT}
    assert sure.state.residue == (2,)
    assert "nobody knows" in sure.state.ledger[2].reason

    any_way = Case([job("undo-any", "sw1")])
    any_way.lost(1)
    any_way.done(any_way.undoing[1])
    assert any_way.outcomes == {1: UNDONE}
    assert any_way.state.status is Status.FAILED_SAFE


def test_without_any_way_back_it_fails_unsafe_at_once() -> None:
    case = Case([job("undo", "sw1"), job("plain", "sw1"), FAIL])
    case.done(1)
    events = case.done(2)
    assert kinds(events)[-2:] == ["ErrorRaised", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.residue == (1, 2)


def test_rollback_none_never_goes_back() -> None:
    case = Case([job("undo", "sw1"), FAIL], policy=Policy(rollback="none"))
    case.done(1)
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.outcomes == {1: Undo.NOT_TRIED}


def test_an_entity_that_was_taken_away_is_neither_looked_at_nor_undone() -> None:
    case = Case([job("both", "sw1"), job("undo", "sw2"), FAIL], types={"sw1": "device", "sw2": "device"})
    case.done(1)
    case.given(e.EntityLost("sw1", "ada"))
    case.done(2)
    case.done(case.undoing[2])
    assert case.outcomes == {1: NOT, 2: UNDONE}
    assert "taken away" in case.state.ledger[1].reason


# --- rollback jobs -----------------------------------------------------------------------------------------------
def test_a_rollback_is_tried_three_times_whatever_its_block_says() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    case.done(1)
    for attempt in (1, 2):
        (again,) = case.failed(2)
        assert isinstance(again, e.JobRescheduled)
        case.now = again.due
        case.when(r.ReleaseJob(2, attempt))
    assert kinds(case.failed(2)) == ["JobFailed", "EntrySettled", "ExecutionFailed"]
    assert case.outcomes == {1: FAILED}
    assert case.state.ledger[1].reason == BOOM.message


def test_the_rollback_of_a_failed_run_cannot_be_cancelled() -> None:
    case = Case([job("undo"), job("plain")])
    case.done(1)
    case.failed(2, Effect.NONE)
    assert case.state.status is Status.ROLLBACK
    with pytest.raises(WrongStatus):
        case.when(r.CancelExecution())


def test_a_worker_lost_during_rollback_is_another_attempt() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    case.done(1)
    for _ in range(LOSS_LIMIT - 1):
        assert kinds(case.lost(2)) == ["JobRescheduled", "JobReleased"]
    assert kinds(case.lost(2)) == ["JobFailed", "EntrySettled", "ExecutionFailed"]
    assert case.outcomes == {1: FAILED}


def test_rollback_jobs_make_no_entries_and_reach_no_program() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    case.done(1)
    case.claim(2)
    assert kinds(case.when(r.SendSignal("hello"))) == ["SignalReceived"]
    case.when(r.CompleteJob(2, 1, "undone", Effect.DONE))
    assert list(case.state.ledger) == [1]
    assert not case.state.jobs


def test_a_late_answer_of_a_rollback_changes_nothing() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    case.done(1)
    case.lost(2)
    case.claim(2)
    assert kinds(case.when(r.FailJob(2, 1, BOOM))) == ["ResultRefused"]
    assert case.state.status is Status.ROLLBACK


# --- verify ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "status", "left"),
    [
        ("applied", Status.FAILED_UNSAFE, (1,)),
        ("not-applied", Status.FAILED_SAFE, ()),
        ({"outcome": "not_applied"}, Status.FAILED_SAFE, ()),
        ("unknown", Status.FAILED_UNSAFE, (1,)),
        ("nonsense", Status.FAILED_UNSAFE, (1,)),
        (None, Status.FAILED_UNSAFE, (1,)),
    ],
)
def test_after_an_error_somebody_looks_first(said: Any, status: Status, left: tuple[int, ...]) -> None:
    case = Case([job("look-once", "sw1")])
    events = case.failed(1)
    assert kinds(events) == ["JobFailed", "ErrorRaised", "JobScheduled"]
    assert case.state.status is Status.ERROR
    assert kinds(case.done(case.looking[1], said)) == ["JobSucceeded", "EffectVerified", "ExecutionFailed"]
    assert (case.state.status, case.state.residue) == (status, left)


@pytest.mark.parametrize("effect", [Effect.DONE, Effect.NONE, Effect.UNKNOWN])
def test_a_look_may_say_what_it_found_as_an_effect(effect: Effect) -> None:
    case = Case([job("look", "sw1")])
    case.lost(1)
    case.done(case.looking[1], {"version": 7}, effect)
    if effect is Effect.DONE:
        assert case.state.lanes[1].output == {"version": 7}
    elif effect is Effect.NONE:
        assert case.state.jobs[1].status is JobStatus.SENT
    else:
        assert case.state.status is Status.FAILED_UNSAFE


def test_everything_in_doubt_is_looked_at_before_anything_is_undone() -> None:
    case = Case([job("both", "sw1")], [job("both", "sw2")], [job("undo", "sw3")])
    case.done(3)
    case.claim(2)
    case.failed(1)
    assert not case.looking, "sw2 is drained first"
    case.when(r.FailJob(2, 1, BOOM))
    assert set(case.looking) == {1, 2}
    first = case.looking[1]
    case.done(case.looking[2], "applied")
    assert case.state.status is Status.ERROR
    case.done(first, "not-applied")
    assert case.state.status is Status.ROLLBACK
    assert set(case.undoing) == {2, 3}


def test_a_look_that_fails_proves_nothing_and_is_not_taken_again() -> None:
    case = Case([job("look-once", "sw1")])
    case.failed(1)
    hook = case.looking[1]
    assert kinds(case.lost(hook)) == ["JobRescheduled", "JobReleased"]
    assert kinds(case.failed(hook, is_permanent=True)) == ["JobFailed", "EffectVerified", "ExecutionFailed"]
    assert case.state.residue == (1,)


@pytest.mark.parametrize("end", ["failed", "lost", "timeout"])
def test_while_running_a_look_decides_whether_a_job_may_go_on(end: str) -> None:
    def begun() -> tuple[Case, int]:
        case = Case([job("look", "sw1")])
        events = case.failed(1) if end == "failed" else case.lost(1, "worker-lost" if end == "lost" else end)
        assert kinds(events) == ["JobRescheduled", "JobScheduled"]
        assert case.state.jobs[1].status is JobStatus.RESCHEDULED
        assert case.state.ledger[1].effect is Effect.UNKNOWN
        return case, case.looking[1]

    case, hook = begun()
    events = case.done(hook, {"outcome": "applied", "data": {"version": 7}})
    assert kinds(events)[:3] == ["JobSucceeded", "EffectVerified", "JobSucceeded"]
    assert case.state.status is Status.COMPLETED
    assert case.state.lanes[1].output == {"version": 7}
    assert case.state.ledger[1].effect is Effect.DONE

    case, hook = begun()
    events = case.done(hook, "not-applied")
    assert kinds(events)[:3] == ["JobSucceeded", "EffectVerified", "JobRescheduled"]
    assert not case.state.ledger
    if end != "lost":
        case.now = case.state.jobs[1].due
        case.when(r.ReleaseJob(1, 1))
    assert case.done(1)[0] == e.JobSucceeded(1, 2, None, Effect.DONE)
    assert case.state.status is Status.COMPLETED

    case, hook = begun()
    events = case.done(hook, "unknown")
    assert kinds(events) == ["JobSucceeded", "EffectVerified", "JobFailed", "ErrorRaised", "ExecutionFailed"]
    assert case.state.failure is not None
    assert case.state.failure.kind == "outcome-unknown"
    assert case.state.ledger[1].unknown == 0, "one attempt is counted once"


def test_a_job_that_did_nothing_fails_when_its_attempts_are_used_up() -> None:
    case = Case([job("look", "sw1")])
    for attempt in (1, 2):
        case.lost(1, "timeout")
        case.done(case.looking[1], "not-applied")
        case.now = case.state.jobs[1].due
        case.when(r.ReleaseJob(1, attempt))
    case.lost(1, "timeout")
    events = case.done(case.looking[1], "not-applied")
    assert kinds(events) == ["JobSucceeded", "EffectVerified", "JobFailed", "ErrorRaised", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_SAFE


def test_workers_lost_again_and_again_with_a_job_end_it_though_nothing_was_done() -> None:
    case = Case([job("look", "sw1")])
    for n in range(LOSS_LIMIT):
        assert case.state.jobs[1].losses == n
        case.lost(1)
        case.done(case.looking[1], "not-applied")
    assert case.state.status is Status.FAILED_SAFE


def test_a_look_that_was_not_over_when_the_run_failed_is_taken_again() -> None:
    case = Case([job("look", "sw1")], [job("plain", "sw2")])
    case.lost(1)
    looking = case.looking[1]
    case.failed(2, Effect.NONE)
    assert looking not in case.state.jobs
    again = case.looking[1]
    assert again != looking
    case.done(again, "not-applied")
    assert case.state.status is Status.FAILED_SAFE


def test_a_look_under_way_when_the_run_failed_counts() -> None:
    case = Case([job("look", "sw1")], [job("plain", "sw2")])
    case.lost(1)
    looking = case.looking[1]
    case.claim(looking)
    case.failed(2, Effect.NONE)
    assert case.state.status is Status.ERROR
    assert not case.looking
    case.when(r.CompleteJob(looking, 1, "not-applied"))
    assert case.state.status is Status.FAILED_SAFE


def test_what_a_verify_says() -> None:
    assert outcome_of("applied") == (Effect.DONE, None)
    assert outcome_of({"outcome": "applied", "data": 5}) == (Effect.DONE, 5)
    assert outcome_of("not-applied") == (Effect.NONE, None)
    for nonsense in (None, True, [], {}, {"outcome": 1}, "yes"):
        assert outcome_of(nonsense)[0] is Effect.UNKNOWN


def test_a_look_nobody_wants_any_more_does_not_hold_up_the_end() -> None:
    case = Case([job("look", "sw1")], [job("plain", "sw2")], tolerates=True)
    case.lost(1)
    looking = case.looking[1]
    case.claim(looking)
    # Whatever made the workflow give the job up: it is over, and the other lane is the last.
    case.given(e.JobCancelled(1, 1), e.LaneAdvanced(2, ((Op.END, 0),)))
    events = case.done(2)
    assert kinds(events)[-2:] == ["JobCancelled", "ExecutionCompleted"]
    assert case.flags == {"sw1": "suspect"}
    assert case.when(r.CompleteJob(looking, 1, "not-applied")) == []


# --- cancelling --------------------------------------------------------------------------------------------------
def test_a_cancelled_run_is_drained_looked_at_and_undone() -> None:
    case = Case([job("undo", "sw1"), job("both", "sw1")])
    case.done(1)
    case.claim(2)
    case.when(r.CancelExecution("enough"))
    assert case.state.status is Status.CANCELLING
    assert kinds(case.when(r.FailJob(2, 1, BOOM, is_cancelled=True))) == ["JobCancelled", "JobScheduled"]
    case.done(case.looking[2], "applied")
    assert case.state.status is Status.ROLLBACK
    assert case.when(r.CancelExecution()) == [], "asked again: the same answer"
    with pytest.raises(WrongStatus):
        case.when(r.GiveUp())
    case.done(case.undoing[2])
    assert kinds(case.done(case.undoing[1]))[-1] == "ExecutionCancelled"
    assert case.state.status is Status.CANCELLED
    assert case.state.residue == ()
    assert case.state.cancel_reason == "enough"


def test_a_cancelled_run_that_left_something_flags_it() -> None:
    case = Case([job("plain", "sw1"), job("plain", "sw1")], policy=Policy(on_unsafe="quarantine"))
    case.done(1)
    case.when(r.CancelExecution())
    assert case.state.status is Status.CANCELLED
    assert case.state.residue == (1,)
    assert case.flags == {"sw1": "quarantine"}
    with pytest.raises(NoteMissing):
        case.when(r.AckExecution(actor=ADA))


# --- waiting for a word --------------------------------------------------------------------------------------------
MANUAL = Policy(rollback="manual")


def test_manual_waits_in_error_until_somebody_says_rollback() -> None:
    case = Case([job("undo", "sw1"), FAIL], policy=MANUAL)
    case.done(1)
    assert case.state.status is Status.ERROR
    assert not case.queue
    events = case.when(r.RollBack(ADA, "looks bad"))
    assert events[0] == e.RollbackPlanned((1,), ADA, "looks bad")
    with pytest.raises(WrongStatus):
        case.when(r.RollBack(ADA))
    case.done(case.undoing[1])
    assert case.state.status is Status.FAILED_SAFE


def test_manual_waits_in_error_until_somebody_gives_up() -> None:
    case = Case([job("undo", "sw1"), FAIL], policy=MANUAL)
    case.done(1)
    assert case.when(r.GiveUp(ADA, "will do it by hand")) == [
        e.ExecutionFailed(Status.FAILED_UNSAFE, (1,), actor=ADA, reason="will do it by hand")
    ]
    assert case.flags == {"sw1": "suspect"}


def test_manual_ends_by_itself_where_nothing_was_left() -> None:
    case = Case([job("pure", "sw1"), FAIL], policy=MANUAL)
    case.done(1)
    assert case.state.status is Status.FAILED_SAFE


def test_manual_looks_before_it_waits() -> None:
    case = Case([job("both", "sw1")], policy=MANUAL)
    case.failed(1)
    with pytest.raises(WrongStatus, match="not ended yet"):
        case.when(r.RollBack(ADA))
    with pytest.raises(WrongStatus, match="not ended yet"):
        case.when(r.GiveUp(ADA))
    case.done(case.looking[1], "applied")
    assert case.state.status is Status.ERROR
    case.when(r.RollBack(ADA))
    assert case.undoing


def test_a_rollback_of_what_cannot_be_undone_is_refused() -> None:
    case = Case([job("plain", "sw1"), FAIL], policy=MANUAL)
    case.done(1)
    with pytest.raises(NothingToUndo):
        case.when(r.RollBack(ADA))
    case.when(r.GiveUp(ADA))
    assert case.state.status is Status.FAILED_UNSAFE


def test_what_waits_for_a_word_can_be_cancelled_and_stays_as_it_is() -> None:
    case = Case([job("undo", "sw1"), FAIL], policy=MANUAL)
    case.done(1)
    case.when(r.CancelExecution())
    assert case.state.status is Status.CANCELLED
    assert case.state.residue == (1,)


@pytest.mark.parametrize("verb", [r.RollBack(ADA), r.GiveUp(ADA), r.AckExecution("x", ADA)])
def test_verbs_for_later_are_refused_while_it_runs(verb: Any) -> None:
    case = Case([job("undo", "sw1")])
    with pytest.raises(WrongStatus):
        case.when(verb)


# --- acknowledging -------------------------------------------------------------------------------------------------
def test_an_unsafe_end_is_acknowledged_with_a_note_and_its_flags_go() -> None:
    case = Case([job("plain", "sw1"), FAIL])
    case.done(1)
    assert case.flags
    for empty in ("", "  "):
        with pytest.raises(NoteMissing):
            case.when(r.AckExecution(empty, ADA))
    assert case.when(r.AckExecution("replaced it", ADA)) == [e.ExecutionAcked(ADA, "replaced it")]
    assert case.state.status is Status.FAILED_UNSAFE_ACK
    assert not case.flags
    assert case.when(r.AckExecution("me too", BOB)) == []
    assert (case.state.acked_by, case.state.ack_note) == ("ada", "replaced it")


@pytest.mark.parametrize("safe", [True, False])
def test_ends_that_left_nothing_need_no_note(safe: bool) -> None:
    case = Case([job("pure", "sw1"), *([FAIL] if safe else [])])
    case.done(1)
    case.when(r.AckExecution(actor=ADA))
    assert case.state.status is (Status.FAILED_SAFE_ACK if safe else Status.COMPLETED_ACK)


def test_quarantine_ends_with_the_acknowledgement_and_whoever_waited_looks_again() -> None:
    case = Case([job("plain", "sw1"), FAIL], policy=Policy(on_unsafe="quarantine"))
    case.done(1)
    assert case.flags == {"sw1": "quarantine"}
    case.rows.woken = ("11" * 16,)
    case.when(r.AckExecution("mended", ADA))
    assert [(id, row.request) for (id, _), row in case.agenda.items()] == [("11" * 16, r.TryLocks())]


def test_a_tolerated_failure_leaves_its_entity_suspect_and_wants_a_note() -> None:
    case = Case([job("plain", "sw1")], [job("plain", "sw2")], tolerates=True)
    case.done(1)
    case.failed(2)
    assert case.state.status is Status.COMPLETED
    assert case.flags == {"sw2": "suspect"}
    with pytest.raises(NoteMissing):
        case.when(r.AckExecution(actor=ADA))
    case.when(r.AckExecution("looked at it", ADA))
    assert not case.flags


def test_a_late_answer_to_a_job_in_doubt_is_evidence() -> None:
    case = Case([job("plain", "sw1")])
    case.lost(1)
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.when(r.CompleteJob(1, 1, "it did")) == [e.ResultRefused(1, 1, True, "it did")]
    assert case.state.residue == (1,)


# --- going on ------------------------------------------------------------------------------------------------------
def test_a_run_of_which_something_was_undone_does_not_carry_on() -> None:
    case = Case([job("undo", "sw1"), FAIL])
    case.done(1)
    case.done(2)
    with pytest.raises(CannotResume, match="rolled back"):
        case.when(r.ResumeExecution(is_forced=True))
