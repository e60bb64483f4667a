"""From step to step: jumps, blocks of steps, cleanups, and how they are written — through the real core."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.errors import CannotResume, InvalidDefinition
from holdfast.core.model import BlockOffer, Failure, Status, Wait
from holdfast.language import interpret

from .world import World, flaky, play, steps


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
