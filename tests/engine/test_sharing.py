"""Turns over locks and sensors on a real store: one commit sees what it does itself, and a lost one is forgotten."""

from __future__ import annotations

from typing import Any

from holdfast.core.codec import unpack_events
from holdfast.core.errors import Conflict, UnknownEntity, UnknownSensor
from holdfast.core.folding import fold
from holdfast.core.inventory import EntityRow
from holdfast.core.locks import WINDOW
from holdfast.core.model import DEFAULT_ENTITY
from holdfast.core.reads import LockKey, SensorKey
from holdfast.core.requests import CancelExecution, LoseLock, SendSignal, StartExecution, WakeLock, WakeSensor
from holdfast.core.rows import AgendaRow, item_of
from holdfast.core.state import State, open_state
from holdfast.engine.items import Ask, Put
from holdfast.engine.sensing import PutSensor
from holdfast.store.port import Store
from holdfast.store.records import Batch
from tests.core.puppets import Puppet
from tests.engine.driver import ACTOR, Hand, execution_id

T, E = "default", DEFAULT_ENTITY


def fold_all(hand: Hand, n: int) -> State:
    state = open_state(execution_id(n))
    for row in hand.history(n):
        fold(state, row.at, unpack_events(row.body))
    return state


class Puppets(Hand):
    """A hand with executions that do what signals say."""

    def __init__(self, store: Store, count: int) -> None:
        super().__init__(store)
        self.puppet = Puppet()
        self.turn([self.begin(n) for n in range(1, count + 1)])

    def begin(self, n: int, entity: str = "") -> Ask:
        request = StartExecution(execution_id(n), definition=b"p" * 16, actor=ACTOR, entity=entity)
        ask = self.ask(n, request)
        ask.definition, ask.program = b"puppet", self.puppet
        return ask

    def say(self, n: int, wish: str, *value: Any) -> Ask:
        return self.ask(n, SendSignal(wish, value))

    def lock(self, name: str = "a") -> Any:
        with self.store.reading() as queries:
            return queries.shared(LockKey(T, E, name))

    def agenda(self) -> dict[tuple[str, str], Any]:
        with self.store.reading() as queries:
            return {(row.execution, row.item): row.request for row in queries.due(1 << 60)}

    def wake(self) -> None:
        while agenda := self.agenda():
            self.turn([Ask(id, request) for (id, _), request in agenda.items()])


def test_later_items_of_a_batch_see_what_earlier_ones_took(store: Store) -> None:
    hand = Puppets(store, 3)
    hand.turn([hand.say(n, "take", 2, E, "a") for n in (1, 2, 3)])
    row = hand.lock()
    assert row.holder.execution == execution_id(1)
    assert [claim.execution for claim in row.waiters] == [execution_id(2), execution_id(3)]
    assert not hand.agenda()


def test_taking_passing_on_and_ending_in_one_batch_leaves_what_one_after_the_other_would(store: Store) -> None:
    hand = Puppets(store, 4)
    hand.turn(
        [
            *[hand.say(n, "take", 2, E, "a") for n in (1, 2, 3, 4)],
            hand.say(1, "release", 2, E, "a"),
            hand.ask(2, CancelExecution()),
            hand.say(3, "release", 2, E, "a"),
        ]
    )
    row = hand.lock()
    assert (row.holder.execution, row.fence, row.waiters) == (execution_id(4), 4, ())
    assert list(hand.agenda()) == [(execution_id(4), "lock/default/a/2")]
    hand.wake()
    assert execution_id(4) not in hand.committer.cache, "whoever waits costs no memory"
    state = fold_all(hand, 4)
    assert state.locks[E, "a", 2].fence == 4


def test_a_turn_that_is_not_committed_is_forgotten(store: Store) -> None:
    hand = Puppets(store, 2)
    hand.turn([hand.say(1, "take", 2, E, "a")], fail=Conflict())
    assert hand.lock().holder is None
    hand.turn([hand.say(2, "take", 2, E, "a")])
    row = hand.lock()
    assert (row.holder.execution, row.fence) == (execution_id(2), 1)


def test_a_queue_longer_than_what_is_read_at_once_is_served_to_its_end(store: Store) -> None:
    """One batch takes more waiters out of the queue than were read with the lock; the one behind them is granted."""
    count = WINDOW + 60
    hand = Puppets(store, count)
    hand.turn([hand.say(n, "take", 2, E, "a") for n in range(1, count + 1)])
    assert not hand.lock().is_whole
    ending = [*range(2, count), 1]
    hand.turn([hand.ask(n, CancelExecution()) for n in ending])
    row = hand.lock()
    assert (row.holder.execution, row.waiters, row.fence) == (execution_id(count), (), 2)


def test_whoever_waits_for_a_sensor_is_woken_also_within_the_batch(store: Store) -> None:
    hand = Puppets(store, 3)
    hand.turn(
        [
            hand.say(1, "await", 2, E, "x"),
            hand.say(2, "set", 2, E, "x", 1),
            hand.say(3, "set", 2, E, "x", {"n": 2}),
        ]
    )
    assert list(hand.agenda()) == [(execution_id(1), "sensor/2")]
    with store.reading() as queries:
        watched = queries.shared(SensorKey(T, E, "sensor", "x"))
    assert (watched.row.value, watched.row.version) == ({"n": 2}, 2)
    assert watched.waiters == ((execution_id(1), 2),)
    hand.wake()
    hand.turn([hand.ask(1, CancelExecution())])
    with store.reading() as queries:
        assert queries.shared(SensorKey(T, E, "sensor", "x")).waiters == ()


def test_a_sensor_set_from_outside_is_a_change_like_any_other(store: Store) -> None:
    hand = Puppets(store, 1)
    key = SensorKey(T, E, "sensor", "x")
    hand.turn([hand.say(1, "await", 2, E, "x")])
    answers: list[Any] = []

    def reply(value: Any, error: Exception | None) -> None:
        answers.append(error or value)

    hand.turn([PutSensor(key, 1, "ada", reply), PutSensor(key, 2, "bob", reply)])
    assert [(change.value, change.version, change.by) for change in answers] == [(1, 1, "ada"), (2, 2, "bob")]
    assert list(hand.agenda()) == [(execution_id(1), "sensor/2")]
    hand.wake()
    hand.turn([PutSensor(key, None, "ada", reply, is_gone=True), PutSensor(key, None, "ada", reply, is_gone=True)])
    assert answers[2] is None
    assert isinstance(answers[3], UnknownSensor)
    assert list(hand.agenda()) == [(execution_id(1), "sensor/2")]
    hand.turn([PutSensor(SensorKey(T, "web", "sensor", "x"), 1, "ada", reply)])
    assert isinstance(answers[4], UnknownEntity)


def test_wake_ups_for_the_ended_and_the_unknown_are_removed(store: Store) -> None:
    hand = Puppets(store, 1)
    hand.turn([hand.ask(1, CancelExecution())])
    stray = [WakeLock(E, "a", 2, 1), WakeSensor(2), LoseLock(E, "a", 1, 2)]
    rows = [AgendaRow(execution_id(n), item_of(request), 1, request) for n in (1, 77) for request in stray]
    hand.turn([Put(Batch(agenda=rows))])
    assert len(hand.agenda()) == 6
    hand.turn([Ask(id, request) for (id, _), request in hand.agenda().items()])
    assert not hand.agenda()


def test_an_execution_on_an_entity_says_so_in_its_row(store: Store) -> None:
    hand = Puppets(store, 0)
    hand.turn([hand.begin(1, "web")])
    assert isinstance(hand.last()[1], UnknownEntity)
    hand.turn([Put(Batch(entities=[(T, EntityRow("web"))]))])
    hand.turn([hand.begin(2, "web"), hand.begin(3)])
    with store.reading() as queries:
        found = [queries.header(T, execution_id(n)) for n in (2, 3)]
    assert [header.entity for header in found if header] == ["web", "default"]
