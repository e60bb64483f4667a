"""Sensors: what is set is kept whole, and whoever waits is woken by the commit that changes it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.errors import Refused
from holdfast.core.model import Status, Wait
from holdfast.core.sensors import VALUE_LIMIT
from tests.core.puppets import World, execution_id

TWO = execution_id(2)
X = ("default", "sensor", "x")


def test_a_change_counts_and_is_stored_with_its_time_and_author() -> None:
    world = World(1)
    assert world.tell(1, "set", 2, "default", "x", 5) == [e.SensorChanged(2, *X, 5, 1)]
    assert world.tell(1, "set", 2, "default", "x", [6]) == [e.SensorChanged(2, *X, [6], 2)]
    stored = world.shared.sensors["default", *X]
    assert (stored.value, stored.version, stored.at, stored.by) == ([6], 2, world.now, execution_id(1))
    assert world.tell(1, "clear", 2, "default", "x") == [e.SensorChanged(2, *X, None, 0, True)]
    assert not world.shared.sensors


def test_whoever_waits_is_woken_and_goes_on_waiting_until_it_leaves() -> None:
    world = World()
    assert world.tell(2, "await", 3, "default", "x") == [e.SensorAwaited(3, *X)]
    assert world.state(2).lanes[3].wait is Wait.SENSOR
    for version in (1, 2):
        changed = world.tell(1, "set", 2, "default", "x", 5)
        assert changed == [e.SensorChanged(2, *X, 5, version, False, ((TWO, 3),))]
        assert list(world.shared.agenda) == [(TWO, "sensor/3")]
        assert world.wake() == [], "still waiting, and the wake-up is used up"
        assert world.shared.program_.told[-1] == p.SensorMoved(3)
    assert world.tell(2, "leave", 3, "default", "x") == [e.SensorLeft(3)]
    assert world.state(2).lanes[3].wait is Wait.NOTHING
    assert world.tell(1, "clear", 2, "default", "x")[0].woken == ()
    assert world.tell(2, "leave", 3, "default", "x") == []


def test_a_sibling_that_waits_is_woken_but_not_the_lane_that_sets() -> None:
    world = World(1)
    for lane in (2, 3):
        world.tell(1, "await", lane, "default", "x")
    assert world.tell(1, "set", 2, "default", "x", 1)[0].woken == ((execution_id(1), 3),)


def test_the_end_leaves_every_subscription_and_takes_wake_ups_along() -> None:
    world = World()
    world.tell(2, "await", 2, "default", "x")
    world.tell(2, "await", 3, "default", "y")
    world.tell(1, "set", 2, "default", "x", 1)
    cancelled = world.when(2, r.CancelExecution())
    assert cancelled[-3:-1] == [e.SensorLeft(2), e.SensorLeft(3)]
    assert not world.shared.waits
    assert not world.shared.agenda


def test_a_value_over_the_limit_fails_the_execution_with_a_code() -> None:
    world = World(1)
    decided = world.tell(1, "set", 2, "default", "x", "x" * VALUE_LIMIT)
    raised = decided[0]
    assert isinstance(raised, e.ErrorRaised)
    assert (raised.failure.kind, raised.failure.code) == ("value-too-large", "HF0721")
    assert world.state(1).status is Status.FAILED_SAFE
    assert not world.shared.sensors


names = st.sampled_from(["x", "y"])
moves = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["set", "clear", "await", "await", "leave", "complete", "cancel", "wake"]),
        st.sampled_from([2, 3]),
        names,
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(moves)
def test_no_change_is_missed_and_subscriptions_are_those_of_the_folds(played: list[tuple[int, str, int, str]]) -> None:
    world = World(3)
    for n, wish, lane, name in played:
        before = dict(world.shared.sensors)
        try:
            if wish == "wake":
                world.wake()
            elif wish == "cancel":
                world.when(n, r.CancelExecution())
            else:
                value: Any = (lane, "default", name, n)
                world.when(n, r.SendSignal(wish, value))
        except Refused:
            continue
        known = {
            ("default", *sensor, id, waiting)
            for id, state in world.states.items()
            for waiting, sensors in state.awaits.items()
            for sensor in sensors
        }
        assert known == world.shared.waits
        if world.shared.sensors != before:
            for wait in world.shared.waits:
                if wait[3] == name and wait[4:] != (execution_id(n), lane):
                    assert (wait[4], f"sensor/{wait[5]}") in world.shared.agenda
    for n in (1, 2, 3):
        if not world.state(n).status.is_ended:
            world.when(n, r.CancelExecution())
    assert not world.shared.waits
    assert not world.shared.agenda
