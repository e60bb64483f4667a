"""Errors on their way: handlers, `finally`, retry — through the real core."""

from __future__ import annotations

from holdfast.core import events as e
from holdfast.core.model import Effect

from .world import flaky, play, steps


# --- errors ----------------------------------------------------------------------------------------
def test_a_handler_sees_the_error_and_the_step_goes_on() -> None:
    world = steps("""
- id: a
  step: fail message no disk
  value: {free: 0}
  on-error:
  - log ${error.kind} at ${error.step}, ${error.message}, ${error.value.free}
  - let seen = ${workflow.error.message}
- return ${seen}
""")
    assert world.output() == "no disk"
    assert world.logs["e1"] == ["fail at a, no disk, 0"]


def test_handlers_choose_by_condition_and_rethrow_what_none_wants() -> None:
    text = """
- step: fail message {}
  on-error:
  - {{step: return first, condition: {{regex: '.*disk.*'}}}}
  - {{step: return second, condition: {{error-field: kind, equals: other}}}}
- return after
"""
    assert steps(text.format("no disk left")).output() == "first"
    failure = steps(text.format("something")).failure()
    assert (failure.kind, failure.message) == ("fail", "something")


def test_a_handled_error_follows_next_unless_the_handler_says_otherwise() -> None:
    text = "- {step: fail x, on-error: [log handled], next: c}\n- return b\n- {id: c, step: return c}\n"
    assert steps(text).output() == "c"
    text = (
        "- {step: fail x, on-error: goto d, next: c}\n- return b\n- {id: c, step: return c}\n- {id: d, step: return d}"
    )
    assert steps(text).output() == "d"


def test_an_error_in_a_handler_has_the_first_as_its_cause() -> None:
    world = steps("- step: fail message first\n  on-error:\n  - fail message second\n")
    failure = world.failure()
    assert failure.message == "second"
    assert failure.cause is not None
    assert failure.cause.message == "first"


def test_rethrow_gives_the_same_error() -> None:
    world = steps("- {step: fail message first, value: 7, on-error: [log seen, fail rethrow]}")
    assert (world.failure().message, world.failure().details) == ("first", 7)


def test_handlers_of_handlers() -> None:
    world = steps("""
- step: fail message one
  on-error:
  - step: fail message two
    on-error:
    - log inner ${error.message} because ${error.cause.message}
    - goto exit
  - log outer goes on
- return done
""")
    assert world.output() == "done"
    assert world.logs["e1"] == ["inner two because one", "outer goes on"]


def test_the_workflows_handler_gives_the_output() -> None:
    text = "steps:\n- log a\n- fail message bad\n- log never\non-error:\n- return saved from ${error.message}\n"
    assert play(text).output() == "saved from bad"
    text = (
        "steps:\n- {id: x, step: log a}\n- {step: fail message bad, condition: '${tried} == null'}\n- return ${tried}\n"
    )
    text += "on-error:\n- let tried = yes\n- goto x\n"
    assert play(text).output() == "yes"


def test_errors_leave_blocks_of_steps() -> None:
    world = steps("""
- steps:
  - let x = 1
  - if: true
    steps:
    - fail message deep
    - let x = 2
  on-error:
  - let y = ${error.message}
- return ${x} ${y}
""")
    assert world.output() == "1 deep"


def test_finally_runs_after_success_failure_and_handled_failure() -> None:
    text = """
steps:
- steps:
  - {}
  - let x = in
  on-error:
  - log handled
  finally:
  - log cleaned ${{x ?? 'unset'}}
- return ${{x ?? 'unset'}}
"""
    assert play(text.format("no-op")).logs["e1"] == ["cleaned in"]
    assert play(text.format("fail no")).logs["e1"] == ["handled", "cleaned unset"]
    world = steps("- {step: fail no, finally: [log cleaned]}\n- log never")
    assert world.failure().message == "no"
    assert world.logs["e1"] == ["cleaned"]


def test_finally_keeps_the_output_and_runs_when_left_by_goto_or_return() -> None:
    world = steps("- {step: let output = 5, finally: [let output = 9]}\n- return ${output}")
    assert world.output() == 5
    world = steps("- {steps: [goto b], finally: [log bye]}\n- log never\n- label b\n- return ok")
    assert (world.output(), world.logs["e1"]) == ("ok", ["bye"])
    text = "steps:\n- {steps: [return 1], finally: [log inner]}\nfinally:\n- log outer\noutput: ${output + 1}\n"
    world = play(text)
    assert (world.output(), world.logs["e1"]) == (2, ["inner", "outer"])


def test_an_error_in_finally_replaces_the_other() -> None:
    assert steps("- {step: fail one, finally: [fail two]}").failure().message == "two"


def test_continue_on_error() -> None:
    world = steps("- {id: a, step: fail bad, continue-on-error: yes}\n- return ${steps.a.output.error.message}")
    assert world.output() == "bad"
    # An error that is tolerated is followed by `finally`, as success is; one in `finally` is not tolerated.
    world = steps(
        "- {id: a, step: fail bad, continue-on-error: yes, finally: [log bye]}\n- return ${steps.a.output.error.kind}"
    )
    assert (world.output(), world.logs["e1"][-1]) == ("fail", "bye")
    assert steps("- {step: fail one, continue-on-error: yes, finally: [fail two]}").failure().message == "two"


def test_asserts_delays_and_repeats() -> None:
    assert steps("- let x = 1\n- {step: log x, assert: '${x} > 1'}").failure().kind == "assertion-failed"
    world = steps("- {step: log hi, delay: 5s}\n- return ${workflow.util.now}")
    assert world.output() == 1_005_000
    world = steps("- let x = 0\n- {step: 'let x = ${x} + 1', repeat: 4}\n- return ${x}")
    assert world.output() == 4
    world = steps("- let x = 0\n- {step: 'let x = ${x} + 1', repeat: {until: '${x} == 3', delay: 1s}}\n- return ${x}")
    assert (world.output(), world.now) == (3, 1_002_000_000)


# --- retry -----------------------------------------------------------------------------------------
def test_retry_in_a_handler_enters_the_step_again() -> None:
    text = "- {step: x.y, idempotent: yes, on-error: retry limit 3 backoff 1s increasing 2x}\n- return ${calls}"
    world = steps(text, None, {"x.y": flaky(2)})
    assert (world.output(), world.now) == (3, 1_003_000_000)
    assert [event.visit for event in world.events(e.JobScheduled)] == [1, 2, 3]


def test_retries_are_limited_and_the_error_is_the_cause() -> None:
    world = steps("- {step: x.y, idempotent: yes, on-error: retry limit 2}", None, {"x.y": flaky(9)})
    failure = world.failure()
    assert failure.kind == "retries-exceeded"
    assert failure.cause is not None
    assert failure.cause.message == "boom 3"
    assert len(world.ran) == 3


def test_what_may_not_run_twice_is_not_retried_without_a_waypoint() -> None:
    world = steps("- {step: x.y, on-error: retry limit 3}", None, {"x.y": flaky(1)})
    assert world.failure().kind == "no-waypoint"
    assert len(world.ran) == 1
    world = steps("- {step: x.y, on-error: retry limit 3}\n- return ok", None, {"x.y": flaky(1, effect=Effect.NONE)})
    assert world.output() == "ok"


def test_retry_goes_back_to_the_waypoint_with_the_variables_of_then() -> None:
    world = steps(
        """
- let x = 1
- workflow replayable from here
- let x = ${x} + 10
- a.b
- {step: x.y, on-error: retry limit 2}
- return ${x}
""",
        None,
        {"x.y": flaky(1)},
    )
    assert world.output() == 11
    assert world.labels() == ["a.b", "x.y", "a.b", "x.y"]


def test_retry_outside_of_a_handler_polls_from_a_waypoint_or_a_step() -> None:
    text = """
- {id: check, step: x.y}
- step: retry from check limit 7d backoff 10s increasing 2x up to 5m
  condition: {target: '${calls}', less-than: 4}
- return ${calls}
"""
    world = steps(text, None, {"x.y": flaky(0)})
    assert world.output() == 4
    assert world.now == 1_000_000_000 + 70_000_000


def test_workflow_handler_retries_from_start() -> None:
    text = (
        "replayable: from start\non-error:\n- retry limit 10\nsteps:\n- let x = ${x ?? 0} + 1\n- x.y\n- return ${x}\n"
    )
    world = play(text, None, {"x.y": flaky(3)})
    assert world.output() == 1
    assert len(world.ran) == 4


def test_retry_timeout_is_caught_by_its_own_handler() -> None:
    text = """
- step: fail message busy
  on-error:
  - step: retry backoff 10s timeout 1m
    on-error: goto late
- log never
- {id: late, step: return gave up}
"""
    text = text.replace("fail message busy", "x.y").replace(
        "on-error:\n  - step", "idempotent: yes\n  on-error:\n  - step"
    )
    world = steps(text, None, {"x.y": flaky(99)})
    assert world.output() == "gave up"
    assert 60_000_000 <= world.now - 1_000_000_000 <= 80_000_000
