"""Routes of what executions leave behind: the ledger, rollback, fail, ack."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.core.errors import (
    AmbiguousId,
    NoteMissing,
    NothingToUndo,
    StoreFull,
    StoreReadOnly,
    UnknownExecution,
    WrongStatus,
)
from holdfast.core.requests import AckExecution, GiveUp, RollBack
from holdfast.core.views import ExecutionView, LedgerView
from holdfast.engine.verdicts import acking, giving_up, rolling_back

from .auth import Role
from .bodies import AckBody, DecisionBody, WaitQuery
from .executions import until_ended
from .routes import API, Call, Nothing, Reply, Table

routes = Table("verdicts")
_ONE = f"{API}/executions/{{id}}"
_UNKNOWN = (UnknownExecution, AmbiguousId)
_WRITING = (WrongStatus, StoreFull, StoreReadOnly)


@routes.add("GET", f"{_ONE}/ledger", role=Role.VIEWER, answer=LedgerView, refusals=_UNKNOWN)
def ledger(call: Call[Nothing, None]) -> LedgerView:
    """What its jobs changed outside, what became of each change, and what is left of them."""
    return call.service.ledger(call.actor, call.path["id"])


@routes.add(
    "POST", f"{_ONE}/ack", role=Role.OPERATOR, body=AckBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, NoteMissing, *_WRITING),
)  # fmt: skip
async def ack(call: Call[Nothing, AckBody]) -> Reply:
    """Acknowledge how an execution ended; where something is left, with a note. Its entities are in doubt no longer."""
    return await _say(call, acking(call.actor, call.body.note))


@routes.add(
    "POST", f"{_ONE}/rollback", role=Role.OPERATOR, query=WaitQuery, body=DecisionBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, NothingToUndo, *_WRITING),
)  # fmt: skip
async def rollback(call: Call[WaitQuery, DecisionBody]) -> Reply:
    """Undo what an execution did that waits in ERROR for a decision; `wait` holds the answer back until then."""
    return await _say(call, rolling_back(call.actor, call.body.reason), call.query.wait)


@routes.add(
    "POST", f"{_ONE}/fail", role=Role.OPERATOR, body=DecisionBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, *_WRITING),
)  # fmt: skip
async def fail(call: Call[Nothing, DecisionBody]) -> Reply:
    """End an execution as it is that waits in ERROR for a decision."""
    return await _say(call, giving_up(call.actor, call.body.reason))


async def _say(call: Call[Any, Any], request: AckExecution | RollBack | GiveUp, wait: float | None = None) -> Reply:
    engine = call.service.engine
    id = await call.app.threaded(_id, call)
    # Listened to before it begins: no end can be missed.
    with call.app.waiting.listen(engine, id, for_end=True) as listener:
        answer = await call.app.waiting.commit(partial(engine.ask, id, request))
        if wait and answer is not None and not answer.status.is_ended:
            await until_ended(call, listener, id, answer.run)
    return Reply(await call.app.threaded(call.service.show, call.actor, id))


def _id(call: Call[Any, Any]) -> str:
    return call.id
