"""How often and how fast: the grammars of `limit`, `backoff` and `concurrency`, and their arithmetic.

Pure: time, chance and counts are arguments. Nothing here waits or counts by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.core.durations import MAX_DURATION
from holdfast.core.lanes import MAX_RETRIES

from .nodes import a_type
from .problems import Unreadable, did_you_mean
from .values import Mismatch, duration_text, parse_duration

MAX_LENGTH = 500
MAX_DEPTH = 10
_COUNT = re.compile(r"\d{1,9}")
_IN = re.compile(r"\s+in\s+", re.IGNORECASE)


# --- limits of retries -----------------------------------------------------------------------------
@dataclass(slots=True, frozen=True)
class Limit:
    """So many retries, so many µs since the first one, or so many retries in so many µs."""

    count: int | None = None
    within: int | None = None

    def __str__(self) -> str:
        if self.within is None:
            return str(self.count)
        span = duration_text(self.within)
        return span if self.count is None else f"{self.count} in {span}"


def parse_limit(given: Any) -> tuple[Limit, ...]:
    """`10`, `7d`, `5 in 1m`, or a list of these that must all hold; raises Unreadable."""
    if isinstance(given, list):
        if not given:
            raise Unreadable("the list of limits is empty", 0, 1)
        return tuple(_limit(item) for item in given)
    return (_limit(given),)


def _limit(given: Any) -> Limit:
    text = _text(given, "a limit is `10`, `7d` or `5 in 1m`")
    parts = _IN.split(text.strip())
    lead = len(text) - len(text.lstrip())
    if len(parts) == 2:
        if not _COUNT.fullmatch(parts[0]):
            raise Unreadable(f"`{parts[0]}` is not a number of retries", lead, lead + len(parts[0]))
        start = len(text.rstrip()) - len(parts[1])
        return Limit(_count(parts[0], lead), _span(parts[1], start))
    if _COUNT.fullmatch(parts[0]) and len(parts) == 1:
        return Limit(_count(parts[0], lead))
    if len(parts) == 1 and parts[0][:1].isdigit():
        return Limit(None, _span(parts[0], lead))
    raise Unreadable(f"`{text.strip()}` is not a limit", lead, len(text.rstrip()), "write `10`, `7d` or `5 in 1m`")


def _count(text: str, lead: int) -> int:
    if int(text) > MAX_RETRIES:
        raise Unreadable(f"{MAX_RETRIES:,} retries are the most that are counted", lead, lead + len(text))
    return int(text)


def exceeded(limits: Sequence[Limit], timestamps: Sequence[int], now: int) -> str | None:
    """Why there must not be another retry at `now` after those at `timestamps`, or nothing."""
    first = min(timestamps, default=now)
    for limit in limits:
        if limit.count is None:
            assert limit.within is not None
            # The first retry is always allowed: the clock starts with it.
            if timestamps and now - first > limit.within:
                return f"the first retry was {duration_text(now - first)} ago (limit {limit})"
            continue
        counted = [at for at in timestamps if limit.within is None or at > now - limit.within]
        if len(counted) >= limit.count:
            many = f"{len(counted)} retr{'y' if len(counted) == 1 else 'ies'}"
            if limit.within is not None:
                return f"{many} in the last {duration_text(limit.within)} (limit {limit})"
            since = f", the first {duration_text(now - first)} ago" if timestamps else ""
            return f"{many}{since} (limit {limit})"
    return None


# --- pauses between retries ------------------------------------------------------------------------
@dataclass(slots=True, frozen=True)
class Backoff:
    """How long to pause before each retry. Times are in µs."""

    initial: tuple[int, ...]
    #: the last pause is multiplied by this for each retry after those in `initial`
    factor: float = 1.0
    #: or this is added
    increase: int = 0
    #: a pause is made longer by up to this share of it; shorter where negative
    jitter: float = 0.0
    max: int | None = None

    def delay(self, k: int, share: float) -> int:
        """Pause before retry `k`, counted from 0; `share` in [0, 1) says how much of the jitter is used."""
        if k < len(self.initial):
            base = float(self.initial[k])
        else:
            exponent = 1 + k - len(self.initial)
            try:
                base = self.initial[-1] * self.factor**exponent + exponent * self.increase
            except OverflowError:
                base = float(MAX_DURATION) if self.initial[-1] else 0.0
        stretch = 1 + share * self.jitter
        pause = base * stretch
        if self.max is not None and pause > self.max:
            # At the limit jitter can only shorten, so that many that wait still do not come together.
            pause = self.max / stretch if stretch > 1 else self.max * stretch
        return int(min(pause, MAX_DURATION))


_WORDS = ("increasing", "up", "max", "jitter")
_KEYS = ("initial", "factor", "increase", "jitter", "max")


def parse_backoff(given: Any) -> Backoff:
    """`10s increasing 2x up to 5m jitter 10%` with its parts in any order, `1s 1s 10s`, a list of pauses, or
    a map of `initial`, `factor`, `increase`, `jitter` and `max`; raises Unreadable."""
    if isinstance(given, dict):
        return _backoff_of(given)
    if isinstance(given, list):
        return Backoff(_pauses(given))
    text = _text(given, "a backoff is `10s increasing 2x up to 5m`")
    words = [(match.group(), match.start()) for match in re.finditer(r"[^\s,]+", text)]
    initial: list[int] = []
    found: dict[str, Any] = {}
    at = 0

    def operand(after: str, example: str) -> tuple[str, int]:
        nonlocal at
        at += 1
        if at >= len(words):
            raise Unreadable(f"a value is missing after `{after}`", len(text) - 1, len(text), f"write `{example}`")
        return words[at]

    def once(key: str, value: Any, start: int) -> None:
        if key in found:
            raise Unreadable(f"`{key}` is given twice", start, len(text))
        found[key] = value

    while at < len(words):
        word, start = words[at]
        low = word.lower()
        if low == "increasing":
            value, place = operand(low, "increasing 2x")
            if value.lower() == "by":
                value, place = operand("increasing by", "increasing by 2x")
            once("increasing", _increase(value, place), start)
        elif low in ("up", "max"):
            value, place = operand(low, "up to 5m")
            if low == "up":
                if value.lower() != "to":
                    raise Unreadable(f"`to` expected after `up`, found `{value}`", place, place + len(value),
                                     "write `up to 5m`")  # fmt: skip
                value, place = operand("up to", "up to 5m")
            once("max", _span(value, place), start)
        elif low == "jitter":
            value, place = operand(low, "jitter 10%")
            once("jitter", _jitter(value, place), start)
        elif low[0].isdigit():
            if found and initial:
                raise Unreadable(f"unexpected `{word}`", start, start + len(word), "pauses stand together")
            initial.append(_pause(word, start))
        else:
            raise Unreadable(f"unexpected `{word}`", start, start + len(word),
                             did_you_mean(word, _WORDS) or "write `10s increasing 2x up to 5m jitter 10%`")  # fmt: skip
        at += 1
    if not initial:
        raise Unreadable("the first pause is missing", 0, len(text), "begin with a duration: `10s …`")
    factor, increase = found.get("increasing", (1.0, 0))
    return Backoff(tuple(initial), factor, increase, found.get("jitter", 0.0), found.get("max"))


def _backoff_of(given: dict[str, Any]) -> Backoff:
    for key in given:
        if key not in _KEYS:
            raise Unreadable(f"unknown key `{key}` in a backoff", 0, 1,
                             did_you_mean(key, _KEYS) or f"the keys are {', '.join(_KEYS)}")  # fmt: skip
    if "initial" not in given:
        raise Unreadable("the first pause is missing", 0, 1, "give `initial`")
    first = given["initial"]
    if isinstance(first, str) and re.search(r"\S\s+\d", first.strip()):
        first = list(first.split())
    factor, increase = 1.0, 0
    if "factor" in given and "increase" in given:
        raise Unreadable("`factor` and `increase` contradict each other", 0, 1, "keep one of them")
    if "factor" in given:
        text = _text(given["factor"], "`factor` is a number such as `2`")
        factor, increase = _increase(text if text[-1:] in "x%" else f"{text}x", 0)
    if "increase" in given:
        factor, increase = _increase(_text(given["increase"], "`increase` is a duration or a percentage"), 0)
    jitter = _jitter(_text(given["jitter"], "`jitter` is a percentage"), 0) if "jitter" in given else 0.0
    most = _span(_text(given["max"], "`max` is a duration"), 0) if "max" in given else None
    return Backoff(_pauses(first if isinstance(first, list) else [first]), factor, increase, jitter, most)


def _pauses(given: list[Any]) -> tuple[int, ...]:
    if not given:
        raise Unreadable("the first pause is missing", 0, 1)
    return tuple(_pause(_text(item, "a pause is a duration such as `10s`"), 0) for item in given)


def _pause(word: str, start: int) -> int:
    return 0 if word == "0" else _span(word, start)


def _increase(word: str, start: int) -> tuple[float, int]:
    low = word.lower()
    number = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(x|%)", low)
    if number is None:
        try:
            return 1.0, parse_duration(word)
        except Mismatch:
            raise Unreadable(f"`{word}` is not an increase", start, start + len(word),
                             "write `2x`, `50%` or `10s`") from None  # fmt: skip
    value = float(number.group(1))
    if number.group(2) == "%":
        return 1 + value / 100, 0
    if value == 0:
        raise Unreadable("a factor of 0 is no increase", start, start + len(word))
    return value, 0


def _jitter(word: str, start: int) -> float:
    number = re.fullmatch(r"(-?\d{1,6}(?:\.\d{1,6})?)(%?)", word)
    if number is None:
        raise Unreadable(f"`{word}` is not a jitter", start, start + len(word), "write `10%`, `-10%` or `0.1`")
    value = float(number.group(1)) / (100 if number.group(2) else 1)
    if not -1 <= value <= 10:
        raise Unreadable("a jitter is between -100% and 1000%", start, start + len(word))
    return value


# --- concurrency -----------------------------------------------------------------------------------
#: parts and numbers are counted in these, so that `33.3%` is exact
_ONE = 10**8


@dataclass(slots=True, frozen=True)
class _Share:
    """A part of the count, or a fixed number."""

    part: int = 0
    number: int = 0


@dataclass(slots=True, frozen=True)
class _Sum:
    parts: tuple[tuple[int, _Term], ...]


@dataclass(slots=True, frozen=True)
class _Choice:
    name: str
    terms: tuple[_Term, ...]


_Term: TypeAlias = _Share | _Sum | _Choice


@dataclass(slots=True, frozen=True)
class Concurrency:
    """How many of a number of targets run at once."""

    text: str
    _term: _Term

    def resolve(self, count: int) -> int:
        """For `count` targets; raises Mismatch where that is less than one."""
        # Nothing runs then, so no share of it can be wrong.
        made = _amount(self._term, count) // _ONE if count else 1
        if made < 1:
            raise Mismatch(
                f"`{self.text}` of {count} target{'s' if count != 1 else ''} is {made}; at least 1 is needed"
            )
        return made

    @property
    def fixed(self) -> int | None:
        """The number, where it does not depend on the count."""
        return None if _depends(self._term) else _amount(self._term, 0) // _ONE


def _amount(term: _Term, count: int) -> int:
    match term:
        case _Share(part=part, number=number):
            return part * count + number
        case _Sum(parts=parts):
            return sum(sign * _amount(inner, count) for sign, inner in parts)
        case _Choice(name=name, terms=terms):
            amounts = [_amount(inner, count) for inner in terms]
            return min(amounts) if name == "min" else max(amounts)


def _depends(term: _Term) -> bool:
    match term:
        case _Share(part=part):
            return part != 0
        case _Sum(parts=parts):
            return any(_depends(inner) for _, inner in parts)
        case _Choice(terms=terms):
            return any(map(_depends, terms))


_PIECE = re.compile(
    r"\s*(?:(?P<number>\d{1,9}(?:\.\d{1,6})?\s*%?)(?![\w.])|(?P<word>[^\W\d]\w*)|(?P<mark>[-+(),])|(?P<end>\Z))"
)


def parse_concurrency(given: Any) -> Concurrency:
    """`5`, `all`, `50%`, `-1` (all but one), `min(…)`, `max(…)`, joined with `+` and `-`; raises Unreadable."""
    text = _text(given, "a concurrency is `5`, `50%`, `all` or `min(50%, 10)`")
    reader = _ConcurrencyReader(text)
    term = reader.sum(1)
    if reader.kind != "end":
        raise reader.unexpected()
    return Concurrency(text.strip(), term)


def _units(number: str) -> int:
    whole, _, fraction = number.strip().partition(".")
    return int(whole) * _ONE + int(fraction.ljust(8, "0") or 0)


class _ConcurrencyReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.next()

    def next(self) -> None:
        match = _PIECE.match(self.text, self.at)
        if match is None:
            lead = len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            bad = re.compile(r"[^\s(),]+|.").match(self.text, self.at + lead)
            word = bad.group() if bad else ""
            raise Unreadable(f"`{word}` is not a number", self.at + lead, self.at + lead + len(word))
        self.kind = str(match.lastgroup)
        self.piece = match.group(self.kind).lower()
        self.start, self.at = match.start(self.kind), match.end()

    def unexpected(self) -> Unreadable:
        if self.kind == "end":
            return Unreadable("a number is missing", max(len(self.text) - 1, 0), len(self.text))
        help = did_you_mean(self.piece, ("all", "unlimited", "min", "max")) if self.kind == "word" else ""
        return Unreadable(f"unexpected `{self.piece}`", self.start, self.at, help)

    def sum(self, depth: int) -> _Term:
        if depth > MAX_DEPTH:
            raise Unreadable("the concurrency is nested too deeply", self.start, self.at)
        parts: list[tuple[int, _Term]] = []
        sign = 1
        if self.piece == "-" and self.kind == "mark":
            # `-3` alone is "all but three"
            parts.append((1, _Share(part=_ONE)))
            sign = -1
            self.next()
        parts.append((sign, self.term(depth)))
        while self.kind == "mark" and self.piece in "+-":
            sign = 1 if self.piece == "+" else -1
            self.next()
            parts.append((sign, self.term(depth)))
        return parts[0][1] if len(parts) == 1 else _Sum(tuple(parts))

    def term(self, depth: int) -> _Term:
        kind, piece = self.kind, self.piece
        if kind == "number":
            self.next()
            if piece.endswith("%"):
                return _Share(part=_units(piece[:-1].strip()) // 100)
            return _Share(number=_units(piece))
        if kind == "word" and piece in ("all", "unlimited"):
            self.next()
            return _Share(part=_ONE)
        if kind == "word" and piece in ("min", "max"):
            self.next()
            if self.piece != "(":
                raise Unreadable(f"`(` is missing after `{piece}`", self.start, self.at, f"write `{piece}(50%, 10)`")
            opened = self.start
            self.next()
            terms = [self.sum(depth + 1)]
            while self.piece == ",":
                self.next()
                terms.append(self.sum(depth + 1))
            if self.kind == "end":
                raise Unreadable("`(` is never closed", opened, opened + 1)
            if self.piece != ")":
                raise self.unexpected()
            self.next()
            return _Choice(piece, tuple(terms))
        raise self.unexpected()


# --- both ------------------------------------------------------------------------------------------
def _text(given: Any, wanted: str) -> str:
    """What stands there, as the text it was written as."""
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise Unreadable(f"{a_type(given)} is not possible here", 0, 1, wanted)
    text = str(given)
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"the text is longer than {MAX_LENGTH} characters", 0, 1, wanted)
    if not text.strip():
        raise Unreadable("the value is empty", 0, 1, wanted)
    return text


def _span(text: str, start: int) -> int:
    try:
        return parse_duration(text)
    except Mismatch as mismatch:
        raise Unreadable(str(mismatch), start, start + len(text)) from None
