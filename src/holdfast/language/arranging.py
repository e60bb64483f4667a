"""Which steps are done for which entities: settled when the blocks of an execution are known, for a block may say it.

The compiler puts a step of kind `entities` around every step that may be done for each of many entities. Its body 1 is
that step, for where it is done once or within a lane of an entity already. Its body 0 is what the lane of one entity
does: the step alone, so that all entities have passed it before the next step begins; or, where the workflow says
`parallel`, it and the steps after it that are for the same type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from holdfast.core.model import BlockOffer, JobSpec, Problem

from .compiled import Plan, Step, Workflow
from .pinning import _add as add_problem

ONCE = frozenset(("", "global"))
#: bodies of a step of kind `entities`
EACH, INLINE = 0, 1


class Bodies(dict[tuple[int, int], tuple[Step, ...]]):
    """Bodies of lanes of entities are made when the first lane needs one: every step may be the first of them."""

    __slots__ = ("places", "plan", "scopes", "steps")

    plan: Plan
    places: dict[int, tuple[int, int, int]]
    scopes: dict[int, str]
    steps: tuple[Step, ...]

    def __missing__(self, key: tuple[int, int]) -> tuple[Step, ...]:
        index, body = key
        if body != EACH or index not in self.scopes:
            raise KeyError(key)
        made = tuple(self.steps[each.wraps] for each in self.run(self.steps[index]))
        self[key] = made
        return made

    def run(self, first: Step) -> tuple[Step, ...]:
        """The steps of kind `entities` that one lane passes, from that one on."""
        type = self.scopes[first.index]
        if not self.plan.is_parallel or type == "group":
            return (first,)
        scope, body, position = self.places[first.index]
        found = [first]
        for step in self[scope, body][position + 1 :]:
            # Where the lane as a whole goes elsewhere, or may be replayed from, all entities have to be there.
            if self.scopes.get(step.index) != type or found[-1].next is not None or step.waypoint >= 0:
                break
            found.append(step)
        return tuple(found)


def fitted(
    workflow: Workflow, blocks: Mapping[str, BlockOffer], specs: tuple[JobSpec, ...], problems: list[Problem]
) -> tuple[tuple[JobSpec, ...], list[Problem]]:
    """Each with the type it is done for after all; and what does not go with what the workflow says of entities."""
    plan = workflow.plan
    works = plan is not None and plan.policy.works_on_entities
    made = []
    for declared, spec in zip(workflow.specs, specs, strict=True):
        offer = blocks.get(declared.block)
        offered = offer.run_on if offer is not None else ""
        run_on = declared.run_on or offered or (plan.run_on if plan is not None else "")
        made.append(spec if run_on == spec.run_on else msgspec.structs.replace(spec, run_on=run_on))
    found = list(problems)
    for step in workflow.steps:
        if step.spec < 0:
            continue
        spec = made[step.spec]
        if not works and spec.run_on not in ONCE:
            help = f"say `run-on: {spec.run_on}` for the workflow, or `run-on: global` for this step"
            add_problem(found, step, "HF0171",
                        f"block `{spec.block}` runs on entities of type `{spec.run_on}`; the workflow works on none",
                        help=help)  # fmt: skip
        if works and plan is not None and plan.policy.is_shared and not spec.pure:
            add_problem(found, step, "HF0173",
                        f"the entities are locked `shared`, and block `{spec.block}` is not pure",
                        help="lock them `exclusive`, or use blocks that change nothing")  # fmt: skip
    return tuple(made), found


def arrange(workflow: Workflow, specs: Sequence[JobSpec]) -> Workflow:
    """The workflow as an execution with these blocks walks it."""
    plan = workflow.plan
    assert plan is not None
    scopes = {step.index: scope_of(workflow, plan, step, specs) for step in workflow.steps if step.wraps >= 0}
    bodies = Bodies(workflow.bodies)
    bodies.plan, bodies.places, bodies.scopes, bodies.steps = plan, workflow.places, scopes, workflow.steps
    return replace(
        workflow,
        bodies=bodies,
        scopes=scopes,
        scopes_by_id={workflow.steps[index].id: type for index, type in scopes.items() if workflow.steps[index].id},
        types_upon=frozenset(type for type in scopes.values() if type),
        last_upon={type: max(_inner(workflow, scopes, type)) for type in scopes.values() if type},
    )


def inner_at(workflow: Workflow, first: int, position: int) -> int | None:
    """The step at that position of the lane of an entity, whatever the blocks say: it passes neighbours only."""
    scope, body, at = workflow.places[first]
    steps = workflow.bodies[scope, body]
    found = steps[at + position] if at + position < len(steps) else None
    return found.wraps if found is not None and found.wraps >= 0 else None


def _inner(workflow: Workflow, scopes: dict[int, str], type: str) -> list[int]:
    return [workflow.steps[index].wraps for index, each in scopes.items() if each == type]


def scope_of(workflow: Workflow, plan: Plan, step: Step, specs: Sequence[JobSpec]) -> str:
    """What the step says, else its block, else the workflow; empty for once."""
    inner = workflow.steps[step.wraps]
    offered = specs[inner.spec].run_on if 0 <= inner.spec < len(specs) else ""
    found = inner.run_on or offered or plan.run_on
    return "" if found in ONCE else found
