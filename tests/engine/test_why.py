"""`why` names every kind of wait, and what can be done about it. Pure: states of the language's own small world."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import requests as r
from holdfast.core.model import Status
from holdfast.core.views import Reason, WhyView
from holdfast.engine.why import Waiting, explain
from tests.language.world import World, flaky

SECOND = 1_000_000


def why(world: World, id: str = "e1", **more: Any) -> WhyView:
    state = world.states[id]
    return explain(state, [], {}, world.program(state.definition), world.now, **more)


def kinds(view: WhyView) -> list[str]:
    return [reason.kind for reason in view.reasons]


def only(view: WhyView) -> Reason:
    (reason,) = view.reasons
    return reason


def test_a_sleep_and_a_delay() -> None:
    world = World()
    world.start("steps:\n- {id: nap, step: sleep 1m}")
    assert only(why(world)).text.startswith("sleeps until")
    assert only(why(world)).step == "nap"
    world.start("steps:\n- {id: late, step: log x, delay: 10s}", id="e2")
    assert (only(why(world, "e2")).kind, only(why(world, "e2")).step) == ("delay", "late")


def test_a_retry_says_which_one_of_how_many() -> None:
    world = World({"x.y": flaky(9)})
    world.start("steps:\n- step: x.y\n  on-error:\n  - retry from start limit 5 backoff 10s")
    world.run(until=world.now + 15 * SECOND)
    reason = only(why(world))
    assert reason.kind == "retry"
    assert reason.text.startswith("retry 2 (limit 5) follows at")


def test_a_signal_an_approval_and_a_sensor() -> None:
    world = World()
    world.start("steps:\n- wait-signal go", id="1" * 32)
    reason = only(why(world, "1" * 32))
    assert (reason.text, reason.command) == ("waits for the signal `go`", "holdfast signal 11111111 go")
    world.start("steps:\n- {id: gate, step: approve, message: now?}", id="2" * 32)
    waits = {1: Waiting(world.now - 90 * SECOND, "now?")}
    reason = only(why(world, "2" * 32, waits=waits))
    assert reason.text == "step gate waits for 90 s for the approval of somebody with the role operator: now?"
    assert reason.command == "holdfast approve 22222222 gate"
    world.start("steps:\n- wait ${entity.attributeWhenReady.up}", id="e3")
    reason = only(why(world, "e3", waits={1: Waiting(world.now - 5 * SECOND)}))
    assert reason.text == "waits for 5.0 s for sensor up on default to change"


def test_a_lock_its_timeout_and_whose_it_is() -> None:
    world = World()
    world.start("lock: L\nsteps: [sleep 1h]", id="1" * 32)
    world.start("lock: {name: L, timeout: 1m}\nsteps: [log x]", id="e2")
    state = world.states["e2"]
    locks = {(hold.entity, hold.name): row for hold in state.locks.values() for row in world.locks.values()}
    view = why(world, "e2", locks=locks)
    assert kinds(view) == ["lock", "timeout"]
    assert "held by execution 11111111" in view.reasons[0].text


def test_lanes_and_the_time_they_have() -> None:
    world = World()
    world.start("timeout: 1h\nsteps:\n- {id: each, step: foreach x in 1..5, concurrency: 2, steps: [sleep 1m]}")
    view = why(world)
    assert sorted(kinds(view)) == ["lanes", "timeout", "timer", "timer"]
    (lanes,) = [reason for reason in view.reasons if reason.kind == "lanes"]
    assert lanes.text == "step each: 0 of 5 lanes done, 2 under way, 3 to come"
    world.run(until=world.now + 90 * SECOND)
    assert any("2 of 5 lanes done, 2 under way, 1 to come" in reason.text for reason in why(world).reasons)


def test_what_is_in_flight_is_waited_for_before_a_timeout_is_handled() -> None:
    world = World()
    world.start("steps:\n- {id: part, type: workflow, timeout: 5s, steps: [x.y], on-error: [log late]}")
    world.claim("e1", 1)
    world.now += 6 * SECOND
    world.ask("e1", r.FireTimer(next(iter(world.states["e1"].timers))))
    view = why(world)
    assert "stopping" in kinds(view)
    assert any("waits for what is in flight" in reason.text for reason in view.reasons)


def test_an_endless_loop_takes_turns() -> None:
    world = World()
    world.start("steps:\n- label again\n- goto again")
    assert only(why(world)).kind == "turn"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("steps:\n- x.y", "holdfast resume {id} --force --dry-run"),
        ("steps:\n- {step: x.y, idempotent: yes}", "holdfast resume {id}"),
        ("steps:\n- {step: x.y, replayable: from here}", "holdfast resume {id}"),
    ],
)
def test_what_can_be_done_with_one_that_failed(text: str, command: str) -> None:
    world = World({"x.y": flaky(1)})
    id = world.start(text, id="1" * 32)
    world.run()
    assert world.states[id].status is Status.FAILED_UNSAFE
    assert why(world, id).reasons[-1].command == command.format(id=id[:8])
