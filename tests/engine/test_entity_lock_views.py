"""What people see of entity locks, and taking an entity away: the verbs over a real store."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.errors import EntityNotHeld, UnknownEntity
from holdfast.core.inventory import Flag
from holdfast.core.model import DEFAULT_ENTITY, Gate, Mode, Policy, Status
from holdfast.core.requests import FreeEntity
from holdfast.core.state import State, open_state
from holdfast.core.subjects import Subject
from holdfast.engine.items import Put
from holdfast.engine.service import Service
from holdfast.engine.why import clock
from holdfast.engine.why_entities import begins, contention_of
from holdfast.store.port import Store
from holdfast.store.records import Batch
from tests.engine.driver import ACTOR, execution_id
from tests.engine.test_entity_turns import Locks
from tests.engine.test_sharing import Puppets

ONE, TWO, THREE = (execution_id(n) for n in (1, 2, 3))


@pytest.fixture
def hand(store: Store) -> Locks:
    hand = Locks(store, "a", "b", "c")
    hand.turn([hand.on(1, "a", "b"), hand.on(2, "b", "c"), hand.on(3, "b")])
    return hand


def test_a_list_of_entities_says_which_of_them_are_in_doubt(hand: Locks) -> None:
    service = Service(hand.store)
    hand.turn([Put(Batch(flags=[("default", Flag("b", THREE, "suspect", "why", 7))]))])
    expected = {"a": [], "b": ["suspect"], "c": []}
    for views in (service.entities(ACTOR), service.entities(ACTOR, where="starts_with(id, '')")):
        assert {view.id: [flag.kind for flag in view.flags] for view in views if view.id in expected} == expected
    assert service.entities(ACTOR, where="id == 'b'")[0].flags == service.entity(ACTOR, "b").flags


def test_an_entity_is_shown_with_its_holders_and_its_queue(hand: Locks) -> None:
    service = Service(hand.store)
    hand.turn([Put(Batch(flags=[("default", Flag("b", THREE, "suspect", "why", 7))]))])
    views = service.entity_locks(ACTOR)
    assert [view.entity for view in views] == ["a", "b", "c"]
    (view,) = service.entity_locks(ACTOR, "b")
    assert view == service.entity_lock(ACTOR, "b") == views[1]
    assert [(claim.execution, claim.mode, claim.fence) for claim in view.holders] == [(ONE, "X", 1)]
    assert [claim.execution for claim in view.waiters] == [TWO, THREE]
    assert view.waiting == 2
    assert [(flag.kind, flag.execution, flag.reason) for flag in view.flags] == [("suspect", THREE, "why")]
    hand.turn([hand.end(1)])
    assert service.entity_lock(ACTOR, "a").holders == []
    with pytest.raises(UnknownEntity):
        service.entity_lock(ACTOR, "never")


def test_the_graph_says_who_waits_for_whom_and_never_has_a_circle_of_entities(hand: Locks) -> None:
    view = Service(hand.store).lock_graph(ACTOR)
    edges = {(edge.waiter, edge.holder, edge.kind, edge.entity, edge.mode) for edge in view.edges}
    assert edges == {
        (TWO, ONE, "holder", "b", "X"), (THREE, ONE, "holder", "b", "X"), (THREE, TWO, "waiter", "b", "X"),
    }  # fmt: skip
    assert [(node.execution, node.status) for node in view.nodes] == [
        (ONE, "RUNNING"), (TWO, "SCHEDULED"), (THREE, "SCHEDULED"),
    ]  # fmt: skip
    assert view.cycles == []


def test_the_graph_has_named_locks_and_their_circles(store: Store) -> None:
    hand = Puppets(store, 3)
    hand.turn([hand.say(1, "take", 2, DEFAULT_ENTITY, "x"), hand.say(2, "take", 2, DEFAULT_ENTITY, "y")])
    hand.turn([hand.say(1, "take", 2, DEFAULT_ENTITY, "y"), hand.say(3, "take", 2, DEFAULT_ENTITY, "y")])
    view = Service(store).lock_graph(ACTOR)
    assert {(edge.waiter, edge.holder, edge.kind, edge.lock) for edge in view.edges} == {
        (ONE, TWO, "holder", "y"), (THREE, TWO, "holder", "y"), (THREE, ONE, "waiter", "y"),
    }  # fmt: skip
    assert view.cycles == []
    hand.turn([hand.say(2, "take", 2, DEFAULT_ENTITY, "x")])
    assert Service(store).lock_graph(ACTOR).cycles == [[ONE, TWO]]


def test_only_who_holds_an_entity_can_lose_it(hand: Locks) -> None:
    service = Service(hand.store)
    (holder,) = service.entity_holders(ACTOR, "b")
    assert (holder.execution, holder.fence) == (ONE, 1)
    assert service.entity_holders(ACTOR, "b", ONE) == [holder]
    with pytest.raises(EntityNotHeld):
        service.entity_holders(ACTOR, "b", TWO)
    with pytest.raises(EntityNotHeld):
        service.entity_holders(ACTOR, "c")
    hand.turn([hand.ask(1, FreeEntity("b", holder.fence, "tester"))])
    hand.wake()
    assert hand.statuses(1, 2) == [Status.FAILED_SAFE, Status.RUNNING]


# --- why ---------------------------------------------------------------------------------------------------
def waiting(**changes: Any) -> State:
    state = open_state(TWO)
    state.status, state.ticket, state.watch, state.locked_at = Status.SCHEDULED, 5, "b", 1_000_000
    state.subjects = {n: Subject(n, id, "device") for n, id in enumerate("bc")}
    for name, value in changes.items():
        setattr(state, name, value)
    return state


def claim(execution: str, ticket: int, fence: int = 0, priority: int = 0) -> EntityClaim:
    return EntityClaim("b", execution, Mode.X, ticket, priority, fence, 2_000_000)


def test_who_waits_for_entities_is_told_who_has_the_first_of_them() -> None:
    there = Contention((), (claim(ONE, 1, 1), claim(TWO, 5), claim(THREE, 4)))
    (reason,) = begins(waiting(), there, 61_000_000, clock)
    assert reason.text == (
        "waits since 1970-01-01 00:00:01 UTC (60 s) for 2 entities: b is held by execution 00000000"
        " since 1970-01-01 00:00:02 UTC, position 2 of 2 there"
    )
    assert reason.command == "holdfast why 00000000"


def test_who_is_behind_somebody_that_waits_is_told_so() -> None:
    (reason,) = begins(waiting(), Contention((), (claim(THREE, 9, priority=1), claim(TWO, 5))), 0, clock)
    assert "b is waited for, with more right to it, by execution 00000000" in reason.text


def test_quarantine_and_timeout_are_told_with_what_to_do() -> None:
    state = waiting(policy=Policy(works_on_entities=True, lock_timeout=9_000_000))
    there = Contention((), (claim(TWO, 5),), (Flag("b", ONE, "quarantine", "job 3 may have taken effect"),))
    first, second = begins(state, there, 1_000_000, clock)
    assert "b is in quarantine since execution 00000000 left it in doubt (job 3 may have taken effect)" in first.text
    assert first.command == "holdfast ack 00000000 --note NOTE"
    assert second.text == "gives up at 1970-01-01 00:00:10 UTC"


def test_when_nobody_is_in_the_way_it_is_its_turn() -> None:
    (reason,) = begins(waiting(), Contention(), 1_000_000, clock)
    assert reason.text.endswith("for 2 entities: it is its turn")


def test_gates_that_are_open_are_listed_and_met_ones_are_not() -> None:
    gates = (
        Gate("not-before", due=5_000_000),
        Gate("window", "mon-fri", due=6_000_000, deadline=7_000_000),
        Gate("approval", "really?"),
        Gate("after", ONE),
        Gate("approval", "done", is_met=True),
    )
    state = waiting(status=Status.BLOCKED_WAITING, ticket=0, gates=gates)
    reasons = begins(state, None, 1_000_000, clock)
    assert [(reason.kind, reason.command) for reason in reasons] == [
        ("gate", ""), ("gate", ""), ("approval", "holdfast approve 00000000"), ("gate", "holdfast why 00000000"),
    ]  # fmt: skip
    assert "given up at 1970-01-01 00:00:07 UTC" in reasons[1].text
    assert "really?" in reasons[2].text


def test_why_reads_what_is_at_the_entity_that_is_watched(hand: Locks) -> None:
    with hand.store.reading() as queries:
        found = contention_of(queries, hand.state(2))
        assert contention_of(queries, hand.state(1)) is None
    assert found is not None
    assert {one.execution for one in found.claims} == {ONE, TWO, THREE}
