"""A lane while it is walked: a thin overlay over the lane in the state, and the scope of its expressions.

It notes the ops that would make the same change, and answers lookups through them. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import Frame, Lane, Op
from holdfast.core.model import BlobRef, LogLine

from .compiled import Step
from .evaluate import ABSENT, settle
from .evaluate import FUEL as EXPRESSION_FUEL
from .names import Value
from .operations import ExpressionError, as_json, to_text
from .values import Mismatch, coerce, parse_duration

if TYPE_CHECKING:
    from .interpret import _Run

#: types that are never worth a reference
SMALL = frozenset((int, float, bool, type(None)))
_NONE: dict[str, Any] = {}


class View:
    """One frame of the lane: what the state has, and what changed since."""

    __slots__ = ("base", "changed")

    def __init__(self, base: Mapping[str, Any]) -> None:
        self.base = base
        self.changed: dict[str, Any] | None = None


class Walk:
    __slots__ = ("_views", "asking", "at", "body", "branch", "fuel", "id", "is_emptied", "lane", "local", "logs",
                 "open", "ops", "output", "outputs", "own", "parent", "position", "results", "run",
                 "wait")  # fmt: skip

    def __init__(self, run: _Run, lane: Lane) -> None:
        self.run = run
        #: nothing while the state does not have it yet
        self.lane: Lane | None = lane
        self.own = lane
        self.id = lane.id
        self.parent = lane.parent
        self.branch = lane.branch
        self.wait = lane.wait
        self.output = lane.output
        self.open = lane.open
        frame = lane.frames[-1]
        #: position in the state, and where the walk is now
        self.at = self.position = frame.position
        self.body = run.workflow.bodies[frame.scope, frame.body]
        self._views: list[View] | None = None
        self.outputs: dict[str, Any] = _NONE
        #: results of lanes that ended during this call
        self.results: dict[int, Any] = {}
        #: the results in the state were gathered during this call
        self.is_emptied = False
        self.ops: list[tuple[Any, ...]] = []
        self.logs: list[LogLine] = []
        #: the step's own input while its expressions are evaluated
        self.local: dict[str, Any] | None = None
        #: the same while a condition or `output` is evaluated: only what is asked for
        self.asking: dict[str, Value] | None = None
        self.fuel = EXPRESSION_FUEL

    @classmethod
    def spawned(cls, run: _Run, id: int, parent: Walk, branch: int, scope: int, body: int) -> Walk:
        """A lane that this call has opened; the state does not have it yet."""
        walk = cls(run, Lane(id, parent.id, branch, [Frame(scope, body)], output=parent.output))
        walk.lane = None
        return walk

    @property
    def views(self) -> list[View]:
        """Its frames, innermost last; most steps never ask."""
        if self._views is None:
            self._views = [View(frame.variables) for frame in self.own.frames]
        return self._views

    def here(self) -> Step:
        return self.body[self.position]

    # --- changes -----------------------------------------------------------------------------------
    def put(self, *op: Any) -> None:
        self.ops.append(op)

    def settle_position(self) -> None:
        if self.position != self.at:
            self.ops.append((Op.MOVE, self.position))
            self.at = self.position

    def set(self, name: str, value: Any) -> None:
        """In the innermost frame that has the variable, else in the innermost."""
        self.ops.append((Op.SET, name, value))
        target = self.views[-1]
        for view in reversed(self.views):
            if name in view.base or (view.changed is not None and name in view.changed):
                target = view
                break
        if target.changed is None:
            target.changed = {}
        target.changed[name] = value

    def remember(self, id: str, value: Any) -> None:
        if self.outputs is _NONE:
            self.outputs = {}
        self.outputs[id] = value

    def log(self, message: str, step: Step) -> None:
        self.logs.append(LogLine(message, step.level, step.label))

    def gathered(self) -> list[Any]:
        """Outputs of the lanes below, in the order of their branches. Afterwards there are none."""
        before = self.lane.results if self.lane is not None and not self.is_emptied else {}
        merged = {**before, **self.results}
        self.results, self.is_emptied = {}, True
        return [merged[branch] for branch in sorted(merged)]

    def bind(self, step: Step) -> None:
        """Evaluate the step's input; each part sees those before it."""
        if step.inputs:
            self.local = local = {}
            for name, value in step.inputs:
                local[name] = value.get(self)

    # --- values of steps ---------------------------------------------------------------------------
    def text(self, value: Value) -> str:
        """As text; a map or list alone is written as JSON."""
        got = value.get(self)
        if type(got) is str:
            return got
        got = settle(self, got, None)
        if got is None:
            return "null"
        return as_json(got) if isinstance(got, (list, dict)) else to_text(got, None)

    def coerced(self, kind: str, value: Any) -> Any:
        if type(value) is BlobRef and kind != "any":
            value = self.load(value)
        try:
            return coerce(kind, value)
        except Mismatch as mismatch:
            raise ExpressionError(str(mismatch)) from None

    def duration(self, value: Value) -> int:
        got = value.get(self)
        try:
            return parse_duration(got if isinstance(got, str) else str(got))
        except Mismatch as mismatch:
            raise ExpressionError(f"{mismatch} (in `{value.text}`)", code="HF0114") from None

    # --- the scope of expressions ------------------------------------------------------------------
    def lookup(self, name: str) -> Any:
        local = self.local
        if local is not None:
            if name in local:
                return local[name]
        elif self.asking is not None and name in self.asking:
            return self._own(name, self.asking)
        found = self.variable(name)
        if found is not ABSENT:
            return found
        output = self.load(self.output)
        if type(output) is dict and name in output:
            return output[name]
        given = self.given()
        if type(given) is dict and name in given:
            return given[name]
        return ABSENT

    def _own(self, name: str, inputs: dict[str, Value]) -> Any:
        """One part of the step's input, only because it is asked for; inside, its name means what is outside."""
        self.asking = {key: value for key, value in inputs.items() if key != name}
        try:
            return inputs[name].get(self)
        finally:
            self.asking = inputs

    def variable(self, name: str) -> Any:
        walk: Walk | None = self
        while walk is not None:
            for view in reversed(walk.views):
                if view.changed is not None and name in view.changed:
                    return view.changed[name]
                if name in view.base:
                    return view.base[name]
            walk = walk.run.walk(walk.parent) if walk.parent else None
        return ABSENT

    def given(self) -> Any:
        return self.load(self.run.state.input)

    def previous(self) -> Any:
        return self.output

    def step(self, id: str) -> Any:
        walk: Walk | None = self
        while walk is not None:
            if id in walk.outputs:
                return walk.outputs[id]
            if walk.lane is not None and id in walk.lane.outputs:
                return walk.lane.outputs[id]
            walk = walk.run.walk(walk.parent) if walk.parent else None
        return ABSENT

    def about(self, key: str) -> Any:
        state = self.run.state
        if key == "id":
            return state.id
        if key == "name":
            return state.workflow
        return state.workflow_version if key == "version" else ABSENT

    def entity(self, kind: str, name: str) -> Any:
        return ABSENT

    def error(self) -> Any:
        return ABSENT

    def load(self, value: Any) -> Any:
        if type(value) is not BlobRef:
            return value
        run = self.run
        if value.digest not in run.loaded:
            run.loaded[value.digest] = run.reads.load(run.state.id, value)
            self.fuel -= value.size >> 10  # decoding it is work too
        return run.loaded[value.digest]
