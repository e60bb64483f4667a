"""A sensor set or cleared by somebody who is no execution: an item of a batch like any other.

What it changes is what a workflow's own step would change, wake-ups included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UnknownEntity, UnknownSensor
from holdfast.core.reads import EntityKey, SensorKey
from holdfast.core.rows import Rows, SensorChange, wake_sensor
from holdfast.core.sensors import SensorRow

if TYPE_CHECKING:
    from .items import Reply
    from .reads import TurnReads


class PutSensor:
    """`is_gone`: clear it. Answers with what is there then, or None."""

    __slots__ = ("by", "is_gone", "key", "reply", "value")
    size = 0

    def __init__(self, key: SensorKey, value: Any, by: str, reply: Reply, *, is_gone: bool = False) -> None:
        self.key = key
        self.value = value
        self.by = by
        self.reply = reply
        self.is_gone = is_gone

    def decide(self, reads: TurnReads, rows: Rows, now: int) -> SensorChange | None:
        """Raises `Missing` for what has not been read."""
        key = self.key
        if reads.entity(EntityKey(key.tenant, key.entity)) is None:
            raise UnknownEntity(f"no entity {key.entity!r}; `holdfast entity set {key.entity}` makes one")
        before = reads.sensor(key)
        place = (key.tenant, key.entity, key.kind, key.name)
        if self.is_gone:
            if before is None:
                raise UnknownSensor(f"entity {key.entity} has no {key.kind} {key.name}")
            change = None
            reads.put_sensor(key, None)
        else:
            change = SensorChange(*place, self.value, before.version + 1 if before else 1, now, self.by)
            reads.put_sensor(key, SensorRow(change.value, change.version, now))
        rows.sensors[place] = change
        wake_sensor(reads.waiters(key), now, rows)
        return change
