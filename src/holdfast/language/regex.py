"""Regular expressions that take linear time, whatever the pattern and the text.

A pattern becomes a program for a machine that follows all ways through the pattern at once, so that no text can
make it try again and again. `matches` needs no groups and remembers what it has seen (a DFA made on the way);
the others keep the way of highest priority, as Perl does. All work is paid for, step by step, and the price of a
call depends on nothing but its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from .problems import Unreadable
from .regex_syntax import At, Char, CharTest, Either, Group, RegexParser, Repeat, Sequence, Tree, is_word

#: instructions of one pattern
MAX_PROGRAM = 4_000
#: steps between two payments, and what following one way over one character costs beside a remembered step
_BATCH = 1_024
_WAY = 3
#: kinds of characters that places are about, as bits: before the text, a newline, part of a word
_EDGE, _NEWLINE, _WORD = 1, 2, 4

#: takes what has been done, in steps, and may raise to end it
Pay: TypeAlias = Callable[[int], None]

_CHAR, _SPLIT, _JUMP, _SAVE, _AT, _MATCH = range(6)


def _free(steps: int) -> None:
    """For callers that do not count."""


@dataclass(slots=True, frozen=True)
class Match:
    start: int
    end: int
    #: the whole match, then each group; nothing for a group that took no part
    groups: tuple[str | None, ...]


class _Program:
    """Instructions by number: what each does, and its two operands."""

    def __init__(self, tree: Tree, groups: int) -> None:
        self.does: list[int] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.tests: list[CharTest | None] = []
        self.places: list[str] = []
        self.slots = 2 * (groups + 1)
        self._emit(tree)
        self._add(_MATCH)

    def _add(self, does: int, first: int = 0, second: int = 0, test: CharTest | None = None, place: str = "") -> int:
        self.does.append(does)
        self.first.append(first)
        self.second.append(second)
        self.tests.append(test)
        self.places.append(place)
        return len(self.does) - 1

    def _emit(self, tree: Tree) -> None:
        match tree:
            case Char(test=test):
                self._add(_CHAR, test=test)
            case At(kind=kind):
                self._add(_AT, place=kind)
            case Sequence(parts=parts):
                for part in parts:
                    self._emit(part)
            case Group(number=number, body=body):
                self._add(_SAVE, 2 * number)
                self._emit(body)
                self._add(_SAVE, 2 * number + 1)
            case Either(parts=parts):
                ends: list[int] = []
                for part in parts[:-1]:
                    split = self._add(_SPLIT, len(self.does) + 1)
                    self._emit(part)
                    ends.append(self._add(_JUMP))
                    self.second[split] = len(self.does)
                self._emit(parts[-1])
                for end in ends:
                    self.first[end] = len(self.does)
            case Repeat(body=body, least=least, most=most, is_lazy=is_lazy):
                self._repeat(body, least, most, is_lazy)

    def _repeat(self, body: Tree, least: int, most: int | None, is_lazy: bool) -> None:
        if most is None and least == 0 and _is_nullable(body):
            # As (body+)?: otherwise an empty turn would be dropped, and with it what its groups have seen.
            split = self._split(is_lazy)
            self._repeat(body, 1, None, is_lazy)
            self._leave(split, is_lazy)
            return
        for _ in range(least if most is not None else max(least - 1, 0)):
            self._emit(body)
        if most is None:
            if least:
                start = len(self.does)
                self._emit(body)
                again, out = start, len(self.does) + 1
                self._add(_SPLIT, *((out, again) if is_lazy else (again, out)))
            else:
                split = self._split(is_lazy)
                self._emit(body)
                self._add(_JUMP, split)
                self._leave(split, is_lazy)
            return
        splits: list[int] = []
        for _ in range(most - least):
            splits.append(self._split(is_lazy))
            self._emit(body)
        for split in splits:
            self._leave(split, is_lazy)

    def _split(self, is_lazy: bool) -> int:
        here = len(self.does)
        return self._add(_SPLIT, 0 if is_lazy else here + 1, here + 1 if is_lazy else 0)

    def _leave(self, split: int, is_lazy: bool) -> None:
        (self.first if is_lazy else self.second)[split] = len(self.does)


def _is_nullable(tree: Tree) -> bool:
    match tree:
        case Char():
            return False
        case At():
            return True
        case Sequence(parts=parts):
            return all(map(_is_nullable, parts))
        case Either(parts=parts):
            return any(map(_is_nullable, parts))
        case Group(body=body):
            return _is_nullable(body)
        case Repeat(body=body, least=least):
            return least == 0 or _is_nullable(body)


def _length(tree: Tree) -> int:
    """Instructions it will take, known before they are made."""
    match tree:
        case Char() | At():
            return 1
        case Sequence(parts=parts):
            return sum(map(_length, parts))
        case Either(parts=parts):
            return sum(map(_length, parts)) + 2 * len(parts)
        case Group(body=body):
            return _length(body) + 2
        case Repeat(body=body, least=least, most=most):
            return (_length(body) + 1) * max(least + 1, most or 0) + 2


def _prefix(tree: Tree) -> str:
    """Text that every match begins with."""
    match tree:
        case Char(only=only):
            return only
        case Group(body=body):
            return _prefix(body)
        case Sequence(parts=parts):
            out = ""
            for part in parts:
                if not (isinstance(part, Char) and part.only):
                    return out or (_prefix(part) if part is parts[0] else "")
                out += part.only
            return out
        case Repeat(body=body, least=least) if least:
            return _prefix(body)
        case _:
            return ""


def _about(char: str) -> int:
    """What places want to know of a character; "" is before the first and behind the last."""
    if not char:
        return _EDGE
    return _NEWLINE if char == "\n" else _WORD if is_word(char) else 0


def _holds(place: str, before: int, after: int, is_last: bool) -> bool:
    match place:
        case "start":
            return before == _EDGE
        case "end":
            return after == _EDGE
        case "last":
            return after == _EDGE or (after == _NEWLINE and is_last)
        case "line-start":
            return before in (_EDGE, _NEWLINE)
        case "line-end":
            return after in (_EDGE, _NEWLINE)
        case "word":
            return (before == _WORD) is not (after == _WORD)
        case _:
            return (before == _WORD) is (after == _WORD)


class _State:
    """Where all ways are, what was before, and the states that characters lead to."""

    __slots__ = ("after", "before", "ways")

    def __init__(self, ways: frozenset[int], before: int) -> None:
        self.ways = ways
        self.before = before
        self.after: dict[str, _State] = {}


class Regex:
    """A pattern that is ready to be used."""

    def __init__(self, pattern: str, dotall: bool = False) -> None:
        parser = RegexParser(pattern, dotall)
        tree = parser.parse()
        if _length(tree) > MAX_PROGRAM:
            raise Unreadable("the pattern is too large", 0, len(pattern), "repeat less")
        self.pattern = pattern
        self.groups = parser.groups
        self._program = _Program(tree, self.groups)
        #: what reading the pattern is worth in steps; every call pays it, so that none is cheaper for another's sake
        self._price = len(self._program.does) * _WAY
        self._prefix = _prefix(tree)

    # --- without groups ----------------------------------------------------------------------------
    def matches(self, text: str, pay: Pay = _free) -> bool:
        """Whether all of `text` matches."""
        program = self._program
        states: dict[tuple[frozenset[int], int], _State] = {}
        state = _State(frozenset((0,)), _EDGE)
        steps = self._price
        size = len(text)
        for index, char in enumerate(text):
            steps += 1
            # A newline that ends the text is seen by `$` as no other, so that step is not to be remembered.
            is_last = char == "\n" and index == size - 1
            after = None if is_last else state.after.get(char)
            if after is None:
                about = _about(char)
                ways, work = self._ways(state.ways, state.before, about, is_last)
                steps += work * _WAY
                reached = frozenset(
                    pc + 1
                    for pc in ways
                    if program.does[pc] == _CHAR and program.tests[pc](char)  # type: ignore[misc]
                )
                if not reached:
                    pay(steps)
                    return False
                after = states.get((reached, about))
                if after is None:
                    after = states[reached, about] = _State(reached, about)
                if not is_last:
                    state.after[char] = after
            state = after
            if steps >= _BATCH:
                pay(steps)
                steps = 0
        ways, work = self._ways(state.ways, state.before, _EDGE, False)
        pay(steps + work * _WAY)
        return any(program.does[pc] == _MATCH for pc in ways)

    def _ways(self, at: frozenset[int], before: int, after: int, is_last: bool) -> tuple[set[int], int]:
        """Where one gets from there without a character, and the steps it took."""
        program = self._program
        does, first, second = program.does, program.first, program.second
        seen: set[int] = set()
        pending = list(at)
        while pending:
            pc = pending.pop()
            if pc in seen:
                continue
            seen.add(pc)
            kind = does[pc]
            if kind == _JUMP:
                pending.append(first[pc])
            elif kind == _SPLIT:
                pending.append(second[pc])
                pending.append(first[pc])
            elif kind == _SAVE or (kind == _AT and _holds(program.places[pc], before, after, is_last)):
                pending.append(pc + 1)
        return seen, len(seen) + 1

    # --- with groups -------------------------------------------------------------------------------
    def fullmatch(self, text: str, pay: Pay = _free) -> Match | None:
        """All of `text`, with groups."""
        if not self.groups:
            return Match(0, len(text), (text,)) if self.matches(text, pay) else None
        pay(self._price)
        return self._follow(text, 0, pay, is_whole=True)

    def search(self, text: str, start: int = 0, pay: Pay = _free) -> Match | None:
        """The first match at or behind `start`, with groups."""
        pay(self._price)
        return self._follow(text, start, pay)

    def find_all(self, text: str, pay: Pay = _free) -> Iterator[Match]:
        """One match after the other; an empty one is never at the place where another empty one was."""
        pay(self._price)
        at = 0
        must_advance = False
        while at <= len(text):
            match = self._follow(text, at, pay, must_advance=must_advance)
            if match is None:
                return
            yield match
            must_advance = match.start == match.end
            at = match.end

    def replace(self, text: str, replacement: str, all: bool = True, pay: Pay = _free) -> str:
        """With `$1` or `\\1` in the replacement for a group, `$0` for the match, `$$` for a dollar."""
        parts = parse_replacement(replacement, self.groups)
        out: list[str] = []
        at = 0
        for match in self.find_all(text, pay):
            out.append(text[at : match.start])
            made = [part if isinstance(part, str) else match.groups[part] or "" for part in parts]
            pay(1 + sum(map(len, made)))
            out += made
            at = match.end
            if not all:
                break
        out.append(text[at:])
        return "".join(out)

    def split(self, text: str, limit: int = 0, pay: Pay = _free) -> list[str]:
        """What is between the matches; at most `limit` parts, unless that is 0."""
        out: list[str] = []
        at = 0
        for match in self.find_all(text, pay):
            if limit and len(out) + 1 >= limit:
                break
            out.append(text[at : match.start])
            at = match.end
        out.append(text[at:])
        return out

    def _follow(
        self, text: str, start: int, pay: Pay, is_whole: bool = False, must_advance: bool = False
    ) -> Match | None:
        """All ways at once, those of higher priority first; each with what its groups have seen."""
        program = self._program
        does, tests = program.does, program.tests
        size = len(text)
        none = (-1,) * program.slots
        found: tuple[int, ...] | None = None
        ways: list[tuple[int, tuple[int, ...]]] = []
        steps = 0
        at = start
        before = _about(text[at - 1] if at else "")
        while True:
            if not ways:
                if found is not None or (is_whole and at > start):
                    break
                if self._prefix and not is_whole:
                    skipped = text.find(self._prefix, at)
                    steps += (size - at if skipped < 0 else skipped - at) // 256
                    if skipped < 0:
                        break
                    if skipped != at:
                        at = skipped
                        before = _about(text[at - 1])
            char = text[at] if at < size else ""
            after = _about(char)
            is_last = at == size - 1
            seen: set[int] = set()
            here: list[tuple[int, tuple[int, ...]]] = []
            for pc, slots in ways:
                steps += self._enter(pc, slots, at, before, after, is_last, seen, here)
            if found is None and (at == start or not is_whole):
                steps += self._enter(0, (at, *none[1:]), at, before, after, is_last, seen, here)
            ways = []
            for pc, slots in here:
                if does[pc] == _MATCH:
                    if (is_whole and at < size) or (must_advance and at == start):
                        continue
                    found = (slots[0], at, *slots[2:])
                    # Those that follow have a lower priority.
                    break
                if char and tests[pc](char):  # type: ignore[misc]
                    ways.append((pc + 1, slots))
            steps += len(here) + 2
            if steps * _WAY >= _BATCH:
                pay(steps * _WAY)
                steps = 0
            if at >= size:
                break
            at += 1
            before = after
        pay(steps * _WAY + 1)
        if found is None:
            return None
        pairs = zip(found[::2], found[1::2], strict=True)
        return Match(found[0], found[1], tuple(text[a:b] if a >= 0 and b >= 0 else None for a, b in pairs))

    def _enter(
        self, pc: int, slots: tuple[int, ...], at: int, before: int, after: int, is_last: bool,
        seen: set[int], here: list[tuple[int, tuple[int, ...]]],
    ) -> int:  # fmt: skip
        program = self._program
        does, first, second = program.does, program.first, program.second
        pending = [(pc, slots)]
        steps = 0
        while pending:
            pc, slots = pending.pop()
            steps += 1
            if pc in seen:
                continue
            seen.add(pc)
            kind = does[pc]
            if kind in (_CHAR, _MATCH):
                here.append((pc, slots))
            elif kind == _JUMP:
                pending.append((first[pc], slots))
            elif kind == _SPLIT:
                pending.append((second[pc], slots))
                pending.append((first[pc], slots))
            elif kind == _SAVE:
                slot = first[pc]
                pending.append((pc + 1, (*slots[:slot], at, *slots[slot + 1 :])))
            elif _holds(program.places[pc], before, after, is_last):
                pending.append((pc + 1, slots))
        return steps


_REFERENCE = re.compile(r"\$(\d{1,2})|\\(\d{1,2})|\$\$|\\(.)|\$", re.DOTALL)


def parse_replacement(text: str, groups: int) -> list[str | int]:
    """Texts and numbers of groups; raises Unreadable."""
    parts: list[str | int] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        number = match.group(1) or match.group(2)
        if number is not None:
            if int(number) > groups:
                raise Unreadable(f"there is no group {int(number)}", match.start(), match.end(),
                                 f"the pattern has {groups}; write `$$` for a dollar")  # fmt: skip
            parts.append(int(number))
        elif match.group(3) is not None:
            parts.append({"n": "\n", "t": "\t", "r": "\r"}.get(match.group(3), match.group(3)))
        else:
            parts.append("$")
    parts.append(text[at:])
    return [part for part in parts if part != ""]


@lru_cache(maxsize=256)
def compile_regex(pattern: str, dotall: bool = False) -> Regex:
    """Raises Unreadable with offsets into `pattern`. With `dotall`, `.` matches newlines too."""
    return Regex(pattern, dotall)
