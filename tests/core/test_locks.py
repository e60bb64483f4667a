"""Locks: given events, when a request comes, then these events; and whatever the order, nobody shares a lock."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.codec import event_json, pack_events, unpack_events
from holdfast.core.errors import LockNotHeld, Refused, UnknownEntity
from holdfast.core.folding import fold
from holdfast.core.locks import Claim, LockRow, after, ask, force, release
from holdfast.core.model import Status, Wait
from holdfast.core.snapshot import canonical, encode, restore
from holdfast.core.state import open_state
from tests.core.puppets import World, execution_id

ONE, TWO, THREE = (execution_id(n) for n in (1, 2, 3))
A = ("default", "a")


def test_a_free_lock_is_taken_at_once() -> None:
    world = World(1)
    assert world.tell(1, "take", 2, *A) == [e.LockTaken(2, *A, 1, 1, (2, 1))]
    assert world.state(1).locks[*A, 2].fence == 1
    holder = world.row().holder
    assert holder is not None
    assert (holder.execution, holder.lane, holder.path) == (ONE, 2, (2, 1))


def test_who_comes_second_waits_and_is_woken_by_the_commit_that_releases() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    assert world.tell(2, "take", 3, *A) == [e.LockQueued(3, *A, 2, (3, 1))]
    assert world.state(2).lanes[3].wait is Wait.LOCK
    assert world.tell(1, "release", 2, *A) == [e.LockReleased(2, *A, 1, (TWO, 3, 2), 2)]
    assert world.row().fence == 2
    assert [row.request for row in world.shared.agenda.values()] == [r.WakeLock(*A, 3, 2)]
    assert world.wake() == [e.LockGranted(3, *A, 2, 2)]
    assert world.state(2).locks[*A, 3].fence == 2
    assert world.state(2).lanes[3].wait is Wait.NOTHING
    assert world.shared.program_.told[-2:] == [p.LockGranted(3, *A), p.LockGranted(3, *A)]


def test_sibling_lanes_wait_for_each_other() -> None:
    world = World(1)
    world.tell(1, "take", 2, *A)
    world.tell(1, "take", 3, *A)
    world.tell(1, "release", 2, *A)
    assert world.wake() == [e.LockGranted(3, *A, 2, 2)]


def test_locks_of_other_names_and_entities_are_other_locks() -> None:
    world = World()
    world.tell(1, "take", 2, "default", "a")
    assert isinstance(world.tell(2, "take", 2, "default", "b")[0], e.LockTaken)
    assert isinstance(world.tell(2, "take", 2, "web", "a")[0], e.LockTaken)


def test_leaving_the_queue_grants_nobody() -> None:
    world = World(3)
    for n in (1, 2, 3):
        world.tell(n, "take", 2, *A)
    assert world.tell(2, "release", 2, *A) == [e.LockReleased(2, *A, 2)]
    assert [claim.execution for claim in world.row().waiters] == [THREE]
    assert not world.shared.agenda


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_the_transition_that_ends_an_execution_gives_its_locks_to_their_heirs(end: str) -> None:
    world = World()
    for name in ("b", "a"):
        world.tell(1, "take", 2, "default", name)
        world.tell(2, "take", {"a": 2, "b": 3}[name], "default", name)
    ended = world.tell(1, end)
    assert ended[-3:-1] == [
        e.LockReleased(2, "default", "a", 1, (TWO, 2, 2), 2),
        e.LockReleased(2, "default", "b", 1, (TWO, 3, 2), 2),
    ]
    assert world.state(1).status.is_ended
    assert not world.state(1).locks
    assert {type(event) for event in world.wake()} == {e.LockGranted}


def test_cancel_gives_back_what_is_held_and_leaves_queues_first() -> None:
    """Lane 3 waits for what lane 2 of the same execution holds: it inherits nothing in the commit it ends in."""
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(1, "take", 3, *A)
    world.tell(2, "take", 2, *A)
    cancelled = world.when(1, r.CancelExecution())
    assert [event for event in cancelled if isinstance(event, e.LockReleased)] == [
        e.LockReleased(3, *A, 2),
        e.LockReleased(2, *A, 1, (TWO, 2, 3), 2),
    ]
    assert world.state(1).status is Status.CANCELLED


def test_what_was_granted_but_not_yet_noticed_is_passed_on_at_the_end() -> None:
    world = World(3)
    for n in (1, 2, 3):
        world.tell(n, "take", 2, *A)
    world.tell(1, "release", 2, *A)
    cancelled = world.when(2, r.CancelExecution())
    assert e.LockReleased(2, *A, 2, (THREE, 2, 3), 3) in cancelled
    assert list(world.shared.agenda) == [(THREE, "lock/default/a/2")], "nobody wakes who has ended"


def test_a_lock_taken_and_not_given_back_in_the_deciding_that_ends_is_given_back() -> None:
    world = World()
    wishes = (("take", (2, *A)), ("complete", ()))
    decided = world.when(1, r.SendSignal("many", wishes))
    assert decided[1:] == [e.LockTaken(2, *A, 1, 1, (2, 1)), e.LockReleased(2, *A, 1), e.ExecutionCompleted("done")]
    assert world.row() == LockRow(1, 2)


def test_an_execution_with_more_lanes_in_a_queue_than_are_read_finds_the_heir_behind_them() -> None:
    world = World(3, window=1)
    world.tell(1, "take", 2, *A)
    world.tell(1, "take", 3, *A)
    world.tell(2, "take", 2, *A)
    cancelled = world.when(1, r.CancelExecution())
    assert e.LockReleased(2, *A, 1, (TWO, 2, 3), 2) in cancelled


def test_a_wake_up_that_comes_twice_or_late_means_nothing() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    assert world.when(2, r.WakeLock(*A, 2, 2)) == [], "not its turn yet"
    world.tell(1, "release", 2, *A)
    assert len(world.when(2, r.WakeLock(*A, 2, 2))) == 1
    assert world.when(2, r.WakeLock(*A, 2, 2)) == []
    world.when(2, r.CancelExecution())
    for request in (r.WakeLock(*A, 2, 2), r.WakeSensor(2), r.BreakLock(*A, 2, 2, "x"), r.LoseLock(*A, 2, 3)):
        assert world.when(2, request) == []


def test_the_victim_of_a_cycle_leaves_the_queue_and_its_program_is_told() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    assert world.when(2, r.BreakLock(*A, 2, 2, "a cycle")) == [e.LockReleased(2, *A, 2)]
    assert world.shared.program_.told[-1] == p.LockBroken(2, *A, "a cycle")
    assert world.row().waiters == ()


def test_who_was_granted_the_lock_meanwhile_is_no_victim() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    world.tell(1, "release", 2, *A)
    assert world.when(2, r.BreakLock(*A, 2, 2, "a cycle")) == []
    assert isinstance(world.wake()[0], e.LockGranted)


def test_a_workflow_takes_a_lock_away_and_the_owner_learns_of_it() -> None:
    world = World(3)
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    by = f"execution {THREE}"
    assert world.tell(3, "force", 2, *A) == [e.LockForced(*A, ONE, 1, (TWO, 2, 2), 2, by)]
    assert world.wake() == [e.LockForced(*A, ONE, 1, None, 0, by), e.LockGranted(2, *A, 2, 2)]
    assert not world.state(1).locks
    assert world.tell(1, "release", 2, *A) == []


def test_the_fence_grows_by_force_even_if_nobody_waits() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(2, "force", 2, *A)
    assert world.row().fence == 2
    assert world.row().holder is None
    assert world.tell(2, "take", 2, *A) == [e.LockTaken(2, *A, 2, 3, (2, 1))]


def test_who_loses_a_lock_before_he_knew_he_had_it_goes_on_as_one_who_had_it() -> None:
    world = World(3)
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    world.tell(1, "release", 2, *A)
    world.tell(3, "force", 2, *A)
    by = f"execution {THREE}"
    assert world.wake() == [e.LockGranted(2, *A, 2, 2), e.LockForced(*A, TWO, 2, None, 0, by)]
    assert world.state(2).lanes[2].wait is Wait.NOTHING
    assert not world.state(2).locks


def test_people_take_a_lock_from_its_holder_by_name_and_number() -> None:
    world = World()
    world.tell(1, "take", 2, *A)
    world.tell(2, "take", 2, *A)
    with pytest.raises(LockNotHeld):
        world.when(2, r.FreeLock(*A, 2, "op"))
    with pytest.raises(LockNotHeld):
        world.when(1, r.FreeLock(*A, 7, "op"))
    assert world.when(1, r.FreeLock(*A, 1, "op")) == [e.LockForced(*A, ONE, 1, (TWO, 2, 2), 2, "op")]
    assert not world.state(1).locks
    assert isinstance(world.wake()[0], e.LockGranted)
    world.when(1, r.CancelExecution())
    with pytest.raises(LockNotHeld):
        world.when(1, r.FreeLock(*A, 1, "op"))


def test_an_unknown_entity_is_refused_and_a_known_one_remembered() -> None:
    world = World(0)
    world.states["x"] = open_state("x")
    with pytest.raises(UnknownEntity, match="holdfast entity set web"):
        world.when("x", r.StartExecution("x", definition=b"d" * 16, entity="web"))
    world.shared.entities.add("web")
    world.when("x", r.StartExecution("x", definition=b"d" * 16, entity="web"))
    assert world.states["x"].entity == "web"
    assert World(1).state(1).entity == "default"


# --- the functions themselves ----------------------------------------------------------------------------
def test_nobody_overtakes_even_where_the_holder_is_gone() -> None:
    waiting = LockRow(3, 9, None, (Claim(8, ONE, 1),))
    assert ask(waiting, TWO, 1) == (9, 0)
    assert ask(LockRow(3, 9, None, (), is_whole=False), TWO, 1) == (9, 0)
    assert ask(LockRow(3, 9), TWO, 1) == (9, 4)


def test_releasing_what_one_does_not_hold_grants_nobody() -> None:
    row = LockRow(3, 9, Claim(7, ONE, 1), (Claim(8, TWO, 1),))
    assert release(row, 8) == (None, 0)
    assert release(row, 5) == (None, 0)
    assert release(row, 7) == (Claim(8, TWO, 1), 4)
    assert force(row) == (Claim(8, TWO, 1), 4)
    assert force(LockRow(3, 9)) == (None, 4)


# --- whatever happens ------------------------------------------------------------------------------------
locks = st.sampled_from(["a", "b"])
lanes = st.sampled_from([2, 3])
wishes = st.one_of(
    st.tuples(st.sampled_from(["take", "take", "take", "release", "force"]), lanes, locks),
    st.tuples(st.sampled_from(["complete", "fail", "cancel"]), lanes, locks),
    st.tuples(st.just("break"), lanes, locks),
    st.tuples(st.just("wake"), lanes, locks),
)
plays = st.lists(st.tuples(st.integers(1, 4), wishes), max_size=60)


def play(world: World, moves: list[tuple[int, Any]]) -> list[tuple[str, int, list[e.Event]]]:
    history: list[tuple[str, int, list[e.Event]]] = [(id, state.at, []) for id, state in world.states.items()]
    for n, (wish, lane, name) in moves:
        before = world.shared.agenda.copy()
        try:
            if wish == "wake":
                if not before:
                    continue
                (id, _), row = list(before.items())[n % len(before)]
                made = world.when(id, row.request)
            elif wish == "cancel":
                id, made = execution_id(n), world.when(n, r.CancelExecution())
            elif wish == "break":
                hold = world.state(n).locks.get(("default", name, lane))
                id = execution_id(n)
                made = world.when(n, r.BreakLock("default", name, lane, hold.seq if hold else 0, "x"))
            else:
                id, made = execution_id(n), world.when(n, r.SendSignal(wish, (lane, "default", name)))
        except Refused:
            continue
        history.append((id, world.now, made))
        check(world)
    return history


def check(world: World) -> None:
    """What must hold after every single commit."""
    for name in ("a", "b"):
        row = world.row(name)
        assert row.holder is not None or not row.waiters, "a free lock has nobody waiting"
        if row.holder is not None:
            assert all(row.holder.seq < claim.seq for claim in row.waiters)
    stored = {
        (place[1], place[2], claim.lane, claim.execution, claim.seq): fence
        for place, (claim, fence) in world.shared.claims.items()
    }
    for id, state in world.states.items():
        for hold in state.locks.values():
            key = (hold.entity, hold.name, hold.lane, id, hold.seq)
            if key not in stored:
                assert (id, f"lost/{hold.entity}/{hold.name}/{hold.seq}") in world.shared.agenda
                continue
            fence = stored.pop(key)
            if fence != hold.fence:
                assert not hold.fence
                assert (id, f"lock/{hold.entity}/{hold.name}/{hold.lane}") in world.shared.agenda
        if state.status.is_ended:
            # That it lost a lock may still be on its way; nobody minds, and it is gone when it arrives.
            assert not any(at == id for at, item in world.shared.agenda if not item.startswith("lost/"))
    assert not stored, "claims nobody knows of"


@settings(max_examples=300)
@given(plays)
def test_never_two_holders_first_come_first_served_and_nothing_left(moves: list[tuple[int, Any]]) -> None:
    world = World(4)
    history = play(world, moves)
    fences: dict[str, int] = {"a": 0, "b": 0}
    served: dict[str, int] = {"a": 0, "b": 0}
    for _, _, events in history:
        for event in events:
            match event:
                case e.LockTaken(name=name, seq=seq, fence=fence):
                    pass
                case e.LockReleased(name=name, heir=(_, _, seq), fence=fence):
                    pass
                case e.LockForced(name=name, heir=(_, _, seq), fence=fence):
                    pass
                case _:
                    continue
            assert fence > fences[name], "the fence only grows"
            assert seq > served[name], "first come, first served"
            fences[name], served[name] = fence, seq
    world.wake()
    check(world)
    for state in world.states.values():
        assert all(hold.fence == 0 or world.row(hold.name).holder is not None for hold in state.locks.values())
    for n in range(1, 5):
        if not world.state(n).status.is_ended:
            world.when(n, r.CancelExecution())
            check(world)
    world.wake()
    assert not world.shared.claims
    assert not world.shared.agenda
    assert all(not state.locks for state in world.states.values())


@settings(max_examples=200)
@given(plays)
def test_rows_and_the_fold_of_events_are_the_same_lock(moves: list[tuple[int, Any]]) -> None:
    """`after`, with which a turn carries rows on, and the rows that are stored never differ."""
    world = World(4)
    rows = {"a": LockRow(), "b": LockRow()}
    for id, at, events in play(world, moves):
        for event in events:
            if isinstance(event, e.LockTaken | e.LockQueued | e.LockGranted | e.LockReleased | e.LockForced):
                rows[event.name] = after(rows[event.name], id, event, at)
    assert rows == {"a": world.row("a"), "b": world.row("b")}


@settings(max_examples=200)
@given(plays)
def test_live_equals_rebuilt_equals_snapshot(moves: list[tuple[int, Any]]) -> None:
    world = World(4)
    history = play(world, moves)
    for id, state in world.states.items():
        assert canonical(restore(encode(state))) == canonical(state)
        begun = World(4).states[id]
        for whose, at, events in history:
            if whose == id:
                fold(begun, at, unpack_events(pack_events(events)))
        assert canonical(begun) == canonical(state)


def test_the_number_of_a_claim_does_not_hide_the_number_of_its_event() -> None:
    shown = event_json(e.LockTaken(1, "default", "l", 7, 3), 41, 5)
    assert (shown["seq"], shown["claim"], shown["type"]) == (41, 7, "LockTaken")
    kinds = [kind for kind in get_args(e.Event) if {"at", "type", "claim"} & set(kind.__struct_fields__)]
    assert not kinds, "these fields would be hidden by what every event is shown with"
