"""What an expression means: trees become closures over a scope, with limits on every cost.

Evaluation is total: it gives a value or an `ExpressionError`. Absence (a missing name or key, null where a
value is needed, division by zero) is an error of its own kind, which `??` catches; in a condition it counts
as null. No closure reads anything but its scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from holdfast.core.model import BlobRef

from .functions import FUNCTIONS
from .nodes import a_type, type_name
from .operations import (
    MAX_SIZE,
    ExpressionError,
    calculate,
    checked,
    compare,
    contains,
    is_number,
    same,
    to_text,
    truthy,
)
from .tree import (
    ABOUT,
    ENTITY_FACTS,
    ENTITY_KINDS,
    Binary,
    Call,
    Choice,
    Expr,
    Index,
    ListOf,
    Literal,
    MapOf,
    Member,
    Name,
    Path,
    StepRef,
    Text,
    Unary,
    chain,
)

#: evaluation steps per expression; an operation on a list or text costs one per so many items or characters
FUEL = 10_000
MAX_DATA_DEPTH = 100
_PER_ITEMS = 32
#: and so many steps of a regular expression
STEPS_PER_FUEL = 64
_PER_CHARS = 1024


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


#: what a scope answers for a name it does not have
ABSENT: Any = _Absent()


class Scope(Protocol):
    """Where values come from while an expression is evaluated."""

    #: what is left of FUEL
    fuel: int

    def lookup(self, name: str) -> Any: ...

    def variable(self, name: str) -> Any: ...

    def given(self) -> Any:
        """The workflow's input."""
        ...

    def previous(self) -> Any:
        """The previous step's output."""
        ...

    def step(self, id: str) -> Any:
        """Its output. Of a step that is done for each of many entities, `ID.results` is what it came to, by entity,
        and `ID.failed` lists those it failed for, where that is tolerated."""
        ...

    def about(self, key: str) -> Any:
        """A fact about the execution: `id`, `current_step.name`, `util.now`, …"""
        ...

    def entity(self, kind: str, name: str) -> Any:
        """Of the entity it runs on: `about` (id, name, type), `sensor`, `config`, or `ready`: a sensor to wait for."""
        ...

    def error(self) -> Any:
        """The error that is being handled, as a map."""
        ...

    def load(self, value: Any) -> Any:
        """The value that a BlobRef stands for."""
        ...


Fn: TypeAlias = Callable[[Scope], Any]


def spend(scope: Scope, amount: int, node: Expr | None) -> None:
    scope.fuel -= amount
    if scope.fuel < 0:
        raise ExpressionError("the expression takes too many steps", node, code="HF0161")


def settle(scope: Scope, value: Any, node: Expr | None, depth: int = 0) -> Any:
    """The value without references anywhere inside."""
    kind = type(value)
    if kind is BlobRef:
        value = scope.load(value)
        kind = type(value)
        spend(scope, 1 + (len(value) // _PER_ITEMS if kind in (str, list, dict) else 0), node)
    if kind is list:
        spend(scope, 1 + len(value) // _PER_ITEMS, node)
        if depth > MAX_DATA_DEPTH:
            raise ExpressionError("the value is nested too deeply", node, code="HF0161")
        made = [item if type(item) in _SCALARS else settle(scope, item, node, depth + 1) for item in value]
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    if kind is dict:
        spend(scope, 1 + len(value) // _PER_ITEMS, node)
        if depth > MAX_DATA_DEPTH:
            raise ExpressionError("the value is nested too deeply", node, code="HF0161")
        pairs = {
            key: item if type(item) in _SCALARS else settle(scope, item, node, depth + 1) for key, item in value.items()
        }
        return pairs if any(pairs[key] is not value[key] for key in value) else value
    return value


_SCALARS = frozenset((str, int, float, bool, type(None)))


def weigh(scope: Scope, value: Any, node: Expr | None) -> Any:
    """`value`, if it is not too large. Without this, `[x, x]` a few dozen times would fill any memory."""
    total = 0
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is str:
            total += len(item)
        elif kind is list:
            total += 8 * len(item)
            if total <= MAX_SIZE:
                pending.extend(item)
        elif kind is dict:
            total += 16 * len(item)
            if total <= MAX_SIZE:
                pending.extend(item.values())
        else:
            total += 8
        if total > MAX_SIZE:
            raise ExpressionError(f"the value is larger than {MAX_SIZE // 1024} KB", node, code="HF0161")
    spend(scope, total // _PER_CHARS, node)
    return value


# --- trees to closures -----------------------------------------------------------------------------
def compile_expression(node: Expr, lenient: bool = False) -> Fn:
    """A closure for `node`. Lenient ones (conditions) take absent names and keys as null."""
    match node:
        case Literal(value=value):
            return lambda scope: value
        case Name(name=name):
            return _name(node, name, lenient)
        case StepRef():
            return _never(node, f"`steps.{node.id}` has only `output`")
        case Member(object=inner, name=name):
            return _rooted(node, lenient) or _member(node, inner, name, lenient)
        case Index(object=inner, index=index):
            return _rooted(node, lenient) or _index(node, inner, index, lenient)
        case Call(name=name, args=args):
            return _call(node, name, args, lenient)
        case Unary():
            return _unary(node, lenient)
        case Binary():
            return _binary(node, lenient)
        case Choice(test=test, yes=yes, no=no):
            check = compile_expression(test, lenient)
            then, other = compile_expression(yes, lenient), compile_expression(no, lenient)
            return lambda scope: then(scope) if truthy(check(scope)) else other(scope)
        case ListOf(items=items):
            fns = tuple(compile_expression(item, lenient) for item in items)
            return lambda scope: weigh(scope, [settle(scope, fn(scope), node) for fn in fns], node)
        case MapOf(items=pairs):
            made = tuple((key, compile_expression(item, lenient)) for key, item in pairs)
            return lambda scope: weigh(scope, {key: settle(scope, fn(scope), node) for key, fn in made}, node)
        case Text(parts=parts):
            return _text(node, parts, lenient)
        case Path():
            from .path_values import compile_path  # it builds upon this

            return compile_path(node)


def _never(node: Expr, message: str) -> Fn:
    def never(scope: Scope) -> Any:
        raise ExpressionError(message, node)

    return never


def _found(get: Fn, node: Expr, what: str, lenient: bool) -> Fn:
    def found(scope: Scope) -> Any:
        value = get(scope)
        if value is ABSENT:
            if lenient:
                return None
            raise ExpressionError(f"{what} is absent", node, absent=True)
        return value

    return found


def _name(node: Expr, name: str, lenient: bool) -> Fn:
    if name == "input":
        return lambda scope: scope.given()
    if name == "output":
        return lambda scope: scope.previous()
    if name in ("vars", "steps", "workflow", "entity"):
        return _never(node, f"`{name}` is not a value; name one of its parts")
    if name == "error":
        return _found(_error, node, "`error`", lenient)
    return _found(lambda scope: scope.lookup(name), node, f"`{name}`", lenient)


def _error(scope: Scope) -> Any:
    """Outside of a handler, `error` is a name like any other."""
    value = scope.error()
    return scope.lookup("error") if value is ABSENT else value


def _rooted(node: Member | Index, lenient: bool) -> Fn | None:
    """What begins with a root: `vars.x`, `workflow.util.now`, `entity.sensor['x']`. Nothing for other names."""
    get: Fn
    match chain(node):
        case ("vars", name) | ("workflow", "var", name):
            return _found(lambda scope: scope.variable(name), node, f"the variable `{name}`", lenient)
        case ("workflow", "input"):
            return lambda scope: scope.given()
        case ("workflow", "error"):
            return _found(lambda scope: scope.error(), node, "`workflow.error`", lenient)
        case ("workflow", "step", id, "output"):
            return _found(lambda scope: scope.step(id), node, f"the output of step `{id}`", lenient)
        case ("workflow", "var" | "step" | "util" | "current_step" | "previous_step") | ("workflow", "step", _):
            return _never(node, "this is not a value; name one of its parts")
        case ("workflow", key):
            return _found(lambda scope: scope.about(key), node, f"`workflow.{key}`", lenient)
        case ("workflow", group, key) if ABOUT.get(group):
            return _found(lambda scope: scope.about(f"{group}.{key}"), node, f"`workflow.{group}.{key}`", lenient)
        case ("entity", key) if key in ENTITY_FACTS:
            return _found(lambda scope: scope.entity("about", key), node, f"`entity.{key}`", lenient)
        case ("entity", key):
            return _never(node, "this is not a value; name one of its parts")
        case ("entity", group, name) if group in ENTITY_KINDS:
            kind = ENTITY_KINDS[group]
            get = lambda scope: scope.entity(kind, name)  # noqa: E731
            return _found(get, node, f"the {'config' if kind == 'config' else 'sensor'} `{name}`", lenient)
        case _:
            pass
    path = chain(node.object) if isinstance(node, Index) else ()
    if isinstance(node, Index) and len(path) == 2 and path[0] == "entity" and path[1] in ENTITY_KINDS:
        return _by_name(node, ENTITY_KINDS[path[1]], lenient)
    return None


def _by_name(node: Index, kind: str, lenient: bool) -> Fn:
    """`entity.sensor[name]`: the name is a value itself."""
    index = compile_expression(node.index, lenient)

    def get(scope: Scope) -> Any:
        name = index(scope)
        if type(name) is not str:
            raise ExpressionError(f"the name of a {kind} is text, not {a_type(name)}", node, absent=name is None)
        return scope.entity(kind, name)

    return _found(get, node, f"that {'config' if kind == 'config' else 'sensor'}", lenient)


def _member(node: Expr, inner: Expr, name: str, lenient: bool) -> Fn:
    if isinstance(inner, StepRef):
        id = inner.id
        if name == "results":
            return _found(lambda scope: scope.step(f"{id}.results"), node, f"the results of step `{id}`", lenient)
        if name == "failed":
            return lambda scope: [] if (found := scope.step(f"{id}.failed")) is ABSENT else found
        if name != "output":
            return _never(node, f"`steps.{id}` has only `output`")
        return _found(lambda scope: scope.step(id), node, f"the output of step `{id}`", lenient)
    of = compile_expression(inner, lenient)

    def member(scope: Scope) -> Any:
        value = of(scope)
        if type(value) is BlobRef:
            value = scope.load(value)
        if type(value) is dict:
            if name in value:
                return value[name]
            if lenient:
                return None
            raise ExpressionError(f"there is no `{name}`{_keys(value)}", node, absent=True)
        if value is None:
            if lenient:
                return None
            raise ExpressionError(f"null has no `{name}`", node, absent=True)
        raise ExpressionError(f"{a_type(value)} has no `{name}`", node)

    return member


def _keys(value: dict[str, Any]) -> str:
    if not value:
        return " in an empty map"
    shown = ", ".join(list(value)[:8])
    return f"; there is: {shown}{', …' if len(value) > 8 else ''}"


def _index(node: Expr, inner: Expr, index: Expr, lenient: bool) -> Fn:
    of, at = compile_expression(inner, lenient), compile_expression(index, lenient)

    def indexed(scope: Scope) -> Any:
        value, key = of(scope), at(scope)
        if type(value) is BlobRef:
            value = scope.load(value)
        if type(value) is list and type(key) is int:
            if 0 <= key < len(value):
                return value[key]
            if key < 0:
                raise ExpressionError("an index cannot be negative; use `last(…)`", node)
            if lenient:
                return None
            raise ExpressionError(f"there is no item {key} in a list of {len(value)}", node, absent=True)
        if type(value) is dict and type(key) is str:
            if key in value:
                return value[key]
            if lenient:
                return None
            raise ExpressionError(f"there is no `{key[:80]}`{_keys(value)}", node, absent=True)
        if value is None or key is None:
            if lenient:
                return None
            raise ExpressionError("null has no items", node, absent=True)
        raise ExpressionError(f"{a_type(value)} has no items by {type_name(key)}", node)

    return indexed


def _call(node: Expr, name: str, args: tuple[Expr, ...], lenient: bool) -> Fn:
    if name not in FUNCTIONS:
        return _never(node, f"there is no function `{name}`")
    if name == "default" and len(args) == 2:
        return _coalesce(args[0], args[1], lenient)
    function = FUNCTIONS[name]
    if not function.least <= len(args) <= function.most:
        return _never(node, f"`{name}` takes another number of arguments")
    fns = tuple(compile_expression(arg, lenient) for arg in args)
    run, is_paid = function.run, function.is_paid

    def call(scope: Scope) -> Any:
        spend(scope, 1, node)
        values = [settle(scope, fn(scope), node) for fn in fns]
        for value in values:
            if type(value) is str:
                spend(scope, len(value) // _PER_CHARS, node)
        if is_paid:
            result = run(lambda steps: spend(scope, 1 + steps // STEPS_PER_FUEL, node), node, *values)
        else:
            result = run(node, *values)
        kind = type(result)
        if kind is str or kind is list:
            if len(result) > MAX_SIZE:
                raise ExpressionError("the result is too large", node, code="HF0161")
            spend(scope, len(result) // (_PER_CHARS if kind is str else _PER_ITEMS), node)
        return result

    return call


def _coalesce(left: Expr, right: Expr, lenient: bool) -> Fn:
    first, second = compile_expression(left, False), compile_expression(right, lenient)

    def coalesce(scope: Scope) -> Any:
        try:
            value = first(scope)
        except ExpressionError as error:
            if not error.absent:
                raise
            value = None
        return second(scope) if value is None else value

    return coalesce


def _unary(node: Unary, lenient: bool) -> Fn:
    operand = compile_expression(node.operand, lenient)
    if node.operator == "!":
        return lambda scope: not truthy(operand(scope))

    def negative(scope: Scope) -> Any:
        value = operand(scope)
        if is_number(value):
            return checked(-value, node)
        raise ExpressionError(f"`-` does not work on {a_type(value)}", node, absent=value is None)

    return negative


def _binary(node: Binary, lenient: bool) -> Fn:
    operator = node.operator
    if operator == "??":
        return _coalesce(node.left, node.right, lenient)
    left, right = compile_expression(node.left, lenient), compile_expression(node.right, lenient)
    match operator:
        case "&&":
            return lambda scope: truthy(left(scope)) and truthy(right(scope))
        case "||":
            return lambda scope: truthy(left(scope)) or truthy(right(scope))
        case "==":
            return lambda scope: same(settle(scope, left(scope), node), settle(scope, right(scope), node))
        case "!=":
            return lambda scope: not same(settle(scope, left(scope), node), settle(scope, right(scope), node))
        case "in":
            return lambda scope: contains(
                settle(scope, right(scope), node), settle(scope, left(scope), node), node, lenient
            )
        case "<" | "<=" | ">" | ">=":

            def compared(scope: Scope) -> bool:
                a, b = settle(scope, left(scope), node), settle(scope, right(scope), node)
                if lenient and (a is None or b is None):
                    return False
                return compare(operator, a, b, node)

            return compared
        case _:

            def calculated(scope: Scope) -> Any:
                spend(scope, 1, node)
                a, b = settle(scope, left(scope), node), settle(scope, right(scope), node)
                if type(a) is str:
                    spend(scope, len(a) // _PER_CHARS, node)
                return calculate(operator, a, b, node)

            return calculated


def _text(node: Expr, parts: tuple[str | Expr, ...], lenient: bool) -> Fn:
    fns = tuple((part, None) if isinstance(part, str) else (part, compile_expression(part, lenient)) for part in parts)

    def text(scope: Scope) -> str:
        out: list[str] = []
        size = 0
        for part, fn in fns:
            if fn is None:
                piece: str = part  # type: ignore[assignment]
            else:
                value = fn(scope)
                if type(value) is BlobRef:
                    value = scope.load(value)
                piece = to_text(value, part)  # type: ignore[arg-type]
            size += len(piece)
            if size > MAX_SIZE:
                raise ExpressionError(f"the text is longer than {MAX_SIZE // 1024} KB", node, code="HF0161")
            out.append(piece)
        spend(scope, 1 + size // _PER_CHARS, node)
        return "".join(out)

    return text
