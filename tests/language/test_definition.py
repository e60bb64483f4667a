"""What can be written, and what is said about what cannot: codes, places, suggestions, all at once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import BlockOffer, Problem, Retry
from holdfast.language import PROBLEMS, compile_definition, load_workflow, render, summary
from holdfast.language.compiled import Step

from .player import Player, play, program


def told(text: str) -> list[Problem]:
    """Everything that is said about a file, warnings included."""
    try:
        return load_workflow(text, "f.yaml")[2]
    except InvalidDefinition as refused:
        return list(refused.problems)


def marked(problem: Problem) -> str:
    """What the caret stands under."""
    return problem.source[problem.column - 1 : problem.column - 1 + problem.width]


#: text → code, what is underlined, a part of the help
CASES: list[tuple[str, str, str, str]] = [
    ("steps: [no-op]\nstpes: 1", "HF0102", "stpes", "did you mean `steps`?"),
    ("steps:\n- step: shell ls\n  id: precheck\n  tiemout: 5s", "HF0102", "tiemout", "did you mean `timeout`?"),
    ("steps:\n- step: shell ls\n  lock: x", "HF0102", "lock", "`type: workflow` with `lock` and `steps`"),
    ("steps:\n- step: shell ls\n  command: x", "HF0102", "command", "input: {command: …}"),
    ("steps:\n- shell: ls\n  retry: {attemps: 2}", "HF0102", "attemps", "attempts"),
    ("steps:\n- step: no-op\n  on-eror: x", "HF0102", "on-eror", "did you mean `on-error`?"),
    ("steps:\n- logg: hi", "HF0102", "logg", "did you mean `log`?"),
    ("steps:\n- shell: a\n  timeout: 1s\n  timeOut: 2s", "HF0103", "timeOut", ""),
    ("steps: 3", "HF0108", "3", ""),
    ("steps:\n- 3", "HF0108", "3", ""),
    ("steps:\n- 5", "HF0108", "5", ""),
    ("inputs: [a]\nsteps: [no-op]", "HF0108", "[a]", ""),
    ("uses: x\nsteps: [no-op]", "HF0108", "x", ""),
    ("steps:\n- transform x = ${a §} ${b} | merge map", "HF0120", "§", ""),
    ("steps:\n- shell: [a]", "HF0108", "[a]", ""),
    ("steps:\n- step: shell ls\n  input: 3", "HF0108", "3", ""),
    ("steps:\n- step: no-op\n  name: 5", "HF0108", "5", ""),
    ("steps:\n- parallel: x", "HF0108", "x", ""),
    ("name: x", "HF0109", "n", "steps"),
    ("steps: []", "HF0109", "[]", ""),
    ("steps:\n- sleep", "HF0109", "sleep", "sleep 1h30m"),
    ("steps:\n- let x", "HF0109", "let x", ""),
    ("steps:\n- id: a", "HF0109", "i", "step:"),
    ("steps:\n- parallel: []", "HF0109", "[]", ""),
    ("steps:\n- step: let\n  value: 3", "HF0109", "s", ""),
    ("steps:\n- slep 5s", "HF0110", "slep", "did you mean `sleep`?"),
    ("steps:\n- lgo", "HF0110", "lgo", "did you mean `log`?"),
    ("steps:\n- reconcile x", "HF0110", "reconcile", "not yet"),
    ("steps:\n- goto nowhere", "HF0123", "nowhere", ""),
    ("steps:\n- {id: there, step: no-op}\n- goto their", "HF0123", "their", "did you mean `there`?"),
    ("steps:\n- graph: {a: {needs: b, step: no-op}, b: {needs: a, step: no-op}}", "HF0137", "g", ""),
    ("steps:\n- type: foo", "HF0110", "foo", "block: NAME"),
    ("steps:\n- no-op now", "HF0111", "now", "takes nothing"),
    ("steps:\n- net.backup now", "HF0111", "now", "key=value"),
    ("steps:\n- let a b c", "HF0111", "a b c", "let [${variable.type}]"),
    ("steps:\n- parallel a b", "HF0111", "parallel", "parallel:"),
    ("steps:\n- {id: a, step: no-op}\n- {id: a, step: no-op}", "HF0112", "a", ""),
    ("steps:\n- id: Start\n  step: no-op", "HF0113", "Start", ""),
    ("steps:\n- id: a.b\n  step: no-op", "HF0113", "a.b", ""),
    ("steps:\n- let workflow = 1", "HF0113", "workflow", ""),
    ("steps:\n- let 1a = 1", "HF0113", "1", ""),
    ("inputs: {1a: string}\nsteps: [no-op]", "HF0113", "1a", ""),
    ("steps:\n- sleep 5", "HF0114", "5", "5s"),
    ("steps:\n- sleep: soon", "HF0114", "soon", "5s"),
    ("steps:\n- shell: ls\n  timeout: 1 fortnight", "HF0114", "1 fortnight", ""),
    ("steps:\n- step: log a\n  type: log", "HF0115", "type", ""),
    ("steps:\n- step: log a\n  message: b", "HF0115", "message", ""),
    ("steps:\n- step: shell a\n  input: {command: b}", "HF0115", "command", ""),
    ("steps:\n- {log: a, sleep: 5s}", "HF0115", "sleep", ""),
    ("inputs: {a: strin}\nsteps: [no-op]", "HF0116", "strin", "one of string"),
    ("inputs: {a: {type: integer, default: x}}\nsteps: [no-op]", "HF0116", "x", ""),
    ("steps:\n- log: a\n  level: loud", "HF0116", "loud", "debug"),
    ("steps:\n- shell: a\n  idempotent: maybe", "HF0116", "maybe", ""),
    ("steps:\n- shell: a\n  retry: 0", "HF0116", "0", ""),
    ("steps:\n- shell: a\n  retry: {jitter: 7}", "HF0116", "7", ""),
    ("steps:\n- let integer x = abc", "HF0116", "abc", ""),
    ("steps:\n- let wat x = abc", "HF0116", "wat", ""),
    ("steps:\n- log ${1 +}", "HF0120", "}", "$${"),
    ("steps:\n- log ${a", "HF0120", "${", "$${"),
    ("steps:\n- shell echo ${HOME:-x}", "HF0120", ":", "$${"),
    ("inputs: {host: string}\nsteps:\n- log ${hots}", "HF0121", "hots", "did you mean `host`?"),
    ("inputs: {host: string}\nsteps:\n- log ${input.hots}", "HF0121", "input.hots", "host"),
    ("steps:\n- let version = 1\n- log ${vars.verzion}", "HF0121", "vars.verzion", "version"),
    ("steps:\n- log ${workflow.nam}", "HF0121", "workflow.nam", "name"),
    ("steps:\n- log ${vars}", "HF0121", "vars", ""),
    ("steps:\n- log ${who}", "HF0121", "who", "inputs:"),
    ("steps:\n- log ${entity}", "HF0121", "entity", "sensor"),
    ("steps:\n- log ${entity.nme}", "HF0121", "entity.nme", "name"),
    ("steps:\n- log ${entity.count}", "HF0121", "entity.count", "entity.sensor.count"),
    ("steps:\n- log ${entity.sensor}", "HF0121", "entity.sensor", "behind it"),
    ("steps:\n- log ${error.message}", "HF0121", "error", "on-error"),
    ("steps:\n- log ${workflow.error}", "HF0121", "workflow.error", "on-error"),
    ("steps:\n- log ${workflow.util.nwo}", "HF0121", "workflow.util.nwo", "now"),
    ("steps:\n- log ${workflow.util}", "HF0121", "workflow.util", "now_iso"),
    ("steps:\n- log ${workflow.var.x}", "HF0121", "workflow.var.x", ""),
    ("inputs: {}\nsteps:\n- log ${workflow.input.x}", "HF0121", "workflow.input.x", ""),
    ("steps:\n- log ${workflow.step.x.output}", "HF0123", "workflow.step.x.output", ""),
    ("steps:\n- log ${workflow.step}", "HF0121", "workflow.step", "behind it"),
    ("steps:\n- log ${entity.sensor[nope]}", "HF0121", "nope", ""),
    ("steps:\n- log ${size}", "HF0121", "size", "size(…)"),
    ("steps:\n- log ${matches('a', 'x(?=y)')}", "HF0120", "(?=", ""),
    ("steps:\n- log ${siz('a')}", "HF0122", "siz", "size"),
    ("steps:\n- log ${size(1, 2)}", "HF0122", "size(1, 2)", "size(x)"),
    ("steps:\n- {id: check, step: shell a}\n- log ${steps.chek.output}", "HF0123", "steps.chek", "check"),
    ("steps:\n- {id: check, step: shell a}\n- log ${steps.check.stdout}", "HF0123", "steps.check.stdout",
    "output.stdout"),
    ("steps:\n- {id: check, step: shell a}\n- log ${steps.check}", "HF0123", "steps.check", "steps.check.output"),
    ("steps:\n- parallel:\n  - {id: a, step: shell a}\n- log ${steps.a.output}", "HF0123", "steps.a", "branch"),
    ("steps:\n- log ${" + "(" * 80 + "1" + ")" * 80 + "}", "HF0124", "(", "let"),
    ("steps:\n- let x = y + 1", "HF0125", "y", "${y}"),
    ("input: {a: '${b}'}\nsteps: [no-op]", "HF0126", "'${b}'", ""),
    ("steps:\n- shell: a\n  timeout: ${t}", "HF0126", "${t}", ""),
    ("steps:\n- shell: a\n  queue: ${q}", "HF0126", "${q}", ""),
    ("steps:\n- shell: a\n  retry: {attempts: '${q}'}", "HF0126", "'${q}'", ""),
    ("steps:\n- step: no-op\n  condition: {equals: 3}", "HF0127", "{equals: 3}", "target"),
    ("steps:\n- step: no-op\n  condition: {target: x, equals: 3}", "HF0127", "x", "${x}"),
    ("steps:\n- let x = 1\n- step: no-op\n  condition: {target: '${x}', when: presnt}", "HF0127", "presnt", "present"),
    ("steps:\n- step: no-op\n  condition: 7", "HF0127", "7", ""),
    ("steps:\n- step: a.b\n  input: {a: '${b}', b: '${a}'}", "HF0128", "{a: '${b}', b: '${a}'}", ""),
    ("inputs: {x: integer}\nsteps:\n- let x = ${x} + 1", "HF0130", "x", "vars.x"),
    ("steps:\n- a.b k=1\n- log ${content}", "HF0131", "content", "output.content"),
    ("steps:\n- step: log a\n  queue: q", "HF0132", "q", ""),
    ("steps:\n- let x = \"${y}\"", "HF0134", '"${y}"', "quotes"),
    ("steps:\n- log ${steps.b.output ?? 1}\n- {id: b, step: shell x}", "HF0135", "steps.b", ""),
    ("steps:\n- step: no-op\n  condition: ${nope} > 3", "HF0121", "nope", ""),
    ("steps:\n- log ${nope ?? 3}", "HF0121", "nope", ""),
    ("inputs: {a: string}\ninput: {b: 1}\nsteps: [no-op]", "HF0150", "b", ""),
    ("a: [", "HF0101", "[", ""),
    ("7", "HF0117", "7", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "under", "help"), CASES)
def test_problems_have_code_caret_and_help(text: str, code: str, under: str, help: str) -> None:
    found = told(text)
    assert [problem.code for problem in found] == [code], [render(problem) for problem in found]
    (problem,) = found
    assert marked(problem) == under or code == "HF0101", render(problem)
    assert help in problem.help
    assert f"f.yaml:{problem.line}:{problem.column}" in render(problem)


def test_every_code_is_reached_by_a_test() -> None:
    import tests.language.test_documents as document_tests
    import tests.language.test_entity_keys as entity_tests
    import tests.language.test_foreign as foreign_tests
    import tests.language.test_load as load_tests
    import tests.language.test_paths as path_tests
    import tests.language.test_pinning as pinning_tests
    import tests.language.test_selectors as selector_tests

    here = {code for _, code, _, _ in CASES}
    for module in (entity_tests, foreign_tests, path_tests, load_tests, document_tests, pinning_tests, selector_tests):
        with open(str(module.__file__)) as file:
            here |= set(re.findall(r"HF\d{4}", file.read()))
    here |= {"HF0160", "HF0161"}  # test_interpret, test_expressions
    assert set(PROBLEMS) - here == set()


def test_the_prototype_of_the_reference() -> None:
    text = "name: upgrade\nsteps:\n  - id: precheck\n    step: shell uptime\n    idempotant: yes\n"
    (problem,) = told(text)
    assert render(problem) == (
        "error[HF0102]: unknown key `idempotant` in step `precheck`\n"
        "  --> f.yaml:5:5\n"
        "   |\n"
        " 5 |     idempotant: yes\n"
        "   |     ^^^^^^^^^^ not a step key\n"
        "   = help: did you mean `idempotent`?"
    )


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = "steps:\n- log ${a}\n- slep 5s\n- id: end\n  step: no-op\n- sleep 5\n- shell: x\n  foo: 1\n"
    found = told(text)
    assert [(p.code, p.line) for p in found] == [
        ("HF0121", 2), ("HF0110", 3), ("HF0113", 4), ("HF0114", 6), ("HF0102", 8),
    ]  # fmt: skip
    assert summary(found) == "5 errors"
    with pytest.raises(InvalidDefinition) as caught:
        load_workflow(text, "f.yaml")
    assert str(caught.value) == "5 errors in f.yaml: `a` is defined nowhere"


def steps(text: str) -> tuple[Step, ...]:
    return program("steps:\n" + text).steps


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("- log hello", "- {type: log, message: hello}"),
        ("- log hello", "- log: hello"),
        ("- log 'hello'", "- step: log\n  message: hello"),
        ("- sleep 5s", "- {s: sleep 5s}"),
        ("- sleep 5s", "- sleep: 5s"),
        ("- let integer x = 5", "- {type: let, variable: {name: x, type: integer}, value: 5}"),
        ("- let x = 5", "- {let: x = 5}"),
        ("- let x = 5", "- {step: let x, value: 5}"),
        ("- fail message no", "- fail: no"),
        ("- fail no", "- {type: fail, input: {message: no}}"),
        ("- return 5", "- return: 5"),
        ("- wait-signal go", "- {waitSignal: go}"),
        ("- shell ls -l", "- {block: shell, input: {command: ls -l}}"),
        ("- shell ls -l", "- {shell: ls -l}"),
        ("- http 'a b'", "- {type: http, input: {endpoint: a b}}"),
        ("- a.b k=v n=3", "- {block: a.b, input: {k: v, n: 3}}"),
        ("- block a.b k=v n=3", "- {step: a.b, input: {k: v, n: 3}}"),
        ("- a.b k='x y'", "- {step: block a.b, input: {k: x y}}"),
        ("- log a: b", "- 'log a: b'"),
        ("- no-op", "- {no-op: }"),
    ],
)
def test_short_and_long_forms_are_the_same(short: str, long: str) -> None:
    def shape(text: str) -> Any:
        (step,) = steps(text)
        args = {key: value.constant for key, value in step.args.items()}
        return (step.kind, args, step.fixed, step.place, step.type, step.duration, step.spec)

    assert shape(short) == shape(long)


def test_key_style_does_not_matter() -> None:
    for key in ("max-delay", "maxDelay", "max_delay"):
        made = program(f"steps:\n- shell: x\n  retry: {{attempts: 2, {key}: 5s}}\n")
        assert made.workflow.specs[0].retry == Retry(attempts=2, max_delay=5_000_000)


def test_steps_are_numbered_in_reading_order_and_labelled() -> None:
    text = """
- id: first
  name: The first
  step: no-op
- name: Second step
  step: no-op
- shell a very long command that does not fit into forty characters
- parallel:
  - log a
  - [log b, {id: c, step: log c}]
- block: a.b
"""
    made = program("steps:\n" + text)
    assert [made.label(i) for i in range(len(made.steps))] == [
        "first", "Second step", "shell a very long command that does not…", "parallel", "log a", "log b", "c", "a.b",
    ]  # fmt: skip
    assert made.label(99) == "workflow"
    assert made.steps[5].path == "$.steps[3].parallel[1][0]"


def test_specs_are_shared_and_numbered_by_the_definition() -> None:
    text = "steps:\n- shell a\n- a.b\n- shell b\n- {shell: c, timeout: 5s}\n- {shell: d, timeout: 5000ms, retry: 1}\n"
    made = program(text)
    assert [step.spec for step in made.steps] == [0, 1, 0, 2, 3]
    assert made.blocks == ("shell", "a.b")
    specs, _ = made.pin({"shell": BlockOffer("shell", version="2", timeout=7), "a.b": BlockOffer("a.b")})
    assert [(s.block, s.version, s.timeout) for s in specs] == [
        ("shell", "2", 7), ("a.b", "1.0.0", 0), ("shell", "2", 5_000_000), ("shell", "2", 5_000_000),
    ]  # fmt: skip


def test_only_outputs_that_are_referred_to_are_kept() -> None:
    made = program("steps:\n- {id: a, step: shell a}\n- {id: b, step: shell b}\n- log ${steps.b.output.stdout}\n")
    assert [step.keep for step in made.steps] == ["", "b", ""]


def test_names_with_dashes_are_names_where_they_are_defined() -> None:
    player = play(
        "inputs: {dry-run: boolean, n: integer}\nsteps:\n- return ${dry-run ? n-1 : n}", {"dry-run": True, "n": 5}
    )
    assert player.output == 4
    assert play("inputs: {dry-run: boolean}\nsteps:\n- return ${input.dry-run}", {"dry-run": True}).output is True


def test_known_output_keys_need_no_prefix_and_no_warning() -> None:
    assert told("steps:\n- shell a\n- log ${stdout}\n- log ${output.anything}\n") == []
    assert told("steps:\n- {step: a.b, output: {v: '${output.x}'}}\n- log ${v}\n") == []
    assert told("steps:\n- parallel:\n  - {id: p, step: a.b}\n  - {id: q, step: a.b}\n- log ${p.x} ${q.y}\n") == []


def test_five_hundred_problems_do_not_flood() -> None:
    found = told("steps:\n" + "- slep 5s\n" * 500)
    assert len(found) == 100


def test_warnings_never_crowd_out_an_error() -> None:
    text = "steps:\n- a.b\n" + "- log ${x}\n" * 300 + "- log ${1 +}\n"
    assert "HF0120" in {problem.code for problem in told(text)}


def test_a_definition_with_only_an_output_is_a_workflow() -> None:
    assert play("output: 42").output == 42
    assert compile_definition(["log hi"]).name == "workflow"


def test_places_survive_in_pin_problems() -> None:
    made = program("steps:\n- block: a.b\n  retry: 3\n")
    _, found = made.pin({"a.b": BlockOffer("a.b")})
    assert [(p.code, p.line, marked(p), p.warning) for p in found] == [("HF0133", 3, "retry", True)]
    Player("steps:\n- block: a.b\n  retry: 3\n")
