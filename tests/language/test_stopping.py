"""Timeouts and cancels: what is inside is stopped, what is in flight waited for."""

from __future__ import annotations

from holdfast.core import requests as r
from holdfast.core.model import BlockOffer, Status

from .world import World, play, steps


# --- time ------------------------------------------------------------------------------------------
def test_a_timeout_stops_what_is_inside_and_can_be_handled() -> None:
    world = steps("- {steps: [sleep 1h], timeout: 10s, on-error: ['return ${error.kind}']}")
    assert (world.output(), world.now) == ("timeout", 1_010_000_000)
    assert not world.states["e1"].timers


def test_a_timeout_waits_for_what_is_in_flight() -> None:
    world = World({})
    world.start("steps:\n- steps:\n  - a.b\n  - log never\n  timeout: 10s\n  on-error: ['return ${error.message}']")
    world.claim("e1", 1)
    world.run(until=world.now + 20_000_000)
    assert world.states["e1"].jobs[1].is_stopping
    world.ask("e1", r.CompleteJob(1, 1, "late"))
    assert "longer than it may" in world.output()
    assert "never" not in world.logs["e1"]


def test_the_workflows_own_timeout_is_seen_by_its_handler() -> None:
    text = "timeout: 1m\nsteps:\n- parallel: [sleep 1h, sleep 2h]\non-error:\n- return late ${error.kind}\n"
    text += "finally: [log bye]\n"
    world = play(text)
    assert (world.output(), world.logs["e1"]) == ("late timeout", ["bye"])
    assert list(world.states["e1"].lanes) == [1] or not world.states["e1"].lanes


# --- cancel ----------------------------------------------------------------------------------------
def test_cancel_runs_finally_and_no_handler() -> None:
    world = World({})
    text = "steps:\n- steps:\n  - a.b\n  on-error: [log handled]\n  finally: [c.d]\n- log never\nfinally: [log bye]\n"
    world.start(text)
    world.claim("e1", 1)
    world.ask("e1", r.CancelExecution("enough"))
    assert world.states["e1"].status is Status.CANCELLING
    assert world.states["e1"].jobs[1].is_stopping
    world.ask("e1", r.CancelExecution("again"))
    world.ask("e1", r.CompleteJob(1, 1, "late"))
    world.run()
    assert world.states["e1"].status is Status.CANCELLED
    assert world.labels() == ["c.d"]
    assert world.logs["e1"] == ["bye"]


def test_cancel_of_a_sleeping_loop_with_finally() -> None:
    world = World({})
    world.start("steps:\n- step: foreach x in 1..3\n  concurrency: all\n  steps: [sleep 1h]\n  finally: ['log ${x}']\n")
    world.ask("e1", r.CancelExecution(""))
    assert world.states["e1"].status is Status.CANCELLED
    assert world.logs["e1"] == ["1", "2", "3"]
    world.check("e1")


def test_cancel_without_finally_is_as_before() -> None:
    world = World({}, {"a.b": BlockOffer("a.b")})
    world.start("steps:\n- parallel: [a.b, sleep 1h]\n")
    world.ask("e1", r.CancelExecution(""))
    assert world.states["e1"].status is Status.CANCELLED


def test_what_does_not_stop_in_time_is_given_up_and_finally_runs() -> None:
    world = World({})
    text = "config: {cancel-grace: 10s}\nsteps:\n- parallel: [a.b, a.b]\nfinally: [c.d, log bye]\n"
    world.start(text)
    world.claim("e1", 1)
    world.claim("e1", 2)
    world.ask("e1", r.CancelExecution("enough"))
    world.run(until=world.now + 9_000_000)
    assert world.states["e1"].jobs[1].is_stopping
    world.run()
    state = world.states["e1"]
    assert (state.status, world.labels(), world.logs["e1"]) == (Status.CANCELLED, ["c.d"], ["bye"])
    assert state.residue[:2] == (1, 2)  # nobody knows what they did
    world.ask("e1", r.CompleteJob(1, 1, "late"))
    assert world.states["e1"].status is Status.CANCELLED
    world.check("e1")


def test_without_finally_all_that_does_not_stop_is_given_up_at_once() -> None:
    world = World({}, {"a.b": BlockOffer("a.b", pure=True)})
    world.start("steps:\n- parallel: [a.b, a.b]\n")
    world.claim("e1", 1)
    world.claim("e1", 2)
    world.ask("e1", r.CancelExecution("enough"))
    world.run(until=world.now + 29_000_000)
    assert world.states["e1"].status is Status.CANCELLING
    world.run()
    state = world.states["e1"]
    assert (state.status, state.residue) == (Status.CANCELLED, ())
    world.check("e1")
