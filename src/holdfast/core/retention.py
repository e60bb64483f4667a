"""Which ended executions may be forgotten: the grammar of `retention`, its meaning, and what is kept.

A rule is a number of executions, a duration, `forever`, a word that stands for another rule, or the `min` or
`max` of rules. Pure: what has ended and when, and the time, are arguments. Nothing here purges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, TypeAlias

from .durations import UNITS, micros, spell

MAX_LENGTH = 1_000
MAX_DEPTH = 20
_WORDS = ("context", "parent", "system")
_FOREVER = ("forever", "all", "unlimited")
_MIN, _MAX = ("min",), ("max", "any")
_KNOWN = (*_WORDS, *_FOREVER, *_MIN, *_MAX, "disabled", "hash")
_UNIT = r"\d+(?:\.\d+)?\s*(?:ms|us|µs|d|h|m|s)"
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<span>{_UNIT}(?:\s*{_UNIT})*(?!\w))|(?P<count>\d+(?![\w.]))|(?P<word>[^\W\d]\w*)|(?P<mark>[(),])"
)
#: a word of a hash: quoted, or made of characters and `${…}`
_HASH = re.compile(r"""\s*((?:\$\{[^}]*\}|[^\s])+)""")
#: more than any execution is old, or any group has members
_NO_LIMIT = 1 << 62


class BadRetention(ValueError):
    """The text is not a retention; `start` and `end` say where."""

    def __init__(self, message: str, start: int, end: int, help: str = "") -> None:
        super().__init__(f"{message}; {help}" if help else message)
        self.message = message
        self.start = start
        self.end = max(end, start + 1)
        self.help = help


@dataclass(slots=True, frozen=True)
class Count:
    """The newest so many."""

    number: int

    def __str__(self) -> str:
        return str(self.number)


@dataclass(slots=True, frozen=True)
class Span:
    """Those that ended less than so many µs ago."""

    micros: int

    def __str__(self) -> str:
        return spell(self.micros)


@dataclass(slots=True, frozen=True)
class Forever:
    def __str__(self) -> str:
        return "forever"


@dataclass(slots=True, frozen=True)
class Word:
    """`context`, `parent` or `system`: another rule, see `resolve`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True, frozen=True)
class Min:
    """What all of the rules keep."""

    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        return f"min({', '.join(map(str, self.rules))})"


@dataclass(slots=True, frozen=True)
class Max:
    """What any of the rules keeps."""

    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        return f"max({', '.join(map(str, self.rules))})"


Rule: TypeAlias = Count | Span | Forever | Word | Min | Max


@dataclass(slots=True, frozen=True)
class Retention:
    """One value of a `retention` key."""

    #: `context` where the text gives only a hash
    expr: Rule
    #: what executions are grouped by, perhaps with `${…}` in it; "" for the workflow's name
    hash: str = ""
    is_disabled: bool = False

    def __str__(self) -> str:
        rule = "disabled" if self.is_disabled else str(self.expr)
        return f"{rule} hash {self.hash}" if self.hash else rule


# --- text to rules ---------------------------------------------------------------------------------
def parse_retention(text: str) -> Retention:
    """`[hash WORD] [rule | disabled] [hash REST]`; raises BadRetention."""
    return _Reader(text).retention()


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise BadRetention(f"the retention is longer than {MAX_LENGTH:,} characters", 0, 1)
        self.text = text
        self.at = 0
        self._scan()

    def _scan(self) -> None:
        """The next token: its kind, its text in lower case, and where it stands."""
        while True:
            match = _TOKEN.match(self.text, self.at)
            self.start = self.at
            if match is None:
                self.kind, self.piece = ("end", "") if self.at >= len(self.text) else ("other", self._other())
                return
            self.at = match.end()
            if match.lastgroup != "space":
                self.kind, self.piece = str(match.lastgroup), match.group().lower()
                return

    def _other(self) -> str:
        found = re.compile(r"[^\s(),]+").match(self.text, self.at)
        self.at = found.end() if found else self.at + 1
        return self.text[self.start : self.at]

    def _fail(self, message: str, help: str = "") -> NoReturn:
        raise BadRetention(message, self.start, self.at, help)

    def retention(self) -> Retention:
        hash = ""
        rule: Rule | None = None
        is_disabled = False
        if self.kind == "word" and self.piece == "hash":
            match = _HASH.match(self.text, self.at)
            if match is None:
                self._fail("a name is missing after `hash`")
            hash, self.at = match.group(1), match.end()
            self._scan()
        if self.kind == "word" and self.piece == "disabled":
            is_disabled, rule = True, Count(0)
            self._scan()
        elif self.kind != "end" and not (self.kind == "word" and self.piece == "hash"):
            rule = self._rule(1)
        if self.kind == "word" and self.piece == "hash":
            if hash:
                self._fail("`hash` occurs twice")
            hash = self.text[self.at :].strip()
            if not hash:
                self._fail("a name is missing after `hash`")
            self.at = len(self.text)
            self._scan()
        if self.kind != "end":
            self._trailing()
        if rule is None:
            if not hash:
                raise BadRetention("the retention is empty", 0, 1, "write `30d`, `3` or `max(30d, 3)`")
            rule = Word("context")
        return Retention(rule, hash, is_disabled)

    def _rule(self, depth: int) -> Rule:
        kind, piece = self.kind, self.piece
        if depth > MAX_DEPTH:
            self._fail(f"rules may be nested {MAX_DEPTH} levels deep")
        if kind == "count":
            if len(piece) > 12:
                self._fail("the number is too large", "`forever` keeps all")
            self._scan()
            return Count(int(piece))
        if kind == "span":
            length = micros(piece)
            if length is None:
                self._fail(f"`{piece}` is longer than 100 years", "`forever` keeps all")
            self._scan()
            return Span(length)
        if kind == "word" and piece in (*_MIN, *_MAX):
            self._scan()
            return Min(self._rules(piece, depth)) if piece in _MIN else Max(self._rules(piece, depth))
        if kind == "word" and piece in (*_WORDS, *_FOREVER):
            self._scan()
            return Word(piece) if piece in _WORDS else Forever()
        return self._unknown(depth)

    def _rules(self, name: str, depth: int) -> tuple[Rule, ...]:
        if self.piece != "(":
            self._fail(f"`(` is missing after `{name}`", f"write `{name}(3, 30d)`")
        opened = self.start
        self._scan()
        rules = [self._rule(depth + 1)]
        while self.piece == ",":
            self._scan()
            rules.append(self._rule(depth + 1))
        if self.kind == "end":
            raise BadRetention("`(` is never closed", opened, opened + 1)
        if self.piece != ")":
            self._fail(f"`,` or `)` expected, found `{self.piece}`", _close(self.piece))
        self._scan()
        return tuple(rules)

    def _unknown(self, depth: int) -> NoReturn:
        piece = self.piece
        if self.kind == "end" or piece in (")", ","):
            self._fail("a rule is missing", "a rule is `3`, `30d`, `forever` or `max(…)`")
        if piece in ("disabled", "hash") and depth > 1:
            self._fail(f"`{piece}` stands alone, not inside of `min` or `max`")
        if piece in ("hard", "soft"):
            self._fail(f"there is no `{piece}` retention", "what is kept is always stored; leave the word out")
        if piece.startswith("-"):
            self._fail("a rule cannot be negative", "`0` keeps nothing")
        if piece == "(":
            self._fail("parentheses need a name", "write `min(…)` or `max(…)`")
        self._fail(f"`{piece}` is not a retention", _close(piece) or "a rule is `3`, `30d`, `forever` or `max(…)`")

    def _trailing(self) -> NoReturn:
        piece = self.piece
        if piece in ("hard", "soft", "disabled"):
            self._fail(f"`{piece}` cannot follow a rule", "keep one of them" if piece == "disabled" else "leave it out")
        number = re.search(r"\d+\s*\Z", self.text[: self.start])
        help = _close(number.group().strip() + piece if number and self.kind == "word" else piece)
        if not help and self.kind in ("count", "span", "word"):
            help = "join rules with `max(…, …)` or `min(…, …)`"
        self._fail(f"unexpected `{piece}` after the rule", help)


def _close(piece: str) -> str:
    """Units are what is most often misspelt."""
    unit = re.fullmatch(r"(\d+)\s*([^\W\d]\w*)", piece)
    if unit and unit.group(2) not in UNITS:
        letter = unit.group(2)[:1]
        known = "ms" if unit.group(2).startswith("mil") else letter
        if known == "w":
            return f"write `{7 * int(unit.group(1))}d`"
        if known == "y":
            return f"write `{365 * int(unit.group(1))}d`"
        return f"did you mean `{unit.group(1)}{known}`?" if known in ("d", "h", "m", "s", "ms") else ""
    found = get_close_matches(piece, _KNOWN, 1)
    return f"did you mean `{found[0]}`?" if found else ""


# --- rules to what is kept -------------------------------------------------------------------------
def resolve(expr: Rule, context: Rule | None, parent: Rule | None, system: Rule) -> Rule:
    """`expr` without words, in its shortest form. Without a `context` that is the parent's rule, and without
    a `parent` the system's."""
    return _shortest(_steps(_expand(expr, context, parent, system)))


def _expand(expr: Rule, context: Rule | None, parent: Rule | None, system: Rule | None) -> Rule:
    match expr:
        case Word(name="context"):
            if context is not None:
                return _expand(context, None, parent, system)
            return _expand(Word("parent"), None, parent, system)
        case Word(name="parent"):
            if parent is not None:
                return _expand(parent, None, None, system)
            return _expand(Word("system"), None, None, system)
        case Word():
            if system is None:
                raise ValueError("the system's retention refers to itself")
            return _expand(system, None, None, None)
        case Min(rules=rules):
            return Min(tuple(_expand(rule, context, parent, system) for rule in rules))
        case Max(rules=rules):
            return Max(tuple(_expand(rule, context, parent, system) for rule in rules))
        case _:
            return expr


def settle(retention: Retention, before: str = "") -> str:
    """The rule to keep with an execution: what it says without `context`, which is the rule it had `before`, and
    without `parent`. `system` stays: that is resolved when something is to be forgotten."""
    if retention.is_disabled:
        return "disabled"
    had = parse_retention(before) if before else Retention(Word("system"))
    context = Count(0) if had.is_disabled else had.expr
    # Rules form a lattice, so whatever one says of `system` is `max(least, min(most, system))`. Said like that, a rule
    # that is changed over and over does not grow.
    least = resolve(retention.expr, resolve(context, None, None, Count(0)), None, Count(0))
    most = resolve(retention.expr, resolve(context, None, None, Forever()), None, Forever())
    if least == most:
        return str(least)
    upper: Rule = Word("system") if most == Forever() else Min((most, Word("system")))
    return str(upper if least == Count(0) else Max((least, upper)))


#: (number, µs): the newest so many, where they are also young enough
_Step: TypeAlias = tuple[int, int]


def _steps(expr: Rule) -> list[_Step]:
    """What is kept, as a union of steps: more executions the younger they have to be. No step is within another."""
    match expr:
        case Count(number=number):
            return [(number, _NO_LIMIT)] if number else []
        case Span(micros=length):
            return [(_NO_LIMIT, length)] if length else []
        case Forever():
            return [(_NO_LIMIT, _NO_LIMIT)]
        case Max(rules=rules):
            return _outline([step for rule in rules for step in _steps(rule)])
        case Min(rules=rules):
            kept: list[_Step] = [(_NO_LIMIT, _NO_LIMIT)]
            for rule in rules:
                # Outlined after each rule: the product stays as small as the numbers in it are few.
                kept = _outline([(min(a, c), min(b, d)) for a, b in kept for c, d in _steps(rule)])
            return kept
        case Word(name=name):
            raise ValueError(f"`{name}` has to be resolved first")


def _outline(steps: list[_Step]) -> list[_Step]:
    made: list[_Step] = []
    for number, length in sorted(set(steps), reverse=True):
        if not made or length > made[-1][1]:
            made.append((number, length))
    return made


def _shortest(steps: list[_Step]) -> Rule:
    rules: list[Rule] = []
    for number, length in reversed(steps):
        if number < _NO_LIMIT and length < _NO_LIMIT:
            rules.append(Min((Count(number), Span(length))))
        elif number < _NO_LIMIT:
            rules.append(Count(number))
        else:
            rules.append(Span(length) if length < _NO_LIMIT else Forever())
    if not rules:
        return Count(0)
    return rules[0] if len(rules) == 1 else Max(tuple(rules))


def keep(expr: Rule, ended: Sequence[int], now: int) -> list[bool]:
    """For each execution that ended then, newest first, whether it is kept. `expr` has no words left in it."""
    steps = _steps(expr)
    return [any(place < number and at > now - length for number, length in steps) for place, at in enumerate(ended)]


def reach(expr: Rule) -> list[tuple[int | None, int | None]]:
    """What `keep` keeps, as (number, µs): the newest so many of those younger than so much, None for all of them or
    any age. Kept is what at least one of these reaches, so always the newest ones, without a gap."""
    return [(n if n < _NO_LIMIT else None, length if length < _NO_LIMIT else None) for n, length in _steps(expr)]
