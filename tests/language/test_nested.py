"""Lanes below a step: nested workflows, loops, graphs, registered types — through the real core."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core.errors import InvalidDefinition

from .world import Boom, World, flaky, steps


# --- nested workflows ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("- foreach x in [1, 2, 3] do let output = ${x * 2}\n- return ${output}", [2, 4, 6]),
        ("- foreach x in 1..3 do return ${x}\n- return ${sum(output)}", 6),
        ("- let base = 10\n- foreach x in 1..2 do return ${base + x}\n- return ${output}", [11, 12]),
        ("- foreach x in ${[]} do return 1\n- return ${output}", []),
        ("- step: foreach x in 1..5\n  condition: '${x} > 3'\n  steps: ['return ${x}']\n- return ${output}", [4, 5]),
        ("- step: 'foreach {a, b} in ${[{a: 1, b: 2}, {a: 3, b: 4}]}'\n  steps: ['return ${a + b}']\n"
         "- return ${output}", [3, 7]),
        ("- step: foreach x in 1..3\n  reducing: {sum: 0}\n  steps: ['let sum = ${sum + x}']\n"
         "- return ${sum} ${output.sum}", "6 6"),
        ("- step: foreach x in [a, b]\n  steps: ['return ${target_index}${x}']\n- return ${output}", ["0a", "1b"]),
        ("- type: workflow\n  steps:\n  - let x = 5\n  - return ${x}\n- return ${output} ${x ?? 'none'}", "5 none"),
        ("- type: workflow\n  input: {x: 7}\n  output: '${x + 1}'\n  steps: [no-op]\n- return ${output}", 8),
        ("- type: workflow\n  steps: [fail no]\n  on-error: [return saved]\n- return ${output}", "saved"),
        ("- type: workflow\n  target: 1..3\n  concurrency: all\n  steps: ['return ${target}']\n- return ${output}",
         [1, 2, 3]),
        ("- graph:\n    c: {needs: [a, b], step: 'return c'}\n    a: return a\n    b: {needs: a, step: return b}\n"
         "- return ${output.a}${output.b}${output.c}", "abc"),
    ],
)  # fmt: skip
def test_nested(text: str, output: Any) -> None:
    assert steps(text).output() == output


def test_concurrency_is_kept() -> None:
    world = World({})
    world.start(
        "steps:\n- step: foreach x in 1..10\n  concurrency: 3\n  steps: ['a.b x=${x}']\n- return ${size(output)}"
    )
    assert len(world.states["e1"].jobs) == 3
    world.work("e1", min(world.states["e1"].jobs))
    assert len(world.states["e1"].jobs) == 3
    assert world.run().output() == 10


def test_a_sequence_stops_at_the_first_failure_and_a_crowd_waits_for_all() -> None:
    def odd(given: Any) -> Any:
        if given["x"] in (2, 3):
            raise Boom(f"no {given['x']}")
        return given["x"]

    world = steps("- step: foreach x in 1..4\n  steps: ['a.b x=${x}']", None, {"a.b": odd})
    assert world.failure().message == "no 2"
    assert [given["x"] for _, _, given in world.ran] == [1, 2]
    world = steps("- step: foreach x in 1..4\n  concurrency: all\n  steps: ['a.b x=${x}']", None, {"a.b": odd})
    assert world.failure().message == "2 errors including: no 2"
    assert len(world.ran) == 4


def test_retry_of_a_loop_runs_only_what_failed() -> None:
    failing = flaky(1)

    def odd(given: Any) -> Any:
        return failing(given) if given["x"] == 2 else given["x"]

    text = """
- steps:
  - step: foreach x in 1..3
    concurrency: all
    steps:
    - {block: a.b, input: {x: '${x}'}, idempotent: yes}
  on-error: retry limit 2
- return ${output[0]} ${output[2]}
"""
    world = steps(text, None, {"a.b": odd})
    assert world.output() == "1 3"
    assert sorted(given["x"] for _, _, given in world.ran) == [1, 2, 2, 3]


# --- registered types ------------------------------------------------------------------------------
APT = """
id: apt-get
type: workflow
lock: apt
shorthand: ${package}
parameters:
  package: {description: package(s) to install}
steps:
- type: workflow
  lock: apt-package-management
  steps:
  - x.y command=${package}
output: installed ${package}
"""


def test_a_registered_type_is_a_step_with_its_own_short_form() -> None:
    world = World()
    world.start(
        f"{APT}---\nname: main\nsteps:\n- let package = outside\n- apt-get iputils-ping\n- return ${{output}}\n"
    )
    assert world.run().output() == "installed iputils-ping"
    assert world.ran == [("e1", "x.y command=${package}", {"command": "iputils-ping"})]
    assert [event.name for event in world.events(e.LockTaken)] == ["apt", "apt-package-management"]


def test_a_type_sees_only_its_parameters_and_checks_them() -> None:
    text = f"{APT}---\nname: main\nsteps:\n- {{type: apt-get, input: {{pakage: x}}}}\n"
    with pytest.raises(InvalidDefinition) as caught:
        World().start(text)
    assert {problem.code for problem in caught.value.problems} == {"HF0150", "HF0151"}
    hidden = "id: t\nsteps: ['log ${secret}']\n---\nname: main\nsteps:\n- let secret = 1\n- t\n"
    with pytest.raises(InvalidDefinition, match="secret"):
        World().start(hidden)


def test_what_is_stored_needs_nothing_else() -> None:
    from holdfast.language import canonical, program_from_bytes
    from holdfast.language.workflow import Text, load_workflows

    text = f"{APT}---\nid: two\nsteps:\n- apt-get one\n- apt-get two\n---\nname: main\nsteps: [two, apt-get three]\n"
    found = load_workflows([Text(text)])[-1]
    assert set(found.data["uses"]) == {"two", "apt-get"}
    assert set(found.data["uses"]["two"]["uses"]) == {"apt-get"}
    again = program_from_bytes(canonical(found.data))
    assert [step.label for step in again.steps] == [step.label for step in found.program.steps]


def test_a_workflow_called_like_a_step_does_not_replace_it() -> None:
    """Or publishing one named `retry` would break everybody's handlers."""
    text = "name: retry\nsteps: [return mine]\n---\nname: log\nsteps: [fail no]\n---\n"
    text += "name: main\nsteps:\n- {step: x.y, idempotent: yes, on-error: retry limit 2}\n"
    text += "- {type: log, message: hi}\n- invoke retry\n"
    world = World({"x.y": flaky(2)})
    world.start(text, name="main")
    assert world.run().output() == "mine"
    assert world.logs["e1"][-1] == "hi"


def test_types_that_use_each_other_are_refused() -> None:
    from holdfast.core.errors import InvalidDefinition

    with pytest.raises(InvalidDefinition, match="circle"):
        World().start("id: a\nsteps: [b]\n---\nid: b\nsteps: [a]\n---\nname: main\nsteps: [a]\n")
    with pytest.raises(InvalidDefinition, match="circle"):
        World().start("id: a\nsteps: [a]\n")


def test_invoke_runs_a_workflow_on_an_entity() -> None:
    text = "name: restart\ninputs: {force: boolean = false}\nsteps:\n- set-sensor state = ${force} on ${entity.id}\n"
    text += (
        "- return ${entity.id}\n---\nname: main\nsteps:\n- invoke restart on db1 with force=true\n- return ${output}\n"
    )
    world = World()
    world.start(text)
    assert world.run().output() == "db1"
    assert world.sensor_value("state", "db1") == "true on db1"
