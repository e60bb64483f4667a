"""Routes of what executions share: locks, sensors and configuration of entities."""

from __future__ import annotations

from holdfast.core.errors import (
    LockNotHeld,
    SensorTooLarge,
    StoreFull,
    StoreReadOnly,
    UnknownEntity,
    UnknownExecution,
    UnknownLock,
    UnknownSensor,
)
from holdfast.core.views_shared import LockView, SensorView
from holdfast.engine.sharing import sensor_view

from .auth import Role
from .bodies import Gone, LockList, LocksQuery, SensorBody
from .routes import API, Call, Nothing, Table

routes = Table("sharing")
_LOCK = f"{API}/locks/{{entity}}/{{name}}"
_ENTITY = f"{API}/entities/{{entity}}"
_SENSOR = f"{_ENTITY}/sensors/{{name}}"
_CONFIG = f"{_ENTITY}/config/{{name}}"
_WRITING = (StoreFull, StoreReadOnly)


# --- locks -----------------------------------------------------------------------------------------
@routes.add("GET", f"{API}/locks", role=Role.VIEWER, query=LocksQuery, answer=LockList)
def locks(call: Call[LocksQuery, None]) -> LockList:
    """Locks that are held, each with its holder and who waits for it, first come first; and entities that are held."""
    entity = call.query.entity
    return LockList(call.service.locks(call.actor, entity), call.service.entity_locks(call.actor, entity))


@routes.add("GET", _LOCK, role=Role.VIEWER, answer=LockView, refusals=(UnknownLock,))
def lock(call: Call[Nothing, None]) -> LockView:
    """One lock."""
    return call.service.lock(call.actor, call.path["entity"], call.path["name"])


@routes.add(
    "POST", f"{_LOCK}/release", role=Role.OPERATOR, answer=LockView,
    refusals=(UnknownLock, LockNotHeld, UnknownExecution, *_WRITING),
)  # fmt: skip
async def release(call: Call[Nothing, None]) -> LockView:
    """Take a lock from its holder, who goes on without it; its history says who did it."""
    entity, name = call.path["entity"], call.path["name"]
    held = await call.app.threaded(call.service.held, call.actor, entity, name)
    await call.app.waiting.commit(lambda reply: call.service.submit_release(call.actor, held, reply))
    view: LockView = await call.app.threaded(call.service.lock_now, call.actor, entity, name)
    return view


# --- sensors and configuration ---------------------------------------------------------------------
@routes.add("GET", _SENSOR, role=Role.VIEWER, answer=SensorView, refusals=(UnknownEntity, UnknownSensor))
def sensor(call: Call[Nothing, None]) -> SensorView:
    """One sensor. `lock-NAME` shows who holds the lock NAME."""
    return call.service.sensor(call.actor, call.path["entity"], call.path["name"])


@routes.add(
    "PUT", _SENSOR, role=Role.OPERATOR, body=SensorBody, answer=SensorView,
    refusals=(UnknownEntity, SensorTooLarge, *_WRITING),
)  # fmt: skip
async def set_sensor(call: Call[Nothing, SensorBody]) -> SensorView:
    """Set a sensor; whoever waits for it is woken."""
    return await _set(call, "sensor")


@routes.add(
    "DELETE", _SENSOR, role=Role.OPERATOR, answer=Gone, refusals=(UnknownEntity, UnknownSensor, *_WRITING)
)  # fmt: skip
async def clear_sensor(call: Call[Nothing, None]) -> Gone:
    """Clear a sensor; whoever waits for it is woken."""
    return await _clear(call, "sensor")


@routes.add("GET", _CONFIG, role=Role.VIEWER, answer=SensorView, refusals=(UnknownEntity, UnknownSensor))
def config(call: Call[Nothing, None]) -> SensorView:
    """One value of an entity's configuration."""
    return call.service.sensor(call.actor, call.path["entity"], call.path["name"], "config")


@routes.add(
    "PUT", _CONFIG, role=Role.OPERATOR, body=SensorBody, answer=SensorView,
    refusals=(UnknownEntity, SensorTooLarge, *_WRITING),
)  # fmt: skip
async def set_config(call: Call[Nothing, SensorBody]) -> SensorView:
    """Set a value of an entity's configuration."""
    return await _set(call, "config")


@routes.add(
    "DELETE", _CONFIG, role=Role.OPERATOR, answer=Gone, refusals=(UnknownEntity, UnknownSensor, *_WRITING)
)  # fmt: skip
async def clear_config(call: Call[Nothing, None]) -> Gone:
    """Clear a value of an entity's configuration."""
    return await _clear(call, "config")


async def _set(call: Call[Nothing, SensorBody], kind: str) -> SensorView:
    id, name, value = call.path["entity"], call.path["name"], call.body.value
    change = await call.app.waiting.commit(
        lambda reply: call.service.submit_sensor(call.actor, id, kind, name, value, reply)
    )
    return sensor_view(change)


async def _clear(call: Call[Nothing, None], kind: str) -> Gone:
    id, name = call.path["entity"], call.path["name"]
    await call.app.waiting.commit(
        lambda reply: call.service.submit_sensor(call.actor, id, kind, name, None, reply, is_gone=True)
    )
    return Gone()
