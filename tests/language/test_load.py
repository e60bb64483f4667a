"""The loader: what a document may contain, where problems are, and that nothing crashes it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem
from holdfast.language import canonical, compile_definition, digest, load, load_workflow, program_from_bytes, render
from holdfast.language.load import MAX_DEPTH, load_data


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidDefinition) as caught:
        load(text, "f.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("NO", "NO"), ("y", "y"), ("2024-01-02", "2024-01-02"),
        ("12:30:45", "12:30:45"), ("1_000", "1_000"), ("0b1", "0b1"), ("010", 10), ("0o17", 15), ("0x1F", 31),
        ("-3", -3), ("+3", 3), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.", 1.0), ("true", True),
        ("False", False), ("~", None), ("null", None), ("", None), ("'1'", "1"), ('"true"', "true"), ("1 2", "1 2"),
        ("-", [None]), ("=", "="), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_yaml_1_2_core_schema(text: str, value: Any) -> None:
    loaded = load(f"a: {text}" if text != "-" else "a:\n- ").root.plain()["a"]
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "width"),
    [
        ("a: 1\nb: &x 2", "HF0104", 2, 4, 1),
        ("a: *x", "HF0104", 1, 4, 2),
        ("a: !!str 2", "HF0104", 1, 4, 1),
        ("a: ! 2", "HF0104", 1, 4, 1),
        ("<<: {a: 1}", "HF0104", 1, 1, 2),
        ("a: 1\nb: 2\na: 3", "HF0103", 3, 1, 1),
        ("1: x", "HF0105", 1, 1, 1),
        ("true: x", "HF0105", 1, 1, 4),
        ("? [a]\n: b", "HF0105", 1, 3, 1),
        ("a: .inf", "HF0118", 1, 4, 4),
        ("a: 99999999999999999999", "HF0118", 1, 4, 20),
        ("a: 1\n---\nb: 2", "HF0117", 2, 1, 3),
        ("a: 1\n\ufeff---\nb: 2", "HF0118", 2, 1, 1),
        ("\ufeffa: 1\r\nb: c: d\r\n", "HF0101", 2, 5, 1),
        ("a: 1\rb: c: d\r", "HF0101", 2, 5, 1),
        ("a: x\0y", "HF0118", 1, 5, 1),
        ("a: &x [1]\nb: &y [*x, *x]\nc: [*y, *y]\n", "HF0104", 1, 4, 1),
        ("a:\n  <<: *base\n  b: 1", "HF0104", 2, 3, 2),
        ("~: x", "HF0105", 1, 1, 1),
        ("1.5: x", "HF0105", 1, 1, 3),
        ("{a: 1, a: 2}", "HF0103", 1, 8, 1),
        ("a: !!python/object:os.system x", "HF0104", 1, 4, 1),
        ("", "HF0117", 1, 1, 1),
        ("# only a comment\n", "HF0117", 1, 1, 1),
        ("a: \x07", "HF0118", 1, 4, 1),
        ("a: b: c", "HF0101", 1, 5, 1),
        ("a:\n\tb: 1", "HF0101", 2, 1, 1),
        ("a: 'x", "HF0101", 1, 4, 1),
        ("a: [1, 2", "HF0101", 1, 4, 1),
        ("a: @x", "HF0101", 1, 4, 1),
        ("a:\n  - 1\n b: 2", "HF0101", 3, 2, 1),
    ],
)  # fmt: skip
def test_refusals_name_code_and_place(text: str, code: str, line: int, column: int, width: int) -> None:
    first = problems_of(text)[0]
    assert (first.code, first.line, first.column, first.width) == (code, line, column, width)


def test_all_problems_are_told_at_once() -> None:
    codes = [p.code for p in problems_of("a: &x 1\nb: *x\na: 2\n3: 4\nc: !!int 5\nd: .nan\n")]
    assert codes == ["HF0104", "HF0104", "HF0103", "HF0105", "HF0104", "HF0118"]


def test_a_colon_in_a_value_is_shown_with_the_quoted_form() -> None:
    line = "- step: fail message denied by approvals: ${content.details}"
    (problem,) = problems_of(f"steps:\n{line}\n")
    assert problem.help == "quote the value:\n- step: 'fail message denied by approvals: ${content.details}'"
    assert problem.source[problem.column - 1] == ":"
    load("steps:\n" + problem.help.split("\n")[1])


def test_the_caret_stands_under_the_word() -> None:
    (problem,) = problems_of("steps:\n  - a: 1\n    a: 2\n")
    assert render(problem) == (
        "error[HF0103]: the key `a` occurs twice\n  --> f.yaml:3:5\n   |\n 3 |     a: 2\n   |     ^ first on line 2"
    )


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_limited_without_recursion(opening: str) -> None:
    codes = {p.code for p in problems_of(opening * 100_000)}
    assert codes <= {"HF0107", "HF0101"}
    assert codes
    deep: Any = "x"
    for _ in range(MAX_DEPTH * 100):
        deep = [deep]
    with pytest.raises(InvalidDefinition) as caught:
        load_data(deep)
    assert caught.value.problems[0].code == "HF0107"
    with pytest.raises(InvalidDefinition):
        canonical({"steps": deep})


def test_characters_that_json_escapes_in_two_halves() -> None:
    text = '{"a": "\\ud83d\\ude00 \\\\ud83d\\\\ude00",\n "b": 1, "b": 2}'
    (problem,) = problems_of(text)
    assert (problem.code, problem.line, problem.column) == ("HF0103", 2, 10)
    assert load(text.replace('"b": 2', '"c": 2')).root.plain()["a"] == "\U0001f600 \\ud83d\\ude00"
    (problem,) = problems_of('{"a": "\\ud83d\\ude00", "a": 1}')
    assert (problem.code, problem.line, problem.column) == ("HF0103", 1, 23)
    assert load("a: \\ud83d\\ude00").root.plain()["a"] == "\\ud83d\\ude00"


@pytest.mark.parametrize("parser", ["CSafeLoader", "SafeLoader"])
def test_half_of_a_character_cannot_be_stored(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parser == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    (problem,) = problems_of('a: "x\\ud83dy"')
    assert (problem.code, problem.line) in (("HF0101", 1), ("HF0118", 1))
    assert "half of a character" in problem.message


def test_size_is_limited() -> None:
    assert problems_of("a: " + "x" * 1_000_000)[0].code == "HF0106"
    assert problems_of("a: " + "ü" * 600_000)[0].code == "HF0106"
    assert problems_of("[" + "1," * 60_000 + "1]")[0].code == "HF0106"
    with pytest.raises(InvalidDefinition):
        load_data([1] * 60_000)


@pytest.mark.parametrize("data", [{1: 2}, {"a": {1, 2}}, {"a": 2**70}, {"a": float("nan")}, {"a": "\ud800"}])
def test_data_that_is_not_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        compile_definition({"steps": ["no-op"], "metadata": data})
    assert caught.value.problems[0].path.startswith("$.metadata")


def test_yaml_and_json_give_one_digest() -> None:
    text = "name: x\nsteps:\n- log hi\n- sleep: 5s\n  id: a\n"
    definition, program, warnings = load_workflow(text)
    same = {"steps": ["log hi", {"id": "a", "sleep": "5s"}], "name": "x"}
    assert canonical(definition) == canonical(same)
    assert digest(definition) == digest(canonical(same))
    assert len(digest(same)) == 16
    assert not warnings
    again = program_from_bytes(canonical(same))
    assert [s.label for s in again.steps] == [s.label for s in program.steps]
    assert digest(["log hi"]) == digest({"steps": ["log hi"]})


def test_problems_in_json_carry_a_path() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        compile_definition({"steps": ["log hi", {"log": "${x}", "tiemout": "5s"}]})
    assert [(p.code, p.path, p.line) for p in caught.value.problems] == [
        ("HF0121", "$.steps[1].log", 0),
        ("HF0102", "$.steps[1].tiemout", 0),
    ]
    assert render(caught.value.problems[1]).splitlines()[1] == "  --> $.steps[1].tiemout"


def test_places_inside_of_block_folded_and_escaped_texts() -> None:
    cases = [
        "steps:\n- log: |\n    first line\n    then ${nope} here\n",
        "steps:\n- log: >\n    first line\n    then ${nope} here\n",
        'steps:\n- log: "a \\t b ${nope}"\n',
        "steps:\n- 'log it''s ${nope}'\n",
        "steps:\n- log one\n  two ${nope}\n",
        "steps:\n  - step:   log   ${nope}\n",
    ]
    for text in cases:
        with pytest.raises(InvalidDefinition) as caught:
            load_workflow(text)
        (problem,) = caught.value.problems
        assert problem.source[problem.column - 1 : problem.column - 1 + problem.width] == "nope", text


def refused_or_loaded(text: str) -> tuple[tuple[Problem, ...], Any]:
    try:
        return (), load_workflow(text, "f")[0]
    except InvalidDefinition as refused:
        return refused.problems, None


SEED = """
name: seed
inputs: {host: string, n: integer = 3}
steps:
  - let x = ${n} + 1 ?? 0
  - log "hello ${host}": ${x}
  - id: check
    step: shell uname -a
    timeout: 5s
    retry: {attempts: 3, delay: 1s}
    condition: {target: '${x}', greater-than: 3}
  - parallel:
      - sleep 5s
      - {id: b, steps: [no-op, "return ${x}"]}
  - step: a.b k=v
    input: {z: [1, 2, {y: "${steps.check.output.stdout}"}]}
output: {a: "${output}"}
"""
TOKENS = ["${", "}", ":", "\n", "  ", "- ", "'", '"', "[", "{", "&", "*", "!", "|", ">", "#", "%", "?", "\t", "steps",
          "parallel", "let", "=", "??", "..", "\u2028", "0", "-", ",", "~", "\ufeff", "é"]  # fmt: skip


def test_the_document_that_is_mutated_is_valid() -> None:
    assert refused_or_loaded(SEED)[0] == ()


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_mutated_documents_never_crash_the_loader(seed: int, edits: int) -> None:
    rng = random.Random(seed)
    text = SEED
    for _ in range(edits):
        at = rng.randrange(len(text))
        end = at + rng.choice([0, 0, 1, 3, 20])
        text = text[:at] + rng.choice(TOKENS) * rng.choice([1, 1, 2]) + text[end:]
    problems, definition = refused_or_loaded(text)
    assert definition is not None or problems
    for problem in problems:
        assert problem.line >= 1
        assert problem.column >= 1
        render(problem)
    if definition is not None:
        stored = program_from_bytes(canonical(definition))
        assert canonical(load_data(definition).root.plain()) == canonical(definition)
        assert stored.name


@given(st.recursive(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.sampled_from(TOKENS),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
                        st.sampled_from(["steps", "step", "let", "log", "id", "parallel", "input", "condition",
                        "output",
                                         "retry", "inputs", "x y", "shell", "block", "value"]),
                                         inner, max_size=4)))  # fmt: skip
def test_any_json_data_is_compiled_or_refused(data: Any) -> None:
    definition = {"steps": [data, data], "output": data}
    try:
        compile_definition(definition)
    except InvalidDefinition as refused:
        if not refused.problems:
            raise
