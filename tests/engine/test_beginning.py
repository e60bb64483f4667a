"""Gates, loss and resume with entity locks on a real store, turn by turn; whatever happened, `verify` finds nothing."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import ChangedHands
from holdfast.core.lanes import Op
from holdfast.core.model import Gate, Status, Wait
from holdfast.core.program import Advance, Begun, CarryOn, Cause, Command, Complete, SignalArrived
from holdfast.core.requests import FreeEntity, MeetGate, ResumeExecution, SendSignal, StartExecution
from holdfast.core.state import State
from holdfast.engine.items import Ask
from holdfast.engine.verify import verify
from holdfast.store.port import Store
from tests.engine.driver import ACTOR, execution_id
from tests.engine.test_entity_turns import Locks, OnEntities

SECOND = 1_000_000


class Waiting(OnEntities):
    """Does nothing until it is told to complete or to fail."""

    def may_resume(self, state: State) -> str:
        return ""

    def advance(self, state: State, cause: Cause, now: int, reads: Any) -> list[Command]:
        match cause:
            case Begun() | CarryOn():
                return [Advance(1, ((Op.WAIT, Wait.SIGNAL),))]
            case SignalArrived(name="complete"):
                return [Complete("done")]
            case _:
                return super().advance(state, cause, now, reads)


class Gated(Locks):
    def __init__(self, store: Store, *ids: str) -> None:
        super().__init__(store, *ids)
        self.puppet = Waiting()

    def behind(self, n: int, *gates: Gate) -> Ask:
        request = StartExecution(execution_id(n), definition=b"p" * 16, actor=ACTOR, entities=("a",), gates=gates)
        ask = self.ask(n, request)
        ask.definition, ask.program = b"puppet", self.puppet
        return ask

    def due(self) -> None:
        """Everything whose time has come, and what follows from it."""
        while True:
            with self.store.reading() as queries:
                items = [Ask(row.execution, row.request) for row in queries.due(self.now)]
            if not items:
                return
            self.turn(items)

    def is_sound(self) -> bool:
        report = verify(self.store)
        assert not report.findings
        return True


def test_a_time_a_word_and_another_execution_are_waited_for(store: Store) -> None:
    hand = Gated(store, "a")
    at = hand.now + 30 * SECOND
    hand.turn([hand.on(1, "a")])
    hand.turn([hand.behind(2, Gate("not-before", due=at), Gate("approval"), Gate("after", execution_id(1)))])
    assert hand.statuses(1, 2) == [Status.RUNNING, Status.BLOCKED_WAITING]
    hand.due()
    assert hand.is_sound()
    hand.turn([hand.ask(2, MeetGate(actor=ACTOR)), hand.end(1)])
    hand.due()
    assert [gate.is_met for gate in hand.state(2).gates] == [False, True, True]
    assert hand.is_sound()
    hand.now = at
    hand.due()
    assert hand.statuses(2) == [Status.RUNNING]
    assert not hand.agenda()
    assert hand.is_sound()


def test_the_end_and_the_question_for_it_in_one_turn(store: Store) -> None:
    hand = Gated(store, "a")
    hand.turn([hand.on(1, "a")])
    hand.turn([hand.end(1), hand.behind(2, Gate("after", execution_id(1)))])
    hand.due()
    assert hand.statuses(1, 2) == [Status.COMPLETED, Status.RUNNING]
    assert not hand.agenda()
    assert hand.is_sound()


def test_failed_and_resumed_in_one_turn_it_holds_its_entities_again(store: Store) -> None:
    hand = Gated(store, "a")
    hand.turn([hand.on(1, "a")])
    first = hand.state(1).fence
    hand.turn([hand.ask(1, SendSignal("fail")), hand.ask(1, ResumeExecution(actor=ACTOR))])
    assert hand.statuses(1) == [Status.RUNNING]
    assert hand.state(1).fence > first
    assert hand.claims("a") == [("a", 1, True, False)]
    assert hand.is_sound()


def test_resume_asks_who_had_the_entities_since_and_waits_for_them(store: Store) -> None:
    hand = Gated(store, "a", "b")
    hand.turn([hand.on(1, "a", "b"), hand.on(2, "b")])
    hand.turn([hand.ask(1, SendSignal("fail"))])
    hand.due()
    assert hand.statuses(1, 2) == [Status.FAILED_SAFE, Status.RUNNING]
    hand.turn([hand.ask(1, ResumeExecution(actor=ACTOR))])
    refused = hand.last()[1]
    assert isinstance(refused, ChangedHands)
    assert execution_id(2) in str(refused)
    hand.turn([hand.ask(1, ResumeExecution(actor=ACTOR, accepts_changes=True))])
    assert hand.statuses(1) == [Status.SCHEDULED]
    assert hand.is_sound()
    hand.turn([hand.end(2)])
    hand.due()
    assert hand.statuses(1) == [Status.RUNNING]
    assert hand.is_sound()


def test_what_is_taken_away_is_free_for_who_waits(store: Store) -> None:
    hand = Gated(store, "a", "b")
    hand.turn([hand.on(1, "a", "b"), hand.on(2, "a")])
    hand.turn([hand.ask(1, FreeEntity("a", hand.state(1).fence, "ann"))])
    hand.due()
    assert hand.statuses(1, 2) == [Status.FAILED_SAFE, Status.RUNNING]
    assert hand.claims("a", "b") == [("a", 2, True, False)]
    assert hand.state(2).fence > hand.state(2).ticket
    assert hand.is_sound()
