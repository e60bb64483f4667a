"""Texts with `${…}` in them, and the word-level operators of `let`: both become expression trees.

`${…}` alone keeps its type; inside of text, scalars become text. `$${` is a literal `${`.
"""

from __future__ import annotations

import re

from .expressions import ExpressionSyntax, Parser
from .literals import parse_literal
from .load import Unstorable, scalar
from .tree import POWER, Binary, Choice, Expr, Literal, Text

_WORD_OPERATORS = frozenset(operator for operator in POWER if operator != "in")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def embedded(text: str, start: int, dashed: frozenset[str]) -> tuple[Expr, int]:
    """The expression of the `${` at `start`, and the offset behind its `}`."""
    try:
        return Parser(text, start + 2, dashed).embedded()
    except ExpressionSyntax as error:
        if error.start >= len(text.rstrip()):
            raise ExpressionSyntax(
                "`${` is never closed", start, start + 2, help="write `$${` for a literal `${`"
            ) from None
        if error.code == "HF0120" and not error.help:
            error.help = "write `$${` for a literal `${`"
        raise


def parse_template(text: str, dashed: frozenset[str] = frozenset(), start: int = 0) -> Expr:
    """A text that may hold `${…}`; offsets count from the beginning of `text`."""
    if "${" not in text:
        return Literal(text[start:], start, len(text))
    parts: list[str | Expr] = []
    literal: list[str] = []
    at = start
    while at < len(text):
        found = text.find("${", at)
        if found < 0:
            literal.append(text[at:])
            break
        if found > at and text[found - 1] == "$":
            literal.append(text[at : found - 1] + "${")
            at = found + 2
            continue
        literal.append(text[at:found])
        tree, at = embedded(text, found, dashed)
        if before := "".join(literal):
            parts.append(before)
        literal = []
        parts.append(tree)
    if rest := "".join(literal):
        parts.append(rest)
    return _whole(parts, start, len(text))


def _whole(parts: list[str | Expr], start: int, end: int) -> Expr:
    if len(parts) == 1:
        only = parts[0]
        return Literal(only, start, end) if isinstance(only, str) else only
    if all(isinstance(part, str) for part in parts):
        return Literal("".join(str(part) for part in parts), start, end)
    height = 1 + max(part.height for part in parts if not isinstance(part, str))
    return Text(tuple(parts), start, end, height)


def unquote(text: str) -> str:
    """Without the quotes, if the whole text is one quoted phrase."""
    match = _QUOTED.fullmatch(text)
    if match is None:
        return text
    return re.sub(r"\\(.)", lambda m: _SIMPLE_ESCAPES.get(m.group(1), m.group(1)), text[1:-1], flags=re.DOTALL)


def is_quoted(text: str) -> bool:
    return _QUOTED.fullmatch(text) is not None


class _Word:
    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        #: `plain`, `quoted`, `operator` or `paren`
        self.kind = kind
        self.text = text
        self.start = start
        self.end = end


def words(text: str, dashed: frozenset[str] = frozenset()) -> list[_Word]:
    """Split at white space; a quoted phrase, `${…}`, a list and a map are not split."""
    found: list[_Word] = []
    at, size = 0, len(text)
    are_closed = True
    while at < size:
        if text[at].isspace():
            at += 1
            continue
        start = at
        quoted = _QUOTED.match(text, at)
        if quoted and (quoted.end() == size or text[quoted.end()].isspace() or text[quoted.end()] == ")"):
            at = quoted.end()
            found.append(_Word("quoted", text[start:at], start, at))
            continue
        if text[at] in "[{" and are_closed:
            at = _closed(text, at, dashed)
            are_closed = at > start  # once is enough: looking again for each would take time squared
        while at < size and not text[at].isspace():
            if text.startswith("${", at) and (at == 0 or text[at - 1] != "$"):
                at = embedded(text, at, dashed)[1]
            else:
                at += 1
        found.append(_Word("plain", text[start:at], start, at))
    return found


def _closed(text: str, at: int, dashed: frozenset[str]) -> int:
    """Behind the list or map that begins here; `at` where it never ends."""
    depth, here = 0, at
    while here < len(text):
        char = text[here]
        if char in "'\"" and (quoted := _QUOTED.match(text, here)):
            here = quoted.end()
            continue
        if text.startswith("${", here):
            here = embedded(text, here, dashed)[1]
            continue
        depth += (char in "[{") - (char in "]}")
        here += 1
        if not depth:
            return here
    return at


def parse_words(text: str, dashed: frozenset[str] = frozenset()) -> Expr:
    """The value of a short `let`: operators stand alone between words, everything else is text, typed as
    YAML 1.2 where it is a literal."""
    found = words(text, dashed)
    if not any(word.kind == "plain" and word.text in _WORD_OPERATORS for word in found[1:]):
        return _operand(text, found, dashed)
    return _WordParser(text, _with_operators(found), dashed).whole()


def _with_operators(found: list[_Word]) -> list[_Word]:
    out: list[_Word] = []
    for word in found:
        if word.kind != "plain":
            out.append(word)
            continue
        if word.text in _WORD_OPERATORS or word.text == ":":
            out.append(_Word("operator", word.text, word.start, word.end))
            continue
        start, end = word.start, word.end
        body = word.text
        while body.startswith("("):
            out.append(_Word("paren", "(", start, start + 1))
            body, start = body[1:], start + 1
        closing = 0
        while body.endswith(")") and body.count(")") > body.count("("):
            body, end, closing = body[:-1], end - 1, closing + 1
        if body:
            out.append(_Word("plain", body, start, end))
        out += [_Word("paren", ")", end + i, end + i + 1) for i in range(closing)]
    return out


class _WordParser:
    def __init__(self, text: str, found: list[_Word], dashed: frozenset[str]) -> None:
        self.text = text
        self.found = found
        self.dashed = dashed
        self.at = 0
        self.depth = 0

    def _peek(self) -> _Word | None:
        return self.found[self.at] if self.at < len(self.found) else None

    def whole(self) -> Expr:
        tree = self.expression(0)
        word = self._peek()
        if word is not None:
            raise ExpressionSyntax(f"unexpected `{word.text}`", word.start, word.end, help="put text in quotes")
        return tree

    def expression(self, power: int) -> Expr:
        self.depth += 1
        if self.depth > 60 or len(self.found) > 200:
            raise ExpressionSyntax("the expression is too large", 0, 1, code="HF0124")
        left = self.operand()
        while True:
            word = self._peek()
            if word is None or word.kind != "operator" or POWER.get(word.text, 0) <= power:
                break
            self.at += 1
            binding = POWER[word.text]
            if word.text == "?":
                yes = self.expression(0)
                colon = self._peek()
                if colon is None or colon.text != ":":
                    raise ExpressionSyntax("`:` expected after `?`", word.start, word.end, help="put text in quotes")
                self.at += 1
                no = self.expression(binding - 1)
                left = Choice(left, yes, no, left.start, no.end)
                left.height = 1 + max(left.test.height, yes.height, no.height)
            else:
                right = self.expression(binding - 1 if word.text == "??" else binding)
                _refuse_text(word.text, left, right)
                left = Binary(word.text, left, right, left.start, right.end, 1 + max(left.height, right.height))
        self.depth -= 1
        return left

    def operand(self) -> Expr:
        word = self._peek()
        if word is None or (word.kind == "operator" and word.text != ":") or word.text == ")":
            last = word or self.found[-1]
            raise ExpressionSyntax(
                "a value is missing" + (f" before `{word.text}`" if word else ""), last.start, last.end,
                help="put text that holds operators in quotes",
            )  # fmt: skip
        if word.kind == "paren":
            self.at += 1
            tree = self.expression(0)
            close = self._peek()
            if close is None or close.text != ")":
                raise ExpressionSyntax("`(` is never closed", word.start, word.end)
            self.at += 1
            return tree
        first = self.at
        while (word := self._peek()) is not None and word.kind in ("plain", "quoted"):
            self.at += 1
        if self.at == first:
            stray = self.found[first]
            raise ExpressionSyntax(f"unexpected `{stray.text}`", stray.start, stray.end)
        return _operand(self.text, self.found[first : self.at], self.dashed)


def _refuse_text(operator: str, left: Expr, right: Expr) -> None:
    """`x + 1` outside of `${…}` is a text plus a number, which is never meant."""
    if operator in ("??", "&&", "||", "==", "!="):
        return
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and isinstance(side.value, str):
            if operator == "+" and isinstance(other, Literal) and isinstance(other.value, str):
                continue
            if operator != "+" or (isinstance(other, Literal) and not isinstance(other.value, str)):
                shown = side.value[:40]
                raise ExpressionSyntax(
                    f"the text `{shown}` cannot be used with `{operator}`", side.start, side.end,
                    help=f"for a variable write `${{{shown}}}`; put text that holds operators in quotes",
                    code="HF0125",
                )  # fmt: skip


def _operand(text: str, found: list[_Word], dashed: frozenset[str]) -> Expr:
    """Words that stand together: one literal, one expression, or text made of both."""
    if not found:
        return Literal("", 0, 0)
    start, end = found[0].start, found[-1].end
    body = text[start:end]
    if len(found) == 1 and found[0].kind == "quoted":
        return Literal(unquote(body), start, end)
    if body[0] in "[{":
        return parse_literal(text[:end], dashed, start)
    if "${" not in body and all(word.kind == "plain" for word in found):
        try:
            return Literal(scalar(body), start, end)
        except Unstorable as error:
            raise ExpressionSyntax(str(error), start, end, code="HF0118") from None
    parts: list[str | Expr] = []
    at = start
    for word in found:
        if word.start > at:
            parts.append(text[at : word.start])
        if word.kind == "quoted":
            parts.append(unquote(word.text))
        else:
            tree = parse_template(text[: word.end], dashed, word.start)
            if isinstance(tree, Literal):
                parts.append(str(tree.value))
            elif isinstance(tree, Text):
                parts.extend(tree.parts)
            else:
                parts.append(tree)
        at = word.end
    return _whole(_joined(parts), start, end)


def _joined(parts: list[str | Expr]) -> list[str | Expr]:
    out: list[str | Expr] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return out
