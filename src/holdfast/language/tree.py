"""The trees that expressions are parsed into, and their text form. Nodes know where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias


def _place() -> Any:
    return field(default=0, compare=False, repr=False)


@dataclass(slots=True)
class Literal:
    value: Any
    start: int = _place()
    end: int = _place()
    height: int = _place()

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and true are different literals.
        return isinstance(other, Literal) and type(other.value) is type(self.value) and other.value == self.value


@dataclass(slots=True, eq=False)
class Word(Literal):
    """A literal without quotes in a list or map, which somebody may have meant as a name."""


@dataclass(slots=True)
class Name:
    name: str
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class StepRef:
    """`steps.<id>`; what follows says which of its facts."""

    id: str
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Member:
    object: Expr
    name: str
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Index:
    object: Expr
    index: Expr
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Call:
    name: str
    args: tuple[Expr, ...]
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Unary:
    operator: str
    operand: Expr
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Binary:
    operator: str
    left: Expr
    right: Expr
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Choice:
    """`test ? yes : no`"""

    test: Expr
    yes: Expr
    no: Expr
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class ListOf:
    items: tuple[Expr, ...]
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class MapOf:
    items: tuple[tuple[str, Expr], ...]
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Text:
    """Text with values in it: literal strings and expressions."""

    parts: tuple[str | Expr, ...]
    start: int = _place()
    end: int = _place()
    height: int = _place()


@dataclass(slots=True)
class Path:
    """What only `{{ … }}` can say: an operator or function of `path_values`, and what it is applied to."""

    operator: str
    parts: tuple[Expr, ...]
    start: int = _place()
    end: int = _place()
    height: int = _place()


Expr: TypeAlias = (
    Literal | Name | StepRef | Member | Index | Call | Unary | Binary | Choice | ListOf | MapOf | Text | Path
)

#: how tightly each operator binds; the right side of a left-associative one binds one tighter
POWER = {
    "?": 1, "??": 2, "||": 3, "&&": 4,
    "==": 5, "!=": 5, "<": 5, "<=": 5, ">": 5, ">=": 5, "in": 5,
    "+": 6, "-": 6, "*": 7, "/": 7, "%": 7,
}  # fmt: skip
COMPARE = 5
UNARY = 8
STEP_ID = re.compile(r"[^\W\d][\w-]*")

#: what `workflow.` knows, and what those keys know that are no values themselves
ABOUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("id", "name", "version", "run", "link", "input", "output", "error", "var", "step"), ()),
    "current_step": ("name", "step_id", "step_index"),
    "previous_step": ("name", "step_id", "step_index", "output"),
    "util": ("now", "now_utc", "now_iso", "now_instant", "random"),
}
#: `entity.<key>` → the kind of fact that a scope is asked for
ENTITY_KINDS = {"sensor": "sensor", "config": "config", "attributeWhenReady": "ready"}
ENTITY_FACTS = ("id", "name", "type", "labels", "facts", "parent", "groups")
#: of a step that is done for each of many entities, beside `output`
STEP_FACTS = ("results", "failed")
#: where a name may hold dashes, whether or not the workflow defines it
_DASHED_BELOW = frozenset((("workflow", "step"), *(("entity", key) for key in (*ENTITY_KINDS, "labels", "facts"))))


def chain(node: Expr) -> tuple[str, ...]:
    """`a.b['c']` as its names; nothing if anything else is in it."""
    names: list[str] = []
    while True:
        match node:
            case Member(object=inner, name=name):
                names.append(name)
                node = inner
            case Index(object=inner, index=Literal(value=str() as name)):
                names.append(name)
                node = inner
            case Name(name=name):
                names.append(name)
                return tuple(reversed(names))
            case _:
                return ()


def allows_dashes(node: Expr) -> bool:
    """Whether the name behind `node.` may hold dashes: `entity.sensor.lock-start`."""
    return isinstance(node, Member) and isinstance(node.object, Name) and chain(node) in _DASHED_BELOW


def unparse(node: Expr, power: int = 0) -> str:
    """Text that parses to the same tree, but for a `Path`, which is only shown."""
    match node:
        case Literal(value=value):
            return _literal(value)
        case Name(name=name):
            return name
        case StepRef(id=id):
            return f"steps.{id}" if STEP_ID.fullmatch(id) else f"steps[{_literal(id)}]"
        case Member(object=inner, name=name):
            return f"{unparse(inner, 9)}.{name}"
        case Index(object=inner, index=index):
            return f"{unparse(inner, 9)}[{unparse(index)}]"
        case Call(name=name, args=args):
            return f"{name}({', '.join(unparse(arg) for arg in args)})"
        case Unary(operator=operator, operand=operand):
            text = f"{operator}{unparse(operand, UNARY)}"
            return f"({text})" if power > UNARY else text
        case Binary(operator=operator, left=left, right=right):
            own = POWER[operator]
            if operator == "??":
                text = f"{unparse(left, own + 1)} ?? {unparse(right, own)}"
            else:
                # Comparisons do not chain, so both sides of one bind tighter.
                side = own + 1 if own == COMPARE else own
                text = f"{unparse(left, side)} {operator} {unparse(right, own + 1)}"
            return f"({text})" if power > own else text
        case Choice(test=test, yes=yes, no=no):
            text = f"{unparse(test, 2)} ? {unparse(yes)} : {unparse(no, 1)}"
            return f"({text})" if power > 1 else text
        case ListOf(items=items):
            return f"[{', '.join(unparse(item) for item in items)}]"
        case MapOf(items=pairs):
            return "{" + ", ".join(f"{_literal(key)}: {unparse(item)}" for key, item in pairs) + "}"
        case Path(operator=operator, parts=inside):
            return f"{operator}({', '.join(unparse(part) for part in inside)})"
        case Text(parts=parts):
            return "".join(p.replace("${", "$${") if isinstance(p, str) else f"${{{unparse(p)}}}" for p in parts)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            out = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
            return f"'{out}'"
        case float():
            return repr(value)
        case _:
            return str(value)


def children(node: Expr) -> Iterator[Expr]:
    """Direct parts of a node."""
    match node:
        case Member(object=inner):
            yield inner
        case Index(object=inner, index=index):
            yield inner
            yield index
        case Call(args=args) | ListOf(items=args) | Path(parts=args):
            yield from args
        case Unary(operand=operand):
            yield operand
        case Binary(left=left, right=right):
            yield left
            yield right
        case Choice(test=test, yes=yes, no=no):
            yield test
            yield yes
            yield no
        case MapOf(items=pairs):
            for _, item in pairs:
                yield item
        case Text(parts=parts):
            for part in parts:
                if not isinstance(part, str):
                    yield part
        case _:
            return
