"""Given events, when a request comes, then these events — or that refusal."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.attempts import LOSS_LIMIT
from holdfast.core.decide import decide
from holdfast.core.errors import (
    DuplicateExecution,
    ExecutionEnded,
    StaleAttempt,
    UnknownExecution,
    UnknownWorkflow,
    WrongStatus,
)
from holdfast.core.folding import fold
from holdfast.core.model import Effect, Failure, JobStatus, Status
from holdfast.core.state import State, open_state
from tests.core.scripted import ID, Rows, Scripted

BOOM = Failure("block-error", "boom")


class Case:
    """An execution under test: `when` decides and applies, time is what the test says."""

    def __init__(self, *branches: list[Any], rows: Rows | None = None) -> None:
        self.rows = rows or Rows(Scripted(*branches))
        self.state: State = open_state(ID)
        self.now = 1000

    def when(self, request: r.Request) -> list[e.Event]:
        decided = decide(self.state, request, self.now, self.rows)
        assert isinstance(decided, list)
        assert decide(self.state, request, self.now, self.rows) == decided, "deciding twice differs"
        fold(self.state, self.now, decided)
        return decided

    def start(self) -> list[e.Event]:
        return self.when(r.StartExecution(ID, definition=b"d" * 16))

    def claim(self, job: int = 1) -> list[e.Event]:
        return self.when(r.ClaimJob(job, "w", "inc"))


def kinds(events: list[e.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def running(*branches: list[Any]) -> Case:
    case = Case(*branches)
    case.start()
    return case


def test_start_passes_every_phase_in_one_transition_and_schedules_the_first_job() -> None:
    case = Case([("job", 0)])
    events = case.start()
    assert kinds(events) == ["ExecutionStarted", "BlocksPinned", "PhasesPassed", "LaneAdvanced", "JobScheduled"]
    assert case.state.status is Status.RUNNING
    assert case.state.jobs[1].status is JobStatus.SENT


def test_start_by_unknown_name_is_refused_and_writes_nothing() -> None:
    with pytest.raises(UnknownWorkflow, match="publish"):
        Case([("job", 0)]).when(r.StartExecution(ID, workflow="nobody"))


def test_start_by_name_pins_the_version() -> None:
    case = Case([("job", 0)])
    started = case.when(r.StartExecution(ID, workflow="known"))[0]
    assert isinstance(started, e.ExecutionStarted)
    assert started.version == 3


def test_starting_the_same_id_twice_is_refused() -> None:
    case = running([("job", 0)])
    with pytest.raises(DuplicateExecution):
        case.start()


def test_all_problems_end_the_start_safely_without_a_job() -> None:
    case = Case(rows=Rows(Scripted([("job", 0)]), frozenset({"plain", "pure"})))
    events = case.when(r.StartExecution(ID, "bad", definition=b"d" * 16))
    assert kinds(events) == ["ExecutionStarted", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_SAFE
    assert case.state.input == "bad", "the history shows what was asked for"
    assert case.state.failure is not None
    assert [p["code"] for p in case.state.failure.details] == ["HF0201", "HF0211", "HF0211"]
    assert not case.state.jobs


def test_requests_to_an_execution_that_does_not_exist_are_refused() -> None:
    with pytest.raises(UnknownExecution):
        Case([("job", 0)]).when(r.CancelExecution())


def test_result_step_end_next_step_and_next_job_are_one_transition() -> None:
    case = running([("job", 0), ("job", 0)])
    case.claim()
    events = case.when(r.CompleteJob(1, 1, "done"))
    assert kinds(events) == ["JobSucceeded", "LaneAdvanced", "JobScheduled"]
    assert list(case.state.jobs) == [2]
    assert case.state.lanes[1].output == "done"


def test_last_result_completes() -> None:
    case = running([("job", 0)])
    case.claim()
    assert kinds(case.when(r.CompleteJob(1, 1))) == ["JobSucceeded", "LaneAdvanced", "ExecutionCompleted"]
    assert case.state.status is Status.COMPLETED
    assert case.state.output == {"branch": 0}
    assert case.state.ended_at == case.now


def test_a_job_is_claimed_once() -> None:
    case = running([("job", 0)])
    assert kinds(case.claim()) == ["JobStarted"]
    assert case.claim() == []


def test_a_stale_attempt_changes_nothing_and_is_kept_as_evidence() -> None:
    case = running([("job", 1)])
    case.claim()
    case.when(r.LoseJob(1, 1, "worker-lost", "gone"))
    case.claim()
    before = case.state.jobs[1].status
    assert kinds(case.when(r.CompleteJob(1, 1, "late"))) == ["ResultRefused"]
    assert case.state.jobs[1].status is before
    assert case.state.jobs[1].attempt == 2


def test_the_same_result_again_is_simply_known() -> None:
    case = running([("job", 0), ("job", 0)])
    case.claim()
    case.when(r.CompleteJob(1, 1, "x"))
    assert case.when(r.CompleteJob(1, 1, "x")) == []


def test_a_result_for_a_job_that_never_was_is_refused() -> None:
    case = running([("job", 0)])
    with pytest.raises(StaleAttempt, match="no job 7"):
        case.when(r.CompleteJob(7, 1))


def test_plain_block_that_fails_is_not_tried_again_and_leaves_an_unknown_effect() -> None:
    case = running([("job", 0)])
    case.claim()
    events = case.when(r.FailJob(1, 1, BOOM))
    assert kinds(events) == ["JobFailed", "ErrorRaised", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.residue == (1,)


def test_plain_block_that_says_it_did_nothing_fails_safe() -> None:
    case = running([("job", 0)])
    case.claim()
    case.when(r.FailJob(1, 1, BOOM, Effect.NONE))
    assert case.state.status is Status.FAILED_SAFE
    assert case.state.residue == ()


def test_effects_of_earlier_steps_make_a_later_failure_unsafe() -> None:
    case = running([("job", 0), ("job", 2)])
    case.claim()
    case.when(r.CompleteJob(1, 1))
    case.claim(2)
    case.when(r.FailJob(2, 1, BOOM, is_permanent=True))
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.residue == (1,)


def test_idempotent_block_is_tried_again_with_durable_back_off_until_its_attempts_are_used_up() -> None:
    case = running([("job", 1)])
    dues = []
    for attempt in (1, 2):
        case.claim()
        events = case.when(r.FailJob(1, attempt, BOOM))
        assert kinds(events) == ["JobRescheduled"]
        dues.append(case.state.jobs[1].due - case.now)
        case.now = case.state.jobs[1].due
        assert kinds(case.when(r.ReleaseJob(1, attempt))) == ["JobReleased"]
    assert dues == [1_000_000, 2_000_000]
    case.claim()
    assert kinds(case.when(r.FailJob(1, 3, BOOM))) == ["JobFailed", "ErrorRaised", "ExecutionFailed"]


def test_later_success_of_an_idempotent_block_settles_what_was_unknown() -> None:
    case = running([("job", 1), ("fail",)])
    case.claim()
    case.when(r.FailJob(1, 1, BOOM))
    assert case.state.ledger[1].effect is Effect.UNKNOWN
    case.now = case.state.jobs[1].due
    case.when(r.ReleaseJob(1, 1))
    case.claim()
    case.when(r.CompleteJob(1, 2))
    assert case.state.ledger[1].effect is Effect.DONE
    assert case.state.ledger[1].unknown == 0


def test_polling_again_later_is_not_a_failure() -> None:
    case = running([("job", 0)])
    for attempt in range(1, 6):
        case.claim()
        assert kinds(case.when(r.FailJob(1, attempt, BOOM, retry_after=5))) == ["JobRescheduled"]
        case.now += 5
        case.when(r.ReleaseJob(1, attempt))
    case.claim()
    case.when(r.CompleteJob(1, 6))
    assert case.state.status is Status.COMPLETED


def test_losing_a_plain_job_says_unknown_and_stops() -> None:
    case = running([("job", 0)])
    case.claim()
    case.when(r.LoseJob(1, 1, "worker-lost", "worker w has been silent"))
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.failure is not None
    assert case.state.failure.kind == "outcome-unknown"
    assert "step-0" in case.state.failure.message


def test_late_success_of_an_unknown_job_is_evidence() -> None:
    case = running([("job", 0)])
    case.claim()
    case.when(r.LoseJob(1, 1, "worker-lost", "gone"))
    events = case.when(r.CompleteJob(1, 1, "it did work"))
    assert events == [e.ResultRefused(1, 1, True, "it did work", None)]
    assert case.state.status is Status.FAILED_UNSAFE


def test_losing_an_idempotent_job_queues_it_again_at_once() -> None:
    case = running([("job", 1)])
    case.claim()
    assert kinds(case.when(r.LoseJob(1, 1, "worker-lost", "gone"))) == ["JobRescheduled", "JobReleased"]
    assert case.state.jobs[1].status is JobStatus.SENT


def test_a_job_that_takes_its_workers_down_is_given_up() -> None:
    case = running([("job", 1)])
    for attempt in range(1, LOSS_LIMIT):
        case.claim()
        case.when(r.LoseJob(1, attempt, "worker-lost", "gone"))
    case.claim()
    case.when(r.LoseJob(1, LOSS_LIMIT, "worker-lost", "gone"))
    assert case.state.status is Status.FAILED_UNSAFE


def test_a_claim_that_never_left_the_engine_is_taken_back_even_for_a_plain_block() -> None:
    case = running([("job", 0)])
    case.claim()
    assert kinds(case.when(r.LoseJob(1, 1, "worker-lost", "gone", undelivered=True))) == ["JobReleased"]
    assert kinds(case.claim()) == ["JobStarted"]
    assert case.state.jobs[1].attempt == 2, "an attempt number is never used twice"


def test_failure_waits_for_what_is_in_flight_before_the_verdict() -> None:
    case = running([("job", 0)], [("job", 0)], [("job", 0)])
    case.claim(1)
    case.claim(2)
    events = case.when(r.FailJob(1, 1, BOOM, Effect.NONE))
    assert kinds(events) == ["JobFailed", "ErrorRaised", "JobCancelled"]
    assert case.state.status is Status.ERROR
    assert kinds(case.when(r.CompleteJob(2, 1))) == ["JobSucceeded", "ExecutionFailed"]
    assert case.state.status is Status.FAILED_UNSAFE
    assert case.state.residue == (2,)


def test_cancel_drops_what_waits_tells_nobody_to_start_and_ends_at_once_when_nothing_runs() -> None:
    case = running([("job", 0)], [("nap", 5)])
    events = case.when(r.CancelExecution("enough"))
    assert kinds(events) == ["CancelRequested", "JobCancelled", "TimerCancelled", "ExecutionCancelled"]
    assert case.state.status is Status.CANCELLED
    assert case.claim() == []


def test_cancel_waits_for_running_jobs_and_repeats_quietly() -> None:
    case = running([("job", 0)])
    case.claim()
    assert kinds(case.when(r.CancelExecution())) == ["CancelRequested"]
    assert case.when(r.CancelExecution()) == []
    case.when(r.FailJob(1, 1, BOOM, is_cancelled=True))
    assert case.state.status is Status.CANCELLED
    assert case.state.residue == (1,), "a job stopped half way may have had an effect"


def test_cancel_again_gives_the_same_answer_and_of_anything_else_that_ended_is_refused() -> None:
    case = running([("job", 0)])
    case.when(r.CancelExecution())
    assert case.when(r.CancelExecution()) == []
    done = running([("job", 0)])
    done.claim()
    done.when(r.CompleteJob(1, 1))
    with pytest.raises(WrongStatus):
        done.when(r.CancelExecution())


def test_a_timer_fires_once() -> None:
    case = running([("nap", 5), ("job", 0)])
    assert case.when(r.FireTimer(1)) == [], "not before it is due"
    case.now += 5
    assert kinds(case.when(r.FireTimer(1))) == ["TimerFired", "LaneAdvanced", "JobScheduled"]
    assert case.when(r.FireTimer(1)) == []


def test_out_of_fuel_goes_on_with_the_turn_it_was_given() -> None:
    case = Case([("turn",), ("job", 0)])
    assert kinds(case.start())[-1] == "TurnTaken"
    assert case.when(r.TakeTurn(7)) == []
    assert kinds(case.when(r.TakeTurn(1))) == ["TurnTaken", "LaneAdvanced", "JobScheduled"]


def test_signals_count_once_per_key_and_are_refused_at_the_end() -> None:
    case = running([("job", 0)])
    case.when(r.SendSignal("go", 1, key="k"))
    assert case.when(r.SendSignal("go", 1, key="k")) == []
    assert case.state.signals == [("go", 1)]
    case.when(r.CancelExecution())
    with pytest.raises(ExecutionEnded):
        case.when(r.SendSignal("go", 1))


def test_time_never_runs_backwards_for_an_execution() -> None:
    case = running([("nap", 0), ("nap", 5)])
    case.now = 10
    case.when(r.FireTimer(1))
    assert case.state.at == 1000
    assert case.state.timers[2].due == 1005


def test_a_program_that_breaks_ends_its_execution_and_nothing_else() -> None:
    class Broken(Scripted):
        def advance(self, state: Any, cause: Any, now: int, reads: Any) -> list[Any]:
            raise ZeroDivisionError("oops")

    case = Case(rows=Rows(Broken([("job", 0)])))
    case.start()
    assert case.state.status is Status.FAILED_SAFE
    assert case.state.failure is not None
    assert case.state.failure.kind == "program-error"
