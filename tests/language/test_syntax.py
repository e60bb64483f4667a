"""Text that is not YAML: the message stands where the mistake is and shows what to write instead, and all mistakes
of a file are told at once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem
from holdfast.language import Text, examine, load, load_all, render
from holdfast.language.load import read
from holdfast.language.nodes import LINE_BREAK

PRINTED = Path(__file__).parent / "data" / "provisioning-as-printed.yaml"


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidDefinition) as caught:
        load_all(text, "f.yaml")
    return caught.value.problems


def test_the_provisioning_workflow_as_printed_is_refused_with_both_fixes() -> None:
    problems = problems_of(PRINTED.read_text())
    assert [render(problem) for problem in problems] == [
        "error[HF0101]: `steps:` stands inside of the item above it, which is a text\n"
        "  --> f.yaml:6:3\n"
        "   |\n"
        " 6 |   steps:\n"
        "   |   ^^^^^ indented too far\n"
        "   = help: start it in column 1, like `on-error:`:\n"
        "           steps:",
        "error[HF0101]: an unquoted value cannot contain `: `\n"
        "   --> f.yaml:18:69\n"
        "    |\n"
        " 18 | - step: fail message Provisioning request denied by approvals system: ${content.details}\n"
        "    |                                                                     ^ this colon starts a second value\n"
        "    = help: quote the value:\n"
        "            - step: 'fail message Provisioning request denied by approvals system: ${content.details}'",
    ]


def test_the_provisioning_workflow_reads_with_both_fixes_made() -> None:
    lines = PRINTED.read_text().split("\n")
    for problem in problems_of(PRINTED.read_text()):
        lines[problem.line - 1] = problem.help.split("\n")[1]
    found = load("\n".join(lines)).root.plain()
    assert list(found) == ["type", "retention", "replayable", "on-error", "steps"]
    assert found["on-error"] == ["retry limit 10"]
    assert len(found["steps"]) == 15
    assert found["steps"][4]["step"].endswith("approvals system: ${content.details}")


#: text, where (line, column, width), beginning of the message, what help shows
MISTAKES: list[tuple[str, tuple[int, int, int], str, str]] = [
    (
        "steps:\n- log a\n  condition: x\n",
        (3, 3, 9),
        "a step that has keys needs `step:`",
        "- step: log a\n  condition: x",
    ),
    ("steps:\n- log a # why\n  id: x\n", (3, 3, 2), "a step that has keys needs `step:`", "- step: log a\n  id: x"),
    ("steps:\n- step:log a\n  id: x\n", (2, 7, 1), "a space is missing after `step:`", "- step: log a"),
    ("steps:\n- log a\n-log b\n- log c\n", (3, 1, 1), "a space is missing after the dash", "- log b"),
    ("steps:\n- log a\nlog b\n", (3, 1, 5), "this line is neither a key nor an item of the list", "- log b"),
    ("name: x\nsteps\n- log a\n", (2, 1, 5), "a colon is missing after `steps`", "steps:"),
    ("name: x\n  steps:\n  - log a\n", (2, 3, 5), "`name` has a value already", "start `steps` in column 1"),
    ("steps:\n\t- log a\n\t- log b\n", (2, 1, 1), "a tab cannot be used for indentation", "2 lines of this text"),
    ("steps:\n-\tlog a\n", (2, 2, 1), "a tab cannot follow a dash", "- log a"),
    ("steps:\n- log: 'a\n- log: b\n", (2, 8, 1), "the quote is never closed", "- log: 'a'"),
    ('steps:\n- log: "a\n', (2, 8, 1), "the quote is never closed", '- log: "a"'),
    ("steps:\n- log: 'it's'\n", (2, 12, 1), "there is more text after the closing quote", '- log: "it\'s"'),
    ('steps:\n- step: "x" y\n', (2, 13, 1), "there is more text after the closing quote", "- step: '\"x\" y'"),
    ('a: "C:\\data"\n', (1, 7, 2), "`\\d` is not an escape", '"C:\\\\data"'),
    ('a: "C:\\users"\n', (1, 7, 2), "`\\u` needs 4 hexadecimal digits", '"C:\\\\users"'),
    ("a: [1, 2\nb: 3\n", (1, 4, 1), "the `[` is never closed", "a `]` is missing"),
    ("a: {b: 1\nc: 3\n", (1, 4, 1), "the `{` is never closed", "a `}` is missing"),
    ("- {log: ${x} b, id: c}\n", (1, 9, 2), "inside of `[ ]` and `{ }`", "- {log: '${x} b', id: c}"),
    ("a: [${x}, '${y}', b ${z}]\n", (1, 5, 2), "inside of `[ ]` and `{ }`", "a: ['${x}', '${y}', 'b ${z}']"),
    ("a: @x # c\n", (1, 4, 1), "a plain value cannot begin with `@`", "a: '@x'"),
    ("- %x\n", (1, 3, 1), "a plain value cannot begin with `%`", "- '%x'"),
    ("a: **b**\n", (1, 4, 1), "a plain value cannot begin with `*`", "a: '**b**'"),
    ("- *x y\n", (1, 3, 1), "a plain value cannot begin with `*`", "- '*x y'"),
    ("a: & b\n", (1, 4, 1), "a plain value cannot begin with `&`", "a: '& b'"),
    ("a: ]\n", (1, 4, 1), "a plain value cannot begin with `]`", "a: ']'"),
    ("a: | b\n  c\n", (1, 6, 1), "text cannot stand on the line of its `|`", "on the next line"),
    ("a: it's: b\n", (1, 8, 1), "an unquoted value cannot contain `: `", 'a: "it\'s: b"'),
    ("a: b: c # why: so\n", (1, 5, 1), "an unquoted value cannot contain `: `", "a: 'b: c'"),
    ("a:\n  - 1\n b: 2\n", (3, 2, 1), "nothing begins in column 2", "starts in the columns 1, 3 and 5"),
    ("- id: a\n step: log x\n", (2, 2, 1), "nothing begins in column 2", "starts in the columns 1 and 3"),
    ("- id: a\n   step: log x\n", (2, 4, 4), "`id` has a value already", "start `step` in column 3, like `id`"),
    ("a: {{ x }} # c\n", (1, 4, 2), "a plain value cannot begin with `{{`", "a: '{{ x }}'"),
    ("a: {{ x }} y\n", (1, 4, 1), "a plain value cannot begin with `{{`", "a: '{{ x }} y'"),
    ("  a: 1\nb: 2\n", (2, 1, 1), "this line is further left", "the same column"),
    ("a: 1\n...\nb: 2\n", (3, 1, 1), "`...` ended the document", "begin the next document with `---`"),
    ("a: 1\n--- b: 2\n", (2, 6, 1), "an unquoted value cannot contain `: `", "`---` stands on a line of its own"),
]


@pytest.mark.parametrize("parser", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(("text", "where", "message", "help"), MISTAKES)
def test_a_mistake_is_told_where_it_is_with_its_fix(
    text: str, where: tuple[int, int, int], message: str, help: str, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the parser in C, and by the one in Python that is taken where there is no other."""
    use(parser, monkeypatch)
    (problem,) = problems_of(text)
    assert (problem.line, problem.column, problem.width) == where
    assert problem.code == "HF0101"
    assert problem.message.startswith(message)
    assert help in problem.help


def use(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parser == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        reason = "PyYAML was built without libyaml"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def test_mistakes_of_several_documents_and_kinds_are_told_together() -> None:
    text = 'name: a\nsteps:\n- log a: b: c\n---\nname: b\nsteps:\n- log x\n  id: &y z\n  id: 2\n---\n5: x\na: "\\q"\n'
    found = [(p.code, p.line, p.column) for p in problems_of(text)]
    assert found == [
        ("HF0101", 3, 11),
        ("HF0101", 8, 3),
        ("HF0104", 8, 7),
        ("HF0103", 9, 3),
        ("HF0105", 11, 1),
        ("HF0101", 12, 5),
    ]


def test_places_on_a_line_that_was_put_right_are_those_of_the_text_as_written() -> None:
    text = "- step: fail message a: ${b}\n- log x\n  condition: {a: 1, a: 2}\n"
    documents, report, is_whole = read(text, "f")
    assert is_whole
    assert [(p.code, p.line, p.column, p.source) for p in report.sorted] == [
        ("HF0101", 1, 23, "- step: fail message a: ${b}"),
        ("HF0101", 3, 3, "  condition: {a: 1, a: 2}"),
        ("HF0103", 3, 21, "  condition: {a: 1, a: 2}"),
    ]
    (document,) = documents
    first = document.root.value[0].value["step"]
    report.add(first, "HF0121", "x", offset=18, snippet="b")
    assert report.found[-1].source[report.found[-1].column - 1] == "b"
    report.add(first, "HF0121", "x")
    assert (report.found[-1].column, report.found[-1].width) == (9, 20)
    second = document.root.value[1].value["step"]
    report.add(second, "HF0121", "x", offset=4, snippet="x")
    assert (report.found[-1].source, report.found[-1].column) == ("- log x", 7)


def test_a_guess_is_told_but_nothing_is_built_upon_it() -> None:
    _, report, is_whole = read("steps:\n- log: 'a\n- log: b\n", "f")
    assert report.errors
    assert not is_whole


def test_it_is_not_read_again_forever() -> None:
    text = "".join(f"k{n}: a: b\n" for n in range(500))
    assert len(problems_of(text)) == 20
    assert len(problems_of("x" * 600_000 + "\n" + text)) == 1


VALID = [
    "a: 1\nb: [x, {y: 'z'}]\n", "- a\n- b: c\n  d: |\n    e\n    f\n", '{"a": [1, 2.5, null, true], "b": "\\u00e9\\n"}',
    "a: >-\n  x\n  y\n\nb: 'it''s'\n", "? a\n: b\n", "a: 1\n---\nb: 2\n...\n---\nc: 3\n", "# c\n---\n- é: ü\r\n- x\r\n",
    "a: !!str 1\nb: &x 2\nc: *x\n", "a: x\n  y\n  z\n",
]  # fmt: skip


@pytest.mark.parametrize("text", VALID)
def test_both_parsers_give_the_same_tree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use("CSafeLoader", monkeypatch)
    fast = everything(text)
    use("SafeLoader", monkeypatch)
    assert everything(text) == fast


def everything(text: str) -> Any:
    documents, report, is_whole = read(text, "f")

    def tree(node: Any) -> Any:
        value = node.value
        inner = {k: tree(n) for k, n in value.items()} if isinstance(value, dict) else value
        inner = [tree(n) for n in value] if isinstance(value, list) else inner
        place = (node.line, node.column, node.start, node.end_line, node.end_column, node.end, node.style or "")
        return inner, place if not isinstance(value, (list, dict)) else place[:3], node.marks

    return [(d.line, tree(d.root)) for d in documents], report.sorted, is_whole


PIECES = ["${", "}", ":", ": ", "\n", "  ", "- ",
          "'", '"', "[", "{", "]", "&", "*", "|", "#", "%", "\t", "\\", "\n---\n",
          "\n...\n", "step:", "-", ",", "é", "\r\n", "\u2028", "@", "`"]  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 6), st.booleans())
def test_every_problem_is_in_the_text_as_it_was_written(seed: int, edits: int, is_mended: bool) -> None:
    rng = random.Random(seed)
    text = PRINTED.read_text()
    if is_mended:
        text = text.replace("\n  steps:", "\nsteps:").replace("system: $", "system $")
    for _ in range(edits):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(PIECES) * rng.choice([1, 1, 3]) + text[at + rng.choice([0, 0, 1, 5, 30]) :]
    lines = LINE_BREAK.split(text)
    (examined,) = examine([Text(text, "f")])
    for problem in examined.problems:
        assert problem.source == lines[problem.line - 1][:400]
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        render(problem)
