"""Several workflows in a file, the forms a document may have, names, and text that is not even text."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem
from holdfast.language import (
    Definition,
    Text,
    canonical,
    choose,
    compile_definition,
    decode,
    define,
    define_all,
    examine,
    load_all,
    load_workflow,
    load_workflows,
    program_from_bytes,
    signature,
)
from holdfast.language.load import MAX_BYTES, MAX_DOCUMENTS, MAX_NODES

THREE = "name: a\nsteps: [log 1]\n---\nname: b\nsteps:\n- log 2\n...\n# between\n---\nname: c\nsteps:\n- log 3\n"


def defined(text: str, file: str = "f.yaml") -> list[Definition]:
    return load_workflows([Text(text, file)])


def told(*texts: str | Text) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as caught:
        load_workflows([text if isinstance(text, Text) else Text(text, "f.yaml") for text in texts])
    return [*caught.value.problems]


# --- several documents -----------------------------------------------------------------------------------
def test_every_document_is_read_and_knows_its_place() -> None:
    documents = load_all(THREE, "f.yaml")
    assert [document.root.plain()["name"] for document in documents] == ["a", "b", "c"]
    assert [document.line for document in documents] == [0, 2, 8]
    assert [document.root.value["name"].line for document in documents] == [0, 3, 9]


def test_problems_of_all_documents_are_told_with_their_lines() -> None:
    text = "name: a\nsteps:\n- log ${x}\n---\nname: b\nstpes: []\n---\nname: c\nsteps:\n- log: 1\n  tiemout: 5s\n"
    assert [(p.code, p.line, p.column) for p in told(text)] == [
        ("HF0121", 3, 9), ("HF0109", 5, 1), ("HF0102", 6, 1), ("HF0102", 11, 3),
    ]  # fmt: skip


def test_empty_documents_do_not_count() -> None:
    assert [d.root.plain() for d in load_all("---\n---\na: 1\n---\n# nothing\n---\n")] == [{"a": 1}]
    with pytest.raises(InvalidDefinition):
        defined("---\n---\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n---\n" * (MAX_DOCUMENTS + 1), 2 * MAX_DOCUMENTS),
        (("[" + "1," * 9_999 + "1]\n---\n") * 6, MAX_NODES // 5_000),
    ],
)
def test_limits_are_those_of_the_whole_text(text: str, line: int) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        load_all(text)
    (problem,) = caught.value.problems
    assert problem.code == "HF0106"
    assert abs(problem.line - line) <= 2


def test_one_of_several_is_chosen_by_name_or_is_the_last() -> None:
    assert load_workflow(THREE)[0] == {"name": "c", "steps": ["log 3"]}
    assert load_workflow(THREE, name="b")[0] == {"name": "b", "steps": ["log 2"]}
    with pytest.raises(InvalidDefinition, match="holds no workflow `x`; it holds `a`, `b`, `c`"):
        load_workflow(THREE, name="x")
    assert choose(defined(THREE)).name == "c"


def test_several_need_names_of_their_own() -> None:
    problems = told("steps: [log 1]\n---\nname: b\nsteps: [log 1]\n---\n- log 2\n---\nname: b\nsteps: [log 3]\n")
    assert [(p.code, p.line, p.column, p.label) for p in problems] == [
        ("HF0109", 1, 1, ""), ("HF0109", 6, 1, ""), ("HF0112", 8, 7, "the other is at line 3"),
    ]  # fmt: skip
    one = "name: a\nsteps: [log 1]\n"
    (problem,) = told(Text(one, "x.yaml"), Text("\n" + one, "y.yaml"))
    assert (problem.code, problem.file, problem.line, problem.label) == (
        "HF0112",
        "y.yaml",
        2,
        "the other is at x.yaml:1",
    )


def test_the_only_workflow_of_a_file_is_called_like_the_file() -> None:
    texts = [
        Text("- log 1\n", "x.yaml", "x"),
        Text("steps: [log 2]\n", "y.yaml", "y"),
        Text("name: n\nsteps: [log 3]", "z", "z"),
    ]
    found = load_workflows(texts)
    assert [(each.name, each.program.name) for each in found] == [("x", "x"), ("y", "y"), ("n", "n")]
    assert found[0].data == {"name": "x", "steps": ["log 1"]}


def test_the_order_to_publish_in_can_be_given() -> None:
    names = [each.name for each in load_workflows([Text(THREE)], order=lambda found: found[::-1])]
    assert names == ["c", "b", "a"]


def test_problems_of_all_files_are_told_in_the_order_of_files() -> None:
    problems = told(Text("name: b\nsteps:\n\n- log ${x}", "b.yaml"), Text("name: a\nsteps: ['log ${y}']", "a.yaml"))
    assert [(p.file, p.line) for p in problems] == [("b.yaml", 4), ("a.yaml", 2)]


def test_examining_never_raises_and_keeps_files_apart() -> None:
    same = "name: a\nsteps: [log 1]\n"
    found = examine([Text(same, "x"), Text("steps: [log 1", "y"), Text(same, "z"), Text("5", "w")])
    assert [(each.file, len(each.programs), [p.code for p in each.problems]) for each in found] == [
        ("x", 1, []), ("y", 0, ["HF0101"]), ("z", 1, []), ("w", 0, ["HF0117"]),
    ]  # fmt: skip


def test_what_is_wrong_with_steps_is_told_beside_mistakes_in_yaml() -> None:
    (found,) = examine([Text("steps:\n- fail message a: b: c\n- log ${nope}\n", "f")])
    assert [(p.code, p.line, p.column) for p in found.problems] == [("HF0101", 2, 20), ("HF0121", 3, 9)]


# --- forms -----------------------------------------------------------------------------------------------
INITIALIZERS = """
brooklyn.initializers:
- type: workflow-effector
  name: start
  steps:
    - log starting
- type: workflow-effector
  name: stop
  steps:
    - log stopping ${nope}
"""


def test_each_entry_of_the_initializers_is_a_workflow() -> None:
    first, second = defined(INITIALIZERS.replace(" ${nope}", ""))
    assert first.data == {"name": "start", "steps": ["log starting"]}
    assert second.data == {"name": "stop", "steps": ["log stopping"]}
    assert second.program.name == "stop"


def test_problems_in_the_initializers_have_places_and_paths() -> None:
    (problem,) = told(INITIALIZERS)
    assert (problem.code, problem.line, problem.column) == ("HF0121", 10, 22)
    assert problem.path == "$['brooklyn.initializers'][1].steps[0]"


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "help"),
    [
        ("{type: workflow-sensor, name: a, steps: [log 1]}", "HF0116", 2, 10, "ends with `set-sensor`"),
        ("{type: workflow-policy, name: a, steps: [log 1]}", "HF0116", 2, 10, "publish the steps as a workflow"),
        ("{type: workflow-efector, name: a, steps: [log 1]}", "HF0116", 2, 10, "did you mean `workflow-effector`?"),
        ("{type: org.example.Thing}", "HF0116", 2, 10, "as a workflow of its own"),
        ("{name: a, steps: [log 1]}", "HF0109", 2, 3, "add `type: workflow-effector`"),
        ("log 1", "HF0108", 2, 3, ""),
    ],
)
def test_other_initializers_are_refused_with_what_to_do(
    text: str, code: str, line: int, column: int, help: str
) -> None:
    (problem,) = told(f"brooklyn.initializers:\n- {text}\n")
    assert (problem.code, problem.line, problem.column) == (code, line, column)
    assert help in problem.help


def test_what_stands_beside_the_initializers_is_refused() -> None:
    (problem,) = told("location: x\nbrooklyn.initializers:\n- {type: workflow-effector, name: a, steps: [log 1]}\n")
    assert (problem.code, problem.line, problem.column) == ("HF0102", 1, 1)
    assert told("brooklyn.initializers: 3\n")[0].code == "HF0108"
    assert told("brooklyn.initializers: []\n")[0].message == "`brooklyn.initializers` has no workflows"


def test_a_registered_type_is_published_under_its_id() -> None:
    (found,) = defined("id: apt-get\ntype: workflow\nparameters: {package: string}\nsteps: ['log ${package}']\n")
    assert found.name == found.program.name == "apt-get"
    assert found.data == {"name": "apt-get", "parameters": {"package": "string"}, "steps": ["log ${package}"]}
    assert program_from_bytes(canonical(found.data)).name == "apt-get"


def test_a_name_beside_an_id_is_a_warning() -> None:
    (found,) = defined("id: a\nname: Long name\nsteps: [log 1]\n")
    assert found.name == "a"
    assert [(p.code, p.line, p.warning) for p in found.warnings] == [("HF0132", 2, True)]


def test_type_workflow_means_nothing_at_the_top() -> None:
    assert defined("type: workflow\nname: a\nsteps: [log 1]\n")[0].data == {"name": "a", "steps": ["log 1"]}
    (problem,) = told("type: wrokflow\nsteps: [log 1]\n")
    assert (problem.code, problem.line, problem.column, problem.help) == ("HF0116", 1, 7, "did you mean `workflow`?")
    (problem,) = told("id: [a]\nsteps: [log 1]\n")
    assert (problem.code, problem.line, problem.column) == ("HF0108", 1, 5)


def test_the_same_forms_are_taken_from_json() -> None:
    data = {"brooklyn.initializers": [{"type": "workflow-effector", "name": "a", "steps": ["log 1"]}]}
    assert compile_definition(data).name == "a"
    assert [each.name for each in define_all([data, {"id": "b", "steps": ["log 1"]}])] == ["a", "b"]
    twice = {
        "brooklyn.initializers": [*data["brooklyn.initializers"], {**data["brooklyn.initializers"][0], "name": "b"}]
    }
    with pytest.raises(InvalidDefinition, match="holds 2"):
        define(twice)


def test_a_signature_is_read_from_the_top_alone() -> None:
    definition = {"Shorthand": "${a}", "inputs": {"a": "string"}, "description": "d", "steps": [{"not": "valid"}]}
    assert signature(definition) == ("d", "${a}", {"a": "string"})
    assert signature(None) == signature([]) == ("", "", {})


# --- text ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"a: 1\nb: \xff\n", "HF0119", 2, 4),
        (b"\xef\xbb\xbfa: \xc3\xa9\xc3(\n", "HF0119", 1, 5),
        ("a: 1\n".encode("utf-16"), "HF0119", 0, 0),
        (b"x" * 10_000_000, "HF0106", 0, 0),
    ],
)
def test_bytes_that_are_no_text(data: bytes, code: str, line: int, column: int) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        decode(data, "f.yaml")
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.column if line else 0, problem.file) == (code, line, column, "f.yaml")


def test_text_comes_through_whole() -> None:
    assert decode("\ufeffé\r\n".encode()) == "\ufeffé\r\n"
    assert len(decode(b"x" * MAX_BYTES)) == MAX_BYTES


@pytest.mark.parametrize("text", ["- log ${x\n", '- log: "${"\n', "- log a\n- log: |\n    b\n    ${c.d[\n"])
def test_an_expression_that_never_ends_is_told_where_it_begins(text: str) -> None:
    (problem,) = told(text)
    assert problem.code == "HF0120"
    assert problem.source[problem.column - 1 :].startswith("${")


def hints(text: str) -> list[tuple[int, int, str]]:
    (found,) = defined(text)
    assert {problem.code for problem in found.warnings} <= {"HF0136"}
    return [(problem.line, problem.column, problem.help) for problem in found.warnings]


def test_words_that_were_booleans_once_are_hinted_at_in_data() -> None:
    text = "steps:\n- block: a.b\n  idempotent: yes\n"
    text += "  input: {c: yes, d: 'no', e: [Off, nO, y], f: \"on\", g: true}\noutput: no\n"
    assert hints(text) == [
        (4, 14, "write `true`, or 'yes' in quotes if the text is meant"),
        (4, 32, "write `false`, or 'Off' in quotes if the text is meant"),
        (5, 9, "write `false`, or 'no' in quotes if the text is meant"),
    ]
    assert hints("inputs: {a: {type: boolean, default: yes}}\nsteps: [log yes]\n") == []


def test_nothing_of_the_kind_is_said_of_json() -> None:
    found: Any = define({"steps": [{"block": "a.b", "input": {"c": "yes"}}]})
    assert found.warnings == []
