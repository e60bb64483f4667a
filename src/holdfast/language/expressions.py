"""The expression grammar: text to tree. One grammar for `${…}`, conditions and `let`.

A hand-written Pratt parser with conventional precedence; every node knows where it stands in the text.
What a tree means is in `evaluate`, which names exist is in `names`.
"""

from __future__ import annotations

import re
from typing import Any

from .tree import (
    COMPARE,
    POWER,
    STEP_ID,
    UNARY,
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
    allows_dashes,
)  # fmt: skip

MAX_LENGTH = 4096
MAX_NODES = 1000
MAX_HEIGHT = 60


class ExpressionSyntax(Exception):
    """The text is not an expression; `start` and `end` say where."""

    def __init__(self, message: str, start: int, end: int, help: str = "", code: str = "HF0120") -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = max(end, start + 1)
        self.help = help
        self.code = code


_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "/": "/", "$": "$"}

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?P<tail>\w*)
      | (?P<name>[^\W\d]\w*)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<op>\$\{|\?\?|\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_DASHED = re.compile(r"[^\W\d]\w*(?:-\w+)+")


class _Token:
    __slots__ = ("end", "kind", "start", "value")

    def __init__(self, kind: str, value: Any, start: int, end: int) -> None:
        self.kind = kind
        self.value = value
        self.start = start
        self.end = end


class Parser:
    """Parses one expression that begins at `start` of `text`. `dashed` are the names with a dash that
    the workflow defines: `dry-run` is that name where it exists, and a subtraction where it does not."""

    def __init__(self, text: str, start: int = 0, dashed: frozenset[str] = frozenset(), words: bool = False) -> None:
        self.text = text
        self.at = start
        self.dashed = dashed
        #: `${…}` may be an operand
        self.words = words
        self.origin = start
        self.nodes = 0
        self.depth = 0
        self.token = self._scan()

    # --- tokens ------------------------------------------------------------------------------------
    def _scan(self) -> _Token:
        text = self.text
        if self.at - self.origin > MAX_LENGTH:
            raise ExpressionSyntax(
                f"the expression is longer than {MAX_LENGTH:,} characters",
                self.origin, self.origin + 1, code="HF0124",
            )  # fmt: skip
        while True:
            match = _TOKEN.match(text, self.at)
            if match is None:
                if self.at >= len(text):
                    return _Token("end", "", len(text), len(text))
                raise self._unreadable(text[self.at])
            start, self.at = self.at, match.end()
            kind = match.lastgroup
            if kind == "space":
                continue
            value = match.group()
            if kind == "tail":
                if match["tail"]:
                    raise ExpressionSyntax(
                        f"`{value}` is neither a number nor a name",
                        start,
                        self.at,
                        help="quote it if it is text",
                    )
                return _Token("number", _number(match["number"], start, self.at), start, self.at)
            if kind == "name":
                if self.dashed and text.startswith("-", self.at):
                    value = self._longest(start, value)
                    self.at = start + len(value)
                if value == "in":
                    return _Token("op", "in", start, self.at)
                return _Token("name", value, start, self.at)
            if kind == "string":
                return _Token("string", _unescape(value, start), start, self.at)
            return _Token("op", value, start, self.at)

    def _longest(self, start: int, short: str) -> str:
        match = _DASHED.match(self.text, start)
        candidate = match.group() if match else short
        while candidate != short and candidate not in self.dashed:
            candidate = candidate.rpartition("-")[0]
        return candidate

    def _unreadable(self, char: str) -> ExpressionSyntax:
        at = self.at
        if char in "'\"":
            return ExpressionSyntax("the quote is never closed", at, at + 1)
        helps = {"=": "compare with `==`", "&": "and is `&&`", "|": "or is `||`; there are no pipes here",
                 "^": "there is no power operator", "~": "not is `!`"}  # fmt: skip
        return ExpressionSyntax(f"unexpected `{char}`", at, at + 1, help=helps.get(char, ""))

    def _next(self) -> _Token:
        token = self.token
        self.token = self._scan()
        return token

    def _is(self, value: str) -> bool:
        return self.token.kind == "op" and self.token.value == value

    def _expect(self, value: str, opened: _Token | None = None) -> _Token:
        if not self._is(value):
            missing = f"`{value}` expected"
            if self.token.kind == "end" and opened is not None:
                raise ExpressionSyntax(f"`{opened.value}` is never closed", opened.start, opened.end)
            raise ExpressionSyntax(f"{missing}, found {self._found()}", self.token.start, self.token.end)
        return self._next()

    def _found(self) -> str:
        if self.token.kind == "end":
            return "the end"
        return f"`{self.text[self.token.start : self.token.end]}`"

    # --- the grammar -------------------------------------------------------------------------------
    def whole(self) -> Expr:
        """The whole text is one expression."""
        node = self.expression()
        if self.token.kind != "end":
            raise ExpressionSyntax(
                f"unexpected {self._found()} after the expression", self.token.start, self.token.end,
                help=_word_operator(self.token),
            )  # fmt: skip
        return node

    def embedded(self) -> tuple[Expr, int]:
        """The expression up to an unmatched `}`, and the offset behind that brace."""
        node = self.expression()
        if not self._is("}"):
            raise ExpressionSyntax(
                f"`}}` expected, found {self._found()}", self.token.start, self.token.end,
                help=_word_operator(self.token),
            )  # fmt: skip
        return node, self.token.end

    def expression(self, power: int = 0) -> Expr:
        self.depth += 1
        if self.depth > MAX_HEIGHT:
            raise self._too_deep(self.token.start)
        left = self._prefix()
        while True:
            token = self.token
            if token.kind != "op":
                break
            binding = POWER.get(token.value, 0)
            if binding <= power:
                break
            self._next()
            if token.value == "?":
                yes = self.expression()
                self._expect(":", token)
                no = self.expression(binding - 1)
                left = self._node(Choice(left, yes, no, left.start, no.end), left, yes, no)
                continue
            # `??` takes what follows, so that a ?? b ?? c needs no parentheses either way.
            right = self.expression(binding - 1 if token.value == "??" else binding)
            left = self._node(Binary(token.value, left, right, left.start, right.end), left, right)
            if binding == COMPARE and self.token.kind == "op" and POWER.get(self.token.value) == COMPARE:
                raise ExpressionSyntax(
                    "comparisons cannot be chained", self.token.start, self.token.end,
                    help="join them with `&&`",
                )  # fmt: skip
        self.depth -= 1
        return left

    def _prefix(self) -> Expr:
        token = self.token
        if token.kind == "op" and token.value in ("!", "-"):
            self._next()
            operand = self.expression(UNARY - 1)
            return self._node(Unary(token.value, operand, token.start, operand.end), operand)
        return self._postfix(self._primary())

    def _primary(self) -> Expr:
        token = self._next()
        node: Expr
        if token.kind in ("number", "string"):
            return self._node(Literal(token.value, token.start, token.end))
        if token.kind == "name":
            if token.value in _CONSTANTS:
                return self._node(Literal(_CONSTANTS[token.value], token.start, token.end))
            if self._is("("):
                return self._call(token)
            if token.value == "steps" and (self._is(".") or self._is("[")):
                return self._step(token)
            return self._node(Name(token.value, token.start, token.end))
        if token.kind == "op":
            match token.value:
                case "(":
                    node = self.expression()
                    self._expect(")", token)
                    return node
                case "${" if self.words:
                    node = self.expression()
                    self._expect("}", token)
                    return node
                case "[":
                    return self._list(token)
                case "{":
                    return self._map(token)
                case _:
                    pass
        if token.kind == "end":
            raise ExpressionSyntax("a value is missing", max(token.start - 1, self.origin), token.end)
        help = "`${` is not needed inside of `${…}`" if token.value == "${" else ""
        raise ExpressionSyntax(f"a value is missing before `{token.value}`", token.start, token.end, help=help)

    def _postfix(self, node: Expr) -> Expr:
        while self.token.kind == "op":
            token = self.token
            if token.value == ".":
                if allows_dashes(node) and (match := STEP_ID.match(self.text, self.at)):
                    self.at = match.end()
                    self.token = self._scan()
                    node = self._node(Member(node, match.group(), node.start, match.end()), node)
                    continue
                self._next()
                name = self._next()
                if name.kind != "name" and not (name.kind == "op" and name.value == "in"):
                    raise ExpressionSyntax("a name is missing after `.`", token.start, name.end,
                                           help="other keys are written `['key']`")  # fmt: skip
                node = self._node(Member(node, name.value, node.start, name.end), node)
            elif token.value == "[":
                self._next()
                index = self.expression()
                end = self._expect("]", token).end
                node = self._node(Index(node, index, node.start, end), node, index)
            else:
                break
        return node

    def _step(self, root: _Token) -> Expr:
        """Ids may hold dashes: `steps.check-version.output`."""
        if self._is("."):
            match = STEP_ID.match(self.text, self.at)
            if match is None:
                raise ExpressionSyntax("a step id is missing after `steps.`", root.start, self.token.end)
            self.at = match.end()
            self.token = self._scan()
            return self._node(StepRef(match.group(), root.start, match.end()))
        opened = self._next()
        key = self._next()
        if key.kind != "string":
            raise ExpressionSyntax("a step id in quotes is expected", key.start, key.end)
        end = self._expect("]", opened).end
        return self._node(StepRef(key.value, root.start, end))

    def _call(self, name: _Token) -> Expr:
        opened = self._next()
        args = self._items(")", opened)
        end = self._next().end
        return self._node(Call(name.value, tuple(args), name.start, end), *args)

    def _list(self, opened: _Token) -> Expr:
        items = self._items("]", opened)
        end = self._next().end
        return self._node(ListOf(tuple(items), opened.start, end), *items)

    def _items(self, close: str, opened: _Token) -> list[Expr]:
        items: list[Expr] = []
        while not self._is(close):
            if items:
                self._expect(",", opened)
                if self._is(close):
                    break
            items.append(self.expression())
        return items

    def _map(self, opened: _Token) -> Expr:
        items: list[tuple[str, Expr]] = []
        seen: set[str] = set()
        while not self._is("}"):
            if items:
                self._expect(",", opened)
                if self._is("}"):
                    break
            key = self._next()
            if key.kind not in ("name", "string"):
                raise ExpressionSyntax("a key is missing", key.start, key.end)
            if key.value in seen:
                raise ExpressionSyntax(f"the key `{key.value}` occurs twice", key.start, key.end)
            seen.add(key.value)
            self._expect(":", opened)
            items.append((key.value, self.expression()))
        end = self._next().end
        return self._node(MapOf(tuple(items), opened.start, end), *(item for _, item in items))

    def _node(self, node: Expr, *below: Expr) -> Expr:
        self.nodes += 1
        node.height = 1 + max((child.height for child in below), default=0)
        if node.height > MAX_HEIGHT or self.nodes > MAX_NODES:
            raise self._too_deep(node.start)
        return node

    def _too_deep(self, at: int) -> ExpressionSyntax:
        return ExpressionSyntax(
            "the expression is too large", at, at + 1,
            help="split it over several `let` steps", code="HF0124",
        )  # fmt: skip


def parse(text: str, dashed: frozenset[str] = frozenset(), words: bool = False) -> Expr:
    """`text` as one expression; with `words`, `${…}` may stand for an operand."""
    return Parser(text, 0, dashed, words).whole()


def _number(text: str, start: int, end: int) -> int | float:
    if text.isdigit():
        if len(text) > 19 or int(text) > 2**63 - 1:
            raise ExpressionSyntax("the integer does not fit into 64 bits", start, end)
        return int(text)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ExpressionSyntax("the number is too large", start, end)
    return value


def _unescape(quoted: str, start: int) -> str:
    body = quoted[1:-1]
    if "\\" not in body:
        return body
    out: list[str] = []
    at = 0
    while at < len(body):
        char = body[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        code = body[at + 1]
        if code == "u" and re.fullmatch("[0-9a-fA-F]{4}", body[at + 2 : at + 6]):
            letter = chr(int(body[at + 2 : at + 6], 16))
            if "\ud800" <= letter <= "\udfff":
                raise ExpressionSyntax("not a character", start + at + 1, start + at + 7)
            out.append(letter)
            at += 6
        elif code in _ESCAPES:
            out.append(_ESCAPES[code])
            at += 2
        else:
            raise ExpressionSyntax(f"unknown escape `\\{code}`", start + at + 1, start + at + 3)
    return "".join(out)


def _word_operator(token: _Token) -> str:
    if token.kind == "name" and token.value in ("and", "or", "not"):
        return {"and": "and is `&&`", "or": "or is `||`", "not": "not is `!`"}[token.value]
    return "join texts with `+`, e.g. `'a' + b`" if token.kind in ("name", "string") else ""
