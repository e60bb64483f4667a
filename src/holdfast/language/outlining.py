"""The blocks a workflow may use, in the order in which it comes to them: what is known of a run before there is one.

It looks at the compiled form only and evaluates nothing. So a step that has a condition is one that may be done, a loop
goes round unknown times, and every handler may be needed.
"""

from __future__ import annotations

from holdfast.core.lanes import FINALLY, HANDLER
from holdfast.core.program import Outline, Outlined

from .compiled import Plan, Step, Workflow
from .rollout import batch_sizes

#: Steps that are listed; types may use types that use types.
MOST = 2000
_LOOPS = frozenset(("each", "foreach"))
_CONCURRENT = frozenset(("parallel", "graph"))
_CHOOSING = frozenset(("if", "switch"))
_JUMPS = frozenset(("goto", "retry"))


def outline(workflow: Workflow) -> Outline:
    """`workflow` is arranged for the blocks it will have."""
    walk = _Outliner(workflow)
    walk.bodies(-1, _Way())
    steps = walk.finished()
    plan = workflow.plan or Plan()
    tolerance = "" if plan.tolerance is None else str(plan.tolerance)
    return Outline(steps, workflow.types_upon, tuple(map(str, plan.batches)), tolerance, len(steps) >= MOST)


def batches(workflow: Workflow, total: int) -> list[int]:
    """Sizes of the batches of so many entities; empty where it goes not batch by batch."""
    plan = workflow.plan
    return batch_sizes(plan.batches, total) if plan is not None and plan.batches else []


class _Way:
    """What leads to a step."""

    __slots__ = ("excluded", "handled", "is_again", "times", "type", "why", "within")

    def __init__(self) -> None:
        #: entities it is done for
        self.type = ""
        #: why it may not be done at all
        self.why = ""
        #: how often; 0 for who knows
        self.times = 1
        #: what a failure leads to instead of the end
        self.handled = ""
        #: ranges of the outline that are not done if this is
        self.excluded: tuple[tuple[int, int], ...] = ()
        #: in something that goes round, or for many
        self.is_again = False
        #: types that stand around it
        self.within: tuple[int, ...] = ()

    def on(self, **changes: object) -> _Way:
        made = _Way()
        for name in self.__slots__:
            setattr(made, name, changes.get(name, getattr(self, name)))
        return made


class _Outliner:
    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.found: list[Outlined] = []
        #: up to where in the outline something may have been done before each of them fails
        self.until: list[int] = []
        self.jumps = False
        self.numbers: dict[int, list[int]] = {}
        for scope, body in list(workflow.bodies):
            self.numbers.setdefault(scope, []).append(body)

    def finished(self) -> tuple[Outlined, ...]:
        end = len(self.found)
        return tuple(
            Outlined(each.step, each.spec, each.type, each.why, each.times, each.handled,
                     end if self.jumps else max(at, self.until[at]), () if self.jumps else each.excluded)
            for at, each in enumerate(self.found)
        )  # fmt: skip

    # --- bodies --------------------------------------------------------------------------------------
    def bodies(self, scope: int, way: _Way, step: Step | None = None) -> None:
        """All bodies of a scope: what it does, what it does on errors, and what in any case."""
        kind = step.kind if step is not None else ""
        forward = sorted(body for body in self.numbers.get(scope, ()) if body >= 0)
        is_choice = kind in _CHOOSING
        starts: list[tuple[int, int]] = []
        for body in forward:
            inner = way
            if is_choice:
                # In a loop, or for many entities, one time may take one way and another time the other.
                others = () if way.is_again or way.type else tuple(starts)
                inner = way.on(why=way.why or f"`{kind}` decides", excluded=(*way.excluded, *others))
            first = len(self.found)
            self.body(scope, body, inner)
            starts.append((first, len(self.found)))
        if HANDLER in self.numbers.get(scope, ()):
            self.body(scope, HANDLER, way.on(why=way.why or "only on an error", handled=""))
        if FINALLY in self.numbers.get(scope, ()):
            self.body(scope, FINALLY, way)

    def body(self, scope: int, body: int, way: _Way) -> None:
        run_from, run_type = 0, ""
        plan = self.workflow.plan
        for step in self.workflow.bodies[scope, body]:
            first = len(self.found)
            self.step(step, way)
            type = self.workflow.scopes.get(step.index, "") if step.kind == "entities" else ""
            if type and type == run_type and plan is not None and plan.is_parallel:
                self._together(run_from)  # some entities are further than others
            else:
                run_from, run_type = first, type

    def _together(self, first: int) -> None:
        """From there to the end of what was found, anything may have been done before anything else."""
        end = len(self.found)
        for at in range(first, end):
            self.until[at] = max(self.until[at], end)

    # --- steps ---------------------------------------------------------------------------------------
    def step(self, step: Step, way: _Way) -> None:
        if len(self.found) >= MOST:
            return
        self.jumps = self.jumps or step.kind in _JUMPS or step.next is not None
        if step.kind == "entities":
            type = self.workflow.scopes.get(step.index, "")
            why = way.why or ("its condition decides" if step.condition is not None else "")
            self.step(self.workflow.steps[step.wraps], way.on(type=way.type or type, why=why))
            return
        first = len(self.found)
        changes: dict[str, object] = {}
        if step.condition is not None and not way.why:
            changes["why"] = "its condition decides"
        if step.continues:
            changes["handled"] = "continue-on-error"
        elif step.on_error:
            changes["handled"] = "on-error"
        is_loop = step.kind in _LOOPS or step.kind == "batches"
        if step.repeat is not None and step.kind != "batches":
            is_loop = True
            changes["times"] = 0 if step.repeat.condition is not None else way.times * step.repeat.times
            if step.repeat.times and step.repeat.condition is not None:
                changes["why"] = way.why or "its `repeat` decides"
        elif step.kind in _LOOPS:
            changes["times"] = 0
        if is_loop or step.kind in _CONCURRENT:
            changes["is_again"] = True
        inner = way.on(**changes)
        if step.spec >= 0:
            self.found.append(
                Outlined(step.index, step.spec, inner.type, inner.why, inner.times, inner.handled, 0, inner.excluded)
            )
            self.until.append(0)
        own = inner.on(handled=inner.handled or way.handled)
        self.bodies(step.index, own, step)
        if step.uses >= 0 and step.uses not in way.within:
            self.bodies(step.uses, own.on(within=(*way.within, step.uses)))
        if is_loop or step.kind in _CONCURRENT:
            self._together(first)
