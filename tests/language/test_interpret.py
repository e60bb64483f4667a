"""The interpreter: what steps do, how little is written, and that nothing is lost between calls."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import program as p
from holdfast.core.codec import pack
from holdfast.core.folding import fold
from holdfast.core.lanes import Op
from holdfast.core.model import BlobRef, Failure, Level, Status, Wait
from holdfast.core.reads import BlobKey, Missing, TooLong
from holdfast.core.state import open_state
from holdfast.language.interpret import FUEL

from .player import Player, play


def echo(given: Any) -> Any:
    return {"stdout": given["command"], "exit_code": 0}


# --- steps -----------------------------------------------------------------------------------------
def test_a_walk_through_every_step() -> None:
    text = """
name: walk
inputs: {host: string, n: integer = 2}
steps:
- let x = ${n} + 1
- log starting ${host} with ${x}
- id: one
  step: shell uname ${host}
- let who = ${stdout}
- sleep 5s
- step: no-op
  output: {answer: "${who}"}
- parallel:
  - {id: left, step: shell left}
  - id: right
    steps:
    - let x = 10
    - sleep 1s
    - return ${x}
- wait-signal go
- 'return {x: ${x}, one: ${steps.one.output.stdout}, signal: ${output.v}}'
"""
    player = Player(text, {"host": "h1"}, {"shell": echo}).run()
    assert player.state.lanes[1].wait is Wait.SIGNAL
    player.signal("go", {"v": 1})
    assert player.output == {"x": 3, "one": "uname h1", "signal": 1}
    assert player.logs == ["starting h1 with 3"]
    assert player.ran == [("one", {"command": "uname h1"}), ("left", {"command": "left"})]
    rebuilt = open_state("e1")
    for events in player.history:
        fold(rebuilt, 1, events)
    assert rebuilt.output == player.state.output


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ("- let x = 1\n- let x = ${x} + 1\n- return ${x}", 2),
        ("- let integer x = '7'\n- return ${x}", 7),
        ("- let output = 5\n- log hi", 5),
        ("- {id: a, step: let output = 5}\n- let output = 6\n- return ${steps.a.output}", 5),
        ("- return no", "no"),
        ("- return 5", 5),
        ("- return '5'", "5"),
        ("- return: {a: [1, '${workflow.name}']}", {"a": [1, "workflow"]}),
        ("- return ${workflow.id} ${workflow.version}", "e1 1"),
        ("- {return: '${a}', input: {a: 1, b: 2}}", 1),
        ("- let a = 9\n- {return: '${a}${b}', input: {a: '${a}', b: '${a}'}}", "99"),
        ("- {return: '${c}', input: {a: '${b}', b: 1, c: '${a}'}}", 1),
        ("- {return: 1, condition: '${a} == 2', input: {a: '${b + 1}', b: 1}}", 1),
        ("- {return: 1, condition: '${nope} != null', input: {a: '${nope.x ?? 1}'}}\n- return 2", 2),
        ("- {step: sleep 1s, input: {a: 5}, output: '${a}'}", 5),
        ("- {step: shell x, input: {a: 5}, output: '${command} ${a}'}", "x 5"),
        ("- sleep 0s\n- return done", "done"),
        ("- let d = 5s\n- sleep ${d}\n- return ok", "ok"),
        ("- {return: 1, condition: false}\n- return 2", 2),
        ("- {step: return 1, output: '${output + 1}'}", 2),
        ("- no-op", None),
        ("- {step: no-op, output: 3}\n- let y = ${output}\n- return ${y}", 3),
        ("- let x =  a   b ", "unset"),
    ],
)
def test_outputs(steps: str, output: Any) -> None:
    if output == "unset":
        assert play(f"steps:\n{steps}\n- return ${{x}}").output == "a   b"
    else:
        assert play(f"steps:\n{steps}").output == output


def test_the_workflow_output_is_evaluated_at_the_end() -> None:
    assert play("steps:\n- let x = 2\n- return 5\noutput: {x: '${x}', last: '${output}'}").output == {"x": 2, "last": 5}


def test_plain_names_look_into_input_variables_output_and_workflow_input() -> None:
    text = """
inputs: {a: string, b: string, c: string, d: string}
steps:
- let b = var
- let c = var
- block: x.y
- step: return ${a} ${b} ${c} ${d}
  input: {c: step}
"""
    result = {"a": "out", "b": "out", "c": "out"}
    player = play(text, dict.fromkeys("abcd", "in"), {"x.y": lambda _: result})
    assert player.output == "out var step in"


def test_log_levels_and_json() -> None:
    player = play("steps:\n- {log: '${[1, {a: null}]}', level: warning}\n- log null is ${string(null)}")
    assert player.logs == ['[1,{"a":null}]', "null is null"]
    advance = player.calls[0][0]
    assert isinstance(advance, p.Advance)
    assert [line.level for line in advance.logs] == [Level.WARNING, Level.INFO]


@pytest.mark.parametrize(
    ("steps", "kind", "code", "message", "step"),
    [
        ("- fail message out of ${1 + 1} disks", "fail", "", "out of 2 disks", "fail message out of ${1 + 1} disks"),
        ("- fail", "fail", "", "step fail failed", "fail"),
        ("- {id: a, fail: no, value: {x: 1}}", "fail", "", "no", "a"),
        ("- let x = 1\n- {id: b, step: 'let y = ${x.z}'}", "expression-error", "HF0160",
         "an integer has no `z` (in `${x.z}`)", "b"),
        ("- let x = a\n- let y = 1 + ${int(x)}", "expression-error", "HF0160", "(at `int(x)` in `1 + ${int(x)}`)",
        "let y = 1"),
        ("- let x = a\n- let integer y = ${x}", "expression-error", "HF0160", "is not an integer", "let integer y"),
        ("- let d = soon\n- sleep ${d}", "expression-error", "HF0114", "not a duration", "sleep ${d}"),
        ("- let d = {}\n- log a ${d}", "expression-error", "HF0160", "a map cannot be put into a text", "log a"),
        ("- shell a\n- step: shell b\n  output: ${output.zzz}", "expression-error", "HF0160", "there is no `zzz`",
        "shell b"),
        ("- log ${steps.a.output}\n- {id: a, step: no-op}", "expression-error", "HF0160", "step `a` is absent", "log"),
    ],
)  # fmt: skip
def test_failures_name_kind_code_and_step(steps: str, kind: str, code: str, message: str, step: str) -> None:
    player = play(f"steps:\n{steps}")
    assert (player.failure.kind, player.failure.code) == (kind, code)
    assert message in player.failure.message
    assert player.state.failed_step.startswith(step)
    assert player.state.lanes[1].wait is Wait.STOPPED
    failed = player.program.workflow.bodies[-1, 0][player.state.lanes[1].frames[0].position]
    assert failed.label == player.state.failed_step


def test_a_failed_job_fails_the_workflow_and_leaves_the_lane_where_it_stood() -> None:
    player = Player("steps:\n- {id: a, step: shell x}\n- shell y")
    failure = Failure("block-error", "boom")
    *_, fail = player.break_job(1, failure)
    assert isinstance(fail, p.Fail)
    assert (fail.failure.kind, fail.failure.message, fail.step) == ("block-error", "boom", "a")
    assert player.state.lanes[1].failure == fail.failure
    assert player.state.lanes[1].frames[-1].position == 0


# --- how little is written -------------------------------------------------------------------------
def test_a_step_of_a_plain_sequence_is_one_small_advance_and_one_job() -> None:
    player = Player("steps:\n" + "- shell x\n" * 4)
    assert player.calls[0] == [
        p.Advance(1, ((Op.WAIT, Wait.JOB),)),
        p.ScheduleJob(1, 0, 0, {"command": "x"}),
    ]
    assert player.finish(1, {"a": 1}) == [
        p.Advance(1, ((Op.RESULT, 1, ""), (Op.MOVE, 1))),
        p.ScheduleJob(1, 1, 0, {"command": "x"}),
    ]
    assert len(pack(player.history[-1])) < 50
    player.finish(2)
    player.finish(3)
    assert player.finish(4, {"last": 1}) == [p.Complete({"last": 1})]


def test_references_pass_through_without_being_read() -> None:
    text = "steps:\n- a.b\n- a.b whole=${output}\n- {block: a.b, input: {deep: {inside: '${output}'}}}\n- log done\n"
    player = Player(text)
    big = {"text": "x" * 5000}
    for job in (1, 2):
        player.finish(job, big)
    assert isinstance(player.state.jobs[3].input["deep"]["inside"], BlobRef)
    assert player.reads.loads == 0
    player.finish(3, big)
    assert isinstance(player.state.output, BlobRef)
    assert player.reads.loads == 0


def test_references_are_read_where_they_are_used() -> None:
    text = """
inputs: {big: map}
steps:
- {id: a, step: a.b}
- let copy = ${steps.a.output}
- parallel: [a.b, a.b]
- let both = ${size(output[0].text) + size(output[1].text) + size(copy.text)}
- let list = ${[copy.text]}
- return ${both + size(input.big.text) + size(list[0])}
"""
    player = play(text, {"big": {"text": "y" * 3000}}, {"a.b": lambda _: {"text": "x" * 2000}})
    assert player.output == 3 * 2000 + 3000 + 2000


def test_missing_rows_propagate() -> None:
    player = Player("steps:\n- a.b\n- log ${output.text}")

    class Nothing:
        def load(self, execution: str, value: Any) -> Any:
            raise Missing(BlobKey(execution, value.digest))

        def keep(self, execution: str, value: Any) -> Any:
            return value

    cause = p.JobEnded(1, 1, 0, BlobRef(b"0" * 16, 2000))
    with pytest.raises(Missing):
        player.program.advance(player.state, cause, 1, Nothing())  # type: ignore[arg-type]


def test_too_long_values_fail_the_step() -> None:
    player = Player("steps:\n- a.b\n- {id: big, step: 'let x = ${output}'}")

    class Full:
        def load(self, execution: str, value: Any) -> Any:
            return value

        def keep(self, execution: str, value: Any) -> Any:
            raise TooLong("longer than 2 MiB")

    commands = player.program.advance(player.state, p.JobEnded(1, 1, 0, {"x": 1}), 1, Full())  # type: ignore[arg-type]
    assert commands[-1] == p.Fail(Failure("value-too-large", "longer than 2 MiB", code="HF0701", step="big"), "big")


# --- branches --------------------------------------------------------------------------------------
def test_branches_run_side_by_side_and_gather_in_order() -> None:
    text = "steps:\n- parallel: [shell a, [shell b, shell c], {steps: [no-op]}]\n- return ${output}\n"
    player = Player(text, None, {"shell": echo})
    assert sorted(player.state.jobs) == [1, 2]
    assert [lane.wait for lane in player.state.lanes.values()] == [Wait.LANES, Wait.JOB, Wait.JOB]
    player.finish(2, "b")
    player.finish(1, "a")
    player.finish(3, "c")
    assert player.output == ["a", "c", None]


def test_branches_read_around_them_and_keep_what_they_set() -> None:
    text = """
steps:
- let x = 1
- {id: before, step: let output = 7}
- parallel:
  - id: a
    steps: [let x = 2, sleep 1s, "return ${x} ${steps.before.output} ${output}"]
  - id: b
    steps:
    - sleep 2s
    - parallel: ["return ${x}", "return ${vars.x + 1}"]
- return: {x: "${x}", both: "${output}"}
"""
    assert play(text).output == {"x": 1, "both": {"a": "2 7 7", "b": [1, 2]}}


def test_branches_that_never_wait_are_over_in_one_call() -> None:
    text = """
steps:
- id: p
  parallel: [{id: a, step: return 1}, {id: b, step: return 2}]
- parallel: ["return ${steps.p.output.a}", return 5]
- return ${sum(output)}
"""
    player = Player(text)
    assert player.output == 6
    assert len(player.calls) == 1


def test_a_second_barrier_does_not_see_results_of_the_first() -> None:
    text = "steps:\n- parallel: [shell a, shell b, shell c]\n- parallel: [return 1]\n- return ${output}\n"
    player = Player(text)
    for job in (1, 2, 3):
        player.finish(job, job)
    assert player.output == [1]


def test_output_and_id_of_a_barrier() -> None:
    text = """
steps:
- id: p
  parallel: [shell a, shell b]
  output: {first: "${output[0].stdout}"}
- return ${steps.p.output.first} ${first}
"""
    assert play(text, None, {"shell": echo}).output == "a a"


def test_a_failing_branch_fails_the_workflow_after_the_others() -> None:
    player = Player("steps:\n- parallel: [shell a, fail now, shell c]")
    assert player.state.lanes[1].open == 2
    player.run()
    assert player.failure.message == "now"
    assert [type(command) for command in player.calls[-1]][-1] is p.Fail


def test_wide_barriers_cost_the_same_per_branch() -> None:
    def ops(width: int) -> int:
        player = Player("steps:\n- parallel:\n" + "  - shell x\n" * width)
        before = player.reads.keeps
        commands = player.finish(1, {"a": 1})
        assert len(commands) == 1
        return player.reads.keeps - before

    assert ops(10) == ops(400)


# --- signals, timers, turns ------------------------------------------------------------------------
def test_signals_that_came_early_are_kept() -> None:
    player = Player("steps:\n- shell a\n- wait-signal go\n- {id: s, step: wait-signal go}\n- return ${steps.s.output}")
    assert player.signal("go", 1) == []
    assert player.signal("other", 9) == []
    player.finish(1)
    assert player.state.lanes[1].signal == "go"
    assert player.state.signals == [("other", 9)]
    player.signal("go", 2)
    assert player.output == 2


def test_one_signal_wakes_one_lane() -> None:
    player = Player("steps:\n- parallel: [wait-signal go, wait-signal go]\n- return ${output}")
    player.signal("go", "a")
    assert player.state.lanes[1].open == 1
    player.signal("go", "b")
    assert player.output == ["a", "b"]


def test_a_signal_is_not_taken_twice_in_one_call() -> None:
    player = Player("inputs: {n: string}\nsteps:\n- wait-signal ${n}\n- wait-signal ${n}\n- no-op", {"n": "go"})
    player.signal("go", "a")
    assert player.state.lanes[1].wait is Wait.SIGNAL
    player.signal("go", "b")
    assert player.output == "b"


def test_sleeping_sets_one_absolute_deadline() -> None:
    player = Player("steps:\n- sleep 1h30m\n- return ok")
    assert player.calls[0][-1] == p.SetTimer(1, 1_000_000 + 5_400_000_000)
    player.fire()
    assert player.output == "ok"


def test_ten_thousand_internal_steps_take_about_ten_calls() -> None:
    player = play("steps:\n- let x = 0\n" + "- let x = ${x} + 1\n" * 9_999 + "- return ${x}\n")
    assert player.output == 9_999
    assert len(player.calls) <= 12
    assert max(len(call) for call in player.calls) <= 2


def test_lanes_share_the_fuel() -> None:
    body = "      - let x = 1\n" * 700
    text = "steps:\n- parallel:\n" + "".join(f"  - id: b{i}\n    steps:\n{body}" for i in range(4)) + "- return done\n"
    player = Player(text)
    assert isinstance(player.calls[0][-1], p.TakeAnotherTurn)
    positions = [lane.frames[0].position for id, lane in player.state.lanes.items() if id > 1]
    assert len(positions) == 4
    assert max(positions) - min(positions) <= 100
    assert FUEL - 100 <= sum(positions) <= FUEL
    assert player.run().output == "done"


def test_a_turn_is_asked_for_once() -> None:
    text = "steps:\n- parallel:\n  - id: a\n    steps:\n" + "    - let x = 1\n" * 2000
    text += "  - id: b\n    steps:\n    - shell x\n" + "    - let x = 1\n" * 2000
    player = Player(text)
    assert player.state.is_turn_open
    commands = player.finish(1)
    assert not any(isinstance(command, p.TakeAnotherTurn) for command in commands)
    assert player.run().state.status is Status.COMPLETED


def test_heavy_expressions_count_as_many_steps() -> None:
    text = "inputs: {big: list}\nsteps:\n" + "- let x = ${sum(input.big) + sum(input.big)}\n" * 20 + "- return ${x}"
    player = play(text, {"big": list(range(20_000))})
    assert len(player.calls) > 1
    assert player.output == 2 * sum(range(20_000))


def test_values_cannot_grow_without_end() -> None:
    text = "steps:\n- let x = abcdefgh\n" + "- let x = ${x + x}\n" * 40
    assert play(text).failure.code == "HF0161"
    text = "steps:\n- let x = abcdefgh\n" + "- let x = ${[x, x]}\n" * 40
    assert play(text).failure.code == "HF0161"
