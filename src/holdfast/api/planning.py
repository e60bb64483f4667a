"""Routes of what is to come: what a start would do, and doing an execution again as a new one."""

from __future__ import annotations

from functools import partial

from holdfast.core.errors import (
    AmbiguousId,
    DuplicateExecution,
    InvalidDefinition,
    InvalidRequest,
    KeyReused,
    NothingToRetry,
    StoreFull,
    StoreReadOnly,
    UnknownEntity,
    UnknownExecution,
    UnknownWorkflow,
    UnsafeUnseen,
    WrongStatus,
)
from holdfast.core.ids import is_id
from holdfast.core.views import ExecutionView
from holdfast.core.views_plan import StartPlan
from holdfast.engine.engine import new_execution_id
from holdfast.engine.wishes import Existing
from holdfast.language import load_workflow
from holdfast.store.records import Header

from .auth import Role
from .bodies import RetryBody, StartBody, WaitQuery
from .executions import begun, key_of, upon
from .routes import API, Call, Nothing, Reply, Table

routes = Table("planning")


@routes.add(
    "POST", f"{API}/executions/plan", role=Role.VIEWER, body=StartBody, answer=StartPlan,
    refusals=(UnknownWorkflow, UnknownEntity, InvalidDefinition),
)  # fmt: skip
def plan(call: Call[Nothing, StartBody]) -> StartPlan:
    """What a start with the same body would do: blocks, entities, locks and who holds them, jobs, and the worst that
    can come of each step. Nothing is written; `key`, `id` and `labels` mean nothing here."""
    body = call.body
    if (body.definition is not None) + bool(body.source) + bool(body.workflow) != 1:
        raise InvalidRequest("give exactly one of workflow, definition and source")
    if not body.workflow:
        assert call.caller is not None
        call.caller.need(Role.AUTHOR, "an inline definition")
    definition = load_workflow(body.source, "source")[0] if body.source else body.definition
    entities, select = upon(body)
    return call.service.plan_start(
        call.actor, workflow=body.workflow, definition=definition, input=body.input, entity=body.entity,
        entities=entities, select=select, gates=body.gates, priority=body.priority,
    )  # fmt: skip


@routes.add(
    "POST", f"{API}/executions/{{id}}/retry", role=Role.OPERATOR, query=WaitQuery, body=RetryBody,
    answer=ExecutionView, status=201, also={200: "The execution that the same key started before"},
    refusals=(UnknownExecution, AmbiguousId, WrongStatus, UnsafeUnseen, NothingToRetry, KeyReused, DuplicateExecution,
              StoreFull, StoreReadOnly),
)  # fmt: skip
async def retry(call: Call[WaitQuery, RetryBody]) -> Reply:
    """Start another execution with the definition and the input of one that has ended; with `failed`, upon those of its
    entities that it did not bring to their end. `wait` holds the answer back until the new one has ended."""
    body = call.body
    key = key_of(call, body.key)
    if body.id and not is_id(body.id):
        raise InvalidRequest("an execution id is 32 hexadecimal digits")
    if body.force:
        assert call.caller is not None
        call.caller.need(Role.ADMIN, "force")
    new_id = body.id or new_execution_id()
    ask = partial(
        call.service.submit_retry, call.actor, call.path["id"], failed=body.failed, force=body.force,
        input=body.input, key=key, new_id=new_id,
    )  # fmt: skip

    async def submit() -> Header | Existing:
        answer: Header | Existing = await call.app.commit_from_thread(lambda reply: ask(reply=reply))
        return answer

    return await begun(call, new_id, submit)
