"""Gates: all of them met together, or the execution waits and holds nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.errors import NothingToApprove
from holdfast.core.gates import DAY, MINUTE, next_opening, parse_window
from holdfast.core.lifecycle import QUIET_START
from holdfast.core.model import Actor, Gate, Policy
from holdfast.core.model import Status as S
from tests.core.fleet import Crew, Fleet, execution_id
from tests.core.test_acquiring import failure, nothing_left, statuses

ONE, TWO = execution_id(1), execution_id(2)
BLOCKED = [S.NEW, S.VALID, S.BLOCKED_WAITING]
HOUR = 60 * MINUTE
ANN = Actor("ann")


def fleet_at(hour: int = 0) -> Fleet:
    fleet = Fleet("a")
    fleet.now = 20_000 * DAY + hour * HOUR
    return fleet


# --- windows -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "hour", "opens"),
    [
        ("08:00-10:00", 9, 9),
        ("08:00-10:00", 8, 8),
        ("08:00-10:00", 10, 32),
        ("08:00-10:00", 7, 8),
        ("22:00-04:00", 23, 23),
        ("22:00-04:00", 3, 3),
        ("22:00-04:00", 4, 22),
        ("08:00-10:00+02:00", 6, 6),
        ("08:00-10:00 +02:00", 9, 30),
        ("08:00-10:00 -05:00", 9, 13),
        ("01:00 - 03:00 +05:00", 21, 21),
        ("00:00-24:00", 17, 17),
        ("22:00-24:00", 5, 22),
        ("08:00-10:00Z", 9, 9),
    ],
)
def test_a_window_is_open_or_opens_next(text: str, hour: int, opens: int) -> None:
    midnight = 20_000 * DAY
    assert next_opening(text, midnight + hour * HOUR) == midnight + opens * HOUR


@pytest.mark.parametrize(
    "text", ["", "8-10", "08:00", "08:00-08:00", "24:00-08:00", "08:60-09:00", "08:00-10:00+15:00", "08:00-25:00"]
)
def test_what_is_no_window_says_why(text: str) -> None:
    with pytest.raises(ValueError, match="is no window"):
        parse_window(text)


@given(
    st.integers(0, 1439), st.integers(0, 1440), st.integers(-840, 840), st.integers(0, 3 * DAY), st.integers(0, 2 * DAY)
)
def test_the_next_opening_is_the_first_moment_it_is_open(
    opens: int, closes: int, offset: int, now: int, probe: int
) -> None:
    if opens == closes:
        return
    sign, away = "+-"[offset < 0], abs(offset)
    text = f"{opens // 60:02}:{opens % 60:02}-{closes // 60:02}:{closes % 60:02}{sign}{away // 60:02}:{away % 60:02}"

    def is_open(at: int) -> bool:
        minute = (at + offset * MINUTE) // MINUTE % 1440
        return opens <= minute < closes if opens < closes else minute >= opens or minute < closes

    then = next_opening(text, now)
    assert is_open(then)
    assert then < now + DAY
    between = now + probe % (then - now) if then > now else now
    assert is_open(between) == (between == then)


# --- an execution behind them --------------------------------------------------------------------------------
def test_a_plain_workflow_waits_for_its_time_and_then_runs_through() -> None:
    fleet = fleet_at()
    due = fleet.now + HOUR
    began = fleet.start(1, crew=Crew(Policy()), gates=(Gate("not-before", due=due),))
    assert began[-2:] == [e.PhasesPassed(tuple(BLOCKED)), e.GatesSet((Gate("not-before", due=due),))]
    assert fleet.tables.agenda[ONE, "gates"].due == due
    fleet.sleep(due - 1000)
    assert fleet.state(1).status is S.BLOCKED_WAITING
    fleet.sleep(due)
    assert statuses(fleet, 1) == [*BLOCKED, *QUIET_START[2:]]
    assert fleet.tables.agenda == {}
    fleet.rebuild(1)


def test_gates_of_the_workflow_count_with_those_of_the_start() -> None:
    fleet = fleet_at()
    fleet.start(1, crew=Crew(Policy(), gates=(Gate("approval", "go?"),)), gates=(Gate("not-before", due=1),))
    assert [(gate.kind, gate.is_met) for gate in fleet.state(1).gates] == [("approval", False), ("not-before", True)]


def test_a_gate_that_is_met_already_is_no_reason_to_wait() -> None:
    fleet = fleet_at(9)
    fleet.start(1, "a", gates=(Gate("window", "08:00-10:00"), Gate("not-before", due=5)))
    assert statuses(fleet, 1) == list(QUIET_START)
    assert all(gate.is_met for gate in fleet.state(1).gates)


def test_nothing_is_held_behind_a_gate_and_entities_are_locked_after_it() -> None:
    fleet = fleet_at()
    fleet.start(1, "a", gates=(Gate("approval", "sure?"),))
    assert (fleet.holders(), fleet.tables.agenda, fleet.state(1).subjects) == ({}, {}, {})
    fleet.when(1, r.MeetGate(note="yes", actor=ANN))
    assert fleet.holders() == {"a": [ONE]}
    assert statuses(fleet, 1) == [*BLOCKED, *QUIET_START[2:]]
    assert (fleet.state(1).gates[0].by, fleet.state(1).gates[0].note) == ("ann", "yes")
    assert fleet.when(1, r.MeetGate(gate=0, actor=ANN)) == []  # asked again


def test_a_window_that_closed_again_is_waited_for_again() -> None:
    fleet = fleet_at(9)
    fleet.start(1, "a", gates=(Gate("window", "08:00-10:00"), Gate("approval")))
    assert [gate.is_met for gate in fleet.state(1).gates] == [True, False]
    assert fleet.tables.agenda == {}
    fleet.now += 3 * HOUR
    fleet.when(1, r.MeetGate(actor=ANN))
    assert [gate.is_met for gate in fleet.state(1).gates] == [False, True]
    assert fleet.state(1).status is S.BLOCKED_WAITING
    fleet.rebuild(1)
    fleet.sleep(20_001 * DAY + 8 * HOUR)
    assert fleet.state(1).status is S.RUNNING


def test_two_words_are_two_gates() -> None:
    fleet = fleet_at()
    fleet.start(1, crew=Crew(Policy()), gates=(Gate("approval", "one"), Gate("approval", "two")))
    fleet.when(1, r.MeetGate(actor=ANN))
    assert [gate.is_met for gate in fleet.state(1).gates] == [True, False]
    fleet.when(1, r.MeetGate(actor=Actor("bob")))
    assert fleet.state(1).status is S.RUNNING


def test_a_rejection_fails_safe() -> None:
    fleet = fleet_at()
    fleet.start(1, "a", gates=(Gate("approval", "sure?"), Gate("not-before", due=fleet.now + HOUR)))
    fleet.when(1, r.MeetGate(False, "not today", actor=ANN))
    assert statuses(fleet, 1) == [*BLOCKED, S.FAILED_SAFE]
    assert failure(fleet, 1).kind == "rejected"
    assert "not today" in failure(fleet, 1).message
    nothing_left(fleet, 1)


def test_only_a_gate_that_waits_for_a_word_takes_one() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.start(2, crew=Crew(Policy()), gates=(Gate("not-before", due=fleet.now + HOUR),))
    for n, gate in ((1, -1), (2, -1), (2, 0), (2, 5)):
        with pytest.raises(NothingToApprove):
            fleet.when(n, r.MeetGate(gate=gate))


def test_past_its_deadline_it_fails_safe() -> None:
    fleet = fleet_at()
    deadline = fleet.now + HOUR
    fleet.start(1, "a", gates=(Gate("approval", deadline=deadline), Gate("not-before", due=fleet.now + 2 * HOUR)))
    assert fleet.tables.agenda[ONE, "gates"].due == deadline
    fleet.sleep(deadline)
    assert statuses(fleet, 1) == [*BLOCKED, S.FAILED_SAFE]
    assert (failure(fleet, 1).kind, failure(fleet, 1).code) == ("gate-timeout", "HF0739")
    nothing_left(fleet, 1)


def test_a_gate_that_is_met_has_no_deadline_any_more() -> None:
    fleet = fleet_at()
    gates = (Gate("approval", deadline=fleet.now + HOUR), Gate("not-before", due=fleet.now + 2 * HOUR))
    fleet.start(1, "a", gates=gates)
    fleet.when(1, r.MeetGate(actor=ANN))
    fleet.sleep(fleet.now + 3 * HOUR)
    assert fleet.state(1).status is S.RUNNING


def test_cancelled_behind_a_gate_nothing_is_left() -> None:
    fleet = fleet_at()
    fleet.start(1, "a", gates=(Gate("not-before", due=fleet.now + HOUR),))
    fleet.when(1, r.CancelExecution())
    assert statuses(fleet, 1) == [*BLOCKED, S.CANCELLING, S.CANCELLED]
    nothing_left(fleet, 1)
    assert fleet.when(1, r.CheckGates()) == []


@pytest.mark.parametrize(
    "gate",
    [Gate("never"), Gate("not-before"), Gate("window", "tomorrow"), Gate("after"), Gate("after", f"{ONE} perhaps")],
)
def test_a_gate_that_cannot_be_is_a_problem_at_new(gate: Gate) -> None:
    fleet = fleet_at()
    fleet.start(1, "a", gates=(gate,))
    assert (statuses(fleet, 1), failure(fleet, 1).code) == ([S.FAILED_SAFE], "HF0739")


# --- after another execution ---------------------------------------------------------------------------------
@pytest.mark.parametrize("what", [ONE, f"{ONE} completed"])
def test_it_begins_when_the_other_has_ended(what: str) -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.start(2, "a", gates=(Gate("after", what),))
    assert fleet.wake() == [e.EndAwaited(TWO)]
    fleet.rebuild(1)
    assert fleet.state(2).status is S.BLOCKED_WAITING
    fleet.tell(1, "done")
    assert fleet.tables.agenda[TWO, f"heard/{ONE}"].request == r.HearEnd(ONE, int(S.COMPLETED))
    fleet.wake()
    assert fleet.state(2).status is S.RUNNING
    assert fleet.state(2).gates[0].note == "COMPLETED"


def test_one_that_had_to_complete_and_did_not_fails_safe() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.start(2, "a", gates=(Gate("after", f"{ONE} completed"),))
    fleet.start(3, "a", gates=(Gate("after", ONE),))
    fleet.wake()
    fleet.tell(1, "fail")
    fleet.wake()
    assert statuses(fleet, 2) == [*BLOCKED, S.FAILED_SAFE]
    assert failure(fleet, 2).kind == "dependency-failed"
    nothing_left(fleet, 2)
    assert fleet.state(3).status is S.RUNNING


def test_the_answer_comes_at_once_where_the_other_has_ended_already() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.tell(1, "done")
    fleet.start(2, "a", gates=(Gate("after", f"{ONE} completed"),))
    assert statuses(fleet, 2) == list(QUIET_START)
    fleet.tell(2, "done")
    fleet.start(3, "a")
    fleet.tell(3, "fail")
    fleet.start(4, "a", gates=(Gate("after", f"{execution_id(3)} completed"),))
    assert statuses(fleet, 4) == [*BLOCKED, S.FAILED_SAFE]
    nothing_left(fleet, 4)
    assert fleet.tables.agenda == {}


def test_an_end_between_asking_and_being_heard_is_not_lost() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.start(2, "a", gates=(Gate("after", ONE),))
    fleet.tell(1, "done")  # before the question arrives
    fleet.wake()
    assert fleet.state(2).status is S.RUNNING


def test_an_execution_that_is_not_there_is_a_problem_at_new() -> None:
    fleet = fleet_at()
    fleet.start(2, "a", gates=(Gate("after", ONE),))
    assert (statuses(fleet, 2), failure(fleet, 2).code) == ([S.FAILED_SAFE], "HF0739")


def test_another_tenant_is_told_nothing() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    assert fleet.when(1, r.AwaitEnd(TWO, "other")) == []
    fleet.start(2, gates=(Gate("after", ONE),), actor=Actor("eve", "other"))
    assert statuses(fleet, 2) == [S.FAILED_SAFE]


def test_who_asks_twice_is_told_once_and_a_new_end_is_told_to_new_askers_only() -> None:
    fleet = fleet_at()
    fleet.start(1, "a")
    fleet.start(2, "a", gates=(Gate("after", ONE), Gate("approval")))
    fleet.wake()
    assert fleet.when(1, r.AwaitEnd(TWO, "default")) == []
    fleet.tell(1, "fail")
    fleet.wake()
    assert [gate.is_met for gate in fleet.state(2).gates] == [True, False]
    fleet.when(1, r.ResumeExecution())
    assert fleet.state(1).awaited_by == ()
