"""What a workflow wants before it begins: which entities, behind which gates. Only its input is known by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.core.errors import InvalidDefinition
from holdfast.core.gates import parse_window
from holdfast.core.model import Gate, JobSpec, Problem
from holdfast.core.program import Acquire, Wanted

from .compiled import GateWanted, Plan, Want, Workflow
from .conditions import style_free
from .evaluate import ABSENT, FUEL, settle
from .names import Value
from .operations import ExpressionError
from .problems import did_you_mean
from .selectors import compile_selector
from .steps import GATE_KEYS, key_index
from .values import Mismatch, parse_duration


class InputScope:
    """Expressions that are evaluated before anything runs see the input, and nothing else is there."""

    def __init__(self, input: Any) -> None:
        self.input = input
        self.fuel = FUEL

    def lookup(self, name: str) -> Any:
        return self.input[name] if isinstance(self.input, dict) and name in self.input else ABSENT

    def variable(self, name: str) -> Any:
        return ABSENT

    def given(self) -> Any:
        return self.input

    def previous(self) -> Any:
        return None

    def step(self, id: str) -> Any:
        return ABSENT

    def about(self, key: str) -> Any:
        return ABSENT

    def entity(self, kind: str, name: str) -> Any:
        return ABSENT

    def error(self) -> Any:
        return ABSENT

    def load(self, value: Any) -> Any:
        return value


# --- entities --------------------------------------------------------------------------------------
def wanted(plan: Plan, input: Any) -> tuple[Wanted, ...]:
    """In the order in which they are looked for; refuses what cannot be read."""
    return tuple(_wanted(want, input) for want in plan.wants)


def _wanted(want: Want, input: Any) -> Wanted:
    if want.kind == "select":
        assert want.value is not None
        made = compile_selector(str(want.value.constant), input)
        return Wanted("select", (), made.terms, made.test, made.text, want.type, want.is_added)
    if want.kind != "ids":
        return Wanted(want.kind, type=want.type)
    assert want.value is not None
    scope = InputScope(input)
    try:
        found = settle(scope, want.value.get(scope), None)
    except ExpressionError as error:
        raise _invalid("HF0176", f"`acquire`: {error}") from None
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(id, str) and id for id in ids):
        raise _invalid("HF0176", f"`acquire`: `ids` are texts, and `{want.value.text or found}` is not")
    return Wanted("ids", tuple(ids), text=want.value.text, type=want.type, is_added=want.is_added)


def _invalid(code: str, message: str) -> InvalidDefinition:
    return InvalidDefinition(message, (Problem(code, message),))


def acquires(workflow: Workflow, input: Any, specs: Sequence[JobSpec]) -> tuple[Acquire, ...]:
    """Steps whose blocks are asked. Of their parameters, what only a run could tell is nothing here."""
    found = []
    for step in workflow.steps:
        if step.spec < 0 or not specs[step.spec].has_acquire:
            continue
        scope = InputScope(input)
        given: dict[str, Any] = {}
        for name, value in step.inputs:
            scope.fuel = FUEL
            try:
                given[name] = settle(scope, value.get(scope), None)
            except ExpressionError:
                given[name] = None
        found.append(Acquire(step.index, step.spec, given or None))
    return tuple(found)


# --- gates -----------------------------------------------------------------------------------------
class BadGate(ValueError):
    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def gates(plan: Plan, input: Any, now: int) -> tuple[Gate, ...]:
    made: list[Gate] = []
    deadline = now + plan.deadline if plan.deadline else 0
    for wanted in plan.gates:
        scope = InputScope(input)
        try:
            value = settle(scope, wanted.value.get(scope), None)
            made += _gates(wanted, value, deadline)
        except (ExpressionError, BadGate) as error:
            raise _invalid("HF0178", f"gate `{wanted.kind}`: {error}") from None
    return tuple(made)


def gates_of(given: Mapping[str, Any], now: int) -> tuple[Gate, ...]:
    """Gates that somebody gave with the start, under the keys of `gates`; refuses what cannot be read."""
    known = key_index(GATE_KEYS)
    plan = Plan()
    found: list[GateWanted] = []
    for key, value in given.items():
        kind = known.get(style_free(key))
        if kind is None:
            names = [each.name for each in GATE_KEYS]
            help = did_you_mean(key, names) or f"one of {', '.join(names)}"
            problem = Problem("HF0178", f"there is no gate `{key[:40]}`", path=f"$.gates.{key[:40]}", help=help)
            raise InvalidDefinition(f"{problem.message}; {help}", (problem,))
        if kind != "deadline":
            found.append(GateWanted(kind, Value(value)))
            continue
        try:
            plan.deadline = parse_duration(value if isinstance(value, str) else str(value))
        except Mismatch as mismatch:
            raise _invalid("HF0178", f"gate `deadline`: {mismatch}") from None
    plan.gates = tuple(found)
    return gates(plan, None, now)


def _gates(wanted: GateWanted, value: Any, deadline: int) -> list[Gate]:
    check_gate(wanted.kind, value)
    if wanted.kind == "not-before":
        return [Gate("not-before", str(value), due=read_time(value), deadline=deadline)]
    if wanted.kind == "after":
        return [Gate("after", id, deadline=deadline) for id in (value if isinstance(value, list) else [value])]
    if wanted.kind == "approval":
        is_text = isinstance(value, str) and value.lower() not in ("yes", "no", "true", "false")
        if not is_text and value in (False, "no", "false"):
            return []
        return [Gate("approval", value if is_text else "", deadline=deadline)]
    return [Gate("window", value, deadline=deadline)]


def check_gate(kind: str, value: Any) -> None:
    if kind == "not-before":
        read_time(value)
    elif kind == "window":
        try:
            parse_window(value if isinstance(value, str) else str(value))
        except ValueError as error:
            raise BadGate(str(error)) from None
    elif kind == "after":
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(each, str) and each for each in listed):
            raise BadGate("`after` names executions", "an id, or a list of ids; ` completed` behind it says how")
    elif not isinstance(value, str | bool) or value == "":
        raise BadGate("`approval` is the question to be asked, or yes")


def read_time(value: Any) -> int:
    """µs; UTC where it names no zone."""
    try:
        found = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise BadGate(f"`{str(value)[:40]}` is not a time", "e.g. `2030-01-31T22:00:00Z`") from None
    placed = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(placed.timestamp() * 1_000_000)
