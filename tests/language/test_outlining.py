"""What is known of a run before there is one: its blocks in order, for what, how often, and what may come before."""

from __future__ import annotations

from typing import Any

from holdfast.core.model import BlockOffer
from holdfast.core.program import Outlined

from .player import program


def outlined(text: str) -> list[Outlined]:
    made = program(text)
    specs, _ = made.pin({name: BlockOffer(name) for name in made.blocks})
    return list(made.outline(specs).steps)


def told(text: str) -> list[tuple[Any, ...]]:
    made = program(text)
    return [(made.label(each.step), each.type, each.why, each.times, each.handled, each.until)
            for each in outlined(text)]  # fmt: skip


def test_steps_in_their_order_with_what_decides() -> None:
    assert told("""
run-on: device
steps:
- {id: a, block: b.a}
- {id: b, block: b.b, condition: "${input.x}", continue-on-error: yes}
- {id: c, block: b.c, run-on: global, on-error: [{id: h, block: b.h, run-on: global}]}
- {id: d, run-on: port, steps: [{id: e, block: b.e}]}
finally: [{id: f, block: b.f, run-on: global}]
""") == [
        ("a", "device", "", 1, "", 0),
        ("b", "device", "its condition decides", 1, "continue-on-error", 1),
        ("c", "", "", 1, "on-error", 2),
        ("h", "", "only on an error", 1, "", 3),
        ("e", "port", "", 1, "", 4),
        ("f", "", "", 1, "", 5),
    ]  # fmt: skip


def test_a_loop_goes_round_unknown_times_and_everything_in_it_may_come_before() -> None:
    found = told("""
steps:
- {id: first, block: b.first}
- step: foreach x in 1..3
  steps: [{id: a, block: b.a}, {id: b, block: b.b}]
- {id: many, block: b.many, repeat: {times: 3}}
- {id: end-of-it, block: b.last}
""")
    assert [(each[0], each[3], each[5]) for each in found] == [
        ("first", 1, 0), ("a", 0, 3), ("b", 0, 3), ("many", 3, 4), ("end-of-it", 1, 4),
    ]  # fmt: skip


def test_branches_come_before_each_other_and_choices_exclude_each_other() -> None:
    found = outlined("""
steps:
- parallel:
  - steps: [{block: b.a}]
  - steps: [{block: b.b}]
- step: if ${input.x} == 1
  then: [{block: b.c}]
  else: [{block: b.d}]
- {block: b.e}
""")
    assert [each.until for each in found] == [2, 2, 2, 3, 4]
    assert [each.excluded for each in found] == [(), (), (), ((2, 3),), ()]
    assert [each.why for each in found] == ["", "", "`if` decides", "`if` decides", ""]


def test_who_jumps_may_have_done_anything() -> None:
    found = outlined("""
steps:
- {id: a, block: b.a}
- {id: b, block: b.b, next: a}
""")
    assert [each.until for each in found] == [2, 2]


def test_lanes_of_entities_and_batches_run_ahead_of_each_other() -> None:
    steps = "steps: [{block: b.a}, {block: b.b}, {block: b.c, run-on: global}]"
    assert [each.until for each in outlined(f"run-on: device\n{steps}")] == [0, 1, 2]
    ahead = outlined(f"run-on: device\nconfig: {{execution-strategy: {{parallel: yes}}}}\n{steps}")
    assert [each.until for each in ahead] == [2, 2, 2]
    batched = outlined(f"run-on: device\nconfig: {{rollout: {{batches: [1, 50%]}}}}\n{steps}")
    assert [each.until for each in batched] == [3, 3, 3]
    made = program(f"run-on: device\nconfig: {{rollout: {{batches: [1, 50%]}}}}\n{steps}")
    assert made.batches(5) == [1, 2, 2]
    assert program(steps).batches(5) == []


def test_step_types_are_looked_into() -> None:
    found = told("""
steps: [{id: a, step: my-type}, {id: b, step: my-type}]
uses:
  my-type: {steps: [{id: inner, block: b.x}]}
""")
    assert [each[0] for each in found] == ["inner", "inner"]
