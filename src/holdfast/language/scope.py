"""A lane as the scope of its expressions: where names, outputs, errors and facts are looked up, and values of steps.

It reads a walk and changes nothing of it but the fuel that an evaluation has left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import FINALLY, HANDLER, Frame, Lane
from holdfast.core.model import BlobRef, Failure

from .compiled import Step
from .evaluate import ABSENT, settle
from .names import Value
from .operations import ExpressionError, as_json, to_text
from .values import Mismatch, coerce, parse_duration

if TYPE_CHECKING:
    from .interpret import Run
    from .walk import Walk

#: what a step came to for the entity of a lane is a variable of the lane, under a name that nobody can write
OWN = "steps."
#: and so are those of one type
AMONG = "entities."


class LaneScope(ABC):
    # What a walk has of it.
    run: Run
    own: Lane
    id: int
    parent: int
    site: str
    output: Any
    base: Mapping[str, Any]
    changed: dict[str, Any] | None
    before: Mapping[str, Any]
    outputs: dict[str, Any]
    local: dict[str, Any] | None
    asking: dict[str, Value] | None
    fuel: int

    @property
    @abstractmethod
    def frames(self) -> list[Frame]: ...

    @abstractmethod
    def about(self, key: str) -> Any: ...

    # --- values of steps ---------------------------------------------------------------------------
    def bind(self, step: Step) -> None:
        """Evaluate the step's input; each part sees those before it."""
        if step.inputs:
            self.local = local = {}
            for name, value in step.inputs:
                local[name] = value.get(self)

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
        if name == "entities" and self.run.workflow.scopes:
            return self.run.ids_in_scope(self)
        if name.startswith(AMONG):
            return self.among(name.removeprefix(AMONG))
        return ABSENT

    def _own(self, name: str, inputs: dict[str, Value]) -> Any:
        """One part of the step's input, only because it is asked for; inside, its name means what is outside."""
        self.asking = {key: value for key, value in inputs.items() if key != name}
        try:
            return inputs[name].get(self)
        finally:
            self.asking = inputs

    def variable(self, name: str) -> Any:
        walk: LaneScope | None = self
        while walk is not None:
            if walk.changed is not None and name in walk.changed:
                if walk.changed[name] is not ABSENT:
                    return walk.changed[name]
            elif name in walk.base:
                return walk.base[name]
            walk = walk.around()
        return ABSENT

    def all_variables(self) -> dict[str, Any]:
        """Of this lane alone."""
        merged = {**self.base, **(self.changed or {})}
        return {name: value for name, value in merged.items() if value is not ABSENT}

    def around(self) -> Walk | None:
        """The lane whose names can be seen from here; a registered type sees only its parameters."""
        if not self.parent or self.run.workflow.is_sealed(self.scope_owner):
            return None
        return self.run.walk(self.parent)

    @property
    def scope_owner(self) -> int:
        """Index of the step this lane is a body of."""
        return self.own.frames[0].scope

    def given(self) -> Any:
        walk: LaneScope | None = self
        while walk is not None and walk.parent:
            if walk.run.workflow.is_sealed(walk.scope_owner):
                return walk.all_variables()
            walk = walk.run.walk(walk.parent)
        return self.load(self.run.state.input)

    def previous(self) -> Any:
        return self.output

    def step(self, id: str) -> Any:
        if id.endswith(".results"):
            return self._results(id.removesuffix(".results"))
        walk: LaneScope | None = self
        while walk is not None:
            if id in walk.outputs:
                return walk.outputs[id]
            if id in walk.before:
                return walk.before[id]
            if walk.site and walk.is_upon:
                # What was done for each is, for one of them, what was done for it.
                if OWN + id in walk.base:
                    return walk.base[OWN + id]
                workflow = self.run.workflow
                if id in workflow.scopes_by_id and workflow.scopes_by_id[id] == workflow.scopes[walk.scope_owner]:
                    return ABSENT
            walk = walk.around()
        return ABSENT

    def _results(self, id: str) -> Any:
        """What a step came to for all entities, also for the lane of one of them."""
        walk: LaneScope | None = self
        while walk is not None and walk.site and walk.is_upon:
            walk = walk.around()
        return ABSENT if walk is None else walk.step(id)

    @property
    def is_upon(self) -> bool:
        """Whether this lane is that of an entity."""
        return bool(self.parent) and self.scope_owner in self.run.workflow.scopes

    def upon(self) -> str:
        """The entity that what is done here is about; empty for none."""
        if not self.run.workflow.scopes:
            return ""
        walk: LaneScope = self
        while walk.parent:
            if walk.is_upon:
                return walk.site
            walk = walk.run.walk(walk.parent)
        return ""

    def among(self, type: str) -> list[str]:
        """Ids of the entities of that type that are worked upon; where one is at hand, of its parts only."""
        own, subjects = self.upon(), self.run.state.subjects
        found = (subjects[index] for index in range(len(subjects)))
        return [each.id for each in found if each.type == type and (not own or own in (each.id, each.within))]

    def failure(self) -> Failure | None:
        """What the innermost handler is handling."""
        walk: LaneScope | None = self
        while walk is not None:
            for frame in reversed(walk.frames):
                if frame.body in (HANDLER, FINALLY) and frame.error is not None:
                    return frame.error
            walk = walk.run.walk(walk.parent) if walk.parent else None
        return None

    def error(self) -> Any:
        failure = self.failure()
        return ABSENT if failure is None else error_value(failure)

    def place(self) -> str:
        """The entity this lane works on."""
        walk: LaneScope = self
        while not walk.site and walk.parent:
            walk = walk.run.walk(walk.parent)
        return walk.site or walk.run.entity

    def path(self) -> tuple[int, ...]:
        """Its own id and those of the lanes around it."""
        ids = [self.id]
        walk = self
        while walk.parent:
            walk = walk.run.walk(walk.parent)
            ids.append(walk.id)
        return tuple(ids)

    def entity(self, kind: str, name: str) -> Any:
        return self.run.shared.value(self.place(), kind, name)

    def load(self, value: Any) -> Any:
        if type(value) is not BlobRef:
            return value
        run = self.run
        if value.digest not in run.loaded:
            run.loaded[value.digest] = run.reads.load(run.state.id, value)
            self.fuel -= value.size >> 10  # decoding it is work too
        return run.loaded[value.digest]


def error_value(failure: Failure) -> dict[str, Any]:
    """An error as expressions see it."""
    return {
        "kind": failure.kind,
        "message": failure.message,
        "code": failure.code,
        "type": failure.type,
        "step": failure.step,
        "value": failure.details,
        "cause": None if failure.cause is None else error_value(failure.cause),
    }
