"""What `let`, `set-sensor` and `clear-sensor` assign to: a name, and a path into its value.

`a`, `a.b`, `a['b']`, `a[0]`, `a[]` and `a[-1]` (append), `a[name]` (the value of a variable). Assigning makes a
new value and shares what did not change; nothing that is given is ever altered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .nodes import a_type
from .operations import ExpressionError
from .problems import Unreadable

MAX_PATH = 32
#: an item may be set at most so far behind the end of a list; what lies between becomes null
MAX_GAP = 1_000


class _Append:
    __slots__ = ()

    def __repr__(self) -> str:
        return "APPEND"


#: `[]` and `[-1]`: a new item at the end of a list
APPEND: Any = _Append()


@dataclass(slots=True, frozen=True)
class Variable:
    """`[name]`: the key or index is the value of that variable."""

    name: str
    start: int = 0
    end: int = 0


#: a key, an index, APPEND or a Variable
Part: TypeAlias = Any
#: the same without variables, see `settled`
Path: TypeAlias = Sequence[Any]


@dataclass(slots=True, frozen=True)
class Place:
    name: str
    path: tuple[Part, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """What has to be looked up before the path can be followed."""
        return tuple(part for part in self.path if isinstance(part, Variable))

    def settled(self, lookup: Callable[[str], Any]) -> tuple[Any, ...]:
        """The path with the values of its variables."""
        return tuple(_key(part, lookup(part.name)) if isinstance(part, Variable) else part for part in self.path)

    def __str__(self) -> str:
        return self.name + "".join(_spelt(part) for part in self.path)


def _spelt(part: Part) -> str:
    if part is APPEND:
        return "[]"
    if isinstance(part, Variable):
        return f"[{part.name}]"
    if isinstance(part, int):
        return f"[{part}]"
    if _DOTTED.fullmatch(part):
        return f".{part}"
    escaped = part.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


def _key(part: Variable, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return APPEND if value == -1 else value
    if value is None:
        raise ExpressionError(f"`{part.name}` is null and cannot be a key", absent=True)
    raise ExpressionError(f"`{part.name}` is {a_type(value)} and can be neither a key nor an index")


_NAME = re.compile(r"[^\W\d][\w-]*")
_DOTTED = re.compile(r"[^\W\d][\w-]*")
_NUMBER = re.compile(r"-?\d{1,9}(?=\s*(?:\]|\Z))")
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_SPACE = re.compile(r"\s*")


def parse_place(text: str) -> Place:
    """Raises Unreadable with offsets into `text`."""
    at = _skip(text, 0)
    match = _NAME.match(text, at)
    if match is None:
        raise Unreadable("a name is missing", at, at + 1, "a place is `name`, `name.key` or `name[0]`")
    name, at = match.group(), match.end()
    path: list[Part] = []
    while at < len(text):
        char = text[at]
        if char == ".":
            match = _DOTTED.match(text, at + 1)
            if match is None:
                raise Unreadable("a key is missing after `.`", at, at + 2, "other keys are written `['key']`")
            path.append(match.group())
            at = match.end()
        elif char == "[":
            part, at = _bracket(text, at)
            path.append(part)
        elif text[at:].isspace():
            break
        else:
            raise Unreadable(f"unexpected `{char}`", at, at + 1, "a place is `name`, `name.key` or `name[0]`")
        if len(path) > MAX_PATH:
            raise Unreadable(f"a place has at most {MAX_PATH} parts", at - 1, at)
    return Place(name, tuple(path))


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _bracket(text: str, opened: int) -> tuple[Part, int]:
    at = _skip(text, opened + 1)
    part: Part
    if text.startswith("]", at):
        return APPEND, at + 1
    if match := _NUMBER.match(text, at):
        number, end = int(match.group()), match.end()
        if number < -1:
            raise Unreadable("an index cannot be negative", at, end, "`[]` or `[-1]` appends")
        part = APPEND if number == -1 else number
    elif match := _QUOTED.match(text, at):
        part, end = (
            re.sub(r"\\(.)", r"\1", match.group(1) if match.group(1) is not None else match.group(2)),
            match.end(),
        )
    elif match := _NAME.match(text, at):
        part, end = Variable(match.group(), at, match.end()), match.end()
    else:
        found = text[at : at + 1]
        if found in ("'", '"') and found:
            raise Unreadable("the quote is never closed", at, at + 1)
        raise Unreadable("a key is missing in `[…]`", opened, at + 1, "write `[0]`, `['key']`, `[name]` or `[]`")
    close = _skip(text, end)
    if close >= len(text):
        raise Unreadable("`[` is never closed", opened, opened + 1)
    if text[close] != "]":
        raise Unreadable(f"`]` expected, found `{text[close]}`", close, close + 1,
                         "set a variable first and write `[name]`" if isinstance(part, Variable) else "")  # fmt: skip
    return part, close + 1


# --- values ----------------------------------------------------------------------------------------
def read(root: Any, path: Path, absent: Any = None) -> Any:
    """What is there, or `absent`."""
    for part in path:
        at = None if part is APPEND else _there(root, part)
        if at is None:
            return absent
        root = root[at]
    return root


def assign(root: Any, path: Path, value: Any) -> Any:
    """`root` with `value` at `path`. Maps and lists that are missing on the way are made."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, str):
        if root is not None and not isinstance(root, dict):
            raise ExpressionError(f"{a_type(root)} has no keys; `{part[:80]}` cannot be set in it")
        pairs = dict(root or {})
        pairs[part] = assign(pairs.get(part), rest, value)
        return pairs
    if isinstance(root, dict) and part is not APPEND:
        # YAML and JSON know only text as a key, so a number that is one is written as text.
        return assign(root, (str(part), *rest), value)
    if root is not None and not isinstance(root, list):
        raise ExpressionError(f"{a_type(root)} has no items; none can be set in it")
    items = list(root or [])
    if part is APPEND:
        items.append(assign(None, rest, value))
        return items
    if part < 0:
        raise ExpressionError("an index cannot be negative; `[]` or `[-1]` appends")
    if part > len(items) + MAX_GAP:
        raise ExpressionError(f"there is no item {part} in a list of {len(items)}", code="HF0161")
    items.extend([None] * (part + 1 - len(items)))
    items[part] = assign(items[part], rest, value)
    return items


def remove(root: Any, path: Path) -> Any:
    """`root` without what is at `path`; the same `root` if nothing is there."""
    if not path:
        return None
    at = _there(root, path[0])
    if at is None:
        return root
    if len(path) == 1:
        made = root.copy()
        del made[at]
        return made
    inner = remove(root[at], path[1:])
    if inner is root[at]:
        return root
    made = root.copy()
    made[at] = inner
    return made


def _there(root: Any, part: Any) -> str | int | None:
    """The key or index that `part` means in `root`, if there is one. `[-1]` is the last item here."""
    if isinstance(root, dict):
        key = part if isinstance(part, str) else str(part)
        return key if key in root else None
    if isinstance(root, list):
        if part is APPEND:
            return len(root) - 1 if root else None
        return part if isinstance(part, int) and 0 <= part < len(root) else None
    return None
