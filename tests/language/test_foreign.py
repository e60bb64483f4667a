"""Definitions in the function-block notation: each key, where problems are said to be, and what the workflow does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.core.events import JobScheduled, JobSucceeded
from holdfast.core.inventory import EntityRow
from holdfast.core.model import BlockOffer, Effect, Problem, Retry, Status
from holdfast.language import (
    Text,
    canonical,
    compile_definition,
    load_workflow,
    load_workflows,
    program_from_bytes,
    signature,
)
from holdfast.language.foreign import is_version, translate
from holdfast.language.load import load
from holdfast.language.nodes import Report

from .scopes import marked
from .world import Block, Boom, World

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = """\
label: wf
name: wf
package: wf.example.io
majorVersion: 1
minorVersion: 2
patchVersion: 3
seedEntity: device
type: workflow
"""
EVERYTHING = """\
description: d
runOn: device
acquire: ["role:edge", {query: "site:{{ parameters.x }}"}, {ids: ["{{ parameters.x }}"]}, {context: interfaces}]
config: {executionStrategy: {parallel: true}}
parameterSchema: {type: object, properties: {x: {type: string, enum: [a, b], default: a}}, required: [x]}
parameters: {y: "{{ parameters.x }}"}
rawParameters: {x: b}
cron: [{title: t}]
hideForExecution: false
condition: {type: jmes, jmes: "{{ parameters.x }}"}
assert: [{jmes: parameters.x}]
delay: 1
retryConfig: {maxRetries: 1, delay: 1}
repeatConfig: {repeats: 1, delay: 1, condition: {jmes: parameters.x}}
continueOnError: true
steps:
- label: a
  type: functionBlock
  functionBlock: fb.example.io/a:1
  acquire: [{context: device}]
  retryConfig: {maxRetries: 1, condition: parameters.x}
  description: d
- label: b
  type: workflow
  runOn: device
  parameters: {z: ["{{ a.result.data[0] }}"]}
  condition: {jmes: "{{ parameters.y }}"}
  assert: parameters.y
  continueOnError: false
  steps:
  - {label: c, functionBlock: "fb.example.io/c:1.0", delay: 0.5, parameters: {z: "{{ parameters.z }}"}}
"""
STEP = "steps:\n- {label: a, functionBlock: fb.example.io/a:1}\n"


def devices(count: int = 2) -> dict[str, EntityRow]:
    return {
        f"d{n}": EntityRow(f"d{n}", "device", f"Device {n}", facts={"platform": "ios" if n else "eos", "n": n})
        for n in range(count)
    }


def world(
    text: str, blocks: dict[str, Block] | None = None, input: Any = None,
    entities: dict[str, EntityRow] | None = None, head: str = HEAD,
) -> World:  # fmt: skip
    made = World({f"fb.example.io/{name}": block for name, block in (blocks or {}).items()})
    made.entities = devices() if entities is None else entities
    made.start(head + text, input, on=tuple(made.entities))
    return made.run()


def given(made: World) -> list[Any]:
    """What blocks were given, and on what."""
    return [(label, entity, input) for (_, label, input), entity in zip(made.ran, made.ran_on, strict=True)]


def told(text: str) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as caught:
        load_workflow(text, "f.yaml")
    return list(caught.value.problems)


def native(text: str) -> Any:
    document = load(text)
    report = Report(document)
    made = translate(document, report, {}).plain()
    report.check()
    return made


# --- every key ---------------------------------------------------------------------------------------
def test_root_keys_become_native_ones() -> None:
    text = HEAD + (
        "description: what for\n$schema: x\nhideForExecution: true\nrunOn: interface\n"
        "acquire: ['site:ams1 AND role:edge', {ids: [sw1]}, {context: interfaces}, {query: \"type == 'device'\"}]\n"
        "config: {executionStrategy: {parallel: true}}\nparameters: {x: 1}\nrawParameters: {y: '{{ z }}', x: 2}\n"
        "parameterSchema: {properties: {x: {type: integer}, y: {type: array, items: {}}}, required: [x]}\n"
    )
    made = native(text + STEP)
    assert made == {
        "name": "wf.example.io/wf",
        "description": "what for",
        "labels": {"package": "wf.example.io", "version": "1.2.3"},
        "metadata": {"hide-for-execution": True},
        "run-on": "interface",
        "acquire": ['site == "ams1" && role == "edge"', {"ids": ["sw1"]}, {"children": "interface"},
                    {"select": "type == 'device'"}],
        "config": {"executionStrategy": {"parallel": True}},
        "input": {"x": 2, "y": "{{ z }}"},
        "inputs": {"x": {"type": "integer", "required": True}, "y": {"type": "array", "required": False}},
        "steps": [{"id": "a", "block": "fb.example.io/a:1", "run-on": "interface"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("runOn: interface", {"run-on": "interface"}),
        ("runOn: device_group", {"run-on": "group"}),
        ("parameters: {x: '{{ parameters.y }}'}", {"input": {"x": "{{ parameters.y }}"}}),
        ("parameters: {x: 1, y: 2}, rawParameters: {y: 3}", {"input": {"x": 1, "y": 3}}),
        ("condition: {type: jmes, jmes: '{{ parameters.x }}'}", {"condition": "{{ parameters.x }}"}),
        ("condition: parameters.x", {"condition": "parameters.x"}),
        ("assert: [{type: jmes, jmes: '{{ parameters.x }}'}]", {"assert": ["{{ parameters.x }}"]}),
        ("acquire: ['role:edge']", {"acquire": ['role == "edge"']}),
        ("acquire: [\"site == '{{ parameters.site }}'\"]", {"acquire": ["site == input.site"]}),
        ("acquire: [{query: 'site:{{parameters.site}} AND role:\"a b\"'}]",
         {"acquire": [{"select": 'site == input.site && role == "a b"'}]}),
        ("acquire: [{context: device}, {context: devices}]", {"acquire": [{"parent": True}, {"members": True}]}),
        ("retryConfig: {maxRetries: 3, delay: 1.5}",
         {"retry": {"attempts": 4, "delay": "1500ms", "factor": 1, "max-delay": "1500ms", "jitter": 0}}),
        ("retryConfig: {maxRetries: 3, delay: 2, condition: {jmes: '{{ parameters.x }}'}}",
         {"on-error": [{"type": "retry", "limit": "3", "backoff": "2000ms", "condition": "{{ parameters.x }}"}]}),
        ("repeatConfig: {repeats: 3, delay: 5}", {"repeat": {"times": 3, "delay": "5000ms"}}),
        ("repeatConfig: {condition: {jmes: '{{ parameters.x }}'}}", {"repeat": {"while": "{{ parameters.x }}"}}),
        ("continueOnError: true", {"continue-on-error": True}),
        ("delay: 600", {"delay": "600000ms"}),
        ("description: why", {"metadata": {"description": "why"}}),
        ("type: functionBlock", {}),
    ],
)  # fmt: skip
def test_step_keys_become_native_ones(keys: str, expected: Any) -> None:
    made = native(HEAD + f"steps:\n- {{label: a, functionBlock: fb.example.io/a:1, {keys}}}\n")
    assert made["steps"] == [{"id": "a", "block": "fb.example.io/a:1", **expected}]


def test_embedded_steps_stand_in_place_with_what_was_said_around_them() -> None:
    made = native(
        HEAD + "steps:\n- label: group\n  type: workflow\n  runOn: interface\n  condition: {jmes: parameters.x}\n"
        "  assert: [{jmes: parameters.y}]\n  steps:\n"
        "  - {label: a, functionBlock: fb.example.io/a:1}\n"
        "  - {label: b, functionBlock: fb.example.io/b:1, runOn: device, condition: {jmes: parameters.z}}\n"
    )
    assert made["steps"] == [
        {"id": "a", "block": "fb.example.io/a:1", "run-on": "interface", "condition": "parameters.x",
         "assert": ["parameters.y"]},
        {"id": "b", "block": "fb.example.io/b:1", "run-on": "device", "condition": "parameters.z"},
    ]  # fmt: skip


def test_what_is_done_once_is_done_once() -> None:
    group = "- {label: g, type: workflow, runOn: global, steps: [{label: b, functionBlock: 'fb.example.io/b:1'}]}\n"
    made = world(STEP + group)
    assert [(label, on) for label, on, _ in given(made)] == [("a", "d0"), ("a", "d1"), ("b", "")]
    assert native(HEAD + "runOn: global\n" + STEP)["run-on"] == "device"
    made = world("runOn: global\n" + STEP)
    assert [(label, on) for label, on, _ in given(made)] == [("a", "")]
    inside = group.replace("global", "device, retryConfig: {maxRetries: 1}").replace("b:1'", "b:1', runOn: global")
    problem = told(HEAD + STEP + inside)[0]
    assert (problem.code, marked(problem)) == ("HF0188", "global")


def test_group_that_is_repeated_stays_one_step() -> None:
    made = native(
        HEAD + "steps:\n- label: group\n  type: workflow\n  runOn: device\n  repeatConfig: {repeats: 2}\n"
        "  condition: {jmes: parameters.x}\n  steps:\n  - {label: a, functionBlock: fb.example.io/a:1, runOn: device}\n"
    )
    assert made["steps"] == [
        {"id": "group", "type": "subworkflow", "run-on": "device", "condition": "parameters.x", "repeat": {"times": 2},
         "steps": [{"id": "a", "block": "fb.example.io/a:1"}]}
    ]  # fmt: skip


def test_single_keys_are_taken_in_native_workflows() -> None:
    text = "name: n\nsteps:\n- {id: a, functionBlock: fb.example.io/a:1, input: {x: '${entity.id}'}}\n"
    data, program, _ = load_workflow(text)
    assert data["steps"][0]["functionBlock"] == "fb.example.io/a:1"
    assert program.policy.works_on_entities
    _, plain, _ = load_workflow(text.replace("functionBlock", "block").replace("${entity.id}", "y"))
    assert not plain.policy.works_on_entities
    _, on_step, _ = load_workflow(
        "name: n\nsteps:\n- {id: a, block: fb.example.io/a, runOn: device, continueOnError: yes}\n"
    )
    assert on_step.policy.works_on_entities


def test_it_is_stored_as_it_was_written_and_known_by_package_and_name() -> None:
    text = HEAD + "description: d\nparameterSchema: {properties: {x: {type: string}}}\n" + STEP
    (found,) = load_workflows([Text(text, "f.yaml")])
    assert (found.name, found.program.name) == ("wf.example.io/wf", "wf.example.io/wf")
    assert found.data["steps"] == [{"label": "a", "functionBlock": "fb.example.io/a:1"}]
    assert signature(found.data).parameters == {"x": {"type": "string"}}
    assert signature(found.data).description == "d"
    (again,) = load_workflows([Text(text.replace("name: wf\n", "name: other\n"), "g.yaml")])
    assert again.name == "wf.example.io/other"


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [("1", "1.2.3", True), ("1.2", "1.2.3", True), ("1.2.3", "1.2.3", True), ("", "1.2.3", True),
     ("1.2", "1.20.3", False), ("2", "1.2.3", False), ("1", "10.0.0", False), ("1", "", False)],
)  # fmt: skip
def test_versions_in_part(wanted: str, version: str, fits: bool) -> None:
    assert is_version(wanted, version) == fits


# --- problems ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "code", "line", "under"),
    [
        (HEAD + STEP + "extra: 1\n", "HF0188", 11, "extra"),
        (HEAD + "config: {executionStrategy: {paralel: true}}\n" + STEP, "HF0102", 9, "paralel"),
        (HEAD.replace("label: wf\n", "") + STEP, "HF0109", 1, "n"),
        (HEAD.replace("name: wf\n", "name: a b\n") + STEP, "HF0113", 2, "a b"),
        (HEAD.replace("1\n", "one\n") + STEP, "HF0116", 4, "one"),
        (HEAD.replace("device", "router") + STEP, "HF0116", 7, "router"),
        (HEAD.replace("type: workflow", "type: flow") + STEP, "HF0116", 8, "flow"),
        (HEAD + "steps: []\n", "HF0108", 9, "[]"),
        (HEAD + "steps:\n- {functionBlock: fb.example.io/a:1}\n", "HF0109", 10, "{functionBlock: fb.example.io/a:1}"),
        (HEAD + "steps:\n- {label: a-b, functionBlock: fb.example.io/a:1}\n", "HF0113", 10, "a-b"),
        (HEAD + STEP + "- {label: a, functionBlock: fb.example.io/b:1}\n", "HF0112", 11, "a"),
        (HEAD + "steps:\n- {label: a, functionBlock: ping}\n", "HF0113", 10, "ping"),
        (HEAD + "steps:\n- {label: a, functionBlock: fb.example.io/a:x}\n", "HF0113", 10, "fb.example.io/a:x"),
        (HEAD + "steps:\n- {label: a, type: functionBlock}\n", "HF0109", 10, "{label: a, type: functionBlock}"),
        (HEAD + "steps:\n- {label: a, type: loop}\n", "HF0110", 10, "loop"),
        (HEAD + "steps:\n- {label: a}\n", "HF0110", 10, "{label: a}"),
        (HEAD + "steps:\n- {label: a, functionBlock: fb.example.io/a:1, runon: device, run: x}\n", "HF0188", 10, "run"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  retryConfig: {maxRetries: 101}\n",
         "HF0116", 12, "101"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  retryConfig: {delay: 1}\n",
         "HF0109", 12, "{delay: 1}"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  repeatConfig: {repeats: 0}\n",
         "HF0116", 12, "0"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  delay: 601\n", "HF0116", 12, "601"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  continueOnError: maybe\n",
         "HF0108", 12, "maybe"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  condition: {type: python, jmes: x}\n",
         "HF0116", 12, "python"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  condition: {jmes: '{{ parameters. }}'}\n",
         "HF0185", 12, "."),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  parameters:\n    x: a {{ nobody.x }} b\n",
         "HF0186", 13, "nobody.x"),
        (HEAD + "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n  parameters:\n"
         "    x: '{{ nobody.result.data.x }}'\n", "HF0123", 13, "nobody"),
        (HEAD + "acquire: ['a b']\n" + STEP, "HF0188", 9, "'a b'"),
        (HEAD + "acquire: ['a == {{ context.device.x }}']\n" + STEP, "HF0188", 9, "'a == {{ context.device.x }}'"),
        (HEAD + "acquire: [{context: neighbours}]\n" + STEP, "HF0188", 9, "neighbours"),
        (HEAD + "acquire: ['site == ']\n" + STEP, "HF0751", 9, ""),
        (HEAD + "parameterSchema: {type: array}\n" + STEP, "HF0189", 9, "array"),
        (HEAD + "parameterSchema: {properties: {}, required: [x]}\n" + STEP, "HF0189", 9, "x"),
        (HEAD + "steps:\n- {label: a, type: workflowReference, workflow: wf.example.io/none:1}\n", "HF0110", 10,
         "wf.example.io/none"),
    ],
)  # fmt: skip
def test_problem_is_told_at_its_place(text: str, code: str, line: int, under: str) -> None:
    problem = next(each for each in told(text) if not each.warning)
    assert (problem.code, problem.line) == (code, line), problem
    if under:
        assert marked(problem) == under


def test_all_problems_are_told_at_once() -> None:
    text = HEAD.replace("label: wf\n", "") + "extra: 1\nsteps:\n- {label: a, functionBlock: x, delay: -1}\n- 3\n"
    assert sorted(problem.code for problem in told(text)) == ["HF0108", "HF0109", "HF0113", "HF0116", "HF0188"]


def test_what_is_kept_but_not_followed_is_said() -> None:
    text = HEAD + "cron: [{title: nightly}]\nparameterSchema: {properties: {x: {type: string, pattern: a}}}\n" + STEP
    _, program, warnings = load_workflow(text, "f.yaml")
    assert [(each.code, marked(each)) for each in warnings] == [("HF0187", "cron"), ("HF0189", "pattern")]
    assert program.workflow.metadata == {"cron": [{"title": "nightly"}]}


def test_missing_parameter_is_null_and_said() -> None:
    text = (
        HEAD
        + "parameterSchema: {properties: {host: {type: string}}}\nsteps:\n"
        + ("- {label: a, functionBlock: fb.example.io/a:1, parameters: {x: '{{ parameters.hots }}'}}\n")
    )
    _, _, warnings = load_workflow(text, "f.yaml")
    assert [(each.code, marked(each)) for each in warnings] == [("HF0121", "parameters.hots")]
    made = world(text.removeprefix(HEAD), input={"host": "x"})
    assert {input["x"] for _, _, input in given(made)} == {None}


# --- what it does ------------------------------------------------------------------------------------
def test_parameters_are_filled_in_for_each_entity() -> None:
    text = """\
parameters: {vlan: 5}
steps:
- label: a
  functionBlock: fb.example.io/a:1
  parameters:
    name: "{{ context.device.name }}"
    text: "vlan {{ parameters.vlan }} on {{ context.device.platform }} ${HOME}"
    list: ["{{ parameters.vlan }}", {deep: "{{ context.device.n }}"}]
    nothing: "{{ context.interface.name }}"
  rawParameters: {raw: "{{ x }} ${y}", name: raw wins}
"""
    made = world(text)
    assert given(made) == [
        ("a", f"d{n}", {"name": "raw wins", "text": f"vlan 5 on {platform} ${{HOME}}", "list": [5, {"deep": n}],
                        "nothing": None, "raw": "{{ x }} ${y}"})
        for n, platform in enumerate(("eos", "ios"))
    ]  # fmt: skip
    assert made.states["e1"].status is Status.COMPLETED
    (program,) = made.programs.values()
    assert program.workflow.labels == {"package": "wf.example.io", "version": "1.2.3"}


def test_results_are_those_of_the_same_entity() -> None:
    text = """\
steps:
- {label: look, functionBlock: fb.example.io/look:1}
- label: act
  functionBlock: fb.example.io/act:1
  condition: {type: jmes, jmes: "{{ look.result.data.ports[?up].name }}"}
  parameters: {ports: "{{ look.result.data.ports[?up].name }}", ok: "{{ look.result.success }}"}
"""
    look = {"d0": [{"name": "e1", "up": True}, {"name": "e2", "up": False}], "d1": [{"name": "e1", "up": False}]}
    made = world(text, {"look": lambda given: {"ports": look[given.entity]}})
    assert given(made)[2:] == [("act", "d0", {"ports": ["e1"], "ok": True})]


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_condition_that_is_false(value: Any) -> None:
    text = "steps:\n- {label: a, functionBlock: fb.example.io/a:1, condition: {jmes: '{{ parameters.x }}'}}\n"
    made = world(text, input={"x": value})
    assert (made.ran, made.states["e1"].status) == ([], Status.COMPLETED)


@pytest.mark.parametrize("value", [True, 0, "no", [0], {"a": None}])
def test_condition_that_is_true(value: Any) -> None:
    text = "steps:\n- {label: a, functionBlock: fb.example.io/a:1, condition: {jmes: '{{ parameters.x }}'}}\n"
    assert len(world(text, input={"x": value}).ran) == 2


def test_assertion_that_does_not_hold_fails_the_step() -> None:
    text = "steps:\n- {label: a, functionBlock: fb.example.io/a:1, assert: [{jmes: 'context.device.n == `1`'}]}\n"
    made = world(text)
    assert made.ran == []
    assert made.states["e1"].status is Status.FAILED_SAFE


def test_retries_are_counted_without_the_first_attempt() -> None:
    tries: list[int] = []

    def block(given: Any) -> Any:
        tries.append(made.now)
        raise Boom(effect=Effect.NONE)

    text = "steps:\n- {label: a, functionBlock: fb.example.io/a:1, retryConfig: {maxRetries: 2, delay: 3}}\n"
    made = World({"fb.example.io/a": block})
    made.entities = devices(1)
    made.start(HEAD + text, on=("d0",))
    made.run()
    assert [after - before for before, after in pairwise(tries)] == [3_000_000, 3_000_000]
    assert made.states["e1"].status is Status.FAILED_SAFE


@pytest.mark.parametrize(("again", "count"), [(True, 3), (False, 1)])
def test_retry_under_a_condition(again: bool, count: int) -> None:
    tries: list[str] = []

    def block(given: Any) -> Any:
        tries.append(given.entity)
        raise Boom(effect=Effect.NONE)

    text = (
        "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n"
        "  retryConfig: {maxRetries: 2, condition: {jmes: '{{ parameters.again }}'}}\n"
    )
    offers = {"fb.example.io/a": BlockOffer("fb.example.io/a", "1.0.0", idempotent=True, retry=Retry(attempts=1))}
    made = World({"fb.example.io/a": block}, offers)
    made.entities = devices(1)
    made.start(HEAD + text, {"again": again}, on=("d0",))
    made.run()
    assert len(tries) == count
    assert made.states["e1"].status is Status.FAILED_SAFE


def test_repeat_while_a_condition_holds() -> None:
    counts: dict[str, int] = {}

    def block(given: Any) -> Any:
        counts[given.entity] = counts.get(given.entity, 0) + 1
        return {"left": (2 if given.entity == "d0" else 4) - counts[given.entity]}

    text = (
        "steps:\n- label: a\n  functionBlock: fb.example.io/a:1\n"
        "  repeatConfig: {repeats: 3, delay: 1, condition: {jmes: '{{ a.result.data.left > `0` }}'}}\n"
    )
    made = world(text, {"a": block})
    assert made.states["e1"].status is Status.COMPLETED
    assert counts == {"d0": 2, "d1": 3}


def test_step_that_may_fail_says_so_in_its_result() -> None:
    def block(given: Any) -> Any:
        if given.entity == "d0":
            raise Boom()
        return {}

    text = """\
steps:
- {label: a, functionBlock: fb.example.io/a:1, continueOnError: true}
- {label: b, functionBlock: fb.example.io/b:1, parameters: {ok: "{{ a.result.success }}"}}
"""
    made = world(text, {"a": block})
    assert given(made)[2:] == [("b", "d0", {"ok": False}), ("b", "d1", {"ok": True})]
    assert made.states["e1"].status is Status.COMPLETED


def test_parallel_strategy_lets_every_entity_go_its_own_way() -> None:
    text = "config: {executionStrategy: {parallel: true}}\n" + STEP + "- {label: b, functionBlock: fb.example.io/b:1}\n"
    made = world(text)
    assert [(label, on) for label, on, _ in given(made)] == [("a", "d0"), ("a", "d1"), ("b", "d0"), ("b", "d1")]
    # The lane of the first is at its second step in the commit of its own result, whatever the other does.
    ended = [event.job for event in made.events(JobSucceeded)]
    assert [event.lane for event in made.events(JobScheduled)][:2] == [
        event.lane for event in made.events(JobScheduled)
    ][2:]
    assert ended == [1, 2, 3, 4]


def test_parameters_of_an_embedded_workflow_are_those_of_its_steps() -> None:
    text = """\
steps:
- {label: a, functionBlock: fb.example.io/a:1}
- label: inner
  type: workflow
  parameters: {path: "{{ a.result.data.path }}/x", fixed: 1}
  steps:
  - label: b
    functionBlock: fb.example.io/b:1
    parameters: {path: "{{ parameters.path }}", fixed: "{{ parameters.fixed }}", outer: "{{ parameters.outer }}"}
"""
    made = world(text, {"a": lambda given: {"path": f"/{given.entity}"}}, {"outer": 2})
    assert [input for _, _, input in given(made)[2:]] == [
        {"path": f"/{id}/x", "fixed": 1, "outer": 2} for id in ("d0", "d1")
    ]


def test_workflow_reference_runs_what_is_published_with_it() -> None:
    inner = HEAD.replace("name: wf\n", "name: inner\n").replace("seedEntity: device", "seedEntity: global")
    inner += "steps:\n- {label: b, functionBlock: fb.example.io/b:1, parameters: {x: '{{ parameters.x }}'}}\n"
    outer = HEAD.replace("seedEntity: device", "seedEntity: global") + (
        "steps:\n- {label: a, type: workflowReference, workflow: wf.example.io/inner:VERSION, parameters: {x: 7}}\n"
    )
    made = World()
    made.start(f"{inner}---\n{outer.replace('VERSION', '1.2')}", name="wf.example.io/wf")
    assert [input for _, _, input in made.run().ran] == [{"x": 7}]
    problem = told(f"{inner}---\n{outer.replace('VERSION', '1.3')}")[0]
    assert (problem.code, marked(problem)) == ("HF0110", "wf.example.io/inner:1.3")
    assert "1.2.3" in problem.label


def test_workflow_reference_is_done_for_each_entity_that_it_is_for() -> None:
    inner = (
        HEAD.replace("name: wf\n", "name: inner\n")
        + """\
steps:
- {label: look, functionBlock: fb.example.io/look:1, runOn: device}
- label: act
  functionBlock: fb.example.io/act:1
  parameters: {on: "{{ context.device.name }}", found: "{{ look.result.data.n }}", given: "{{ parameters.x }}"}
"""
    )
    outer = (
        HEAD
        + """\
steps:
- {label: first, functionBlock: fb.example.io/first:1}
- label: all
  type: workflowReference
  workflow: wf.example.io/inner:1
  parameters: {x: "{{ first.result.data.id }}"}
"""
    )
    blocks: dict[str, Block] = {
        "fb.example.io/first": lambda given: {"id": given.entity},
        "fb.example.io/look": lambda given: {"n": len(given.entity)},
    }
    made = World(blocks)
    made.entities = devices()
    made.start(f"{inner}---\n{outer}", name="wf.example.io/wf", on=("d0", "d1"))
    found = [each for each in given(made.run()) if each[0] == "act"]
    assert found == [("act", f"d{n}", {"on": f"Device {n}", "found": 2, "given": f"d{n}"}) for n in range(2)]


def test_what_is_stored_compiles_again_with_all_it_uses() -> None:
    inner = HEAD.replace("name: wf\n", "name: inner\n") + STEP
    outer = HEAD + "steps:\n- {label: b, type: workflowReference, workflow: 'wf.example.io/inner:1'}\n"
    first, second = load_workflows([Text(f"{inner}---\n{outer}", "f.yaml")])
    assert second.data["uses"].keys() == {"wf.example.io/inner"}
    for each in (first, second):
        again = program_from_bytes(canonical(each.data))
        assert (again.name, again.blocks) == (each.program.name, ("fb.example.io/a:1",))


def test_definition_may_be_broken_in_any_place() -> None:
    """Every value of both examples replaced by others: it is read or refused, with a place, and nothing else."""
    odd: list[Any] = [None, 3, "{{", [], [[]], {"a": {"b": [1]}}, -1.5]
    texts = [(EXAMPLES / f"{name}.yaml").read_text() for name in ("check-devices", "refresh-devices")]
    for text in (*texts, HEAD + EVERYTHING):
        data = load(text).root.plain()
        compile_definition(data)
        for path in _paths(data):
            for value in odd:
                broken = copy.deepcopy(data)
                at = broken
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value
                try:
                    compile_definition(broken)
                except InvalidDefinition as refused:
                    first = next(each for each in refused.problems if not each.warning)
                    assert first.path.startswith("$"), first


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def test_context_lists_what_goes_with_the_entity() -> None:
    entities = {
        "sw1": EntityRow("sw1", "device", "", groups=("edge",)),
        "sw1/e1": EntityRow("sw1/e1", "interface", "", parent="sw1"),
        "sw2": EntityRow("sw2", "device", ""),
        "sw2/e1": EntityRow("sw2/e1", "interface", "", parent="sw2"),
        "edge": EntityRow("edge", "group", ""),
    }
    text = """\
steps:
- label: a
  functionBlock: fb.example.io/a:1
  runOn: device
  parameters: {ports: "{{ context.interfaces[*].id }}", groups: "{{ context.device_groups[*].id }}"}
- {label: b, functionBlock: fb.example.io/b:1, runOn: global, parameters: {all: "{{ context.interfaces[*].id }}"}}
"""
    made = World()
    made.entities = entities
    made.start(HEAD + text, on=("sw1", "sw1/e1", "sw2", "sw2/e1"))
    assert given(made.run()) == [
        ("a", "sw1", {"ports": ["sw1/e1"], "groups": ["edge"]}),
        ("a", "sw2", {"ports": ["sw2/e1"], "groups": []}),
        ("b", "", {"all": ["sw1/e1", "sw2/e1"]}),
    ]


# --- the examples ------------------------------------------------------------------------------------
def test_example_that_checks_devices() -> None:
    text = (EXAMPLES / "check-devices.yaml").read_text()
    versions = {"d0": "15.2", "d1": "12.1"}
    made = world(text, {"show-version": lambda given: {"version": versions[given.entity]}}, head="")
    assert given(made) == [
        ("version", "d0", {"host": "Device 0", "platform": "eos"}),
        ("version", "d1", {"host": "Device 1", "platform": "ios"}),
        ("report", "d1", {"message": "Device 1 has 12.1", "template": "{{ this is not read }}"}),
    ]
    assert made.states["e1"].status is Status.COMPLETED


def test_example_in_which_every_device_goes_its_own_way() -> None:
    text = (EXAMPLES / "refresh-devices.yaml").read_text()

    def backup(given: Any) -> Any:
        return {"path": given["path"], "size": 0 if given.entity == "d2" else 10}

    def refresh(given: Any) -> Any:
        if given.entity == "d0":
            raise Boom(f"no {given['backup']}")
        return {}

    made = world(text, {"backup": backup, "refresh": refresh}, entities=devices(3), head="")
    notes = [(on, input["message"]) for label, on, input in given(made) if label == "note"]
    assert sorted(notes) == [("d0", "d0: as before"), ("d1", "d1: fresh")]
    assert made.states["e1"].status is Status.COMPLETED
