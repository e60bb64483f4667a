"""Routes of the system itself: blocks, workers, queues, health, metrics, tokens, the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import BadArchive, StoreFull, UnknownToken
from holdfast.core.model import Actor
from holdfast.core.version import VERSION as __version__
from holdfast.core.views import PurgeView, RetentionView
from holdfast.engine import forgetting

from . import openapi
from .auth import ROLES, Role, new_token
from .bodies import (
    BlockList,
    Health,
    NewToken,
    PurgeBody,
    QueueList,
    Ready,
    TokenBody,
    TokenList,
    TokenView,
    Version,
    WorkerList,
    token_view,
)
from .metrics import exposition
from .routes import API, Call, Nothing, Reply, Table

routes = Table("system")
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@routes.add("GET", f"{API}/health", role=Role.PUBLIC, answer=Health)
def health(call: Call[Nothing, None]) -> Health:
    """Whether the engine works; details only for those with a token."""
    view = call.service.health()
    if call.caller is None:
        return Health(view.status)
    return msgspec.convert(view, Health, from_attributes=True)


@routes.add("GET", f"{API}/ready", role=Role.PUBLIC, answer=Ready, also={503: "Not now"})
def ready(call: Call[Nothing, None]) -> Reply:
    """Whether requests that write are accepted now."""
    engine = call.service.engine
    if not engine.is_alive:
        reason = (engine.trouble if call.caller is not None else "") or "the engine has stopped"
    elif trouble := engine.trouble:
        reason = trouble if call.caller is not None else "nothing can be committed to the store at present"
    elif engine.pending >= engine.max_pending:
        reason = "more is waiting than the engine will hold in memory"
    else:
        return Reply(Ready("ready"))
    return Reply(Ready("not ready", reason), 503)


@routes.add("GET", f"{API}/version", role=Role.VIEWER, answer=Version)
async def version(call: Call[Nothing, None]) -> Version:
    """The server's version, and who the token says you are."""
    assert call.caller is not None
    role = call.caller.role.name.lower()
    return Version(__version__, "v1", call.actor.name, role, call.actor.tenant)


@routes.add("GET", f"{API}/openapi.json", role=Role.VIEWER, answer=Any)
def document(call: Call[Nothing, None]) -> Reply:
    """This API as an OpenAPI 3.1 document."""
    return Reply(data=openapi.encoded(call.app.router))


@routes.add("GET", f"{API}/blocks", role=Role.VIEWER, answer=BlockList)
def blocks(call: Call[Nothing, None]) -> BlockList:
    """Blocks that workers have ever offered, and who offers them now."""
    return BlockList(call.service.blocks())


@routes.add("GET", f"{API}/workers", role=Role.VIEWER, answer=WorkerList)
def workers(call: Call[Nothing, None]) -> WorkerList:
    """Workers and how they are."""
    return WorkerList(call.service.workers())


@routes.add("GET", f"{API}/queues", role=Role.VIEWER, answer=QueueList)
def queues(call: Call[Nothing, None]) -> QueueList:
    """What waits for workers, by queue and block."""
    return QueueList(call.service.queues())


@routes.add("GET", f"{API}/metrics", role=Role.VIEWER, media=TEXT)
def metrics(call: Call[Nothing, None]) -> Reply:
    """Counters and gauges in Prometheus' text format."""
    return Reply(data=exposition(call.app, call.actor).encode(), media=TEXT)


# --- retention -------------------------------------------------------------------------------------
@routes.add("GET", f"{API}/retention", role=Role.VIEWER, answer=RetentionView)
def retention(call: Call[Nothing, None]) -> RetentionView:
    """Which ended executions are kept, by which rule, and what goes next."""
    return forgetting.groups(call.service, call.actor)


@routes.add(
    "POST", f"{API}/retention/purge", role=Role.OPERATOR, body=PurgeBody, answer=PurgeView,
    refusals=(BadArchive, StoreFull),
)  # fmt: skip
def apply_retention(call: Call[Nothing, PurgeBody]) -> PurgeView:
    """Purge now what retention allows to go, without waiting for the next round. Ask again while `is_more`."""
    return forgetting.apply(call.service, call.actor, dry_run=call.body.dry_run)


# --- tokens ----------------------------------------------------------------------------------------
@routes.add("GET", f"{API}/tokens", role=Role.ADMIN, answer=TokenList)
def tokens(call: Call[Nothing, None]) -> TokenList:
    """API tokens and browsers' sessions, without their secrets."""
    return TokenList([token_view(row) for row in call.app.auth.rows(call.actor)])


@routes.add(
    "POST", f"{API}/tokens", role=Role.ADMIN, body=TokenBody, answer=NewToken, status=201, refusals=(StoreFull,)
)
async def create_token(call: Call[Nothing, TokenBody]) -> Reply:
    """Make an API token. Its text is shown in this answer and never again."""
    body = call.body
    row, text = new_token(Actor(body.name, call.actor.tenant), ROLES[body.role], body.lifetime)
    await call.app.waiting.commit(lambda reply: call.service.engine.put_tokens([row], reply))
    view = msgspec.convert(token_view(row), NewToken, from_attributes=True)
    view.token = text
    return Reply(view, 201, {"location": f"{API}/tokens/{row.id}"})


@routes.add("DELETE", f"{API}/tokens/{{id}}", role=Role.ADMIN, answer=TokenView, refusals=(UnknownToken, StoreFull))
async def revoke_token(call: Call[Nothing, None]) -> TokenView:
    """Revoke an API token or end a browser's session."""
    row = await call.app.threaded(call.app.auth.row, call.actor, call.path["id"])
    row.is_revoked = True
    await call.app.waiting.commit(lambda reply: call.service.engine.put_tokens([row], reply))
    call.app.auth.forget(row.id)
    return token_view(row)
