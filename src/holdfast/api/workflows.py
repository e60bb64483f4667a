"""Routes of workflows: publish, list, look."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.core.errors import InvalidDefinition, InvalidRequest, MalformedRequest, StoreFull, UnknownWorkflow
from holdfast.core.views import WorkflowView
from holdfast.engine.items import Reply as Callback
from holdfast.language import canonical, compile_definition, load_workflow

from .auth import Role
from .bodies import PublishBody, PublishQuery, WorkflowList, WorkflowVersions
from .routes import API, JSON, YAML, Call, Nothing, Reply, Table

routes = Table("workflows")


@routes.add(
    "POST", f"{API}/workflows", role=Role.AUTHOR, body=PublishBody, query=PublishQuery, accepts=(JSON, YAML),
    answer=WorkflowView, status=201, also={200: "The newest version already is this definition"},
    refusals=(InvalidDefinition, StoreFull),
)  # fmt: skip
async def publish(call: Call[PublishQuery, PublishBody | None]) -> Reply:
    """Publish a definition as the next version of its workflow: JSON, or the YAML text itself."""
    names: list[str] = []

    def ask(reply: Callback) -> None:
        definition, name = _definition(call)
        names.append(name)
        data = canonical(definition)
        call.service.engine.publish(call.actor.tenant, name, data, call.actor.name, reply)

    version, is_new = await call.app.commit_from_thread(ask)
    view = await call.app.threaded(call.service.workflow, call.actor, names[0], version)
    headers = {"location": f"{API}/workflows/{quote(names[0], safe='')}/versions/{version}"}
    return Reply(msgspec.structs.replace(view, is_new=is_new), 201 if is_new else 200, headers)


def _definition(call: Call[PublishQuery, PublishBody | None]) -> tuple[dict[str, Any], str]:
    body = call.body
    if body is not None:
        definition, program = body.definition, compile_definition(body.definition)
        name = body.name or call.query.name or program.name
    else:
        try:
            text = call.raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"the body is not UTF-8 (byte {error.start})") from None
        definition, program, _ = load_workflow(text, "body")
        name = call.query.name or program.name
    if not name or len(name) > 200 or not name.isprintable() or any(c in "/:?#%\\ " for c in name):
        raise InvalidRequest("a published workflow needs a name without spaces or any of / : ? # % \\")
    return definition, name


@routes.add("GET", f"{API}/workflows", role=Role.VIEWER, answer=WorkflowList)
def listing(call: Call[Nothing, None]) -> WorkflowList:
    """The newest version of every published workflow."""
    return WorkflowList(call.service.workflows(call.actor))


@routes.add("GET", f"{API}/workflows/{{name}}", role=Role.VIEWER, answer=WorkflowVersions, refusals=(UnknownWorkflow,))
def show(call: Call[Nothing, None]) -> WorkflowVersions:
    """One workflow: its newest definition and all its versions."""
    name = call.path["name"]
    versions = call.service.workflows(call.actor, name)
    return WorkflowVersions(name, call.service.workflow(call.actor, name), versions)


@routes.add(
    "GET", f"{API}/workflows/{{name}}/versions/{{version}}", role=Role.VIEWER, answer=WorkflowView,
    refusals=(UnknownWorkflow,),
)  # fmt: skip
def version(call: Call[Nothing, None]) -> WorkflowView:
    """One version of a workflow with its definition."""
    text = call.path["version"]
    if not text.isascii() or not text.isdigit() or not 0 < len(text) < 10 or not int(text):
        raise UnknownWorkflow(f"{text[:40]!r} is not a version; versions are numbered from 1")
    return call.service.workflow(call.actor, call.path["name"], int(text))
