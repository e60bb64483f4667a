"""Lists and maps in short forms: bare words are texts, whatever the step."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.language.workflow import load_workflow

from .world import steps


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("[web1, web2]", ["web1", "web2"]),
        ("[hello world, 1.5, 1m, -1, true, null, a-b, a.b]", ["hello world", 1.5, "1m", -1, True, None, "a-b", "a.b"]),
        ("[http://h:80/x, 12:30]", ["http://h:80/x", "12:30"]),
        ("[a, ${y}, ${y} + 1, 'q, r', size('abc')]", ["a", 3, 4, "q, r", 3]),
        ("[[a, b], {k: v w}, {}, []]", [["a", "b"], {"k": "v w"}, {}, []]),
    ],
)
@pytest.mark.parametrize(
    "step", ["let x = L\n- return ${x}", "return L", "set-sensor x = L\n- return ${entity.sensor.x}",
             "foreach x in L do return ${x}"],
)  # fmt: skip
def test_bare_words_in_lists_are_texts(step: str, literal: str, value: Any) -> None:
    text = step.replace("L", literal).split("\n- ")
    lines = ["- let y = 3", *("- " + each.replace(each, f'"{each}"') for each in text)]
    assert steps("\n".join(lines)).output() == value


def test_maps_and_choices_without_quotes() -> None:
    assert steps("- let x = {a: web1}\n- return ${x.a}").output() == "web1"
    assert steps("- let c = false\n- let x = ${c} ? [a, b] : [c]\n- return ${x}").output() == ["c"]


def test_a_bare_word_that_is_also_a_name_is_pointed_out() -> None:
    _, _, found = load_workflow("steps:\n- let web1 = 1\n- let x = [web1, web2]\n- return ${x}\n", "f.yaml")
    assert [(each.code, each.line, each.warning) for each in found] == [("HF0134", 3, True)]
    assert "${web1}" in found[0].help


def test_brackets_that_never_close_are_read_once() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        steps(f"- let x = 1 + {'[ ' * 100_000}")
    assert caught.value.problems
