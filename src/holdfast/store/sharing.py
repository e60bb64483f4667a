"""Rows that executions share, as both stores read them: locks with their queues, and sensors.

A lock's row is read whole but for its queue, of which as many come as the key says, first come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.codec import unpack
from holdfast.core.ids import from_key, to_key
from holdfast.core.locks import Claim, LockRow
from holdfast.core.reads import LockKey, SensorKey
from holdfast.core.rows import ClaimRow, LockHead, SensorChange
from holdfast.core.sensors import SensorRow, Watched

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


_CLAIM = "tenant, entity, name, seq, execution, lane, path, since, fence"
_SENSORS = "tenant, entity, kind, name, value, version, at, author"


class SharingQueries(ABC):
    """Questions about what executions share."""

    @abstractmethod
    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def claims(self, tenant: str, entity: str = "", name: str = "", limit: int = 1000) -> list[ClaimRow]:
        """Held and waited for, lock by lock, first come first; of one entity, or of one lock."""
        where, params = ["tenant = ?"], [tenant]
        for column, value in (("entity", entity), ("name", name)):
            if value:
                where.append(f"{column} = ?")
                params.append(value)
        sql = f"SELECT {_CLAIM} FROM lock_queue WHERE {' AND '.join(where)} ORDER BY tenant, entity, name, seq LIMIT ?"
        return [_claim_row(row) for row in self.rows(sql, (*params, limit))]

    def claims_of(self, id: str) -> list[ClaimRow]:
        sql = f"SELECT {_CLAIM} FROM lock_queue WHERE execution = ? ORDER BY tenant, entity, name, seq"
        return [_claim_row(row) for row in self.rows(sql, (to_key(id),))]

    def contended(self, limit: int = 20_000) -> list[ClaimRow]:
        """All claims to locks for which somebody waits, of all tenants."""
        sql = (
            f"SELECT {_CLAIM} FROM lock_queue AS q WHERE EXISTS"
            " (SELECT 1 FROM lock_queue AS w WHERE w.tenant = q.tenant AND w.entity = q.entity AND w.name = q.name"
            " AND w.fence = 0) ORDER BY tenant, entity, name, seq LIMIT ?"
        )
        return [_claim_row(row) for row in self.rows(sql, (limit,))]

    def lock_head(self, tenant: str, entity: str, name: str) -> LockHead | None:
        found = self.rows(_LOCK, (tenant, entity, name))
        return LockHead(*found[0]) if found else None

    def waits_of(self, id: str) -> list[tuple[str, str, str, int]]:
        """Sensors its lanes wait for: (entity, kind, name, lane)."""
        sql = "SELECT entity, kind, name, lane FROM sensor_waits WHERE execution = ? ORDER BY entity, kind, name, lane"
        return [(entity, kind, name, lane) for entity, kind, name, lane in self.rows(sql, (to_key(id),))]

    def sensors(self, tenant: str, entity: str, limit: int = 1000) -> list[SensorChange]:
        """With their values, by kind and name."""
        sql = f"SELECT {_SENSORS} FROM sensors WHERE tenant = ? AND entity = ? ORDER BY kind, name LIMIT ?"
        return [_sensor(row) for row in self.rows(sql, (tenant, entity, limit))]

    def sensed(self, tenant: str, limit: int = 1000) -> list[str]:
        """Ids of entities with sensors or configuration, whether anybody made them or not."""
        sql = "SELECT DISTINCT entity FROM sensors WHERE tenant = ? ORDER BY entity LIMIT ?"
        return [entity for (entity,) in self.rows(sql, (tenant, limit))]

    def sensor(self, tenant: str, entity: str, kind: str, name: str) -> SensorChange | None:
        sql = f"SELECT {_SENSORS} FROM sensors WHERE tenant = ? AND entity = ? AND kind = ? AND name = ?"
        found = self.rows(sql, (tenant, entity, kind, name))
        return _sensor(found[0]) if found else None


def _claim_row(row: tuple[Any, ...]) -> ClaimRow:
    return ClaimRow(row[0], row[1], row[2], claim_of(row[3:8]), row[8])


def _sensor(row: tuple[Any, ...]) -> SensorChange:
    tenant, entity, kind, name, value, version, at, by = row
    return SensorChange(tenant, entity, kind, name, unpack(bytes(value)), version, at, by)
