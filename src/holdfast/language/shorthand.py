"""The short form of steps, driven by templates: `[ ${type} ] ${name} "=" ${value...}`.

The notation is that of the reference and, later, of user-defined step types: `${x}` one word or quoted
phrase (the last takes the rest), `${x...}` many words, `"lit"` a literal, `[ … ]` optional, `?${flag}`
true or false by presence. Matching is memoised, so it takes time proportional to template × text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_ELEMENT = re.compile(
    r"\s*(?:(?P<flag>\?)?\$\{(?P<name>[\w-]+(?:\.[\w-]+)*)(?P<many>\.\.\.)?\}|\"(?P<literal>[^\"]*)\"|(?P<open>\[)|(?P<close>\]))"
)


class BadTemplate(ValueError):
    """The template itself cannot be read."""


@dataclass(slots=True)
class _State:
    """One place in the template. Optional parts are tried first, then skipped."""

    kind: str  #: `word`, `many`, `literal`, `flag`, `option` or `end`
    text: str = ""
    then: _State | None = None
    inside: _State | None = None
    #: nothing but this takes text from here on
    is_last: bool = False


@dataclass(slots=True, frozen=True)
class Capture:
    """What a `${x}` took, and where it begins."""

    text: str
    start: int


@cache
def compile_template(template: str) -> _State:
    elements, rest = _parse(template, 0, 0)
    if rest != len(template):
        raise BadTemplate(f"`]` without `[` in {template!r}")
    return _link(elements, _State("end"))


#: an element is (kind, text), or a list of elements for an optional part
_Element: TypeAlias = "tuple[str, str] | list[_Element]"


def _parse(template: str, at: int, depth: int) -> tuple[list[_Element], int]:
    elements: list[_Element] = []
    while at < len(template):
        match = _ELEMENT.match(template, at)
        if match is None:
            if template[at:].strip():
                raise BadTemplate(f"cannot read {template[at:]!r} in {template!r}")
            at = len(template)
            break
        at = match.end()
        if match["open"]:
            inner, at = _parse(template, at, depth + 1)
            if at > len(template) or template[at - 1 : at] != "]":
                raise BadTemplate(f"`[` is never closed in {template!r}")
            elements.append(inner)
        elif match["close"]:
            if not depth:
                return elements, match.start()
            return elements, at
        elif match["literal"] is not None:
            elements.append(("literal", match["literal"]))
        elif match["flag"]:
            elements.append(("flag", match["name"]))
        else:
            elements.append(("many" if match["many"] else "word", match["name"]))
    if depth:
        raise BadTemplate(f"`[` is never closed in {template!r}")
    return elements, at


def _link(elements: list[_Element], then: _State) -> _State:
    for element in reversed(elements):
        if isinstance(element, list):
            then = _State("option", then=then, inside=_link(element, then))
        else:
            kind, text = element
            then = _State(kind, text, then, is_last=_ends(then) and kind in ("word", "many"))
    return then


def _ends(state: _State | None) -> bool:
    """Whether nothing after this place could take text."""
    while state is not None and state.kind == "flag":
        state = state.then
    return state is None or state.kind == "end"


def match_shorthand(template: str, text: str) -> dict[str, Capture | bool] | None:
    """What each name of the template stands for in `text`, or nothing where it does not fit. A name like
    `a.b` is kept as it is; flags of options that were not taken are false."""
    found = _Matcher(text).match(compile_template(template), 0)
    if found is None:
        return None
    return dict.fromkeys(_flags(template), False) | found


@cache
def _flags(template: str) -> tuple[str, ...]:
    return tuple(m["name"] for m in _ELEMENT.finditer(template) if m["flag"])


class _Matcher:
    def __init__(self, text: str) -> None:
        self.text = text
        self.failed: set[tuple[int, int]] = set()

    def match(self, state: _State, at: int) -> dict[str, Capture | bool] | None:
        key = (id(state), at)
        if key in self.failed:
            return None
        found = self._match(state, at)
        if found is None:
            self.failed.add(key)
        return found

    def _match(self, state: _State, at: int) -> dict[str, Capture | bool] | None:
        text = self.text
        start = skip(text, at)
        if state.kind == "end":
            return {} if start == len(text) else None
        assert state.then is not None
        if state.kind == "option":
            assert state.inside is not None
            taken = self.match(state.inside, at)
            return taken if taken is not None else self.match(state.then, at)
        if state.kind == "flag":
            rest = self.match(state.then, at)
            return None if rest is None else {state.text: True, **rest}
        if state.kind == "literal":
            end = self._literal(state.text, at)
            return None if end is None else self.match(state.then, end)
        if start == len(text):
            return None
        for end in self._ends(state, start):
            rest = self.match(state.then, end)
            if rest is not None:
                return {state.text: Capture(text[start:end].rstrip(), start), **rest}
        return None

    def _literal(self, literal: str, at: int) -> int | None:
        """Spaces in a literal are required, others are free."""
        body = literal.strip()
        start = skip(self.text, at)
        if not self.text.startswith(body, start):
            return None
        end = start + len(body)
        if literal[:1] == " " and start > 0 and not self.text[start - 1].isspace():
            return None
        needs_space = literal[-1:] == " " or body[-1:].isalnum()
        if needs_space and end < len(self.text) and not self.text[end].isspace():
            return None
        return end

    def _ends(self, state: _State, start: int) -> list[int]:
        """Where a capture that begins at `start` may end, in the order to be tried."""
        text = self.text
        if state.is_last:
            return [len(text.rstrip())]
        ends: list[int] = []
        at = start
        glued = _glued(state.then)
        while at < len(text):
            end = word_end(text, at)
            for literal in glued:
                inner = _find_outside(text, literal, at, end)
                if inner > at:
                    ends.append(inner)
            ends.append(end)
            if state.kind == "word":
                break
            at = skip(text, end)
        return ends


def _glued(state: _State | None) -> list[str]:
    """Literals that may follow without a space, as `=` in `x=1`."""
    out: list[str] = []
    while state is not None:
        if state.kind == "literal":
            body = state.text.strip()
            if body == state.text and body and not body[0].isalnum():
                out.append(body)
            break
        if state.kind == "option":
            out += _glued(state.inside)
        elif state.kind != "flag":
            break
        state = state.then
    return out


def skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _find_outside(text: str, literal: str, at: int, end: int) -> int:
    """Where the literal stands, but not inside of `${…}`: `${a == b}` is one thing."""
    while at < end:
        if text.startswith("${", at):
            at = _expression_end(text, at + 2)
        elif text.startswith(literal, at):
            return at if at + len(literal) <= end else -1
        else:
            at += 1
    return -1


def quoted_end(text: str, at: int) -> int:
    """Behind the quoted phrase that begins here; 0 if there is none."""
    quoted = _QUOTED.match(text, at)
    return quoted.end() if quoted else 0


def word_end(text: str, at: int) -> int:
    """The end of the word at `at`: a quoted phrase and `${…}` are part of it, spaces included."""
    quoted = _QUOTED.match(text, at)
    if quoted and (quoted.end() == len(text) or text[quoted.end()].isspace()):
        return quoted.end()
    if text.startswith("{", at):
        end = _expression_end(text, at + 1)
        if text[end - 1 : end] == "}" and (end == len(text) or text[end].isspace()):
            return end  # {a, b}
    while at < len(text) and not text[at].isspace():
        if text.startswith("${", at):
            at = _expression_end(text, at + 2)
        elif text[at] == "[" and (quoted := _QUOTED.match(text, at + 1)):
            at = quoted.end()  # a['b c']
        elif text[at] == "=" and (quoted := _QUOTED.match(text, at + 1)):
            at = quoted.end()  # key="two words"
        else:
            at += 1
    return at


def _expression_end(text: str, at: int) -> int:
    depth = 1
    while at < len(text):
        char = text[at]
        if char in "'\"":
            quoted = _QUOTED.match(text, at)
            at = quoted.end() if quoted else at + 1
            continue
        depth += (char == "{") - (char == "}")
        at += 1
        if not depth:
            break
    return at
