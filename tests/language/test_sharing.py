"""Locks and sensors as workflows see them: who waits, who is next, what holds through errors."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.model import Actor, BlobRef, Status, Wait
from holdfast.core.reads import LockKey
from holdfast.language.workflow import Text, choose, load_workflows

from .world import World, play, steps

LOCK = LockKey("default", "default", "L")


def holder(world: World, name: str = "L") -> str:
    claim = world.lock(LockKey("default", "default", name)).holder
    return claim.execution if claim else ""


def test_a_lock_lets_one_in_at_a_time_first_come_first_served() -> None:
    world = World()
    for number in range(5):
        world.start("lock: L\nsteps:\n- sleep 1s\n- log in\n", id=f"e{number}")
    assert holder(world) == "e0"
    assert [claim.execution for claim in world.lock(LOCK).waiters] == ["e1", "e2", "e3", "e4"]
    world.run()
    assert [world.states[f"e{n}"].ended_at - 1_000_000_000 for n in range(5)] == [n * 1_000_000 for n in range(1, 6)]
    assert holder(world) == ""
    assert world.lock(LOCK).fence == 5


def test_an_increment_under_a_lock_is_never_lost() -> None:
    text = """
steps:
- type: workflow
  lock: count
  replayable: from start
  steps:
  - let x = ${entity.sensor.count} ?? 0
  - a.b
  - {step: 'let x = ${x} + 1', replayable: from here only}
  - set-sensor count = ${x}
  - workflow replayable from here
"""
    world = World()
    for number in range(20):
        world.start(text, id=f"e{number:02}")
    world.run()
    assert world.sensor_value("count") == 20


def test_a_nested_lane_enters_the_lock_of_the_lane_around_it_and_siblings_wait() -> None:
    world = play("lock: L\nsteps:\n- {type: workflow, lock: L, steps: [log inner]}\n- return ok")
    assert world.output() == "ok"
    text = "steps:\n- step: foreach x in 1..3\n  concurrency: all\n  lock: L\n  steps: [sleep 1s]\n"
    world = play(text)
    assert world.now == 1_003_000_000
    assert len(world.events(e.LockQueued)) == 2


def test_the_lock_is_held_while_handlers_and_finally_run() -> None:
    world = World()
    world.start("lock: L\nsteps: [fail no]\non-error: [sleep 5s, fail again]\nfinally: [sleep 5s]\n")
    world.start("lock: L\nsteps: [log mine]", id="e2")
    world.run(until=world.now + 9_000_000)
    assert holder(world) == "e1"
    world.run()
    assert world.states["e1"].status is Status.FAILED_SAFE
    assert world.states["e2"].started_at
    assert world.states["e2"].ended_at == 1_010_000_000


def test_a_lock_wait_can_have_a_timeout_and_be_handled() -> None:
    world = World()
    world.start("lock: L\nsteps: [sleep 1h]")
    world.start("lock: {name: L, timeout: 1m}\nsteps: [log never]\non-error: ['return ${error.kind}']", id="e2")
    world.start("lock: L\nsteps: [return got it]", id="e3")
    world.run(until=world.now + 120_000_000)
    assert world.output("e2") == "lock-timeout"
    assert [claim.execution for claim in world.lock(LOCK).waiters] == ["e3"]
    world.run()
    assert world.output("e3") == "got it"


def test_the_timeout_of_the_workflow_begins_with_the_lock() -> None:
    world = World()
    world.start("lock: L\nsteps: [sleep 1m]")
    world.start("lock: L\ntimeout: 10s\nsteps: [sleep 5s, return in time]", id="e2")
    assert world.run().output("e2") == "in time"


def test_cancelling_a_waiter_or_the_holder_frees_what_they_have() -> None:
    world = World()
    for id in ("e1", "e2", "e3"):
        world.start("lock: L\nsteps: [sleep 1h]\nfinally: [log bye]", id=id)
    world.ask("e2", r.CancelExecution(""))
    assert world.states["e2"].status is Status.CANCELLED
    assert [claim.execution for claim in world.lock(LOCK).waiters] == ["e3"]
    world.ask("e1", r.CancelExecution(""))
    assert holder(world) == "e3"
    world.run()
    assert world.states["e3"].status is Status.COMPLETED


def test_the_sensor_of_a_lock_is_a_view_a_try_lock_and_a_way_to_force_it() -> None:
    text = """
steps:
- step: set-sensor lock-L = ${workflow.id}
  require:
    any:
    - when: absent
    - equals: ${workflow.id}
  on-error:
  - step: retry backoff 10ms timeout 1m
    on-error: goto lock-not-available
- type: workflow
  lock: L
  steps:
  - log we got the lock
  next: end
- id: lock-not-available
  step: log Lock not available after one minute, force-clearing it and continuing
- clear-sensor lock-L
- goto start
"""
    world = play(text)
    assert world.logs["e1"] == ["we got the lock"]
    assert holder(world) == ""
    world = World()
    world.start("lock: L\nsteps: [sleep 1h]", id="other")
    world.start(text)
    world.run(until=world.now + 30_000_000)
    assert world.states["e1"].status is Status.RUNNING
    world.run(until=world.now + 60_000_000)
    assert [line for line in world.logs["e1"] if "took" not in line] == [
        "Lock not available after one minute, force-clearing it and continuing", "we got the lock",
    ]  # fmt: skip
    world.run()
    assert world.states["other"].status is Status.COMPLETED


def test_a_lock_can_be_looked_at() -> None:
    world = World()
    world.start("lock: L\nsteps: [sleep 1h]", id="abc")
    world.start("steps:\n- return ${entity.sensor.lock-L}")
    assert world.output() == "abc"
    assert steps("- return ${entity.sensor.lock-L ?? 'free'}").output() == "free"


def test_sensors_are_set_with_places_types_and_requirements() -> None:
    world = steps("""
- set-sensor integer a = '5'
- set-sensor m.b[] = one
- set-sensor m.b[] = two
- {step: set-sensor a = 6, require: {equals: 5}}
- {step: set-sensor a = 7, require: {equals: 5}, on-error: ['log ${error.kind} ${error.value}']}
- {step: set-sensor z = 7, require: {equals: 5}, on-error: ['log ${error.kind}']}
- clear-sensor m.b[0]
- set-config size = large
- return ${[entity.sensor.a, entity.sensor.m, entity.config.size]}
""")
    assert world.output() == [6, {"b": ["two"]}, "large"]
    assert world.logs["e1"] == ["requirement-failed 6", "requirement-absent"]
    assert world.sensor_value("m") == {"b": ["two"]}


def test_waiting_for_a_sensor() -> None:
    world = World()
    world.start("steps:\n- wait ip = ${entity.sensor.ip}\n- return ${ip}")
    world.start(
        "steps:\n- {step: 'wait ${entity.attributeWhenReady.up}', timeout: 1h, on-error: [return late]}", id="e2"
    )
    world.start("steps:\n- {step: 'wait ${entity.sensor.never}', timeout: 10s, on-error: [return late]}", id="e3")
    assert world.states["e1"].lanes[1].wait is Wait.SENSOR
    world.start(
        "steps:\n- set-sensor up = false\n- sleep 1m\n- set-sensor ip = 10.0.0.1\n- set-sensor up = true", id="e4"
    )
    world.run(until=world.now + 30_000_000)
    assert world.states["e2"].status is Status.RUNNING
    world.run()
    assert world.output("e1") == "10.0.0.1"
    assert world.output("e2") is True
    assert world.output("e3") == "late"
    assert not any(watched.waiters for watched in world.sensors.values())


def test_entities_have_sensors_and_locks_of_their_own() -> None:
    world = World()
    text = "lock: L\nsteps:\n- sleep 1s\n- set-sensor n = ${entity.id}\n- return ${entity.sensor.n}"
    world.start(text, id="e1", entity="a")
    world.start(text, id="e2", entity="b")
    world.run()
    assert (world.output("e1"), world.output("e2")) == ("a", "b")
    assert world.now == 1_001_000_000
    assert world.sensor_value("n", "a") == "a"


def test_signals_between_executions() -> None:
    world = World()
    world.start("steps:\n- wait-signal go\n- return ${output.x}", id="a" * 32)
    world.start("steps:\n- 'signal go to ${input.who} with ${{x: 5}}'", {"who": "a" * 32})
    assert world.run().output("a" * 32) == 5


def test_approval_and_rejection() -> None:
    text = "steps:\n- {id: ok, step: 'approve reboot?'}\n- return ${output.by}\n"
    world = World()
    world.start(text)
    assert world.logs["e1"] == ["needs approval: reboot?"]
    world.ask("e1", r.SendSignal("approve/ok", {"approved": True, "by": "ada"}))
    assert world.output() == "ada"
    world = World()
    world.start(text)
    world.ask("e1", r.SendSignal("approve/ok", {"approved": False, "by": "bob", "note": "not now"}))
    assert world.failure().message == "rejected by bob: not now"


def test_a_deadlock_is_an_error_of_the_lane() -> None:
    world = World()
    text = "lock: {}\nsteps:\n- sleep 1s\n- type: workflow\n  lock: {}\n  steps: [log both]\n"
    text += "  on-error: ['return ${{error.kind}}']\n- return ${{output}}"
    world.start(text.format("A", "B"), id="e1")
    world.start(text.format("B", "A"), id="e2")
    world.run(until=world.now + 10_000_000)
    hold = next(hold for hold in world.states["e2"].locks.values() if not hold.fence)
    world.ask("e2", r.BreakLock(hold.entity, hold.name, hold.lane, hold.seq, "a cycle"))
    assert world.output("e2") == "deadlock"
    world.run()
    assert world.states["e1"].status is Status.COMPLETED


def test_names_and_values_that_cannot_be_stored_are_errors_of_the_step() -> None:
    world = steps("""
- let long = ${join(range(0, 9000), 'a long separator')}
- {step: 'set-sensor big = ${long}', on-error: ['log ${error.code}']}
- {type: workflow, lock: '${long}', steps: [log never], on-error: ['log ${error.code}']}
- return ok
""")
    assert world.output() == "ok"
    assert world.logs["e1"] == ["HF0721", "HF0201"]


def test_a_name_that_cannot_be_stored_fails_its_step_and_gives_the_lock_back() -> None:
    for name in ("a\\u0007", "x" * 300):
        world = World()
        world.start(
            f'lock: l\nsteps:\n- parallel:\n  - wait ${{entity.sensor["{name}"]}}\n  - steps: [a.b]\n  - sleep 1h\n'
            "on-error: ['return ${error.code}']"
        )
        assert world.run().output() == "HF0201"
        assert not world.states["e1"].locks


def test_nothing_follows_a_command_that_cannot_be_obeyed() -> None:
    """Whatever a program asks for after it: the end is the last event, and gives back the locks."""
    world = World()
    world.start("lock: l\nsteps: [wait-signal go]")
    program = world.programs[world.states["e1"].definition]

    class Careless:
        def __getattr__(self, name: str) -> Any:
            return getattr(program, name)

        def advance(self, *args: Any) -> list[Any]:
            return [p.AwaitSensor(1, "default", "sensor", "x" * 300), p.ScheduleJob(1, 0, 0), p.LeaveSensor(1)]

    world.programs[world.states["e1"].definition] = Careless()  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.language.world._agree", lambda *args: None)
        world.ask("e1", r.SendSignal("go"))
    assert world.failure().code == "HF0201"
    assert not world.states["e1"].locks


def test_a_signal_does_not_reach_another_tenant() -> None:
    world = World()
    world.start("steps:\n- wait-signal go\n- return ${output}")
    digest = b"x" * 16
    text = "steps:\n- {type: signal, signal: go, to: e1, value: 5}"
    world.programs[digest] = choose(load_workflows([Text(text, "t.yaml")])).program
    world.ask("e2", r.StartExecution("e2", definition=digest, actor=Actor("mallory", "other")))
    world.run()
    assert world.states["e1"].status is Status.RUNNING
    world.ask("e3", r.StartExecution("e3", definition=digest))
    assert world.run().output() == 5


def test_a_long_signal_is_kept_by_whoever_gets_it() -> None:
    """Whole on the way, and a reference of the receiver's own afterwards."""
    long = "x" * 20_000
    world = World()
    world.start("steps:\n- wait-signal go\n- return ${output}")
    world.start("steps:\n- let x = ${input.long}\n- {type: signal, signal: go, to: e1, value: ['${x}']}",
                {"long": long}, id="e2")  # fmt: skip
    world.run()
    (sent,) = world.events(e.SignalSent, "e2")
    assert sent.value == [long]
    (received,) = world.events(e.SignalReceived)
    assert isinstance(received.value, BlobRef)
    assert world.output() == [long]


def test_a_wait_that_is_entered_again_at_once_is_told_of_changes() -> None:
    """It leaves its sensors and comes back to them in one transition."""
    world = World()
    world.start(
        "steps:\n- {steps: ['wait ${entity.sensor.s}', 'return ${output}'], timeout: 1m, repeat: 2, on-error: no-op}"
    )
    world.run(until=world.now + 61_000_000)
    assert world.states["e1"].lanes[1].wait is Wait.SENSOR
    world.start("steps: [set-sensor s = 5]", id="e2")
    assert world.run().output() == 5
