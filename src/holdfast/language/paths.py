"""The expressions of the function-block notation, `{{ … }}`: JMESPath text to the tree that `${…}` becomes too.

`path_syntax` reads the text; here names are given their meaning: `parameters.x` is an input, `context.device.x`
is of the entity at hand, `<label>.result.data.x` is of that step's output. What the grammar of `${…}` cannot say
(projections, filters, values out of `||`) becomes a `Path` node, whose meaning is in `path_values`. Every node knows
where it stands in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .expressions import ExpressionSyntax
from .path_syntax import TOKEN, Part, PathParser
from .path_values import HERE
from .problems import did_you_mean
from .tree import Expr, Literal, MapOf, Member, Name, Path, StepRef, Text

#: `context.<word>` → the type of the entity it is about
CONTEXT = {"device": "device", "interface": "interface", "device_group": "group", "group": "group"}
#: `context.<word>` → the type of the entities it lists
CONTEXTS = {"devices": "device", "interfaces": "interface", "device_groups": "group", "groups": "group"}
#: what an entity has itself; anything else asked of it is one of its facts
OF_ENTITY = ("id", "name", "type", "parent", "groups", "labels", "facts")


@dataclass(slots=True)
class _Place:
    """A path from the root that has not been asked for a value yet."""

    names: tuple[tuple[str, int, int], ...]


#: what an expression is about: the root, a place below it, or a value
_About: TypeAlias = Expr | _Place
_ROOT = _Place(())


def parse_path(text: str, start: int = 0, end: int | None = None, bound: Mapping[str, Expr] = {}) -> Expr:
    """The expression between two offsets of `text`. `bound` are parameters that a workflow around it gives."""
    parser = PathParser(text, start, len(text) if end is None else end)
    return _Meaning(bound).value(parser.whole(), _ROOT)


def parse_braces(text: str, bound: Mapping[str, Expr] = {}) -> Expr:
    """A text that may hold `{{ … }}`. Alone it keeps its type, inside of text it is written as text."""
    parts: list[str | Expr] = []
    at = 0
    while (found := text.find("{{", at)) >= 0:
        if found > at:
            parts.append(text[at:found])
        close = _closing(text, found + 2)
        tree = parse_path(text, found + 2, close, bound)
        at = close + 2
        parts.append(tree)
    if at < len(text):
        parts.append(text[at:])
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0]
    if all(isinstance(part, str) for part in parts):
        return Literal(text, 0, len(text))
    made = tuple(
        part if isinstance(part, str) else Path("text", (part,), part.start, part.end, part.height + 1)
        for part in parts
    )
    height = 1 + max(part.height for part in made if not isinstance(part, str))
    return Text(made, 0, len(text), height)


def _closing(text: str, at: int) -> int:
    """Where the `}}` is that belongs to a `{{`; quotes and braces of the expression itself are passed over."""
    start, depth = at - 2, 0
    while at < len(text):
        char = text[at]
        if char in "'\"`":
            quoted = TOKEN.match(text, at)
            if quoted is None:
                break
            at = quoted.end()
            continue
        if char == "{":
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        elif text.startswith("}}", at):
            return at
        at += 1
    raise ExpressionSyntax("`{{` is never closed", start, start + 2, help="close it with `}}`; "
                           "text that holds `{{` itself goes under `rawParameters`", code="HF0185")  # fmt: skip


class _Meaning:
    """Gives names their meaning. Inside of a filter or behind a pipe, names are of the item at hand."""

    def __init__(self, bound: Mapping[str, Expr]) -> None:
        self.bound = bound

    def value(self, part: Part, about: _About) -> Expr:
        made = self.meaning(part, about)
        return made if not isinstance(made, _Place) else self._asked(made, part)

    def meaning(self, part: Part, about: _About) -> _About:
        kind, parts = part.kind, part.parts
        match kind:
            case "here":
                return about
            case "literal":
                return Literal(part.value, part.start, part.end)
            case "field":
                if isinstance(about, _Place):
                    return _Place((*about.names, (part.value, part.start, part.end)))
                return self._path("field", part, about, Literal(part.value))
            case "sub":
                left = self.meaning(parts[0], about)
                if parts[1].kind == "field":
                    return self.meaning(parts[1], left)
                return self._path("with", part, self._of(left, parts[0]), self.value(parts[1], self._item(part)))
            case "pipe":
                left = self.value(parts[0], about)
                return self._path("with", part, left, self.value(parts[1], self._item(part)))
            case "index":
                return self._path("index", part, self.value(parts[0], about), Literal(part.value))
            case "slice":
                numbers = (Literal(number) for number in part.value)
                return self._path("slice", part, self.value(parts[0], about), *numbers)
            case "flat":
                return self._path("flat", part, self.value(parts[0], about))
            case "each" | "each-value" | "where":
                item = self._item(part)
                inner = (self.value(each, item) for each in parts[1:])
                return self._path(kind, part, self.value(parts[0], about), *inner)
            case "compare":
                return self._path(part.value, part, *(self.value(each, about) for each in parts))
            case "map":
                items = tuple(zip(part.value, (self.value(each, about) for each in parts), strict=True))
                made = MapOf(items, part.start, part.end, _height(tuple(item for _, item in items)))
                return self._some(part, about, made)
            case "list":
                return self._some(part, about, self._path("list", part, *(self.value(each, about) for each in parts)))
            case "each-by":
                raise ExpressionSyntax("`&` stands only before what a function is told about each item", part.start,
                                       part.end, code="HF0186", help="as in `sort_by(list, &name)`")  # fmt: skip
            case "call":
                return self._path(part.value, part, *(self._argument(each, about) for each in parts))
            case _:
                return self._path(kind, part, *(self.value(each, about) for each in parts))

    def _some(self, part: Part, about: _About, made: Expr) -> Expr:
        """Nothing is made of nothing."""
        return made if isinstance(about, _Place) else self._path("some", part, about, made)

    def _argument(self, part: Part, about: _About) -> Expr:
        if part.kind == "each-by":
            return self.value(part.parts[0], self._item(part))
        return self.value(part, about)

    def _of(self, about: _About, part: Part) -> Expr:
        return self._asked(about, part) if isinstance(about, _Place) else about

    def _item(self, part: Part) -> Name:
        return Name(HERE, part.start, part.end)

    def _path(self, operator: str, part: Part, *parts: Expr) -> Path:
        return Path(operator, parts, part.start, part.end, _height(parts))

    # --- names from the root -----------------------------------------------------------------------
    def _asked(self, place: _Place, part: Part) -> Expr:
        names = place.names
        if not names:
            raise ExpressionSyntax(
                "the whole context is not a value",
                part.start,
                part.end,
                code="HF0186",
                help="name a part of it: `parameters`, `context.device` or the label of a step",
            )
        words = [name for name, _, _ in names]
        match words:
            case ["parameters"]:
                return Name("input", names[0][1], names[0][2])
            case ["parameters", name, *_]:
                known = self.bound.get(name)
                root: Expr = known if known is not None else self._member(Name("input", *names[0][1:]), names[1])
                return self._below(root, names[2:])
            case ["context", *_]:
                return self._context(names)
            case [label]:
                raise self._unknown(names, f"the step `{label}` has `result`", f"write `{label}.result.data`")
            case [label, "result"]:
                raise self._unknown(names, "the result of a step has `data` and `success`",
                                    f"write `{label}.result.data`")  # fmt: skip
            case [label, "result", "data", *_]:
                return self._below(self._output(names), names[3:])
            case [label, "result", "success"]:
                return Path("success", (self._output(names),), names[0][1], names[-1][2], 3)
            case [label, "result", word, *_]:
                raise self._unknown(names, f"the result of a step has no `{word}`", f"write `{label}.result.data`")
            case _:
                raise self._unknown(names, f"`{words[0]}` is not `parameters` or `context`, and a step has `result`",
                                    f"an input is `parameters.{words[0]}`")  # fmt: skip

    def _unknown(self, names: tuple[tuple[str, int, int], ...], message: str, help: str) -> ExpressionSyntax:
        return ExpressionSyntax(message, names[0][1], names[-1][2], help=help, code="HF0186")

    def _output(self, names: tuple[tuple[str, int, int], ...]) -> Expr:
        label, start, end = names[0]
        return Member(StepRef(label, start, end), "output", start, end, 1)

    def _context(self, names: tuple[tuple[str, int, int], ...]) -> Expr:
        words = [name for name, _, _ in names]
        start, end = names[0][1], names[-1][2]
        if len(words) == 1 or words[1] not in (*CONTEXT, *CONTEXTS):
            raise ExpressionSyntax(
                "`context` is not a value" if len(words) == 1 else f"`context` has no `{words[1]}`", start, end,
                help=(did_you_mean(words[1], (*CONTEXT, *CONTEXTS)) if len(words) > 1 else "")
                or f"it has {', '.join((*CONTEXT, *CONTEXTS))}", code="HF0186",
            )  # fmt: skip
        if words[1] in CONTEXTS:
            return self._below(self._listed(CONTEXTS[words[1]], start, end), names[2:])
        entity = Name("entity", start, end)
        type = Path("==", (Member(entity, "type", start, end, 1), Literal(CONTEXT[words[1]])), start, end, 2)
        inner: Expr
        if len(words) == 2:
            facts = ((key, Member(entity, key, start, end, 1)) for key in OF_ENTITY)
            inner = MapOf(tuple(facts), start, end, 2)
        elif words[2] in OF_ENTITY:
            inner = self._member(entity, names[2])
            if len(words) > 3 and words[2] in ("facts", "labels"):
                inner = self._member(inner, names[3])
                return self._below(Path("only-if", (type, inner), start, end, 5), names[4:])
        else:
            inner = self._member(Member(entity, "facts", start, end, 1), names[2])
        return self._below(Path("only-if", (type, inner), start, end, 5), names[3:])

    def _listed(self, type: str, start: int, end: int) -> Expr:
        """Entities that go with the one at hand, or all where there is none, by their ids."""
        if type != "group":
            return Path("entities", (Literal(type),), start, end, 1)
        groups = Member(Name("entity", start, end), "groups", start, end, 1)
        return Path("each", (groups, MapOf((("id", Name(HERE)),), start, end, 1)), start, end, 2)

    def _member(self, of: Expr, name: tuple[str, int, int]) -> Expr:
        return Member(of, name[0], of.start, name[2], of.height + 1)

    def _below(self, root: Expr, names: tuple[tuple[str, int, int], ...]) -> Expr:
        made = root
        for name, _, end in names:
            made = Path("field", (made, Literal(name)), root.start, end, made.height + 1)
        return made


def _height(parts: tuple[Expr, ...]) -> int:
    return 1 + max((part.height for part in parts), default=0)
