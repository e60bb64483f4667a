"""What a block hands over, as plain data: results, details of failures, details of heartbeats.

The one door for all of them, whatever isolation the block runs under. It must not know who sends the data on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: lists and maps inside each other; the engine, the API and every reader walk them with a limited stack
DEPTH_LIMIT = 100

_PLAIN = (type(None), bool, int, float, str)
_NESTING = frozenset({dict, list, tuple})


def encode(value: Any) -> tuple[Any, int]:
    """A result as plain data, and its encoded size. Raises TypeError, ValueError, … if it cannot be sent."""
    if value is None or value is True or value is False:
        return value, 1
    try:
        if type(value) not in _PLAIN:
            value = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
        size = len(msgspec.msgpack.encode(value))
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH_LIMIT} levels deep, or contains itself") from None
    # A level takes at least a byte, so what is short cannot be deep.
    if size > DEPTH_LIMIT and _is_deep(value):
        raise ValueError(f"it is nested more than {DEPTH_LIMIT} levels deep")
    return value, size


def _plain(value: Any) -> Any:
    """An entity, its labels and its facts are maps nobody may change; what is in them can be sent all the same."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _is_deep(value: Any) -> bool:
    """More than `DEPTH_LIMIT` lists and maps inside each other. Without recursion: that is the point."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        inner: list[Any] = []
        for item in level:
            if type(item) is dict:
                inner += [one for one in item.values() if type(one) in _NESTING]
            elif type(item) in _NESTING:
                inner += [one for one in item if type(one) in _NESTING]
        if not inner:
            return False
        level = inner
    return True
