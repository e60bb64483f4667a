"""What a turn of the committer wishes of the store, and the answers that are not a header."""

from __future__ import annotations

import msgspec

from holdfast.core.reads import Key
from holdfast.store.records import Batch


class Lock(msgspec.Struct, frozen=True):
    known: dict[str, int]


class Read(msgspec.Struct, frozen=True):
    keys: tuple[Key, ...]


class Commit(msgspec.Struct, frozen=True):
    batch: Batch


Wish = Lock | Read | Commit


class Existing(msgspec.Struct, frozen=True):
    """Answer to a start whose idempotency key was used before with the same content."""

    execution: str


class Lost(msgspec.Struct, frozen=True):
    """Answer to a claim that came too late."""


LOST = Lost()
