"""From step to step: jumps, blocks of steps, handlers, `finally`, timeouts, retry — through the real core."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.errors import CannotResume, InvalidDefinition
from holdfast.core.model import BlockOffer, Effect, Failure, Status, Wait
from holdfast.language import interpret

from .world import Boom, World, play, steps


def flaky(times: int, **kinds: Any) -> Any:
    """Fails so often, then answers with the number of calls."""
    calls = [0]

    def block(given: Any) -> Any:
        calls[0] += 1
        if calls[0] <= times:
            raise Boom(f"boom {calls[0]}", **kinds)
        return {"calls": calls[0]}

    return block


# --- where to go -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("- goto b\n- return skipped\n- {id: b, step: return there}", "there"),
        ("- {step: no-op, next: b}\n- return skipped\n- label b\n- return there", "there"),
        ("- let x = 0\n- {id: again, step: 'let x = ${x} + 1'}\n- {step: goto again, condition: '${x} < 5'}\n"
         "- return ${x}", 5),
        ("- let output = 1\n- goto end\n- return 2", 1),
        ("- let to = b\n- goto ${to}\n- return skipped\n- label b\n- return ok", "ok"),
        ("- if true then return yes\n- return no", "yes"),
        ("- {type: if, condition: '${1 + 1} == 2', steps: [return yes]}\n- return no", "yes"),
        ("- {type: if, condition: '${1 + 1} == 3', steps: [return yes]}\n- return no", "no"),
        ("- if ${1 == 2} then return yes\n- return no", "no"),
        ("- if ${{a: 1}.a == 1} then return yes\n- return no", "yes"),
        ("- let x = 3\n- if ${x} == 3 then goto end\n- return no", None),
        ("- let x = 3\n- {if: '${x} == 4', steps: [return four], else: [return other]}", "other"),
        ("- let x = a\n- if: '${x}'\n  steps:\n  - let x = b\n  - goto end\n  - let x = c\n- return ${x}", "b"),
        ("- steps:\n  - let x = 1\n  - let y = 2\n- return ${x + y}", 3),
        ("- - let x = 1\n  - let x = ${x} + 1\n- return ${x}", 2),
        ("- let x = b\n- step: switch ${x}\n  cases:\n  - {step: return one, condition: {equals: a}}\n"
         "  - {step: return two, condition: b}\n  - return three\n- return none", "two"),
        ("- let x = z\n- step: switch ${x}\n  cases:\n  - {step: let y = 1, condition: a}\n  - let y = 3\n"
         "- return ${y}", 3),
        ("- let a = 1\n- clear-variable a\n- return ${a ?? 'gone'}", "gone"),
        ("- let m.a = 1\n- let m['b c'] = 2\n- let l[] = 5\n- let l[] = 6\n- return ${[m, l]}",
         [{"a": 1, "b c": 2}, [5, 6]]),
        ("- transform value ' Ab ' | trim | to_lower_case\n- return ${output}", "ab"),
        ("- let x = ${[3, 1, 2]}\n- transform variable x | max\n- return ${x}", 3),
        ("- transform y = ${[1, 2]} | sum\n- return ${y}", 3),
    ],
)  # fmt: skip
def test_where_steps_lead(text: str, output: Any) -> None:
    assert steps(text).output() == output


def test_no_case_is_an_error() -> None:
    world = steps("- step: switch ${1}\n  cases:\n  - {step: no-op, condition: 2}\n  - {step: no-op, condition: 3}\n")
    assert world.failure().kind == "no-case"


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


# --- nested workflows ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("- foreach x in [1, 2, 3] do let output = ${x * 2}\n- return ${output}", [2, 4, 6]),
        ("- foreach x in 1..3 do return ${x}\n- return ${sum(output)}", 6),
        ("- let base = 10\n- foreach x in 1..2 do return ${base + x}\n- return ${output}", [11, 12]),
        ("- foreach x in ${[]} do return 1\n- return ${output}", []),
        ("- step: foreach x in 1..5\n  condition: '${x} > 3'\n  steps: ['return ${x}']\n- return ${output}", [4, 5]),
        ("- step: 'foreach {a, b} in ${[{a: 1, b: 2}, {a: 3, b: 4}]}'\n  steps: ['return ${a + b}']\n"
         "- return ${output}", [3, 7]),
        ("- step: foreach x in 1..3\n  reducing: {sum: 0}\n  steps: ['let sum = ${sum + x}']\n"
         "- return ${sum} ${output.sum}", "6 6"),
        ("- step: foreach x in [a, b]\n  steps: ['return ${target_index}${x}']\n- return ${output}", ["0a", "1b"]),
        ("- type: workflow\n  steps:\n  - let x = 5\n  - return ${x}\n- return ${output} ${x ?? 'none'}", "5 none"),
        ("- type: workflow\n  input: {x: 7}\n  output: '${x + 1}'\n  steps: [no-op]\n- return ${output}", 8),
        ("- type: workflow\n  steps: [fail no]\n  on-error: [return saved]\n- return ${output}", "saved"),
        ("- type: workflow\n  target: 1..3\n  concurrency: all\n  steps: ['return ${target}']\n- return ${output}",
         [1, 2, 3]),
        ("- graph:\n    c: {needs: [a, b], step: 'return c'}\n    a: return a\n    b: {needs: a, step: return b}\n"
         "- return ${output.a}${output.b}${output.c}", "abc"),
    ],
)  # fmt: skip
def test_nested(text: str, output: Any) -> None:
    assert steps(text).output() == output


def test_concurrency_is_kept() -> None:
    world = World({})
    world.start(
        "steps:\n- step: foreach x in 1..10\n  concurrency: 3\n  steps: ['a.b x=${x}']\n- return ${size(output)}"
    )
    assert len(world.states["e1"].jobs) == 3
    world.work("e1", min(world.states["e1"].jobs))
    assert len(world.states["e1"].jobs) == 3
    assert world.run().output() == 10


def test_a_sequence_stops_at_the_first_failure_and_a_crowd_waits_for_all() -> None:
    def odd(given: Any) -> Any:
        if given["x"] in (2, 3):
            raise Boom(f"no {given['x']}")
        return given["x"]

    world = steps("- step: foreach x in 1..4\n  steps: ['a.b x=${x}']", None, {"a.b": odd})
    assert world.failure().message == "no 2"
    assert [given["x"] for _, _, given in world.ran] == [1, 2]
    world = steps("- step: foreach x in 1..4\n  concurrency: all\n  steps: ['a.b x=${x}']", None, {"a.b": odd})
    assert world.failure().message == "2 errors including: no 2"
    assert len(world.ran) == 4


def test_retry_of_a_loop_runs_only_what_failed() -> None:
    failing = flaky(1)

    def odd(given: Any) -> Any:
        return failing(given) if given["x"] == 2 else given["x"]

    text = """
- steps:
  - step: foreach x in 1..3
    concurrency: all
    steps:
    - {block: a.b, input: {x: '${x}'}, idempotent: yes}
  on-error: retry limit 2
- return ${output[0]} ${output[2]}
"""
    world = steps(text, None, {"a.b": odd})
    assert world.output() == "1 3"
    assert sorted(given["x"] for _, _, given in world.ran) == [1, 2, 2, 3]


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


# --- registered types ------------------------------------------------------------------------------
APT = """
id: apt-get
type: workflow
lock: apt
shorthand: ${package}
parameters:
  package: {description: package(s) to install}
steps:
- type: workflow
  lock: apt-package-management
  steps:
  - x.y command=${package}
output: installed ${package}
"""


def test_a_registered_type_is_a_step_with_its_own_short_form() -> None:
    world = World()
    world.start(
        f"{APT}---\nname: main\nsteps:\n- let package = outside\n- apt-get iputils-ping\n- return ${{output}}\n"
    )
    assert world.run().output() == "installed iputils-ping"
    assert world.ran == [("e1", "x.y command=${package}", {"command": "iputils-ping"})]
    assert [event.name for event in world.events(e.LockTaken)] == ["apt", "apt-package-management"]


def test_a_type_sees_only_its_parameters_and_checks_them() -> None:
    text = f"{APT}---\nname: main\nsteps:\n- {{type: apt-get, input: {{pakage: x}}}}\n"
    with pytest.raises(InvalidDefinition) as caught:
        World().start(text)
    assert {problem.code for problem in caught.value.problems} == {"HF0150", "HF0151"}
    hidden = "id: t\nsteps: ['log ${secret}']\n---\nname: main\nsteps:\n- let secret = 1\n- t\n"
    with pytest.raises(InvalidDefinition, match="secret"):
        World().start(hidden)


def test_what_is_stored_needs_nothing_else() -> None:
    from holdfast.language import canonical, program_from_bytes
    from holdfast.language.workflow import Text, load_workflows

    text = f"{APT}---\nid: two\nsteps:\n- apt-get one\n- apt-get two\n---\nname: main\nsteps: [two, apt-get three]\n"
    found = load_workflows([Text(text)])[-1]
    assert set(found.data["uses"]) == {"two", "apt-get"}
    assert set(found.data["uses"]["two"]["uses"]) == {"apt-get"}
    again = program_from_bytes(canonical(found.data))
    assert [step.label for step in again.steps] == [step.label for step in found.program.steps]


def test_a_workflow_called_like_a_step_does_not_replace_it() -> None:
    """Or publishing one named `retry` would break everybody's handlers."""
    text = "name: retry\nsteps: [return mine]\n---\nname: log\nsteps: [fail no]\n---\n"
    text += "name: main\nsteps:\n- {step: x.y, idempotent: yes, on-error: retry limit 2}\n"
    text += "- {type: log, message: hi}\n- invoke retry\n"
    world = World({"x.y": flaky(2)})
    world.start(text, name="main")
    assert world.run().output() == "mine"
    assert world.logs["e1"][-1] == "hi"


def test_types_that_use_each_other_are_refused() -> None:
    from holdfast.core.errors import InvalidDefinition

    with pytest.raises(InvalidDefinition, match="circle"):
        World().start("id: a\nsteps: [b]\n---\nid: b\nsteps: [a]\n---\nname: main\nsteps: [a]\n")
    with pytest.raises(InvalidDefinition, match="circle"):
        World().start("id: a\nsteps: [a]\n")


def test_invoke_runs_a_workflow_on_an_entity() -> None:
    text = "name: restart\ninputs: {force: boolean = false}\nsteps:\n- set-sensor state = ${force} on ${entity.id}\n"
    text += (
        "- return ${entity.id}\n---\nname: main\nsteps:\n- invoke restart on db1 with force=true\n- return ${output}\n"
    )
    world = World()
    world.start(text)
    assert world.run().output() == "db1"
    assert world.sensor_value("state", "db1") == "true on db1"


def test_repeating_after_a_pause_in_the_same_lane() -> None:
    """The lane had just been woken by a timer, and the repeated step sets none."""
    world = steps("""
- {step: let x = 1, delay: 1s}
- {step: 'let x = ${x} + 1', repeat: {times: 4}}
- return ${x}
""")
    assert world.output() == 5


OK = {"x.y": BlockOffer("x.y", idempotent=True)}


def test_a_timer_goes_with_the_step_it_was_for() -> None:
    """A retry, a replay or an exit leaves steps in the middle: what timed them must not end something else later."""
    for text in (
        "- step: workflow replayable from here\n- timeout: 10m\n  steps:\n"
        "  - {step: x.y, on-error: [retry replay limit 3]}\n",
        "- step: workflow replayable from here\n- timeout: 10m\n  steps:\n  - sleep 6m\n"
        "  - {step: x.y, on-error: [retry replay limit 3]}\n",
        "- step: x.y\n  on-error:\n  - {timeout: 10m, steps: [goto exit]}\n",
    ):
        world = World({"x.y": flaky(1)}, OK)
        world.start(f"steps:\n{text}- steps: [sleep 30m]\n- return ok")
        assert world.run().output() == "ok"
        assert not world.states["e1"].timers


def test_what_is_still_inside_goes_on_being_timed_after_a_replay() -> None:
    world = World({"x.y": flaky(9)}, OK)
    world.start(
        "steps:\n- timeout: 10m\n  steps:\n  - workflow replayable from here\n  - sleep 4m\n"
        "  - {step: x.y, on-error: [retry replay limit 9]}\n  on-error: ['return ${error.kind}']"
    )
    assert (world.run().output(), world.labels()) == ("timeout", ["x.y", "x.y"])


def test_a_loop_that_ran_out_of_fuel_goes_on_and_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret, "FUEL", 3)
    world = steps(
        "- let go = 1\n- step: foreach x in 1..20\n  concurrency: 15\n  delay: 1m\n"
        "  condition: {target: '${go}', equals: 1}\n  assert: '${go == 1}'\n"
        "  steps: [let y = 1, 'return ${x}']\n- let kept = ${output}\n- sleep 30m\n- return ${kept}"
    )
    assert world.output() == list(range(1, 21))
    assert world.now == 1_000_000_000 + 31 * 60_000_000
    assert not world.states["e1"].timers


@pytest.mark.parametrize(
    "more",
    ["- step: foreach z in 1..2\n  steps: [a.b]", "- step: workflow\n  steps: [a.b, a.b]", "- parallel: [a.b, a.b]",
     "- graph: {p: {step: a.b}, q: {step: a.b, needs: p}}"],
)  # fmt: skip
@pytest.mark.parametrize("fuel", [1, 2, 1000])
def test_lanes_of_a_handler_are_not_those_of_what_failed(more: str, fuel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`x.y` may not run twice: nobody but the step itself may wake its lanes again."""
    monkeypatch.setattr(interpret, "FUEL", fuel)
    failing = "steps:\n- step: foreach x in 1..3\n  concurrency: 3\n  steps: [x.y]\n"
    world = World({"x.y": flaky(2)})
    world.start(f"{failing}on-error:\n{more}\n- return handled\nfinally:\n{more}\n")
    assert world.run().output() == "handled"
    assert world.labels() == ["x.y"] * 3 + ["a.b"] * 4
    assert list(world.states["e1"].lanes) == [1]
    inside = World({"x.y": flaky(2)})
    body = "\n".join(f"    {line}" for line in more.splitlines())
    inside.start(f"steps:\n- steps:\n  - step: foreach x in 1..3\n    concurrency: 3\n    steps: [x.y]\n"
                 f"  on-error:\n{body}\n    - goto on\n- fail\n- label on\n- a.b\n- return done")  # fmt: skip
    assert inside.run().output() == "done"
    assert inside.labels() == ["x.y"] * 3 + ["a.b"] * 3


def test_a_retry_after_lanes_of_the_handler_runs_only_what_failed() -> None:
    world = World({"x.y": flaky(2)}, OK)
    world.start(
        "steps:\n- steps:\n  - step: foreach x in 1..3\n    concurrency: 3\n    steps: ['x.y x=${x}']\n"
        "  on-error:\n  - step: foreach z in 1..2\n    steps: [a.b]\n  - retry limit 2\n- return ok"
    )
    assert world.run().output() == "ok"
    assert [given and given["x"] for _, _, given in world.ran] == [1, 2, 3, None, None, 1, 2]


def test_resume_after_lanes_of_finally_runs_only_what_failed() -> None:
    world = World({"x.y": flaky(2)}, OK)
    world.start("steps:\n- step: foreach x in 1..3\n  concurrency: 3\n  steps: ['x.y x=${x}']\n- return ok\n"
                "finally:\n- parallel: [a.b, a.b]")  # fmt: skip
    world.run()
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == "ok"
    assert [given and given["x"] for _, _, given in world.ran] == [1, 2, 3, None, None, 1, 2, None, None]


def test_resume_is_refused_at_a_handlers_step_that_may_not_run_twice() -> None:
    world = World({"x.y": flaky(3), "b.c": flaky(1)}, OK)
    world.start("steps:\n- step: foreach x in 1..3\n  steps: [x.y]\non-error: [b.c, return ok]")
    world.run()
    with pytest.raises(CannotResume, match="may not run twice"):
        world.ask("e1", r.ResumeExecution())


@pytest.mark.parametrize("fuel", [1, 2, 3, 1000])
def test_a_step_that_is_entered_again_is_not_asked_its_condition_whatever_the_fuel(
    fuel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpret, "FUEL", fuel)
    world = World({"x.y": flaky(1)}, OK)
    world.start("steps:\n- let k = 3\n- {step: x.y, condition: '${k} == 3', on-error: [let k = 4, retry limit 2]}\n"
                "- {step: 'let n = ${n ?? 0} + 1', repeat: {times: 3}, condition: {target: '${n ?? 0}', equals: 0}}\n"
                "- return ${n} ${k}")  # fmt: skip
    assert (world.run().output(), world.labels()) == ("3 4", ["x.y", "x.y"])


def test_resume_does_not_ask_the_workflows_condition_again() -> None:
    world = World({"x.y": flaky(1)}, OK)
    world.start("condition: {target: '${entity.sensor.s ?? 1}', equals: 1}\nsteps:\n- set-sensor s = 2\n- x.y\n"
                "- return ok")  # fmt: skip
    world.run()
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == "ok"


def test_every_passage_by_repeat_is_a_visit_of_its_own() -> None:
    for pause in ("", ", delay: 5s"):
        world = World({}, OK)
        world.start(f"steps:\n- {{step: x.y, repeat: {{times: 3{pause}}}}}")
        world.run()
        assert [event.visit for event in world.events(e.JobScheduled)] == [1, 2, 3]


def test_what_took_too_long_may_be_tried_again_if_it_may_run_twice() -> None:
    world = steps("- {step: sleep 10m, timeout: 1m, on-error: [retry limit 2]}")
    assert (world.failure().kind, world.now) == ("retries-exceeded", 1_000_000_000 + 3 * 60_000_000)
    world = steps("- {step: wait-signal go, timeout: 1m}\n- return ok")
    world.ask("e1", r.ResumeExecution())
    world.ask("e1", r.SendSignal("go"))
    assert world.run().output() == "ok"
    inside = steps("- {steps: [no-op, sleep 10m], timeout: 1m, on-error: [retry limit 2]}")
    assert (inside.failure().kind, inside.now) == ("retries-exceeded", 1_000_000_000 + 3 * 60_000_000)


@pytest.mark.parametrize(("offers", "kind"), [(OK, "retried"), ({}, "no-waypoint")])
@pytest.mark.parametrize("text", ["{steps: [x.y], timeout: 1m, %s}", "{parallel: [x.y], timeout: 1m, %s}"])
@pytest.mark.parametrize("ends", ["answer", "fail", "lose"])
def test_a_job_that_was_stopped_in_time_is_tried_again_only_if_it_may_run_twice(
    offers: dict[str, BlockOffer], kind: str, text: str, ends: str
) -> None:
    world = World({}, offers)
    world.start(f"steps:\n- {text % 'on-error: [retry limit 2]'}\n- return retried")
    attempt = world.claim("e1", 1)
    world.run(until=world.now + 120_000_000)
    assert world.states["e1"].jobs[1].is_stopping
    if ends == "answer":
        world.ask("e1", r.CompleteJob(1, attempt, 5))
    elif ends == "fail":
        world.ask("e1", r.FailJob(1, attempt, Failure("stopped", "told to"), is_cancelled=True))
    else:
        world.lose("e1", 1)
    world.run()
    if kind == "retried":
        assert world.output() == "retried"
    else:
        assert world.failure().kind == kind


def test_a_timeout_between_the_end_of_a_body_and_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.start("steps:\n- {steps: [a.b], timeout: 1m, on-error: ['return ${error.kind}']}\n- return late")
    (timer,) = world.states["e1"].timers
    with monkeypatch.context() as patch:
        patch.setattr(interpret, "FUEL", 0)
        world.step()
    assert world.states["e1"].lanes[1].wait is Wait.TURN
    world.now += 60_000_000
    world.ask("e1", r.FireTimer(timer))
    assert world.run().output() == "timeout"


# --- what `if`, `goto` and `retry` are written with ---------------------------------------------------
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("- let x = 2\n- if ${x == 2} then return a\n- return no", "a"),
        ("- let x = 2\n- if: ${x == 3}\n  steps: [return a]\n  else: [return b]", "b"),
        ("- let x = 2\n- if ${x} < 3 then return a\n- return no", "a"),
        ("- let x = 2\n- if ${x} == 2 && ${x} > 3 then return a\n- return no", "no"),
        ("- let x = 2\n- {type: if, condition: {target: '${x}', less-than: 3}, steps: [return a]}\n- return no", "a"),
        ("- {type: goto, next: z}\n- return no\n- {id: z, step: return z}", "z"),
        ("- let c = true\n- let x = ${c} ? 1 : 2\n- return ${x}", 1),
    ],
)
def test_tests_and_places_in_every_form(text: str, output: Any) -> None:
    assert steps(text).output() == output


def test_where_a_long_retry_goes_is_its_next() -> None:
    text = "- {id: a, step: log go}\n- step: x.y\n  on-error: {type: retry, replay: force, next: a, limit: 2}"
    world = steps(text, None, {"x.y": flaky(9)})
    assert world.logs["e1"] == ["go"] * 3
    assert world.failure().kind == "retries-exceeded"


def test_an_error_thrown_again_is_not_its_own_cause() -> None:
    failure = steps("- {step: fail message x, on-error: fail rethrow}").failure()
    assert (failure.message, failure.cause) == ("x", None)


def test_values_for_inputs_that_are_not_given() -> None:
    world = play("inputs: {a: integer, b: string}\ninput: {a: 3}\nsteps: ['return ${a} ${input.b}']", {"b": "x"})
    assert world.output() == "3 x"


# --- filters that do something to the workflow -------------------------------------------------------
def test_filters_set_variables_return_and_merge_words() -> None:
    assert steps("- transform value hello | to_upper_case | set z\n- let output = 1\n- return ${z}").output() == "HELLO"
    assert steps("- transform value 5 | return\n- return 6").output() == 5
    text = "- let a = {x: 1}\n- let b = {y: 2}\n- transform c = ${a} ${b} | merge map\n- return ${c}"
    assert steps(text).output() == {"x": 1, "y": 2}
    assert steps("- transform value [1, 2, 3] | sum\n- return ${output}").output() == 6


def test_the_filter_wait_waits_for_a_sensor() -> None:
    world = World()
    world.start("steps:\n- transform x = ${entity.sensor.ip} | wait | to_upper_case\n- return ${x}")
    world.run()
    assert world.states["e1"].status is Status.RUNNING
    world.start("steps: [set-sensor ip = abc]", id="e2")
    world.run()
    assert world.output("e1") == "ABC"


def test_globs_look_at_numbers_as_regular_expressions_do() -> None:
    text = "- let x = 42\n- {step: return yes, condition: {target: '${x}', glob: '4*'}}\n- return no"
    assert steps(text).output() == "yes"


GREET = """
name: greet
parameters: {who: string, word: {type: string, default: hello}, n: {type: integer, default: 0}}
steps: ['return ${word} ${who} ${n}']
---
name: main
steps:
"""


@pytest.mark.parametrize(
    ("step", "output"),
    [
        ("- invoke greet with who=al n=3", "hello al 3"),
        ("- 'invoke greet with who=al, word=\"two words\", n: 3'", "two words al 3"),
        ("- invoke greet with who: al", "hello al 0"),
        ("- invoke greet with who=a,b n=4", "hello a,b 4"),
        ('- invoke greet with who="a, b" , n=4', "hello a, b 4"),
    ],
)
def test_arguments_of_what_is_invoked(step: str, output: str) -> None:
    world = World()
    world.start(GREET + step, name="main")
    assert world.run().output() == output


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        ("- invoke greet with who=a whoo=b", "HF0150", "`greet` has no parameter `whoo`"),
        ("- {type: greet, input: {word: b}}", "HF0151", "`greet` needs its parameter `who`"),
        ("- {type: greet, input: {who: b}, target: 1..3}", "HF0102", "unknown key `target` in a `greet` step"),
    ],
)
def test_arguments_are_checked_with_the_file(step: str, code: str, message: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        World().start(GREET + step, name="main")
    assert [(each.code, each.message) for each in caught.value.problems] == [(code, message)]


def test_a_node_reads_what_it_needs() -> None:
    text = """
- graph:
  - {id: a-b, step: return 5}
  - {id: c, needs: a-b, steps: [sleep 1s, 'return ${a-b + 1}']}
  - {id: d, needs: [a-b, c], step: 'return ${a-b + c}'}
"""
    assert steps(text).output() == {"a-b": 5, "c": 6, "d": 11}


def test_a_retry_without_limit_does_not_remember_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.lanes.MAX_RETRIES", 20)
    world = World({"x.y": flaky(50)}, OK)
    world.start("steps:\n- {step: x.y, on-error: [retry backoff 1s]}\n- sleep 1s\n- return ok")
    world.run(until=world.now + 50_500_000)
    (times,) = world.states["e1"].lanes[1].retries.values()
    assert (len(times), times[0], times[-1]) == (20, 1_000_000_000, 1_049_000_000)
    assert world.run().output() == "ok"


@pytest.mark.parametrize(("word", "text"), [("blank", "a-b"), ("ignore", "a-${nope.x}b")])
def test_absent_values_in_texts_of_let(word: str, text: str) -> None:
    long = f"- {{type: let, variable: x, value: ['a-${{nope.x}}b'], interpolation-errors: {word}}}\n- return ${{x[0]}}"
    short = f"- {{step: 'let x = a-${{nope.x}}b', interpolation-errors: {word}}}\n- return ${{x}}"
    assert steps(long).output() == steps(short).output() == text


@pytest.mark.parametrize(
    ("text", "code", "help"),
    [
        ("- {step: log a, condition: yes}", "HF0127", "write `true`"),
        ("- {step: log a, steps: [log b]}", "HF0102", "a step does one thing"),
    ],
)
def test_what_is_easily_mistaken_is_told(text: str, code: str, help: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        steps(text)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert help in problem.help


def test_finally_of_a_workflow_does_not_lead_back_into_it() -> None:
    with pytest.raises(InvalidDefinition, match="no step `z`"):
        play("finally: [goto z]\nsteps: [return 1, label z]")
    assert play("finally: [goto z, fail no, {id: z, step: log z}]\nsteps: [return 1]").output() == 1


@pytest.mark.parametrize("way", ["goto ${t}", "goto start"])
def test_no_jump_leads_from_the_last_cleanup_back_into_the_steps(way: str) -> None:
    world = play(f"steps: [let t = z, label z, return 1]\nfinally: ['{way}']\n")
    assert world.failure().kind == "no-such-step"


@pytest.mark.parametrize("key", ["idempotent: no", "replayable: disabled"])
def test_a_nested_workflow_that_is_not_to_be_entered_again_is_not(key: str) -> None:
    text = "- steps:\n  - type: workflow\n    {}\n    steps: [x.y]\n  on-error: retry limit 3\n- return ok"
    world = World({"x.y": flaky(1)}, OK)
    world.start("steps:\n" + text.format("name: n"))
    assert world.run().output() == "ok"
    world = World({"x.y": flaky(1)}, OK)
    world.start("steps:\n" + text.format(key))
    assert world.run().failure().kind == "no-waypoint"
