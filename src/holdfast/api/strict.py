"""Reading what strangers send: JSON, msgpack and query strings, without surprises.

What passes here can be stored on either store, shown again as JSON and walked without running out of stack.
Whatever cannot is refused with a code: 400 where it cannot be read, 422 where a field is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from holdfast.core.errors import InvalidRequest, MalformedRequest
from holdfast.core.model import Problem

T = TypeVar("T")

#: Lists and maps inside each other. Anything deeper is a mistake or an attack.
MAX_DEPTH = 64
#: Results of blocks may be deeper than what people send.
RESULT_DEPTH = 200
MAX_INTEGER = 2**63 - 1
MAX_FIELDS = 100

_SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_WHERE = re.compile(r"^(.*) - at `(?:key in )?(\$[^`]*)`$", re.DOTALL)
_SCALARS = frozenset({str, int, float, bool})
_FORBIDDEN = re.compile("[\0\ud800-\udfff]")


def read_json(body: bytes) -> Any:
    """The document, or `MalformedRequest`."""
    if not body:
        return {}
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8 (byte {error.start})") from None
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        problem = Problem("HF0200", error.msg, line=error.lineno, column=error.colno)
        raise MalformedRequest(f"the body is not JSON: {error.msg} ({place})", (problem,)) from None
    except RecursionError:
        raise _too_deep() from None
    is_deep = text.count("[") + text.count("{") > MAX_DEPTH
    if is_deep or _SUSPICIOUS.search(text):
        check_value(value)
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedRequest(f"the key {twice[:80]!r} occurs twice in one object")
    return found


def _integer(text: str) -> int:
    # Length first: turning a million digits into a number takes minutes.
    if len(text) > 20 or not -MAX_INTEGER - 1 <= (number := int(text)) <= MAX_INTEGER:
        raise MalformedRequest(f"the number {text[:24]}… does not fit into 64 bits; send it as text")
    return number


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedRequest(f"the number {text[:24]} is too large")
    return number


def _constant(text: str) -> float:
    raise MalformedRequest(f"{text} is not JSON")


def _too_deep(depth: int = MAX_DEPTH) -> MalformedRequest:
    return MalformedRequest(f"lists and objects are nested more than {depth} levels deep")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_real, parse_constant=_constant)


def check_value(value: Any) -> None:
    """Refuse what could not be stored or shown again: too deep, too large, not text."""
    for item in _walk(value, MAX_DEPTH):
        kind = type(item)
        if kind is str:
            _check_text(item)
        elif kind is int and not -MAX_INTEGER - 1 <= item <= MAX_INTEGER:
            raise MalformedRequest("a number does not fit into 64 bits; send it as text")


def check_result(value: Any) -> None:
    """The same for what workers bring: its texts come from the world and may hold anything."""
    if type(value) is dict or type(value) is list:
        for _ in _walk(value, RESULT_DEPTH):
            pass
    elif value is not None and type(value) not in _SCALARS:
        raise MalformedRequest(f"a {type(value).__name__} is not a JSON value")


def _walk(value: Any, depth: int) -> Iterator[Any]:
    """Everything in it, keys too, level by level."""
    level: list[Any] = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                for key in item:
                    if type(key) is not str:
                        raise MalformedRequest(f"the key {str(key)[:40]} is not text")
                    yield key
                inner += item.values()
            elif kind is list:
                inner += item
            elif item is not None and kind not in _SCALARS:
                raise MalformedRequest(f"a {kind.__name__} is not a JSON value")
            else:
                yield item
        if not inner:
            return
        level = inner
    raise _too_deep(depth)


def _check_text(text: str) -> None:
    if _FORBIDDEN.search(text):
        raise MalformedRequest("text with U+0000 or half a surrogate pair cannot be stored")


def no_extension(code: int, data: memoryview) -> Any:
    """For msgpack from outside: our own extension types stand for stored things and are not to be forged."""
    raise MalformedRequest(f"msgpack extension {code} is not accepted")


def convert(value: Any, type: type[T], *, strict: bool = True) -> T:
    """As that type, or `InvalidRequest` that says where."""
    try:
        return msgspec.convert(value, type, strict=strict)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None


def invalid(message: str) -> InvalidRequest:
    match = _WHERE.match(message)
    text, path = match.groups() if match else (message, "$")
    text = text[:1].lower() + text[1:]
    where = path.removeprefix("$").removeprefix(".")
    problem = Problem("HF0201", text, path=path)
    return InvalidRequest(f"{where}: {text}" if where else text, (problem,))


def read_query(raw: bytes, type: type[T], lists: frozenset[str]) -> T:
    """Query parameters as a struct; fields that are lists may be repeated or given with commas."""
    if not raw:
        return convert({}, type)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise MalformedRequest("the query string cannot be read") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        _check_text(name)
        _check_text(value)
        if name in lists:
            fields.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name in fields:
            raise InvalidRequest(f"the parameter {name[:80]} is given twice")
        else:
            fields[name] = value
    return convert(fields, type, strict=False)


def list_fields(type: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(type) if _is_list(field.type))


def _is_list(type: Any) -> bool:
    return get_origin(type) is list or (get_origin(type) is Annotated and _is_list(get_args(type)[0]))


def read_segment(raw: str) -> str:
    """One percent-encoded part of a path."""
    if "%" not in raw:
        text = raw
    else:
        try:
            text = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise MalformedRequest("the address is not UTF-8") from None
    _check_text(text)
    return text
