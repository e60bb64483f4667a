"""Sensors and configuration of entities: durable values that lanes may wait for.

A value is kept whole, never as a reference into an execution's blobs: it outlives the execution that set it.
Pure, like `core.locks`, and used in the same places.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from . import events as e

#: Bytes, encoded, that a value may have; see error HF0721.
VALUE_LIMIT = 64 * 1024

SENSOR, CONFIG = "sensor", "config"
KINDS = (SENSOR, CONFIG)

SensorEvent: TypeAlias = e.SensorChanged | e.SensorAwaited | e.SensorLeft
SENSOR_EVENTS = (e.SensorChanged, e.SensorAwaited, e.SensorLeft)

#: lane → what it waits for: (entity, kind, name)
Awaits: TypeAlias = dict[int, tuple[tuple[str, str, str], ...]]


class SensorRow(msgspec.Struct, frozen=True, gc=False):
    """A sensor that has a value."""

    value: Any
    #: counts its changes since it came to be
    version: int = 1
    at: int = 0


class Watched(msgspec.Struct, frozen=True, gc=False):
    """A sensor as it is read: its value, if it has one, and the lanes that wait for it to change."""

    row: SensorRow | None = None
    #: (execution, lane)
    waiters: tuple[tuple[str, int], ...] = ()


def after(watched: Watched, execution: str, event: SensorEvent, at: int) -> Watched:
    """The sensor after an event of that execution. The caller knows that it is about this sensor; `SensorLeft` is
    about all that its lane waits for."""
    match event:
        case e.SensorChanged(is_gone=True):
            return Watched(None, watched.waiters)
        case e.SensorChanged():
            return Watched(SensorRow(event.value, event.version, at), watched.waiters)
        case e.SensorAwaited():
            waiter = (execution, event.lane)
            return watched if waiter in watched.waiters else Watched(watched.row, (*watched.waiters, waiter))
        case e.SensorLeft():
            left = tuple(waiter for waiter in watched.waiters if waiter != (execution, event.lane))
            return Watched(watched.row, left)


def change(awaits: Awaits, event: SensorEvent) -> None:
    """What an execution knows of its own waiting, after one of its own events."""
    match event:
        case e.SensorAwaited():
            sensor = (event.entity, event.kind, event.name)
            known = awaits.get(event.lane, ())
            if sensor not in known:
                awaits[event.lane] = (*known, sensor)
        case e.SensorLeft():
            awaits.pop(event.lane, None)
        case e.SensorChanged():
            pass
