"""Rows that executions share, as both stores read them: locks with their queues, sensors, entities.

A lock's row is read whole but for its queue, of which as many come as the key says, first come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.codec import unpack
from holdfast.core.ids import from_key
from holdfast.core.locks import Claim, LockRow
from holdfast.core.program import EntityKey, LockKey, SensorKey
from holdfast.core.sensors import EntityRow, SensorRow, Watched

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_LOCK = "SELECT fence, next_seq FROM locks WHERE tenant = ? AND entity = ? AND name = ?"
_CLAIMS = (
    "SELECT seq, execution, lane, path, since, fence FROM lock_queue WHERE tenant = ? AND entity = ? AND name = ?"
    " ORDER BY seq LIMIT ?"
)
_SENSOR = "SELECT value, version, at FROM sensors WHERE tenant = ? AND entity = ? AND kind = ? AND name = ?"
_WAITERS = (
    "SELECT execution, lane FROM sensor_waits WHERE tenant = ? AND entity = ? AND kind = ? AND name = ?"
    " ORDER BY execution, lane"
)
_ENTITY = "SELECT id, type, name, labels, created_at, updated_at FROM entities WHERE tenant = ? AND id = ?"


def lock_row(rows: Ask, key: LockKey) -> LockRow:
    lock = (key.tenant, key.entity, key.name)
    found = rows(_LOCK, lock)
    if not found:
        return LockRow()
    return lock_of(found[0], rows(_CLAIMS, (*lock, key.window + 2)), key.window)


def lock_of(head: tuple[Any, ...], claims: Sequence[tuple[Any, ...]], window: int) -> LockRow:
    """From its numbers and its claims in their order, two more than the window has room for: whoever holds the
    lock came before all who wait, and one beyond the window shows that there are more."""
    holder = next((claim_of(row) for row in claims if row[5]), None)
    waiters = [claim_of(row) for row in claims if not row[5]]
    return LockRow(head[0], head[1], holder, tuple(waiters[:window]), len(waiters) <= window)


def claim_of(row: tuple[Any, ...]) -> Claim:
    return Claim(row[0], from_key(bytes(row[1])), row[2], tuple(unpack(bytes(row[3]))), row[4])


def watched(rows: Ask, key: SensorKey) -> Watched:
    sensor = (key.tenant, key.entity, key.kind, key.name)
    found = rows(_SENSOR, sensor)
    row = SensorRow(unpack(bytes(found[0][0])), found[0][1], found[0][2]) if found else None
    return Watched(row, tuple((from_key(bytes(execution)), lane) for execution, lane in rows(_WAITERS, sensor)))


def entity_row(rows: Ask, key: EntityKey) -> EntityRow | None:
    found = rows(_ENTITY, (key.tenant, key.id))
    return entity_of(found[0]) if found else None


def entity_of(row: tuple[Any, ...]) -> EntityRow:
    return EntityRow(row[0], row[1], row[2], unpack(bytes(row[3])), row[4], row[5])
