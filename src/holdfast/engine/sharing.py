"""Verbs of what executions share: locks, entities, their sensors and configuration. Part of `Service`."""

from __future__ import annotations

from typing import Any

from holdfast.core.codec import pack
from holdfast.core.errors import InvalidRequest, SensorTooLarge, UnknownEntity, UnknownLock, UnknownSensor
from holdfast.core.locks import LockRow
from holdfast.core.model import DEFAULT_ENTITY, Actor
from holdfast.core.reads import LockKey, SensorKey
from holdfast.core.requests import FreeLock
from holdfast.core.rows import ClaimRow, SensorChange
from holdfast.core.sensors import VALUE_LIMIT
from holdfast.core.sharing import LOCK_SENSOR, is_name
from holdfast.core.state import State
from holdfast.core.views_shared import ClaimView, LockView, SensorView
from holdfast.store.queries import Queries

from .entity_locks import EntityLockVerbs
from .items import DEPTH_LIMIT, Reply, committed, future_reply, is_deeper

#: Claims that one answer lists; of a lock asked for by name its whole queue, up to this.
CLAIMS = 2000


class SharedVerbs(EntityLockVerbs):
    # --- locks --------------------------------------------------------------------------------------
    def locks(self, actor: Actor, entity: str = "") -> list[LockView]:
        """Locks that are held, by entity and name, each with who waits for it."""
        with self.store.reading() as queries:
            return lock_views(queries, actor.tenant, queries.claims(actor.tenant, entity, limit=CLAIMS))

    def lock(self, actor: Actor, entity: str, name: str) -> LockView:
        view = self.lock_now(actor, entity, name)
        if view.holder is None and not view.waiters:
            raise _not_held(entity, name)
        return view

    def release_lock(self, actor: Actor, entity: str, name: str) -> LockView:
        """Take a lock from its holder, who goes on without it. Whoever waits longest has it then."""
        future, reply = future_reply()
        self.submit_release(actor, self.held(actor, entity, name), reply)
        committed(future)
        return self.lock_now(actor, entity, name)

    def held(self, actor: Actor, entity: str, name: str) -> LockView:
        """The lock, which has a holder."""
        view = self.lock_now(actor, entity, name)
        if view.holder is None:
            raise _not_held(entity, name)
        return view

    def submit_release(self, actor: Actor, lock: LockView, reply: Reply) -> None:
        assert lock.holder is not None
        self.engine.ask(lock.holder.execution, FreeLock(lock.entity, lock.name, lock.holder.seq, actor.name), reply)

    def lock_now(self, actor: Actor, entity: str, name: str) -> LockView:
        """The lock, also if nobody wants it."""
        with self.store.reading() as queries:
            views = lock_views(queries, actor.tenant, queries.claims(actor.tenant, entity, name, limit=CLAIMS))
            if views:
                return views[0]
            head = queries.lock_head(actor.tenant, entity, name)
        return LockView(entity, name, head.fence if head else 0, None, [], 0)

    # --- sensors ------------------------------------------------------------------------------------
    def sensor(self, actor: Actor, entity: str, name: str, kind: str = "sensor") -> SensorView:
        with self.store.reading() as queries:
            if kind == "sensor" and name.startswith(LOCK_SENSOR):
                return _lock_sensor(queries, actor.tenant, entity, name)
            row = queries.sensor(actor.tenant, entity, kind, name)
            if row is not None:
                return sensor_view(row)
            if entity != DEFAULT_ENTITY and queries.entity(actor.tenant, entity) is None:
                raise _unknown(entity)
        raise UnknownSensor(f"entity {entity} has no {kind} {name}")

    def set_sensor(self, actor: Actor, entity: str, name: str, value: Any, kind: str = "sensor") -> SensorView:
        future, reply = future_reply()
        self.submit_sensor(actor, entity, kind, name, value, reply)
        return sensor_view(committed(future))

    def clear_sensor(self, actor: Actor, entity: str, name: str, kind: str = "sensor") -> None:
        future, reply = future_reply()
        self.submit_sensor(actor, entity, kind, name, None, reply, is_gone=True)
        committed(future)

    def submit_sensor(
        self, actor: Actor, entity: str, kind: str, name: str, value: Any, reply: Reply, *, is_gone: bool = False
    ) -> None:
        key = _sensor_key(actor, entity, kind, name)
        if not is_gone:
            check_value(kind, name, value)
        self.engine.put_sensor(key, value, actor.name, reply, is_gone=is_gone)


def lock_rows(queries: Queries, state: State) -> dict[tuple[str, str], LockRow]:
    """The locks an execution waits for, with their queues; for `why`."""
    keys = {(hold.entity, hold.name) for hold in state.locks.values() if not hold.fence}
    return {key: queries.shared(LockKey(state.tenant, *key, window=CLAIMS)) for key in sorted(keys)}


def check_value(kind: str, name: str, value: Any) -> None:
    try:
        size = len(pack(value))
    except (NotImplementedError, TypeError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"the value of {kind} {name} cannot be stored: {error}") from error
    if is_deeper(value, DEPTH_LIMIT):
        raise InvalidRequest(f"the value of {kind} {name} is nested more than {DEPTH_LIMIT} levels deep")
    if size > VALUE_LIMIT:
        raise SensorTooLarge(f"{kind} {name}: {size:,} bytes are over the limit of {VALUE_LIMIT:,}")


def _named(what: str, text: str) -> None:
    if not is_name(text) or any(c in "/?#%\\" for c in text):
        raise InvalidRequest(f"a name of a {what} has 1 to 200 printable characters and none of / ? # % \\")


def _sensor_key(actor: Actor, entity: str, kind: str, name: str) -> SensorKey:
    _named(kind, name)
    if kind == "sensor" and name.startswith(LOCK_SENSOR):
        lock = name.removeprefix(LOCK_SENSOR)
        way = f"holdfast locks release {lock} --entity {entity}"
        raise InvalidRequest(f"sensor {name} shows who holds lock {lock}; `{way}` takes it away")
    return SensorKey(actor.tenant, entity, kind, name)


def _not_held(entity: str, name: str) -> UnknownLock:
    return UnknownLock(f"nobody holds lock {name!r} of {entity}; `holdfast locks` lists those that are held")


def _unknown(id: str) -> UnknownEntity:
    return UnknownEntity(f"no entity {id!r}; `holdfast entity list` lists them, `holdfast entity set {id}` makes one")


def _lock_sensor(queries: Queries, tenant: str, entity: str, name: str) -> SensorView:
    """The lock seen as a sensor: its value is the holder's id, its version the fence."""
    row: LockRow = queries.shared(LockKey(tenant, entity, name.removeprefix(LOCK_SENSOR)))
    if row.holder is None:
        raise UnknownSensor(f"entity {entity} has no sensor {name}: nobody holds that lock")
    holder = row.holder
    return SensorView(entity, "sensor", name, holder.execution, row.fence, holder.since, holder.execution)


def lock_views(queries: Queries, tenant: str, claims: list[ClaimRow]) -> list[LockView]:
    by_lock: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in claims:
        by_lock.setdefault((row.entity, row.name), []).append(row)
    views = []
    for (entity, name), rows in by_lock.items():
        head = queries.lock_head(tenant, entity, name)
        holder = next((_claim_view(row) for row in rows if row.fence), None)
        waiters = [_claim_view(row) for row in rows if not row.fence]
        views.append(LockView(entity, name, head.fence if head else 0, holder, waiters, len(waiters)))
    return views


def _claim_view(row: ClaimRow) -> ClaimView:
    return ClaimView(row.claim.execution, row.claim.lane, row.claim.since, row.claim.seq)


def sensor_view(row: SensorChange) -> SensorView:
    return SensorView(row.entity, row.kind, row.name, row.value, row.version, row.at, row.by)
