"""Routes of entity locks: who holds which entity, who waits for whom, and taking one away."""

from __future__ import annotations

from holdfast.core.errors import EntityNotHeld, LockNotHeld, StoreFull, StoreReadOnly, UnknownEntity, UnknownExecution
from holdfast.core.views_shared import EntityHoldView, EntityLockView, GraphView

from .auth import Role
from .bodies import FreeQuery
from .routes import API, Call, Nothing, Table

routes = Table("sharing")
_ENTITY = f"{API}/locks/entities/{{entity}}"


@routes.add("GET", f"{API}/locks/graph", role=Role.VIEWER, answer=GraphView)
def graph(call: Call[Nothing, None]) -> GraphView:
    """Which executions wait for which, over named locks and entities, and the circles among them."""
    return call.service.lock_graph(call.actor)


@routes.add("GET", _ENTITY, role=Role.VIEWER, answer=EntityLockView, refusals=(UnknownEntity,))
def entity_lock(call: Call[Nothing, None]) -> EntityLockView:
    """Who holds an entity, and who waits for it."""
    return call.service.entity_lock(call.actor, call.path["entity"])


@routes.add(
    "POST", f"{_ENTITY}/release", role=Role.OPERATOR, query=FreeQuery, answer=EntityLockView,
    refusals=(UnknownEntity, EntityNotHeld, LockNotHeld, UnknownExecution, StoreFull, StoreReadOnly),
)  # fmt: skip
async def free(call: Call[FreeQuery, None]) -> EntityLockView:
    """Take an entity from the executions that hold it, or from one of them. They fail: what they do there does not
    count any more. Their histories say who did it."""
    entity = call.path["entity"]
    holders = await call.app.threaded(call.service.entity_holders, call.actor, entity, call.query.execution)
    for holder in holders:
        await _free(call, entity, holder)
    view: EntityLockView = await call.app.threaded(call.service.entity_lock, call.actor, entity)
    return view


async def _free(call: Call[FreeQuery, None], entity: str, holder: EntityHoldView) -> None:
    await call.app.waiting.commit(lambda reply: call.service.submit_free(call.actor, entity, holder, reply))
