"""Lists and maps in the short form of a step: `[web1, web2]`, `{port: 80, host: ${host}}`.

Outside of `${…}` a bare word is a text there, typed as YAML types it, just as it is outside of the brackets and in
the list of a `foreach`. What holds quotes, `${…}`, calls or operators is an expression.
"""

from __future__ import annotations

import re

from .expressions import MAX_HEIGHT, MAX_LENGTH, MAX_NODES, ExpressionSyntax, Parser, parse
from .load import Unstorable, scalar
from .tree import POWER, Expr, ListOf, Literal, MapOf, Word

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
#: a colon is part of a word where no space follows it: `http://host`, `12:30`
_BARE = re.compile(r"\s*((?:[^\s,\[\]{}()'\"$:?]|:(?!\s))(?:[^,\[\]{}()'\"$:?]|:(?!\s))*?)\s*(?=[,\]}])")
_KEY = re.compile(r"\s*([^\s,\[\]{}()'\"$:]+)\s*:(?=\s)")
_SPACE = re.compile(r"\s*")
_OPERATORS = frozenset(operator for operator in POWER if operator.isascii()) | {"!"}


class _NotPlain(Exception):
    """More than a literal: `[1, 2][0]`."""


def parse_literal(text: str, dashed: frozenset[str] = frozenset(), start: int = 0) -> Expr:
    """The list or map that begins at `start` and goes to the end of `text`."""
    try:
        reader = _Reader(text, dashed)
        tree, at = reader.collection(start, 1)
        if text[at:].strip():
            raise _NotPlain
        return tree
    except _NotPlain:
        return parse(" " * start + text[start:], dashed, words=True)


class _Reader:
    def __init__(self, text: str, dashed: frozenset[str]) -> None:
        self.text = text
        self.dashed = dashed
        self.nodes = 0

    def collection(self, at: int, depth: int) -> tuple[Expr, int]:
        opened = at
        is_map = self.text[at] == "{"
        close = "}" if is_map else "]"
        if depth > MAX_HEIGHT or len(self.text) > MAX_LENGTH:
            raise _NotPlain  # which is told as for any other expression
        values: list[Expr] = []
        keys: list[str] = []
        at = self._skip(at + 1)
        while not self.text.startswith(close, at):
            if is_map:
                key, at = self._key(at)
                if key in keys:
                    raise _NotPlain
                keys.append(key)
            value, at = self._value(at, depth)
            values.append(value)
            at = self._skip(at)
            if self.text.startswith(",", at):
                at = self._skip(at + 1)
            elif not self.text.startswith(close, at):
                raise _NotPlain
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _NotPlain
        height = 1 + max((value.height for value in values), default=0)
        if is_map:
            return MapOf(tuple(zip(keys, values, strict=True)), opened, at + 1, height), at + 1
        return ListOf(tuple(values), opened, at + 1, height), at + 1

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _key(self, at: int) -> tuple[str, int]:
        if (bare := _KEY.match(self.text, at)) is not None:
            return bare[1], bare.end()
        quoted = _QUOTED.match(self.text, at)
        if quoted is None:
            raise _NotPlain
        key = parse(quoted.group(), self.dashed)
        after = self._skip(quoted.end())
        if not isinstance(key, Literal) or not self.text.startswith(":", after):
            raise _NotPlain
        return key.value, after + 1

    def _value(self, at: int, depth: int) -> tuple[Expr, int]:
        at = self._skip(at)
        if self.text[at : at + 1] in ("[", "{"):
            return self.collection(at, depth + 1)
        self.nodes += 1
        bare = _BARE.match(self.text, at)
        if bare is not None and not _OPERATORS & set(bare[1].split()):
            try:
                return Word(scalar(bare[1]), bare.start(1), bare.end(1), 1), bare.end()
            except Unstorable as error:
                raise ExpressionSyntax(str(error), bare.start(1), bare.end(1), code="HF0118") from None
        parser = Parser(self.text, at, self.dashed, True)
        tree = parser.expression()
        self.nodes += parser.nodes
        return tree, parser.token.start
