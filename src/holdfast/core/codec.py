"""Between values and bytes: msgpack for the store, plain JSON-ready values for the API.

Everything that is stored passes here, and nowhere else is msgspec's encoder configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgspec

from .events import Event, JobScheduled, JobSucceeded, LaneAdvanced
from .lanes import Lane
from .ledger import Entry
from .model import BlobRef, JobKind
from .requests import Due
from .state import Job, State
from .subjects import Subject
from .views import Summary

_BLOB = 1
_place = Struct(">Qq").pack


def _to_ext(value: Any) -> Any:
    if isinstance(value, BlobRef):
        return msgspec.msgpack.Ext(_BLOB, value.digest + value.size.to_bytes(4, "big"))
    raise NotImplementedError(f"a {type(value).__name__} cannot be stored; use plain JSON values")


def _from_ext(code: int, data: memoryview) -> Any:
    if code == _BLOB:
        return BlobRef(bytes(data[:16]), int.from_bytes(data[16:20], "big"))
    raise msgspec.ValidationError(f"unknown extension {code} in stored data")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_ext)
_any = msgspec.msgpack.Decoder(ext_hook=_from_ext)
_events = msgspec.msgpack.Decoder(tuple[Event, ...], ext_hook=_from_ext)
_due = msgspec.msgpack.Decoder(Due)
_head = msgspec.msgpack.Decoder(State, ext_hook=_from_ext)
_lanes = msgspec.msgpack.Decoder(list[Lane], ext_hook=_from_ext)
_jobs = msgspec.msgpack.Decoder(list[Job], ext_hook=_from_ext)
_entries = msgspec.msgpack.Decoder(list[Entry], ext_hook=_from_ext)
_subjects = msgspec.msgpack.Decoder(list[Subject], ext_hook=_from_ext)
_summary = msgspec.msgpack.Decoder(Summary, ext_hook=_from_ext)

pack = _encoder.encode
unpack = _any.decode
unpack_events = _events.decode
unpack_due = _due.decode
unpack_head = _head.decode
unpack_lanes = _lanes.decode
unpack_jobs = _jobs.decode
unpack_entries = _entries.decode
unpack_subjects = _subjects.decode
unpack_summary = _summary.decode


def pack_events(events: Sequence[Event]) -> bytes:
    """As a history keeps them. What most jobs have none of is left out of the facts of every step: a reader fills
    in what is missing at the end."""
    return pack([_SLIM[type(event)](event) if type(event) in _SLIM else event for event in events])


def _slim_scheduled(event: JobScheduled) -> Any:
    if event.entity or event.kind is not JobKind.EXECUTE:
        return event
    slim = (_SCHEDULED, event.job, event.lane, event.step, event.spec, event.input)
    return slim if event.visit == 1 else (*slim, event.visit)


def _slim_succeeded(event: JobSucceeded) -> Any:
    return event if event.changes else (_SUCCEEDED, event.job, event.attempt, event.result, event.effect)


def _slim_advanced(event: LaneAdvanced) -> Any:
    return event if event.logs else (_ADVANCED, event.lane, event.ops)


_SLIM: dict[type, Callable[[Any], Any]] = {
    JobScheduled: _slim_scheduled,
    JobSucceeded: _slim_succeeded,
    LaneAdvanced: _slim_advanced,
}
_ADVANCED = LaneAdvanced.__struct_config__.tag
_SCHEDULED = JobScheduled.__struct_config__.tag
_SUCCEEDED = JobSucceeded.__struct_config__.tag


def chain(previous: bytes, seq: int, at: int, body: bytes) -> bytes:
    """Digest of a history row: it commits to everything before it."""
    return blake2b(previous + _place(seq, at) + body, digest_size=16).digest()


def plain(value: Any) -> Any:
    """Any of our values as JSON-ready builtins: structs as maps, enums by name, bytes as hex."""
    match value:
        case None | bool() | str() | float():
            return value
        case Enum():
            return value.name
        case int():
            return value
        case bytes():
            return value.hex()
        case BlobRef():
            return {"$blob": value.digest.hex(), "size": value.size}
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def event_json(event: Event, seq: int, at: int) -> dict[str, Any]:
    """The API form of an event; the keys are the class's own fields. `seq` is its number in the history: what a lock's
    events call so is `claim` here, or a feed that goes on after `seq` would go astray."""
    fields = plain(event)
    if "seq" in fields:
        fields["claim"] = fields.pop("seq")
    return {"seq": seq, "at": at, "type": type(event).__name__, **fields}
