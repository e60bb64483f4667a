"""Inputs by the declared types, jobs by the offered blocks."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import BlockOffer, Retry
from holdfast.language import canonical, compile_definition, program_from_bytes
from holdfast.language.values import Mismatch, duration_text, parse_duration

from .player import program

INPUTS = """
inputs:
  host: string
  count: integer = 3
  ratio: {type: number, default: 0.5, description: how much}
  flag: boolean?
  tags: {type: list, required: no}
  extra: {type: map, defaultValue: {a: 1}}
  level: {type: string, enum: [low, high], default: low}
  wait: duration = 5s
  free: any?
steps: [no-op]
"""


def checked(given: Any) -> tuple[Any, list[tuple[str, str]]]:
    value, problems = program(INPUTS).check_input(given)
    return value, [(p.code, p.path) for p in problems]


def test_defaults_are_filled_in_and_types_coerced() -> None:
    value, problems = checked({"host": 5, "count": "7", "flag": "yes", "tags": "[1, 2]", "ratio": "2"})
    assert not problems
    assert value == {
        "host": "5", "count": 7, "ratio": 2, "flag": True, "tags": [1, 2], "extra": {"a": 1}, "level": "low",
        "wait": "5s", "free": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code", "path"),
    [
        ({}, "HF0151", "$.input.host"),
        ({"host": None}, "HF0151", "$.input.host"),
        ({"host": "h", "hots": 1}, "HF0150", "$.input.hots"),
        ({"host": "h", "count": "x"}, "HF0152", "$.input.count"),
        ({"host": "h", "count": 1.5}, "HF0152", "$.input.count"),
        ({"host": "h", "count": True}, "HF0152", "$.input.count"),
        ({"host": []}, "HF0152", "$.input.host"),
        ({"host": "h", "flag": 1}, "HF0152", "$.input.flag"),
        ({"host": "h", "tags": "{}"}, "HF0152", "$.input.tags"),
        ({"host": "h", "level": "mid"}, "HF0152", "$.input.level"),
        ({"host": "h", "wait": "soon"}, "HF0152", "$.input.wait"),
        ({"host": "h", "wait": 5}, "HF0152", "$.input.wait"),
        ([], "HF0152", "$.input"),
        ("x", "HF0152", "$.input"),
    ],
)
def test_everything_wrong_with_an_input_is_said(given: Any, code: str, path: str) -> None:
    assert checked(given)[1] == [(code, path)]


def test_without_declarations_any_map_is_taken() -> None:
    made = program("input: {a: 1, b: 2}\nsteps: [no-op]")
    assert made.check_input({"b": 3, "c": 4}) == ({"a": 1, "b": 3, "c": 4}, [])
    assert program("steps: [no-op]").check_input(None) == ({}, [])


SCHEMA = {
    "type": "object",
    "properties": {"host": {"type": "string"}, "level": {"type": "integer"}, "mode": {"enum": ["a", "b"]},
                   "opt": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "ratio": {"type": ["number", "null"]}},
    "required": ["host"],
    "additionalProperties": False,
}  # fmt: skip
OFFERS = {"a.b": BlockOffer("a.b", version="2.1.0", idempotent=True, timeout=9, retry=Retry(4), parameters=SCHEMA)}


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        ("{host: h, level: 3, mode: a, opt: null, ratio: 1}", []),
        ("{host: '${x}', level: '${x}'}", []),
        ("{host: h, lvel: 3}", [("HF0140", "did you mean `level`?")]),
        ("{level: 3}", [("HF0141", "add `input: {host: …}`")]),
        ("{host: 3}", [("HF0142", "")]),
        ("{host: h, level: true}", [("HF0142", "")]),
        ("{host: h, mode: c}", [("HF0142", "")]),
        ("{host: h, opt: 3}", [("HF0142", "")]),
        ("{host: h, ratio: x}", [("HF0142", "")]),
    ],
)
def test_literal_input_is_checked_against_the_block(input: str, expected: list[tuple[str, str]]) -> None:
    text = f"steps:\n- let x = 1\n- block: a.b\n  input: {input}\n"
    _, problems = program(text).pin(OFFERS)
    assert [(p.code, p.help) for p in problems] == expected
    assert all(p.line == (3 if p.code == "HF0141" else 4) for p in problems)
    stored = program_from_bytes(canonical({"steps": ["let x = 1", {"block": "a.b", "input": {"host": 3}}]}))
    _, problems = stored.pin(OFFERS)
    assert [(p.code, p.line, p.path) for p in problems] == [("HF0142", 0, "$.steps[1].input.host")]


def test_a_step_overrides_what_the_block_offers() -> None:
    offer = {"a.b": BlockOffer("a.b", version="2", idempotent=True, timeout=9, retry=Retry(4))}
    made = compile_definition({"steps": [
        "a.b", {"step": "a.b", "idempotent": "no", "queue": "site-b", "timeout": "1s", "retry": 2},
        {"step": "a.b", "retry": {"limit": 5, "delay": "100ms", "backoff": 3, "max-delay": "2s", "jitter": 0}},
    ]})  # fmt: skip
    specs, problems = made.pin(offer)
    assert [(s.version, s.queue, s.idempotent, s.timeout, s.retry) for s in specs] == [
        ("2", "default", True, 9, Retry(4)),
        ("2", "site-b", False, 1_000_000, Retry(2)),
        ("2", "default", True, 9, Retry(5, 100_000, 3.0, 2_000_000, 0.0)),
    ]
    assert [(p.code, p.path, p.warning) for p in problems] == [("HF0133", "$.steps[1].retry", True)]
    assert made.pin(offer) == (specs, problems)


def test_an_unregistered_block_gives_a_spec_and_no_problem_of_ours() -> None:
    specs, problems = program("steps:\n- a.b x=1").pin({})
    assert [spec.block for spec in specs] == ["a.b"]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "micros"),
    [("10ms", 10_000), ("5s", 5_000_000), ("3m", 180_000_000), ("2h", 7_200_000_000), ("1d", 86_400_000_000),
     ("1h30m", 5_400_000_000), ("1.5s", 1_500_000), ("0s", 0), ("2 s", 2_000_000), ("1d 2h", 93_600_000_000)],
)  # fmt: skip
def test_durations(text: str, micros: int) -> None:
    assert parse_duration(text) == micros
    assert parse_duration(duration_text(micros)) == micros


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 sec", "1e3s", "99999999999d", "5s x", "s5", "1" * 100 + "s"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(Mismatch):
        parse_duration(text)


NESTED = {
    "type": "object",
    "properties": {
        "ports": {"type": "array", "items": {"$ref": "#/$defs/Port"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "limit": {"type": "integer", "minimum": 1, "maximum": 5},
        "best": {"anyOf": [{"$ref": "#/$defs/Port"}, {"type": "null"}]},
        "round": {"$ref": "#/$defs/Round"},
    },
    "$defs": {
        "Port": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "mtu": {"type": "integer"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "Round": {"$ref": "#/$defs/Round"},
    },
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ports: [{name: a, mtu: 1}, {name: b, mtu: big}]", "`ports[1].mtu` of block `net` takes integer, not"),
        ("ports: [{mtu: 1}]", "`ports[0]` of block `net` needs `name`"),
        ("ports: [{name: a, speed: 1}]", "`ports[0]` of block `net` has no `speed`"),
        ("tags: {a: x, b: 2}", "`tags.b` of block `net` takes string, not"),
        ("limit: 0", "`limit` of block `net` is at least 1, not 0"),
        ("limit: 6", "`limit` of block `net` is at most 5, not 6"),
        ("best: {name: 3}", "`best.name` of block `net` takes string, not"),
        ("ports: [{name: a, mtu: 1}]", ""),
        ("tags: {a: '${1 + 1}'}", ""),
        ("best: null", ""),
        ("round: 5", ""),
    ],
)
def test_literals_are_checked_however_deep_they_lie(given: str, said: str) -> None:
    made = program(f"steps:\n- block: net\n  input:\n    {given}\n")
    _, problems = made.pin({"net": BlockOffer("net", parameters=NESTED)})
    assert [problem.code for problem in problems] == (["HF0142"] if said else [])
    assert all(said in problem.message for problem in problems)


@pytest.mark.parametrize("name", ["net", "net:1", "net:1.2", "net:1.2.3", "net:1.2.3-rc.1", "a.io/net", "a.io/net:1"])
def test_a_block_may_be_named_with_package_and_version(name: str) -> None:
    made = program(f"steps:\n- block: {name}\n- {name} a=1\n")
    assert made.blocks == (name,)
    specs, problems = made.pin({name: BlockOffer(name.partition(":")[0], "1.2.3")})
    assert not problems
    assert {(spec.block, spec.version) for spec in specs} == {(name.partition(":")[0], "1.2.3")}


@pytest.mark.parametrize("name", ["net:", "net:x", "a/b/c", "/net", "net:1 2"])
def test_other_names_are_no_blocks(name: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        program(f"steps:\n- {{block: '{name}'}}\n")
    assert [problem.code for problem in caught.value.problems] == ["HF0113"]
