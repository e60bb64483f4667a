"""Values as text and back: JSON, YAML, words of a shell, parts of an address. Only what can be stored comes out."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from holdfast.core.errors import InvalidDefinition

from .load import MAX_INTEGER, Unstorable, load, scalar
from .operations import MAX_SIZE, ExpressionError, as_json

MAX_DEPTH = 100
#: plain words that no reader of YAML takes for anything else
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*(?: [A-Za-z0-9_./@-]+)*")
_AMBIGUOUS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def from_json(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        reason = str(error).removeprefix("JSON is malformed: ") or "nested too deeply"
        raise ExpressionError(f"the text is not JSON: {reason}") from None
    return storable(value)


def to_json(value: Any) -> str:
    return as_json(value)


def from_yaml(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return load(text).root.plain()
    except InvalidDefinition as refused:
        first = refused.problems[0]
        where = f" in line {first.line}" if first.line else ""
        raise ExpressionError(f"the text is not YAML{where}: {first.message}") from None


def to_yaml(value: Any) -> str:
    """Block style; texts are quoted wherever a reader could take them for something else."""
    out: list[str] = []
    _yaml(value, 0, out)
    return "".join(out)


def _yaml(value: Any, indent: int, out: list[str]) -> None:
    if indent > MAX_DEPTH:
        raise ExpressionError("the value is nested too deeply", code="HF0161")
    pad = "  " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            out.append(f"{pad}{_word(key)}:")
            _below(item, indent, out)
    elif isinstance(value, list) and value:
        for item in value:
            out.append(f"{pad}-")
            _below(item, indent, out)
    else:
        out.append(f"{pad}{_scalar(value)}\n")


def _below(item: Any, indent: int, out: list[str]) -> None:
    if isinstance(item, (dict, list)) and item:
        out.append("\n")
        _yaml(item, indent + 1, out)
    else:
        out.append(f" {_scalar(item)}\n")


def _scalar(value: Any) -> str:
    return _word(value) if isinstance(value, str) else as_json(value)


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _AMBIGUOUS:
        try:
            if scalar(text) == text and len(text) <= 100:
                return text
        except Unstorable:
            pass
    # JSON's own escapes are YAML's too, but for those characters that YAML wants escaped and JSON does not.
    quoted = as_json(text)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found.group()):04x}", quoted)


def to_shell(value: str) -> str:
    """One word for a POSIX shell."""
    return value if _BARE.fullmatch(value) else "'" + value.replace("'", "'\"'\"'") + "'"


def to_address(value: str) -> str:
    """As a part of a URL: everything but letters, digits and `-._~` as `%XX`."""
    return re.sub(r"[^A-Za-z0-9._~-]", lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), value)


def storable(value: Any) -> Any:
    """`value`, if it can be stored and read back alike."""
    pending: list[tuple[Any, int]] = [(value, 0)]
    size = 0
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ExpressionError("the value is nested too deeply", code="HF0161")
        if isinstance(item, dict):
            size += 16 * len(item)
            pending.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            size += 8 * len(item)
            pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, str):
            size += len(item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise ExpressionError("the number is not finite")
        elif isinstance(item, int) and not isinstance(item, bool) and not -MAX_INTEGER - 1 <= item <= MAX_INTEGER:
            raise ExpressionError("the integer does not fit into 64 bits")
        if size > MAX_SIZE:
            raise ExpressionError(f"the value is larger than {MAX_SIZE // 1024} KB", code="HF0161")
    return value
