"""The expressions of the function-block notation, `{{ … }}`: JMESPath text to the tree that `${…}` becomes too.

A Pratt parser reads the text, then names are given their meaning here: `parameters.x` is an input, `context.device.x`
is of the entity at hand, `<label>.result.data.x` is of that step's output. What the grammar of `${…}` cannot say
(projections, filters, values out of `||`) becomes a `Path` node, whose meaning is in `path_values`. Every node knows
where it stands in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from .expressions import MAX_HEIGHT, MAX_LENGTH, MAX_NODES, ExpressionSyntax
from .load import MAX_INTEGER
from .path_values import ARGUMENTS, HERE
from .problems import did_you_mean
from .tree import Expr, Literal, MapOf, Member, Name, Path, StepRef, Text

#: `context.<word>` → the type of the entity it is about
CONTEXT = {"device": "device", "interface": "interface", "device_group": "group", "group": "group"}
#: `context.<word>` → the type of the entities it lists
CONTEXTS = {"devices": "device", "interfaces": "interface", "device_groups": "group", "groups": "group"}
#: what an entity has itself; anything else asked of it is one of its facts
OF_ENTITY = ("id", "name", "type", "parent", "groups", "labels", "facts")

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>-?\d+)
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<raw>'(?:[^'\\]|\\.)*')
      | (?P<json>`(?:[^`\\]|\\.)*`)
      | (?P<op>\[\?|\[\]|\|\||&&|==|!=|<=|>=|[|&!<>.,:*@()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
#: how tightly what stands behind an operand binds
_POWER = {
    "|": 1, "||": 2, "&&": 3, "==": 5, "!=": 5, "<": 5, "<=": 5, ">": 5, ">=": 5,
    "[]": 9, "*": 20, "[?": 21, ".": 40, "[": 55,
}  # fmt: skip
_COMPARE = frozenset(("==", "!=", "<", "<=", ">", ">="))
#: below this, what follows is not of each item but of all of them together
_STOPS = 10
_NOT = 45


@dataclass(slots=True)
class _Part:
    """One node as it is written, before names have a meaning."""

    kind: str
    value: Any
    parts: tuple[_Part, ...]
    start: int
    end: int
    height: int = 0


@dataclass(slots=True)
class _Place:
    """A path from the root that has not been asked for a value yet."""

    names: tuple[tuple[str, int, int], ...]


#: what an expression is about: the root, a place below it, or a value
_About: TypeAlias = Expr | _Place
_ROOT = _Place(())


def parse_path(text: str, start: int = 0, end: int | None = None, bound: Mapping[str, Expr] = {}) -> Expr:
    """The expression between two offsets of `text`. `bound` are parameters that a workflow around it gives."""
    parser = _Parser(text, start, len(text) if end is None else end)
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
            quoted = _TOKEN.match(text, at)
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


class _Parser:
    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.at = start
        self.stop = end
        self.start = start
        self.nodes = self.depth = 0
        if end - start > MAX_LENGTH:
            raise ExpressionSyntax(
                f"the expression is longer than {MAX_LENGTH:,} characters", start, start + 1, code="HF0124"
            )
        self.kind = self.word = ""
        self.token_start = self.token_end = self.before = start
        self._scan()

    # --- tokens ------------------------------------------------------------------------------------
    def _scan(self) -> None:
        self.before = self.token_end
        while True:
            if self.at >= self.stop:
                self.kind, self.word, self.token_start, self.token_end = "end", "", self.stop, self.stop
                return
            match = _TOKEN.match(self.text, self.at, self.stop)
            if match is None:
                char = self.text[self.at]
                if char in "'\"`":
                    raise self._wrong("the quote is never closed", self.at, self.at + 1)
                helps = {"=": "compare with `==`", "$": "the root is where every expression begins; leave it out",
                         "-": "there is no subtraction; a dash in a name needs double quotes",
                         "+": "there is no addition"}  # fmt: skip
                raise self._wrong(f"unexpected `{char}`", self.at, self.at + 1, helps.get(char, ""))
            self.token_start, self.at = self.at, match.end()
            self.token_end = self.at
            kind = match.lastgroup or ""
            if kind != "space":
                self.kind, self.word = kind, match.group()
                return

    def _wrong(self, message: str, start: int, end: int, help: str = "", code: str = "HF0185") -> ExpressionSyntax:
        return ExpressionSyntax(message, start, end, help=help, code=code)

    def _is(self, word: str) -> bool:
        return self.kind == "op" and self.word == word

    def _unexpected(self) -> ExpressionSyntax:
        found = "the end" if self.kind == "end" else f"`{self.word}`"
        start = self.token_start if self.kind != "end" else max(self.start, self.before - 1)
        return self._wrong(f"unexpected {found}" if found != "the end" else "the expression is not finished",
                           start, max(self.token_end, start + 1))  # fmt: skip

    def _take(self, word: str) -> None:
        if not self._is(word):
            found = "the end" if self.kind == "end" else f"`{self.word}`"
            start = self.token_start if self.kind != "end" else max(self.start, self.before - 1)
            raise self._wrong(f"`{word}` expected, found {found}", start, max(self.token_end, start + 1))
        self._scan()

    def _part(self, kind: str, value: Any, parts: tuple[_Part, ...], start: int) -> _Part:
        self.nodes += 1
        height = 1 + max((part.height for part in parts), default=0)
        if self.nodes > MAX_NODES or height > MAX_HEIGHT:
            raise self._wrong("the expression is too large", self.start, self.start + 1, code="HF0124")
        return _Part(kind, value, parts, start, self.before, height)

    # --- the grammar -------------------------------------------------------------------------------
    def whole(self) -> _Part:
        if self.kind == "end":
            raise self._wrong("there is no expression between the braces", max(self.start - 2, 0), self.stop + 2)
        made = self.expression(0)
        if self.kind != "end":
            raise self._unexpected()
        return made

    def expression(self, power: int) -> _Part:
        self.depth += 1
        if self.depth > MAX_HEIGHT:
            raise self._wrong("the expression is too large", self.start, self.start + 1, code="HF0124")
        left = self._prefix()
        while self.kind == "op" and power < _POWER.get(self.word, 0):
            left = self._behind(left)
        self.depth -= 1
        return left

    def _prefix(self) -> _Part:
        kind, word, start = self.kind, self.word, self.token_start
        if kind == "name":
            self._scan()
            return self._called(word, start) if self._is("(") else self._part("field", word, (), start)
        if kind == "quoted":
            name = self._json(word, start)
            self._scan()
            if self._is("("):
                raise self._wrong("the name of a function has no quotes", start, self.before)
            return self._part("field", name, (), start)
        if kind == "raw":
            self._scan()
            return self._part("literal", word[1:-1].replace("\\'", "'").replace("\\\\", "\\"), (), start)
        if kind == "json":
            value = self._json(word[1:-1].replace("\\`", "`"), start, word)
            self._scan()
            return self._part("literal", value, (), start)
        if kind != "op":
            if kind == "number":
                raise self._wrong(f"`{word}` stands alone", start, self.token_end, f"a number is written `` `{word}` ``")
            raise self._unexpected()
        self._scan()
        match word:
            case "@":
                return self._part("here", None, (), start)
            case "!":
                return self._part("not", None, (self.expression(_NOT),), start)
            case "(":
                inner = self.expression(0)
                self._take(")")
                return inner
            case "&":
                return self._part("each-by", None, (self.expression(0),), start)
            case "*":
                here = self._part("here", None, (), start)
                return self._part("each-value", None, (here, self._rest(_POWER["*"])), start)
            case "[]":
                flat = self._part("flat", None, (self._part("here", None, (), start),), start)
                return self._part("each", None, (flat, self._rest(_POWER["[]"])), start)
            case "[?":
                return self._filter(self._part("here", None, (), start), start)
            case "[":
                return self._bracket(None, start)
            case "{":
                return self._map(start)
            case _:
                raise self._wrong(f"unexpected `{word}`", start, start + len(word))

    def _behind(self, left: _Part) -> _Part:
        """What an operator makes of what stands before it."""
        word, start = self.word, left.start
        if word in _COMPARE:
            self._scan()
            return self._part("compare", word, (left, self.expression(_POWER[word])), start)
        if word in ("|", "||", "&&"):
            self._scan()
            return self._part({"|": "pipe", "||": "or", "&&": "and"}[word], None,
                              (left, self.expression(_POWER[word])), start)  # fmt: skip
        self._scan()
        match word:
            case ".":
                if self._is("*"):
                    self._scan()
                    return self._part("each-value", None, (left, self._rest(_POWER["*"])), start)
                return self._part("sub", None, (left, self._dotted()), start)
            case "[]":
                flat = self._part("flat", None, (left,), start)
                return self._part("each", None, (flat, self._rest(_POWER["[]"])), start)
            case "[?":
                return self._filter(left, start)
            case "[":
                return self._bracket(left, start)
            case _:
                raise self._wrong(f"unexpected `{word}`", self.before - len(word), self.before)

    def _dotted(self) -> _Part:
        """What may stand behind a dot."""
        start = self.token_start
        if self.kind == "name" or self.kind == "quoted":
            return self._prefix()
        if self._is("["):
            self._scan()
            return self._list(start)
        if self._is("{"):
            self._scan()
            return self._map(start)
        raise self._wrong("a name is missing behind the dot", max(self.before - 1, self.start), self.token_end,
                          "a name with a dash needs double quotes")  # fmt: skip

    def _named(self, power: int) -> _Part:
        if self.kind not in ("name", "quoted") and not self._is("*"):
            return self._dotted()
        return self.expression(power)

    def _rest(self, power: int) -> _Part:
        """What is asked of each item."""
        start = self.token_start
        if self.kind != "op" or _POWER.get(self.word, 0) < _STOPS:
            if self.kind not in ("op", "end"):
                raise self._unexpected()
            return self._part("here", None, (), start)
        if self._is("."):
            self._scan()
            return self._dotted() if self._is("[") or self._is("{") else self._named(power)
        if self._is("[") or self._is("[?"):
            return self.expression(power)
        raise self._unexpected()

    def _bracket(self, left: _Part | None, start: int) -> _Part:
        """Behind `[`: an index, a slice, all items, or, where nothing stands before it, a list."""
        here = left or self._part("here", None, (), start)
        if self._is("*"):
            self._scan()
            if not self._is("]") and left is None:
                raise self._unexpected()
            self._take("]")
            return self._part("each", None, (here, self._rest(_POWER["*"])), start)
        if self.kind == "number" or self._is(":"):
            return self._index(here, start)
        if left is not None:
            help = "a name goes behind a dot, a filter is written `[?…]`"
            raise self._wrong("an index is a number", self.token_start, self.token_end, help)
        return self._list(start)

    def _index(self, here: _Part, start: int) -> _Part:
        numbers: list[int | None] = [None, None, None]
        at = 0
        while not self._is("]"):
            if self._is(":"):
                at += 1
                if at > 2:
                    raise self._unexpected()
            elif self.kind == "number" and numbers[at] is None:
                numbers[at] = self._whole()
            else:
                raise self._unexpected()
            self._scan()
        self._take("]")
        if not at:
            return self._part("index", numbers[0], (here,), start)
        if numbers[2] == 0:
            raise self._wrong("the step of a slice cannot be 0", start, self.before)
        made = self._part("slice", tuple(numbers), (here,), start)
        return self._part("each", None, (made, self._rest(_POWER["*"])), start)

    def _whole(self) -> int:
        value = int(self.word) if len(self.word) < 20 else MAX_INTEGER + 1
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise self._wrong("the number is too large", self.token_start, self.token_end)
        return value

    def _filter(self, left: _Part, start: int) -> _Part:
        test = self.expression(0)
        self._take("]")
        rest = self._part("here", None, (), self.before) if self._is("[]") else self._rest(_POWER["[?"])
        return self._part("where", None, (left, rest, test), start)

    def _list(self, start: int) -> _Part:
        items = [self.expression(0)]
        while self._is(","):
            self._scan()
            items.append(self.expression(0))
        self._take("]")
        return self._part("list", None, tuple(items), start)

    def _map(self, start: int) -> _Part:
        keys: list[str] = []
        items: list[_Part] = []
        while True:
            if self.kind == "quoted":
                keys.append(self._json(self.word, self.token_start))
            elif self.kind == "name":
                keys.append(self.word)
            else:
                raise self._wrong("a key is missing", self.token_start, max(self.token_end, self.token_start + 1))
            self._scan()
            self._take(":")
            items.append(self.expression(0))
            if not self._is(","):
                break
            self._scan()
        self._take("}")
        return self._part("map", tuple(keys), tuple(items), start)

    def _called(self, name: str, start: int) -> _Part:
        self._scan()
        args: list[_Part] = []
        while not self._is(")"):
            args.append(self.expression(0))
            if not self._is(")"):
                self._take(",")
                if self._is(")"):
                    raise self._unexpected()
        self._take(")")
        made = self._part("call", name, tuple(args), start)
        takes = ARGUMENTS.get(name)
        if takes is None:
            close = did_you_mean(name, ARGUMENTS)
            raise self._wrong(f"there is no function `{name}` in `{{{{ … }}}}`", start, start + len(name),
                              close or f"there are {', '.join(ARGUMENTS)}", "HF0186")  # fmt: skip
        count, most = len(args), takes.most
        if not takes.least <= count <= most:
            wanted = takes.least if takes.least == most else f"at least {takes.least}"
            raise self._wrong(f"`{name}` takes {wanted} argument{'s' if wanted != 1 else ''}, not {count}",
                              start, self.before)  # fmt: skip
        for at, arg in enumerate(args):
            if (arg.kind == "each-by") != (at == takes.by):
                if arg.kind == "each-by":
                    raise self._wrong(f"`{name}` takes no `&…` here", arg.start, arg.end)
                raise self._wrong(f"`{name}` takes `&…` here", arg.start, arg.end, "e.g. `sort_by(list, &name)`")
        return made

    def _json(self, text: str, start: int, word: str = "") -> Any:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            help = f"a text is written '{text.strip()}'" if word and "'" not in text else ""
            raise self._wrong("this is not JSON", start, start + len(word or text), help) from None
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, (list, dict)):
                pending += item.values() if isinstance(item, dict) else item
            elif type(item) is int and not -MAX_INTEGER - 1 <= item <= MAX_INTEGER:
                raise self._wrong("the number is too large", start, start + len(word or text))
        return value


class _Meaning:
    """Gives names their meaning. Inside of a filter or behind a pipe, names are of the item at hand."""

    def __init__(self, bound: Mapping[str, Expr]) -> None:
        self.bound = bound

    def value(self, part: _Part, about: _About) -> Expr:
        made = self.meaning(part, about)
        return made if not isinstance(made, _Place) else self._asked(made, part)

    def meaning(self, part: _Part, about: _About) -> _About:
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
            case "call":
                return self._path(part.value, part, *(self._argument(each, about) for each in parts))
            case _:
                return self._path(kind, part, *(self.value(each, about) for each in parts))

    def _some(self, part: _Part, about: _About, made: Expr) -> Expr:
        """Nothing is made of nothing."""
        return made if isinstance(about, _Place) else self._path("some", part, about, made)

    def _argument(self, part: _Part, about: _About) -> Expr:
        if part.kind == "each-by":
            return self.value(part.parts[0], self._item(part))
        return self.value(part, about)

    def _of(self, about: _About, part: _Part) -> Expr:
        return self._asked(about, part) if isinstance(about, _Place) else about

    def _item(self, part: _Part) -> Name:
        return Name(HERE, part.start, part.end)

    def _path(self, operator: str, part: _Part, *parts: Expr) -> Path:
        return Path(operator, parts, part.start, part.end, _height(parts))

    # --- names from the root -----------------------------------------------------------------------
    def _asked(self, place: _Place, part: _Part) -> Expr:
        names = place.names
        if not names:
            raise ExpressionSyntax("the whole context is not a value", part.start, part.end, code="HF0186",
                                   help="name a part of it: `parameters`, `context.device` or the label of a step")
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
        return Path("of-entity", (Member(StepRef(label, start, end), "output", start, end, 1),), start, end, 2)

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
            listed = Path("entities", (Literal(CONTEXTS[words[1]]),), start, end, 1)
            return self._below(listed, names[2:])
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

    def _member(self, of: Expr, name: tuple[str, int, int]) -> Expr:
        return Member(of, name[0], of.start, name[2], of.height + 1)

    def _below(self, root: Expr, names: tuple[tuple[str, int, int], ...]) -> Expr:
        made = root
        for name, _, end in names:
            made = Path("field", (made, Literal(name)), root.start, end, made.height + 1)
        return made


def _height(parts: tuple[Expr, ...]) -> int:
    return 1 + max((part.height for part in parts), default=0)
