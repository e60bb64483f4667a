"""What people get wrong, and what people do on purpose: each is told with its code and place, at once."""

from __future__ import annotations

import itertools

import pytest

from holdfast.core.codec import pack
from holdfast.core.errors import InvalidDefinition
from holdfast.language import Text, canonical, load_workflows, program_from_bytes

from .world import play


def refused(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(InvalidDefinition) as caught:
        load_workflows([Text(text, "bad.yaml")])
    return [(p.code, p.line, p.column) for p in caught.value.problems if not p.warning]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("steps:\n- {step: log hi, tiemout: 5s}\n", ("HF0102", 2, 18)),
        ("stpes: []\nsteps: [log hi]\n", ("HF0102", 1, 1)),
        ("steps:\n- {step: log x, condition: {target: '${workflow.id}', equalz: 3}}\n", ("HF0102", 2, 55)),
        ("steps:\n- lgo hi there\n", ("HF0110", 2, 3)),
        ("steps: 5\n", ("HF0108", 1, 8)),
        ("steps:\n- 7\n", ("HF0108", 2, 3)),
        ("steps:\n- {step: log hi, timeout: [1]}\n", ("HF0114", 2, 27)),
        ("steps:\n- {block: a.b, retry: often}\n", ("HF0108", 2, 23)),
        ("steps:\n- log ${nowhere}\n", ("HF0121", 2, 9)),
        ("steps:\n- log ${steps.gone.output}\n", ("HF0123", 2, 9)),
        ("steps:\n- goto gone\n", ("HF0123", 2, 8)),
        ("steps:\n- goto inner\n- steps:\n  - {id: inner, step: log x}\n", ("HF0123", 2, 8)),
        ("steps:\n- {step: log x, next: gone}\n", ("HF0123", 2, 23)),
        ("name: a\nsteps: [a]\n", ("HF0137", 2, 9)),
        ("steps:\n- log ${a\n", ("HF0120", 2, 7)),
        ("steps:\n- log " + "${" * 3000 + "\n", ("HF0120", 2, 9)),
        ("steps: " + "[" * 5000, ("HF0107", 1, 47)),
        ("steps: [log x]\nsteps: [log y]\n", ("HF0103", 2, 1)),
        ("x" * 10_000_000, ("HF0106", 0, 0)),
        ("steps:\n" + "- log hello\n" * 900_000, ("HF0106", 0, 0)),
    ],
    ids=lambda value: value[:30].replace("\n", " ") if isinstance(value, str) else "",
)
def test_each_has_its_code_and_place(text: str, place: tuple[str, int, int]) -> None:
    assert refused(text)[0] == place


def test_a_bomb_of_aliases_goes_off_at_its_first_anchor() -> None:
    names = "abcdefghij"
    lines = [
        "a: &a [x, x]",
        *(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]" for x, y in itertools.pairwise(names)),
    ]
    found = refused("\n".join(lines) + "\nsteps: [*j]\n")
    assert found[0] == ("HF0104", 1, 4)
    assert {code for code, *_ in found if code != "HF0102"} == {"HF0104"}


def test_a_circle_of_types_is_told_once_around() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        load_workflows([Text("name: a\nsteps: [b]\n---\nname: b\nsteps: [c]\n---\nname: c\nsteps: [b]\n")])
    told = [p.message.rpartition(": ")[2] for p in caught.value.problems]
    assert "b → c → b" in told


# --- types that use each other ---------------------------------------------------------------------
def pairs(levels: int) -> str:
    """Two types on each level, both of which use both below: as many ways as 2 to the levels."""
    documents = []
    for level in reversed(range(levels)):
        steps = ["log the end"] if level == levels - 1 else [f"t{level + 1}a", f"t{level + 1}b"]
        documents += [f"name: t{level}{which}\nsteps: {steps}\n" for which in "ab"]
    return "---\n".join(documents)


def test_types_in_pairs_are_put_together_once() -> None:
    *_, last = load_workflows([Text(pairs(10))])
    assert program_from_bytes(canonical(last.data)).workflow.name == "t0b"
    assert {code for code, *_ in refused(pairs(19))} == {"HF0106"}


def test_what_is_accepted_can_be_read_back() -> None:
    """With all the types inside it, a definition is nested deeper than it was written."""

    def chain(length: int) -> str:
        follow = [f"t{number + 1}" for number in range(length - 1)]
        return "---\n".join(f"name: t{n}\nsteps: [{each}]\n" for n, each in enumerate([*follow, "log the end"]))

    first = load_workflows([Text(chain(19))])[0]
    assert program_from_bytes(canonical(first.data)).workflow.name == "t0"
    assert {code for code, *_ in refused(chain(30))} == {"HF0107"}


def test_a_short_form_that_cannot_be_read_is_told_where_it_is_used() -> None:
    text = "name: one\nshorthand: any\nsteps: [log x]\n---\nname: two\nsteps:\n- one with words\n"
    assert ("HF0111", 7, 6) in refused(text)


def test_a_graph_is_numbered_as_it_is_stored() -> None:
    """A map has no order: what is read back after a restart must give every step the number it had."""
    text = "steps:\n- graph:\n    b: net.b\n    a: {needs: [b], step: net.a}\n"
    (found,) = load_workflows([Text(text)])
    stored = program_from_bytes(canonical(found.data)).workflow
    assert [step.label for step in found.program.workflow.steps] == [step.label for step in stored.steps]
    assert found.program.workflow.specs == stored.specs
    assert play(text).labels() == ["net.b", "net.a"]


def test_a_step_with_steps_can_be_a_branch() -> None:
    world = play("steps:\n- parallel:\n  - {step: foreach x in 1..2, steps: ['return ${x}']}\n  - return 3\n")
    assert world.output() == [[1, 2], 3]


def test_values_for_inputs_belong_to_no_type() -> None:
    assert play("input: {a: 1}\nsteps: ['return ${a}']\n").output() == 1


def test_branches_that_pass_on_their_input_do_not_grow_without_end() -> None:
    """Each turn of the loop gives a list of three times the list before."""
    text = """
- {step: let n = 0}
- {id: again, parallel: [no-op, no-op, no-op]}
- let n = ${n} + 1
- {step: goto again, condition: '${n} < 40'}
- return ${n}
"""
    world = play(f"steps:\n{text}")
    assert world.output() == 40
    assert max(len(pack(events)) for _, events in world.histories["e1"]) < 200_000
