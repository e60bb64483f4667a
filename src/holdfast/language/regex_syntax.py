"""Text of a regular expression to its tree. What it matches, and at what cost, is in `regex`.

The syntax is what most people use, and nothing that cannot be matched in linear time: no back-references and
no look-around.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from .problems import Unreadable

MAX_PATTERN = 4_096
MAX_GROUPS = 50
MAX_NESTING = 50
MAX_REPEAT = 1_000

CharTest: TypeAlias = Callable[[str], bool]


@dataclass(slots=True, frozen=True)
class Char:
    test: CharTest
    #: the one character it matches, if it is only one
    only: str = ""


@dataclass(slots=True, frozen=True)
class At:
    """A place: `start`, `end`, `line-start`, `line-end`, `word`, `not-word`, or `last`: the end, or before a newline
    that ends the text."""

    kind: str


@dataclass(slots=True, frozen=True)
class Sequence:
    parts: tuple[Tree, ...]


@dataclass(slots=True, frozen=True)
class Either:
    parts: tuple[Tree, ...]


@dataclass(slots=True, frozen=True)
class Group:
    number: int
    body: Tree


@dataclass(slots=True, frozen=True)
class Repeat:
    body: Tree
    least: int
    #: nothing for any number
    most: int | None
    is_lazy: bool


Tree: TypeAlias = Char | At | Sequence | Either | Group | Repeat

_FLAGS = "ims"
_SPECIAL: dict[str, CharTest] = {
    "d": str.isdecimal,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}
_PLACES = {"A": "start", "Z": "end", "z": "end", "b": "word", "B": "not-word"}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_COUNTS = re.compile(r"\{(\d*)(,?)(\d*)\}")
_LETTER = re.compile(r"[A-Za-z0-9]")


def is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def variants(char: str) -> frozenset[str]:
    """Spellings of one character in upper and lower case."""
    found = {char}
    for _ in range(2):
        found |= {other for one in found for other in (one.lower(), one.upper()) if len(other) == 1}
    return frozenset(found)


class RegexParser:
    def __init__(self, pattern: str, dotall: bool = False) -> None:
        self.text = pattern
        self.at = 0
        self.groups = 0
        self.depth = 0
        self.flags = "s" if dotall else ""

    def fail(self, message: str, start: int, end: int | None = None, help: str = "") -> NoReturn:
        raise Unreadable(message, start, self.at if end is None else end, help)

    def parse(self) -> Tree:
        if len(self.text) > MAX_PATTERN:
            self.fail(f"the pattern is longer than {MAX_PATTERN:,} characters", 0, 1)
        while match := re.compile(r"\(\?([a-zA-Z]+)\)").match(self.text, self.at):
            self.flags += self._flags(match.group(1), self.at + 2)
            self.at = match.end()
        tree = self._either()
        if self.at < len(self.text):
            self.fail("`)` without `(`", self.at, self.at + 1, "write `\\)` for the character")
        return tree

    def _flags(self, letters: str, start: int) -> str:
        for offset, letter in enumerate(letters):
            if letter not in _FLAGS:
                at = start + offset
                self.fail(f"there is no flag `{letter}`", at, at + 1,
                          "the flags are `i` (case), `s` (`.` and newlines), `m` (`^`, `$` and lines)")  # fmt: skip
        return letters

    def _either(self) -> Tree:
        parts = [self._sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, atom: Tree) -> Tree:
        counts = self._counts()
        if counts is None:
            return atom
        least, most = counts
        is_lazy = self.text.startswith("?", self.at)
        if is_lazy:
            self.at += 1
        elif self.text.startswith("+", self.at):
            self.fail("possessive repeats are not supported", self.at, self.at + 1,
                      "leave the second `+` out; matching is linear anyway")  # fmt: skip
        if self.text[self.at : self.at + 1] in ("*", "+", "?") or self._is_counted():
            self.fail("a repeat of a repeat", self.at, self.at + 1, "put the inner one in `(?:…)`")
        return Repeat(atom, least, most, is_lazy)

    def _is_counted(self) -> bool:
        match = _COUNTS.match(self.text, self.at)
        return match is not None and (match.group(1) != "" or match.group(3) != "")

    def _counts(self) -> tuple[int, int | None] | None:
        char = self.text[self.at : self.at + 1]
        if char in ("*", "+", "?") and char:
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{" or not self._is_counted():
            return None
        match = _COUNTS.match(self.text, self.at)
        assert match is not None
        start, self.at = self.at, match.end()
        low, comma, high = match.groups()
        if max(len(low), len(high)) > 6:
            self.fail(f"a repeat of more than {MAX_REPEAT:,}", start)
        least = int(low or 0)
        most = int(high) if high else (None if comma else least)
        if max(least, most or 0) > MAX_REPEAT:
            self.fail(f"a repeat of more than {MAX_REPEAT:,}", start)
        if most is not None and most < least:
            self.fail("the repeat ends below its beginning", start)
        return least, most

    def _atom(self) -> Tree:
        start, char = self.at, self.text[self.at]
        self.at += 1
        match char:
            case "(":
                return self._group(start)
            case "[":
                return self._set(start)
            case ".":
                return Char((lambda char: True) if "s" in self.flags else (lambda char: char != "\n"))
            case "^":
                return At("line-start" if "m" in self.flags else "start")
            case "$":
                return At("line-end" if "m" in self.flags else "last")
            case "\\":
                return self._escaped(start)
            case "*" | "+" | "?":
                self.fail(f"nothing to repeat before `{char}`", start, help=f"write `\\{char}` for the character")
            case "{" if (match := _COUNTS.match(self.text, start)) and (match.group(1) or match.group(3)):
                self.fail("nothing to repeat before `{`", start, help="write `\\{` for the character")
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> Char:
        if "i" in self.flags and char.lower() != char.upper():
            spellings = variants(char)
            # The text may hold a spelling that no spelling of the pattern leads to, as the Kelvin sign is for `k`.
            return Char(
                lambda other: other in spellings or (not other.isascii() and not spellings.isdisjoint(variants(other)))
            )
        return Char(char.__eq__, char)

    def _group(self, start: int) -> Tree:
        text = self.text
        before = self.flags
        number = 0
        if text.startswith("?", self.at):
            scoped = re.compile(r"\?([a-zA-Z]*):").match(text, self.at)
            if scoped is None:
                self._no_such_group(start)
            self.flags = before + self._flags(scoped.group(1), self.at + 1)
            self.at = scoped.end()
        else:
            self.groups += 1
            number = self.groups
            if number > MAX_GROUPS:
                self.fail(f"more than {MAX_GROUPS} groups", start, start + 1, "`(?:…)` groups without counting")
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail("the pattern is nested too deeply", start, start + 1)
        body = self._either()
        self.depth -= 1
        self.flags = before
        if not text.startswith(")", self.at):
            self.fail("`(` is never closed", start, start + 1, "write `\\(` for the character")
        self.at += 1
        return Group(number, body) if number else body

    def _no_such_group(self, start: int) -> NoReturn:
        rest = self.text[self.at :]
        self.at = min(len(self.text), self.at + 2)
        for opening, what in (
            ("?=", "look-ahead"),
            ("?!", "look-ahead"),
            ("?<=", "look-behind"),
            ("?<!", "look-behind"),
        ):
            if rest.startswith(opening):
                self.fail(f"{what} is not supported", start, start + 1 + len(opening),
                          "match more and use a group, or test twice")  # fmt: skip
        if rest.startswith(("?P<", "?<", "?'")):
            self.fail("named groups are not supported", start, help="use `(…)` and its number")
        if rest.startswith("?P="):
            self.fail("back-references are not supported", start)
        if re.match(r"\?[a-zA-Z]+\)", rest):
            self.fail("flags stand at the beginning", start, help="write `(?i:…)` for a part")
        self.fail("there is no such group", start, help="groups are `(…)` and `(?:…)`")

    def _escaped(self, start: int) -> Tree:
        if self.at >= len(self.text):
            self.fail("nothing follows `\\`", start, help="write `\\\\` for the character")
        char = self.text[self.at]
        if char in _PLACES:
            self.at += 1
            return At(_PLACES[char])
        found = self._escape(start)
        return self._literal(found) if isinstance(found, str) else Char(found)

    def _escape(self, start: int) -> str | CharTest:
        """A character or a kind of characters, behind a backslash."""
        char = self.text[self.at]
        self.at += 1
        if char.lower() in _SPECIAL:
            test = _SPECIAL[char.lower()]
            return test if char.islower() else (lambda other: not test(other))
        if char in ("x", "u"):
            length = 2 if char == "x" else 4
            digits = self.text[self.at : self.at + length]
            if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
                self.fail(f"`\\{char}` needs {length} hexadecimal digits", start)
            self.at += length
            return chr(int(digits, 16))
        if char in _CONTROL:
            return _CONTROL[char]
        if char.isdigit():
            self.fail("back-references are not supported", start)
        if char in ("p", "P"):
            self.fail("Unicode properties are not supported", start, help="use `\\w`, `\\d`, `\\s` or a class")
        if _LETTER.match(char):
            self.fail(f"there is no `\\{char}`", start, help=f"write `{char}` for the character")
        return char

    def _set(self, start: int) -> Char:
        negated = self.text.startswith("^", self.at)
        self.at += negated
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        kinds: list[CharTest] = []
        first = True
        while first or not self.text.startswith("]", self.at):
            first = False
            if self.at >= len(self.text):
                self.fail("`[` is never closed", start, start + 1, "write `\\[` for the character")
            at = self.at
            low = self._member()
            if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                high = self._member()
                if not isinstance(low, str) or not isinstance(high, str):
                    self.fail("a range goes from one character to another", at)
                if high < low:
                    self.fail(f"the range `{low}-{high}` is empty", at)
                ranges.append((low, high))
            elif isinstance(low, str):
                singles.add(low)
            else:
                kinds.append(low)
        self.at += 1
        return Char(_member_test(frozenset(singles), tuple(ranges), tuple(kinds), negated, "i" in self.flags))

    def _member(self) -> str | CharTest:
        char, at = self.text[self.at], self.at
        self.at += 1
        if char != "\\":
            return char
        if self.at >= len(self.text):
            self.fail("nothing follows `\\`", at)
        if self.text[self.at] in _PLACES:
            self.fail(f"`\\{self.text[self.at]}` is a place, not a character", at, at + 2)
        return self._escape(at)


def _member_test(
    singles: frozenset[str], ranges: tuple[tuple[str, str], ...], kinds: tuple[CharTest, ...], negated: bool, fold: bool
) -> CharTest:
    if not ranges and not kinds and not fold:
        return (lambda char: char not in singles) if negated else singles.__contains__

    def plain(char: str) -> bool:
        return char in singles or any(low <= char <= high for low, high in ranges) or any(kind(char) for kind in kinds)

    if fold:
        return lambda char: any(map(plain, variants(char))) is not negated
    return (lambda char: not plain(char)) if negated else plain
