"""Selectors: which entities are meant, in the grammar of all expressions, without `${…}`.

`type == "device" && site == "ams1"`. A bare name is a label, or else a top-level fact; what an entity does not have is
absent, as in a condition. Equalities that the index answers are split off; the rest is asked of each entity it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.errors import BadSelector
from holdfast.core.inventory import EntityRow, term_value
from holdfast.core.model import Problem
from holdfast.core.program import Wanted

from .evaluate import ABSENT, FUEL, Fn, compile_expression
from .expressions import ExpressionSyntax, parse
from .functions import FUNCTIONS
from .operations import ExpressionError, truthy
from .problems import Unreadable, did_you_mean
from .tree import (
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
    StepRef,
    Unary,
    chain,
)

#: What every entity has, by name.
FIELDS: dict[str, Callable[[EntityRow], Any]] = {
    "id": lambda row: row.id,
    "type": lambda row: row.type or None,
    "name": lambda row: row.name or None,
    "parent": lambda row: row.parent or None,
    "groups": lambda row: list(row.groups),
    "labels": lambda row: row.labels,
    "facts": lambda row: row.facts,
    "source": lambda row: row.source or None,
    "stale": lambda row: row.is_stale,
}
#: Equalities of these with a text stand in the index, or are the entity's own key.
_INDEXED = ("id", "type", "parent")
#: What names mean elsewhere and cannot mean here.
_ELSEWHERE = ("vars", "steps", "workflow", "entity", "output", "error")


class _EveryName(frozenset[str]):
    """Labels are often written with dashes, and nobody subtracts them: `site-name` is always a name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


_DASHED = _EveryName()


class _Found:
    """One thing wrong with a selector; places are offsets into it."""

    __slots__ = ("code", "end", "help", "message", "start")

    def __init__(self, code: str, message: str, start: int, end: int, help: str = "") -> None:
        self.code = code
        self.message = message
        self.start = start
        self.end = end
        self.help = help


def compile_selector(text: str, given: Any = None) -> Wanted:
    """What `text` selects. With `given`, the input of a workflow, `input.NAME` and `${input.NAME}` stand for its
    values. Refuses a text that is no selector, with every problem at its place."""
    tree, problems = _read(text, given)
    if tree is None or problems:
        raise _refusal(text, problems)
    terms, rest = _split(tree)
    return Wanted("select", terms=tuple(terms), test=_test(rest, text) if rest else None, text=text)


def selector_problems(text: str, inputs: frozenset[str] | None = None) -> list[tuple[str, str, int, int, str]]:
    """Everything wrong with a selector that stands in a document, as (code, message, start, end, help). `inputs` are
    the names `input.NAME` may have; nothing where any will do."""
    return [(each.code, each.message, each.start, each.end, each.help) for each in _read(text, _Names(inputs))[1]]


def is_selector(text: str) -> bool:
    """Whether a word at a surface is meant as a selector, and not as the id of one entity."""
    return any(char in text for char in "=!<>&|() \t\"'")


class _Names:
    """Stands for an input whose values are not known yet."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self.names = names


# --- reading ---------------------------------------------------------------------------------------------
def _read(text: str, given: Any) -> tuple[Expr | None, list[_Found]]:
    if not text.strip():
        help = '`type == "device"` is one; `true` is for all entities'
        return None, [_Found("HF0751", "the selector is empty", 0, 1, help)]
    try:
        tree = parse(text, _DASHED, words=given is not None)
    except ExpressionSyntax as error:
        help = error.help
        if text[error.start : error.start + 2] in ("=~", "!~"):
            help = "a pattern is asked for with `matches(id, 'r[0-9]+')`, a beginning with `starts_with(id, 'r')`"
        elif "${" in text[error.start : error.end + 1]:
            help = "a selector is an expression as it stands, without `${…}`"
        return None, [_Found("HF0751", error.message, error.start, error.end, help)]
    found: list[_Found] = []
    tree = _Reader(text, given, found).read(tree)
    return tree, found


class _Reader:
    """Gives names their meaning: the input's values become literals, `group` becomes membership."""

    def __init__(self, text: str, given: Any, found: list[_Found]) -> None:
        self.text = text
        self.given = given
        self.found = found

    def _add(self, code: str, message: str, node: Expr, help: str = "", end: int = 0) -> None:
        self.found.append(_Found(code, message, node.start, end or node.end, help))

    def read(self, node: Expr) -> Expr:
        if self.given is not None and isinstance(node, (Name, Member, Index)):
            path = chain(node)
            if path and path[0] == "input":
                return self._input(node, path)
        match node:
            case Binary(operator="==" | "!=" as operator, left=left, right=right) if _is_group(left) or _is_group(
                right
            ):
                other = self.read(right if _is_group(left) else left)
                return self._negated(operator, self._member_of(other, node), node)
            case Binary(operator="in", left=left, right=ListOf(items=items)) if _is_group(left) and items:
                made = self._member_of(self.read(items[0]), node)
                for item in items[1:]:
                    one = self._member_of(self.read(item), node)
                    made = Binary("||", made, one, node.start, node.end, node.height)
                return made
            case Binary(operator=operator, left=left, right=right):
                return Binary(operator, self.read(left), self.read(right), node.start, node.end, node.height)
            case Name(name=name):
                self._name(node, name)
            case StepRef():
                self._add("HF0121", "there are no steps in a selector", node)
            case Call(name=name, args=args):
                self._call(node, name, args)
                return Call(name, tuple(map(self.read, args)), node.start, node.end, node.height)
            case Member(object=inner, name=name):
                return Member(self.read(inner), name, node.start, node.end, node.height)
            case Index(object=inner, index=index):
                return Index(self.read(inner), self.read(index), node.start, node.end, node.height)
            case Unary(operator=operator, operand=operand):
                return Unary(operator, self.read(operand), node.start, node.end, node.height)
            case Choice(test=test, yes=yes, no=no):
                parts = (self.read(test), self.read(yes), self.read(no))
                return Choice(*parts, node.start, node.end, node.height)
            case ListOf(items=items):
                return ListOf(tuple(map(self.read, items)), node.start, node.end, node.height)
            case MapOf(items=pairs):
                read = tuple((key, self.read(item)) for key, item in pairs)
                return MapOf(read, node.start, node.end, node.height)
            case _:
                pass
        return node

    def _member_of(self, what: Expr, node: Expr) -> Expr:
        return Binary("in", what, Name("groups", node.start, node.end, 1), node.start, node.end, node.height)

    def _negated(self, operator: str, made: Expr, node: Expr) -> Expr:
        return made if operator == "==" else Unary("!", made, node.start, node.end, node.height)

    def _input(self, node: Expr, path: tuple[str, ...]) -> Expr:
        if isinstance(self.given, _Names):
            known = self.given.names
            if len(path) > 1 and known is not None and path[1] not in known:
                self._add("HF0121", f"the workflow has no input `{path[1]}`", node, did_you_mean(path[1], known))
            return Literal("", node.start, node.end, 1)
        value: Any = self.given
        for name in path[1:]:
            if not isinstance(value, Mapping) or name not in value:
                self._add("HF0751", f"`{'.'.join(path)}` is absent", node)
                return Literal(None, node.start, node.end, 1)
            value = value[name]
        return _literal(value, node)

    def _name(self, node: Expr, name: str) -> None:
        if name in _ELSEWHERE:
            help = f"`labels.{name}` and `facts.{name}` are the entity's own"
            self._add("HF0121", f"there is no `{name}` in a selector", node, help)
        elif name == "group":
            help = "write `group == 'NAME'` or `'NAME' in groups`: an entity may be in several"
            self._add("HF0751", "`group` is no single value", node, help)

    def _call(self, node: Expr, name: str, args: tuple[Expr, ...]) -> None:
        function = FUNCTIONS.get(name)
        if function is None:
            help = did_you_mean(name, FUNCTIONS)
            self._add("HF0122", f"there is no function `{name}`", node, help, node.start + len(name))
        elif not function.least <= len(args) <= function.most:
            count = f"{len(args)} argument{'s' if len(args) != 1 else ''}"
            self._add("HF0122", f"`{name}` does not take {count}", node, f"it is {function.signature}")
        elif function.pattern is not None:
            self._pattern(args[function.pattern])

    def _pattern(self, node: Expr) -> None:
        if isinstance(node, Literal) and isinstance(node.value, str):
            from .regex import compile_regex  # as in `functions`

            try:
                compile_regex(node.value, dotall=True)
            except Unreadable as error:
                self._add("HF0120", error.message, node, error.help)


def _is_group(node: Expr) -> bool:
    return isinstance(node, Name) and node.name == "group"


def _literal(value: Any, node: Expr) -> Expr:
    if isinstance(value, (list, tuple)):
        return ListOf(tuple(_literal(item, node) for item in value), node.start, node.end, 2)
    if isinstance(value, Mapping):
        return MapOf(tuple((str(key), _literal(item, node)) for key, item in value.items()), node.start, node.end, 2)
    return Literal(value, node.start, node.end, 1)


def _refusal(text: str, found: list[_Found]) -> BadSelector:
    problems = []
    for each in found:
        line = text.count("\n", 0, each.start)
        begin = text.rfind("\n", 0, each.start) + 1
        source = text[begin:].split("\n", 1)[0]
        column = each.start - begin
        width = max(1, min(each.end, begin + len(source)) - each.start)
        problems.append(
            Problem(each.code, each.message, "<selector>", line + 1, column + 1, width, source[:400], help=each.help)
        )
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    message = f"`{shown}` is no selector: {found[0].message}"
    return BadSelector(f"{message}; {found[0].help}" if found[0].help else message, tuple(problems))


# --- terms and the rest ----------------------------------------------------------------------------------
def _split(tree: Expr) -> tuple[list[tuple[str, str]], list[Expr]]:
    """Equalities that an index answers, and what remains. Both have to hold."""
    if isinstance(tree, Binary) and tree.operator == "&&":
        left, more = _split(tree.left), _split(tree.right)
        return [*left[0], *(term for term in more[0] if term not in left[0])], [*left[1], *more[1]]
    if isinstance(tree, Literal) and tree.value is True:
        return [], []
    term = _term(tree)
    return ([term], []) if term else ([], [tree])


def _term(tree: Expr) -> tuple[str, str] | None:
    if not isinstance(tree, Binary):
        return None
    if tree.operator == "in" and isinstance(tree.left, Literal) and chain(tree.right) == ("groups",):
        return ("group", tree.left.value) if isinstance(tree.left.value, str) and tree.left.value else None
    if tree.operator != "==":
        return None
    left, right = tree.left, tree.right
    if isinstance(left, Literal):
        left, right = right, left
    if not isinstance(right, Literal) or isinstance(left, Literal):
        return None
    value = term_value(right.value)
    if value is None:
        return None
    match chain(left):
        case (name,) if name in _INDEXED:
            # An entity without one has none of an empty name either, and the index does not know it.
            return (name, right.value) if isinstance(right.value, str) and right.value else None
        case (name,) if name not in FIELDS and name not in _ELSEWHERE:
            return f"any.{name}", value
        case ("labels", name) if isinstance(right.value, str):
            return f"label.{name}", value
        case ("facts", name):
            return f"fact.{name}", value
        case _:
            return None


class _EntityScope:
    """What expressions see of one entity."""

    __slots__ = ("fuel", "row")

    def __init__(self, row: EntityRow) -> None:
        self.row = row
        self.fuel = FUEL

    def lookup(self, name: str) -> Any:
        row = self.row
        if name in FIELDS:
            return FIELDS[name](row)
        if name in row.labels:
            return row.labels[name]
        return row.facts.get(name, ABSENT)

    def given(self) -> Any:
        """`input` is a name like any other where no input was given."""
        value = self.lookup("input")
        return None if value is ABSENT else value

    def variable(self, name: str) -> Any:
        return ABSENT

    previous = given

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


def _test(rest: list[Expr], text: str) -> Callable[[EntityRow], bool]:
    fns: list[Fn] = [compile_expression(each, lenient=True) for each in rest]

    def test(row: EntityRow) -> bool:
        scope = _EntityScope(row)
        try:
            return all(truthy(fn(scope)) for fn in fns)
        except ExpressionError as error:
            if error.code == "HF0161":
                raise BadSelector(f"`{text[:80]}` costs too much at entity {row.id}: {error.message}") from None
            # Values that do not fit, e.g. a text where others have a number: what cannot be judged is not selected.
            return False

    return test
