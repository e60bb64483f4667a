"""The text of JMESPath expressions to parts, before any name has a meaning: a Pratt parser, usual precedence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from .expressions import MAX_HEIGHT, MAX_LENGTH, MAX_NODES, ExpressionSyntax
from .load import MAX_INTEGER
from .path_values import ARGUMENTS
from .problems import did_you_mean

TOKEN = re.compile(
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
#: `!a.b` is not `(!a).b`, which would never be anything but null
_NOT = 8


@dataclass(slots=True)
class Part:
    """One node as it is written, before names have a meaning."""

    kind: str
    value: Any
    parts: tuple[Part, ...]
    start: int
    end: int
    height: int = 0


class PathParser:
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
            match = TOKEN.match(self.text, self.at, self.stop)
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
        if self.kind == "end":
            return self._wrong("the expression is not finished", *self._last())
        return self._wrong(f"unexpected `{self.word}`", self.token_start, self.token_end)

    def _last(self) -> tuple[int, int]:
        """The character before what is missing."""
        return max(self.start, self.before - 1), self.before

    def _take(self, word: str) -> None:
        if not self._is(word):
            if self.kind == "end":
                raise self._wrong(f"`{word}` expected, found the end", *self._last())
            raise self._wrong(f"`{word}` expected, found `{self.word}`", self.token_start, self.token_end)
        self._scan()

    def _part(self, kind: str, value: Any, parts: tuple[Part, ...], start: int) -> Part:
        self.nodes += 1
        height = 1 + max((part.height for part in parts), default=0)
        if self.nodes > MAX_NODES or height > MAX_HEIGHT:
            raise self._wrong("the expression is too large", self.start, self.start + 1, code="HF0124")
        return Part(kind, value, parts, start, self.before, height)

    # --- the grammar -------------------------------------------------------------------------------
    def whole(self) -> Part:
        if self.kind == "end":
            raise self._wrong("there is no expression between the braces", max(self.start - 2, 0), self.stop + 2)
        made = self.expression(0)
        if self.kind != "end":
            raise self._unexpected()
        return made

    def expression(self, power: int) -> Part:
        self.depth += 1
        if self.depth > MAX_HEIGHT:
            raise self._wrong("the expression is too large", self.start, self.start + 1, code="HF0124")
        left = self._prefix()
        while self.kind == "op" and power < _POWER.get(self.word, 0):
            left = self._behind(left)
        self.depth -= 1
        return left

    def _prefix(self) -> Part:
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
                help = f"a number is written `` `{word}` ``"
                raise self._wrong(f"`{word}` stands alone", start, self.token_end, help)
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

    def _behind(self, left: Part) -> Part:
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

    def _dotted(self) -> Part:
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
        raise self._wrong("a name is missing behind the dot", *self._last(),
                          "a name with a dash needs double quotes")  # fmt: skip

    def _named(self, power: int) -> Part:
        if self.kind not in ("name", "quoted") and not self._is("*"):
            return self._dotted()
        return self.expression(power)

    def _rest(self, power: int) -> Part:
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

    def _bracket(self, left: Part | None, start: int) -> Part:
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

    def _index(self, here: Part, start: int) -> Part:
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

    def _filter(self, left: Part, start: int) -> Part:
        test = self.expression(0)
        self._take("]")
        rest = self._part("here", None, (), self.before) if self._is("[]") else self._rest(_POWER["[?"])
        return self._part("where", None, (left, rest, test), start)

    def _list(self, start: int) -> Part:
        items = [self.expression(0)]
        while self._is(","):
            self._scan()
            items.append(self.expression(0))
        self._take("]")
        return self._part("list", None, tuple(items), start)

    def _map(self, start: int) -> Part:
        keys: list[str] = []
        items: list[Part] = []
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

    def _called(self, name: str, start: int) -> Part:
        self._scan()
        args: list[Part] = []
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
