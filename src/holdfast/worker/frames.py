"""What a worker and its child processes say to each other: length-prefixed msgpack over a socket pair.

The parent sends `Setup` once, then `Work` and `Stop`; the child answers `Ready` once, then, per attempt,
`Begun`, any number of `Said`, and `Finished`.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from holdfast.core.model import LogLine
from holdfast.transport.messages import Outcome, Parcel


class Setup(msgspec.Struct, frozen=True, tag=True):
    #: sys.path of the parent, and the modules and files with blocks
    path: list[str]
    sources: list[str]
    #: what PYTHONPATH was before it was used to start the child
    python_path: str | None = None


class Work(msgspec.Struct, frozen=True, tag=True):
    parcel: Parcel


class Stop(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    #: why the child cannot work; empty if it can
    problem: str = ""


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The block is about to be called; from here on a death leaves the effect unknown."""


class Said(msgspec.Struct, frozen=True, tag=True):
    lines: list[LogLine] = []
    is_beat: bool = False
    details: Any = None


class Finished(msgspec.Struct, frozen=True, tag=True):
    outcome: Outcome


ToChild = Setup | Work | Stop
FromChild = Ready | Begun | Said | Finished

_encoder = msgspec.msgpack.Encoder()
to_child = msgspec.msgpack.Decoder(ToChild)
from_child = msgspec.msgpack.Decoder(FromChild)


def pack(frame: ToChild | FromChild) -> bytes:
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


def receive(connection: socket.socket) -> bytes | None:
    """The body of the next frame, or None when the other side is gone."""
    head = _exactly(connection, 4)
    return None if head is None else _exactly(connection, int.from_bytes(head, "big"))


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
