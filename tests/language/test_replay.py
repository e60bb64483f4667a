"""Resume and replay after an end: from where, with which variables, what runs again."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.errors import CannotReplay, CannotResume, UnknownStep, WrongStatus
from holdfast.core.model import BlockOffer, Effect, Status

from .world import Boom, World, flaky

IDEMPOTENT = {"x.y": BlockOffer("x.y", idempotent=True)}


def failed(text: str, times: int = 1, offers: dict[str, BlockOffer] | None = None, **kinds: Any) -> World:
    world = World({"x.y": flaky(times, **kinds)}, offers)
    world.start(text)
    world.run()
    assert world.states["e1"].status in (Status.FAILED_SAFE, Status.FAILED_UNSAFE)
    return world


def test_resume_enters_the_step_that_failed_and_keeps_the_rest() -> None:
    world = failed("steps:\n- a.b\n- let x = 5\n- x.y\n- return ${x} ${calls}", offers=IDEMPOTENT)
    world.ask("e1", r.ResumeExecution("fixed"))
    world.run()
    assert world.output() == "5 2"
    assert world.labels() == ["a.b", "x.y", "x.y"]
    assert world.states["e1"].run == 2


def test_resume_is_refused_where_something_may_have_happened() -> None:
    world = failed("steps:\n- x.y\n- return ok")
    with pytest.raises(CannotResume, match="may not run twice"):
        world.ask("e1", r.ResumeExecution())
    world.ask("e1", r.ResumeExecution("I looked", is_forced=True))
    assert world.run().output() == "ok"
    nothing = failed("steps:\n- x.y\n- return ok", effect=Effect.NONE)
    nothing.ask("e1", r.ResumeExecution())
    assert nothing.run().output() == "ok"


def test_resume_falls_back_to_the_last_waypoint() -> None:
    world = failed("steps:\n- let x = 1\n- workflow replayable from here\n- let x = ${x} + 1\n- x.y\n- return ${x}")
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == 2


def test_resume_of_a_loop_runs_only_what_failed() -> None:
    failing = flaky(1)

    def odd(given: Any) -> Any:
        return failing(given) if given["x"] == 2 else given["x"]

    world = World({"a.b": odd}, {"a.b": BlockOffer("a.b", idempotent=True)})
    world.start("steps:\n- step: foreach x in 1..3\n  steps: ['a.b x=${x}']\n- return ${output[0]}${output[2]}")
    world.run()
    assert world.failure().message == "boom 1"
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == "13"
    assert [given["x"] for _, _, given in world.ran] == [1, 2, 2, 3]


def test_resume_after_cancel_goes_on_where_it_stood() -> None:
    for text in (
        "steps:\n- a.b\n- sleep 1h\n- c.d\n- return ok",
        "steps:\n- a.b\n- sleep 1h\n- c.d\n- return ok\nfinally: [log x]",
    ):
        world = World()
        world.start(text)
        world.run(until=world.now + 1_000_000)
        world.ask("e1", r.CancelExecution(""))
        assert world.states["e1"].status is Status.CANCELLED
        world.ask("e1", r.ResumeExecution())
        assert world.run().output() == "ok"
        assert world.labels() == ["a.b", "c.d"]


def test_resume_takes_the_lock_again() -> None:
    world = World({"x.y": flaky(1)}, IDEMPOTENT)
    world.start("lock: L\nsteps:\n- {type: workflow, lock: M, steps: [x.y, sleep 1s]}\n- return ok")
    world.run()
    assert world.states["e1"].status is not Status.COMPLETED
    world.start("lock: L\nsteps: [sleep 1h]", id="e2")
    world.ask("e1", r.ResumeExecution())
    assert [hold.fence for hold in world.states["e1"].locks.values()] == [0]
    assert world.run().output() == "ok"


def test_replay_from_a_waypoint_restores_the_variables_of_then() -> None:
    text = """
steps:
- let x = 1
- {id: there, step: a.b, replayable: from here}
- let x = ${x} + 1
- return ${x}
"""
    world = World()
    world.start(text)
    assert world.run().output() == 2
    for start in ("there", "last", "1"):
        world.ask("e1", r.ReplayExecution(start))
        assert world.run().output() == 2
    assert world.labels() == ["there"] * 4
    assert [event.visit for event in world.events(e.JobScheduled)] == [1, 2, 3, 4]
    assert world.states["e1"].run == 4


def test_replay_of_a_step_behind_a_waypoint_begins_at_the_waypoint() -> None:
    text = "steps:\n- {id: a, step: a.b}\n- {id: b, step: c.d, replayable: from here}\n- {id: c, step: e.f}\n"
    world = World()
    world.start(text)
    world.run()
    world.ask("e1", r.ReplayExecution("c"))
    world.run()
    assert world.labels() == ["a", "b", "c", "b", "c"]
    with pytest.raises(CannotReplay, match="none was passed"):
        world.ask("e1", r.ReplayExecution("a"))
    with pytest.raises(CannotReplay, match="not a waypoint"):
        world.ask("e1", r.ReplayExecution("start"))
    with pytest.raises(UnknownStep):
        world.ask("e1", r.ReplayExecution("zzz"))
    world.ask("e1", r.ReplayExecution("a", is_forced=True))
    world.run()
    assert world.labels()[5:] == ["a", "b", "c"]


def test_forced_replay_from_any_step_has_the_variables_of_its_last_entry() -> None:
    text = """
steps:
- let x = 0
- {id: loop, step: 'let x = ${x} + 1'}
- {step: goto loop, condition: '${x} < 3'}
- {id: after, step: 'let y = ${x}'}
- let x = 100
- a.b
- return ${y}
"""
    world = World()
    world.start(text)
    assert world.run().output() == 3
    world.ask("e1", r.ReplayExecution("after", is_forced=True))
    assert world.run().output() == 3
    world.ask("e1", r.ReplayExecution("loop", is_forced=True))
    assert world.run().output() == 3


def test_from_here_only_and_reset() -> None:
    text = """
replayable: from start
steps:
- {id: a, step: no-op, replayable: from here}
- {id: b, step: no-op, replayable: from here only}
- {id: c, step: no-op}
"""
    world = World()
    world.start(text)
    world.run()
    assert list(world.states["e1"].lanes[1].waypoints) == [1]
    with pytest.raises(CannotReplay):
        world.ask("e1", r.ReplayExecution("start"))
    world = World()
    world.start(text + "- workflow replayable reset\n")
    world.run()
    with pytest.raises(CannotReplay, match="no waypoint"):
        world.ask("e1", r.ReplayExecution("last"))


def test_disabled_needs_force() -> None:
    world = World()
    world.start("replayable: disabled\nsteps:\n- {id: a, step: no-op, replayable: from here}\n- return 1")
    world.run()
    with pytest.raises(CannotReplay, match="disabled"):
        world.ask("e1", r.ReplayExecution("a"))
    world.ask("e1", r.ReplayExecution("a", is_forced=True))
    assert world.run().output() == 1


def test_only_what_has_ended_is_replayed_or_resumed() -> None:
    world = World()
    world.start("steps: [sleep 1h]")
    with pytest.raises(WrongStatus):
        world.ask("e1", r.ReplayExecution("start"))
    world.run()
    with pytest.raises(WrongStatus):
        world.ask("e1", r.ResumeExecution())


def test_automatically_goes_back_to_the_waypoint_when_the_outcome_is_unknown() -> None:
    text = "replayable: automatically\nsteps:\n- {id: a, step: a.b, replayable: from here}\n"
    text += "- {id: b, step: c.d}\n- return ok"
    world = World()
    world.start(text)
    world.work("e1", 1)
    world.claim("e1", 2)
    world.lose("e1", 2)
    assert world.run().output() == "ok"
    assert world.labels() == ["a", "a", "b"]


def test_an_unknown_outcome_can_be_handled() -> None:
    world = World()
    world.start("steps:\n- {id: b, step: c.d, on-error: ['return ${error.kind}']}")
    world.claim("e1", 1)
    world.lose("e1", 1)
    assert world.run().output() == "outcome-unknown"


def test_a_handler_that_failed_is_resumed_inside() -> None:
    calls = flaky(1)
    world = World({"x.y": calls, "a.b": lambda given: (_ for _ in ()).throw(Boom("first"))}, IDEMPOTENT)
    world.start("steps:\n- step: a.b\n  on-error:\n  - log handling\n  - x.y\n  - return rescued")
    world.run()
    assert world.failure().message == "boom 1"
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == "rescued"
    assert world.logs["e1"] == ["handling"]


def test_a_retry_that_cannot_says_what_was_wrong_in_the_first_place() -> None:
    text = "steps:\n- {id: buy, step: x.y}\non-error: [retry limit 3]\n"
    world = failed(text)
    assert world.failure().kind == "no-waypoint"
    assert world.failure().message.endswith("the error was: boom 1")
    with pytest.raises(CannotResume, match="step `buy` may have happened"):
        world.ask("e1", r.ResumeExecution())
    denied = failed("steps:\n- a.b\n- fail message denied\non-error: [retry limit 3]\n")
    assert denied.failure().message.endswith("the error was: denied")
    with pytest.raises(CannotResume, match="`fail message denied` is meant to fail"):
        denied.ask("e1", r.ResumeExecution())
    lost = World()
    lost.start(text)
    lost.claim("e1", 1)
    lost.lose("e1", 1)
    assert lost.failure().code == "HF0311"
    assert "job 1 (step buy, block x.y): the worker is gone" in lost.failure().message


def test_carrying_on_after_a_retry_gave_up_enters_what_failed() -> None:
    text = "steps:\n- {id: a, step: a.b}\n- {id: buy, step: x.y}\n- return ok ${calls}\non-error: [retry limit 1]\n"
    world = failed(text)
    world.ask("e1", r.ResumeExecution("there was none", is_forced=True))
    assert world.run().output() == "ok 2"
    assert world.labels() == ["a", "buy", "buy"]
    # One that may run twice was retried once; an operator may go on, and nobody has to force it.
    again = failed(text, 2, IDEMPOTENT)
    assert again.failure().kind == "retries-exceeded"
    again.ask("e1", r.ResumeExecution("the network is back"))
    assert again.run().output() == "ok 3"
    nested = "- type: workflow\n  lock: L\n  steps: [{id: buy, step: x.y}]\n  on-error: [retry limit 1]\n"
    inner = failed(f"steps:\n{nested}- return ok\n", 2, IDEMPOTENT)
    inner.ask("e1", r.ResumeExecution())
    assert inner.run().output() == "ok"
    assert inner.labels() == ["buy"] * 3


def test_resume_after_a_cleanup_that_failed_undoes_the_cancel() -> None:
    """It stood inside of `finally`, on its way to an end that nobody wants any more."""
    for text in (
        "steps:\n- a.b\n- sleep 1h\n- return ok\nfinally: [a.b, x.y]",
        "steps:\n- step: foreach i in 1..1\n  steps: [a.b, sleep 1h]\n  finally: [a.b, x.y]\n- return ok\n",
        "steps:\n- steps: [a.b, sleep 1h]\n  finally: [a.b, x.y]\n- return ok\n",
    ):
        world = World({"x.y": flaky(1)})
        world.start(text)
        world.run(until=world.now + 1_000_000)
        world.ask("e1", r.CancelExecution(""))
        world.run(until=world.now + 1_000_000)
        assert world.states["e1"].status is Status.CANCELLED
        world.ask("e1", r.ResumeExecution())
        assert world.run().output() == "ok"
        assert world.labels() == ["a.b", "a.b", "x.y", "a.b", "x.y"]


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n- steps: [sleep 1h]\n  finally: [x.y]\non-error: [return handled]",
        "steps:\n- steps: [sleep 1h]\n  finally: [x.y]\n  continue-on-error: true\n- return on\nfinally: [log x]",
        "steps:\n- steps:\n  - steps: [sleep 1h]\n    finally: [x.y]\n  on-error: [log no]\n- return on",
        "steps:\n- sleep 1h\nfinally: [return other]",
    ],
)
def test_what_is_cancelled_stays_cancelled_whatever_its_cleanup_comes_to(text: str) -> None:
    world = World({"x.y": flaky(1)})
    world.start(text)
    world.run(until=world.now + 1_000_000)
    world.ask("e1", r.CancelExecution(""))
    world.run(until=world.now + 1_000_000)
    assert world.states["e1"].status is Status.CANCELLED


def test_an_error_in_the_cleanup_of_what_took_too_long_is_not_handled_inside() -> None:
    world = World({"x.y": flaky(1)})
    world.start(
        "steps:\n- timeout: 1m\n  steps:\n  - steps:\n    - steps: [sleep 1h]\n      finally: [x.y]\n"
        "    on-error: [log inside]\n  - sleep 1h\n  on-error: ['return ${error.kind}']"
    )
    assert world.run().output() == "block-error"
    assert world.now == 1_060_000_000


def test_resume_from_the_pause_before_a_retry_does_not_run_twice_what_may_not() -> None:
    world = World({"x.y": flaky(1)})
    world.start("steps:\n- label again\n- {step: x.y, on-error: [retry from again backoff 1h]}\n- return ok")
    world.run(until=world.now + 1_000_000)
    world.ask("e1", r.CancelExecution(""))
    assert world.states["e1"].status is Status.CANCELLED
    try:
        world.ask("e1", r.ResumeExecution())
    except CannotResume:
        return
    world.run()
    visits = [event.visit for event in world.events(e.JobScheduled)]
    assert len(set(visits)) == len(visits)


def test_finally_after_a_resume_is_another_visit() -> None:
    world = World()
    world.start("steps:\n- sleep 1h\nfinally: [a.b]")
    world.run(until=world.now + 1_000_000)
    world.ask("e1", r.CancelExecution(""))
    world.run(until=world.now + 1_000_000)
    world.ask("e1", r.ResumeExecution())
    world.run()
    assert [event.visit for event in world.events(e.JobScheduled)] == [1, 2]


@pytest.mark.parametrize("way", ["goto ${t}", "goto start", "return x"])
@pytest.mark.parametrize("inside", ["- %s", "- steps: ['%s']\n  finally: [log inner]", "- if true then %s"])
def test_there_is_no_way_past_the_cleanup_of_what_is_cancelled(way: str, inside: str) -> None:
    world = World()
    world.start(f"steps:\n- let t = a\n- label a\n- sleep 1h\nfinally:\n{inside % way}\n- log never")
    world.run(until=world.now + 1_000_000)
    world.ask("e1", r.CancelExecution(""))
    world.run(until=world.now + 1_000_000)
    assert world.states["e1"].status is Status.CANCELLED
    assert "never" not in world.logs["e1"]
