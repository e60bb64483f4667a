"""The keys of entities: what they mean for an execution, and what is said of those that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition, Refused
from holdfast.core.model import BlockOffer, Gate, JobSpec, Policy
from holdfast.core.program import Acquire
from holdfast.language import render

from .player import program
from .test_definition import marked, told

#: text → code, what is underlined, a part of the help
CASES: list[tuple[str, str, str, str]] = [
    ("run-on: 3", "HF0174", "3", ""),
    ("run-on: a b", "HF0174", "a b", ""),
    ("steps:\n- step: log hi\n  run-on: device", "HF0174", "device", "`steps:`"),
    ("steps:\n- run-on: device\n  steps:\n  - step: shell ls\n    run-on: interface", "HF0174", "interface", "leave"),
    ("config: 3", "HF0108", "3", ""),
    ("config: {rolback: auto}", "HF0102", "rolback", "did you mean `rollback`?"),
    ("config: {rollback: atuo}", "HF0177", "atuo", "did you mean `auto`?"),
    ("config: {on-unsafe: keep}", "HF0177", "keep", "release, quarantine"),
    ("run-on: device\nconfig: {lock: {mode: both}}", "HF0177", "both", "exclusive, shared"),
    ("run-on: device\nconfig: {lock: {on-conflict: no}}", "HF0177", "no", "wait"),
    ("run-on: device\nconfig: {lock: {timeout: 3}}", "HF0114", "3", ""),
    ("run-on: device\nconfig: {lock: 3}", "HF0108", "3", ""),
    ("run-on: device\nconfig: {max-failures: 101%}", "HF0172", "101%", ""),
    ("run-on: device\nconfig: {max-failures: -1}", "HF0172", "-1", ""),
    ("run-on: device\nconfig: {max-failures: -5%}", "HF0172", "-5%", ""),
    ("run-on: device\nconfig: {max-failures: some}", "HF0172", "some", ""),
    ("run-on: device\nconfig: {max-failures: [1]}", "HF0172", "[1]", ""),
    ("run-on: device\nconfig: {max-failures: '${input.x}'}", "HF0126", "'${input.x}'", ""),
    ("run-on: device\nconfig: {rollout: {batches: 0}}", "HF0172", "0", ""),
    ("run-on: device\nconfig: {rollout: {batches: [1, 0%]}}", "HF0172", "0%", ""),
    ("run-on: device\nconfig: {rollout: {batches: [1, 120%]}}", "HF0172", "120%", ""),
    ("run-on: device\nconfig: {rollout: {batches: [1, -2]}}", "HF0172", "-2", ""),
    ("run-on: device\nconfig: {rollout: {batches: []}}", "HF0172", "{batches: []}", "[1, \"25%\"]"),
    ("run-on: device\nconfig: {rollout: {gate: 5m}}", "HF0172", "{gate: 5m}", "[1, \"25%\"]"),
    ("run-on: device\nconfig: {rollout: {batches: 1, gate: perhaps}}", "HF0114", "perhaps", ""),
    ("run-on: device\nconfig: {concurrency: 0}", "HF0116", "0", ""),
    ("run-on: device\nconfig: {priority: high}", "HF0116", "high", ""),
    ("run-on: device\nconfig: {fail-fast: perhaps}", "HF0116", "perhaps", ""),
    ("run-on: device\nconfig: {execution-strategy: {paralel: yes}}", "HF0102", "paralel", "parallel"),
    ("config: {max-failures: 1}", "HF0179", "1", "run-on: device"),
    ("config: {rollout: {batches: 1}}", "HF0179", "{batches: 1}", ""),
    ("acquire: 3", "HF0176", "3", ""),
    ("acquire: {}", "HF0176", "{}", ""),
    ("acquire: {ids: [a], select: 'true'}", "HF0176", "{ids: [a], select: 'true'}", ""),
    ("acquire: {ids: [3]}", "HF0176", "[3]", ""),
    ("acquire: {select: [a]}", "HF0176", "[a]", ""),
    ("acquire: {ids: ['${steps.s.output}']}", "HF0135", "steps.s", ""),
    ("acquire: ['type == ']", "HF0751", "", ""),
    ("steps:\n- step: shell ls\n  acquire: {idz: [a]}", "HF0102", "idz", "ids"),
    ("gates: {window: now}", "HF0178", "now", ""),
    ("gates: {window: 25:00-26:00}", "HF0178", "25:00-26:00", ""),
    ("gates: {not-before: soon}", "HF0178", "soon", "2030-01-31"),
    ("gates: {not-before: 5}", "HF0178", "5", ""),
    ("gates: {after: []}", "HF0178", "[]", ""),
    ("gates: {approval: 5}", "HF0178", "5", ""),
    ("gates: {deadline: 5}", "HF0114", "5", ""),
    ("gates: {never: 5}", "HF0102", "never", ""),
    ("run-on: device\nsteps:\n- {id: x, step: let y = 1}\n- log ${steps.x.failed}", "HF0175", "steps.x.failed", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "under", "help"), CASES, ids=[case[0][:60] for case in CASES])
def test_what_cannot_be_is_said_at_its_place(text: str, code: str, under: str, help: str) -> None:
    if "steps:" not in text:
        text += "\nsteps: [{id: s, step: shell ls}]"
    found = [problem for problem in told(text) if problem.code == code]
    assert found, [render(problem) for problem in told(text)]
    assert marked(found[0]) == under or not under, render(found[0])
    assert help in found[0].help, render(found[0])


BLOCKS = {
    "net.look": BlockOffer("net.look", pure=True, run_on="device"),
    "net.change": BlockOffer("net.change"),
    "net.need": BlockOffer("net.need", has_acquire=True),
}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("steps: [net.look]", ["HF0171"]),
        ("steps: [{step: net.look, run-on: global}]", []),
        ("run-on: interface\nsteps: [net.look]", []),
        ("acquire: 'true'\nsteps: [net.look]", []),
        ("run-on: device\nconfig: {lock: {mode: shared}}\nsteps: [net.look]", []),
        ("run-on: device\nconfig: {lock: {mode: shared}}\nsteps: [net.look, net.change]", ["HF0173"]),
    ],
)
def test_what_the_blocks_say_has_to_fit(text: str, codes: list[str]) -> None:
    _, problems = program(text).pin(BLOCKS)
    assert [problem.code for problem in problems] == codes


def test_the_pinned_blocks_say_what_they_are_done_for() -> None:
    text = """
run-on: device
steps:
- net.look
- {step: net.change, run-on: interface}
- net.change
- {step: net.need, run-on: global}
- run-on: group
  steps: [net.change]
"""
    specs, _ = program(text).pin(BLOCKS)
    found = [(spec.block, spec.run_on) for spec in specs]
    assert found == [
        ("net.look", "device"), ("net.change", "interface"), ("net.change", "device"), ("net.need", "global"),
        ("net.change", "group"),
    ]  # fmt: skip


FULL = """
run-on: device
config:
  rollback: manual
  onUnsafe: quarantine
  lock: {mode: shared, timeout: 5m, on-conflict: fail}
  require_clean: yes
  requireEntities: true
  priority: 7
steps: [net.look]
"""


def test_the_policy_of_a_workflow() -> None:
    assert program("steps: [no-op]").policy == Policy()
    assert program("config: {rollback: none}\nsteps: [no-op]").policy == Policy(rollback="none")
    assert program("run-on: global\nsteps: [no-op]").policy == Policy()
    assert program("steps: [{step: net.change, run-on: global}]").policy == Policy()
    assert program("steps: [{step: net.change, run-on: device}]").policy == Policy(works_on_entities=True)
    assert program("steps: [{step: net.change, acquire: 'true'}]").policy == Policy(works_on_entities=True)
    assert program(FULL).policy == Policy(
        works_on_entities=True, rollback="manual", on_unsafe="quarantine", is_shared=True, lock_timeout=300_000_000,
        on_conflict="fail", requires_clean=True, requires_entities=True, priority=7,
    )  # fmt: skip


def test_the_entities_a_workflow_names_by_itself() -> None:
    text = """
inputs: {site: string, more: list}
acquire:
- type == 'device' && site == ${input.site}
- ids: ${input.more}
- ids: [r1, "r-${input.site}"]
- children: interface
- {parent: yes, type: rack}
- members: yes
- {parent: no}
steps: [{step: net.change, acquire: {select: "id == 'x'", type: device}}]
"""
    found = program(text).wanted({"site": "ams", "more": ["a", "b"]})
    assert [(each.kind, each.ids, each.terms, each.type) for each in found] == [
        ("select", (), (("type", "device"), ("any.site", "ams")), ""),
        ("ids", ("a", "b"), (), ""),
        ("ids", ("r1", "r-ams"), (), ""),
        ("children", (), (), "interface"),
        ("parent", (), (), "rack"),
        ("members", (), (), ""),
        ("select", (), (("id", "x"),), "device"),
    ]  # fmt: skip


@pytest.mark.parametrize("more", [3, [3], [""], {"a": 1}])
def test_ids_that_are_none_are_refused_when_it_is_started(more: Any) -> None:
    made = program("inputs: {more: any}\nacquire: {ids: '${input.more}'}\nsteps: [no-op]")
    with pytest.raises(InvalidDefinition) as refused:
        made.wanted({"more": more})
    assert refused.value.problems[0].code == "HF0176"


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    made = program("run-on: device\nsteps: [no-op]")
    assert made.selector("type == 'device'").terms == (("type", "device"),)
    with pytest.raises(Refused):
        made.selector("type ==")


def test_blocks_are_asked_with_what_the_input_tells() -> None:
    text = """
run-on: device
inputs: {site: string}
steps:
- {id: first, step: net.change}
- {step: net.need, input: {site: "${input.site}", plain: 3, later: "${steps.first.output}", who: "${entity.id}"}}
- net.need
"""
    made = program(text)
    specs, _ = made.pin(BLOCKS)
    asked = made.acquires({"site": "ams"}, specs)
    assert [specs[each.spec].block for each in asked] == ["net.need", "net.need"]
    assert asked[0].input == {"site": "ams", "plain": 3, "later": None, "who": None}
    assert asked[1] == Acquire(asked[1].step, asked[1].spec, None)
    assert made.acquires({}, [JobSpec("x")] * len(specs)) == ()


def test_gates_of_a_workflow() -> None:
    text = """
inputs: {when: string, others: list}
gates:
  not-before: ${input.when}
  window: 22:00-04:00 +01:00
  approval: really?
  after: ${input.others}
  deadline: 1h
steps: [no-op]
"""
    now = 5_000_000
    found = program(text).gates({"when": "1970-01-01T00:00:10+00:00", "others": ["e1", "e2 completed"]}, now)
    deadline = now + 3_600_000_000
    assert {gate.kind: gate for gate in found if gate.what != "e1"} | {
        "first": next(g for g in found if g.what == "e1")
    } == {
        "first": Gate("after", "e1", deadline=deadline),
        "after": Gate("after", "e2 completed", deadline=deadline),
        "approval": Gate("approval", "really?", deadline=deadline),
        "not-before": Gate("not-before", "1970-01-01T00:00:10+00:00", due=10_000_000, deadline=deadline),
        "window": Gate("window", "22:00-04:00 +01:00", deadline=deadline),
    }
    assert program("gates: {approval: yes}\nsteps: [no-op]").gates({}, now) == (Gate("approval"),)
    assert program("gates: {approval: no}\nsteps: [no-op]").gates({}, now) == ()
    assert program("steps: [no-op]").gates({}, now) == ()
    with pytest.raises(InvalidDefinition) as refused:
        program(text).gates({"when": "soon", "others": []}, now)
    assert refused.value.problems[0].code == "HF0178"


def test_a_registered_type_is_done_where_it_is_used() -> None:
    text = "uses: {twice: {steps: [{step: net.change, run-on: device}]}}\nsteps:\n- type: twice\n"
    assert [problem.code for problem in told(text)] == ["HF0174"]
    assert told(text + "  run-on: device") == []
    assert told(text.replace("type: twice", "run-on: device\n  steps: [{type: twice}]")) == []
