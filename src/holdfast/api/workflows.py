"""Routes of workflows: publish, list, look."""

from __future__ import annotations

from urllib.parse import quote

from holdfast.core.errors import InvalidDefinition, InvalidRequest, StoreFull, UnknownWorkflow
from holdfast.core.views import WorkflowView
from holdfast.engine.items import Reply as Callback
from holdfast.language import Definition, Text, canonical, decode, define_all, load_workflows
from holdfast.language.load import load_data

from .auth import Role
from .bodies import PublishBody, PublishedView, PublishQuery, WorkflowList, WorkflowVersions
from .routes import API, JSON, YAML, Call, Nothing, Reply, Table

routes = Table("workflows")
_RESERVED = frozenset("/:?#%\\ ")


@routes.add(
    "POST", f"{API}/workflows", role=Role.AUTHOR, body=PublishBody, query=PublishQuery, accepts=(JSON, YAML),
    answer=PublishedView, status=201, also={200: "The newest versions already are these definitions"},
    refusals=(InvalidDefinition, StoreFull),
)  # fmt: skip
async def publish(call: Call[PublishQuery, PublishBody | None]) -> Reply:
    """Publish definitions as the next versions of their workflows: JSON, or the text of a YAML file.

    A text may hold several documents, and JSON several `definitions`; all are checked, and published in one
    commit."""
    names: list[str] = []

    def ask(reply: Callback) -> None:
        found = _named(call)
        names.extend(name for name, _ in found)
        data = [(name, canonical(definition.data)) for name, definition in found]
        call.service.engine.publish_all(call.actor.tenant, data, call.actor.name, reply)

    answers = await call.app.commit_from_thread(ask)
    views = await call.app.threaded(call.service.just_published, call.actor, names, answers)
    *also, last = views
    headers = {"location": f"{API}/workflows/{quote(last.name, safe='')}/versions/{last.version}"}
    view = PublishedView(**{name: getattr(last, name) for name in WorkflowView.__struct_fields__}, also=also)
    return Reply(view, 201 if any(each.is_new for each in views) else 200, headers)


def _named(call: Call[PublishQuery, PublishBody | None]) -> list[tuple[str, Definition]]:
    """What is to be published, checked, each with its name."""
    body, name = call.body, call.query.name
    if body is not None:
        name = body.name or name
    if body is None:
        file = call.query.file or "body"
        found = load_workflows([Text(decode(call.raw, file), file)])
    elif (body.definition is not None) == bool(body.definitions):
        raise InvalidRequest("give either definition or definitions")
    elif body.definition is not None:
        found = define_all([body.definition], call.query.file)
    else:
        found = define_all(
            [load_data(each, f"definitions[{at}]") for at, each in enumerate(body.definitions)], call.query.file
        )
    if name and len(found) > 1:
        raise InvalidRequest(f"a name goes with one workflow, and there are {len(found)}")
    names = [name or each.program.name for each in found]
    for each, definition in zip(names, found, strict=True):
        # A package is a part of the name where the definition itself says so.
        parts = each.split("/") if each == definition.name else [each]
        if len(each) > 200 or not each.isprintable() or any(not part or set(part) & _RESERVED for part in parts):
            raise InvalidRequest("a published workflow needs a name without spaces or any of / : ? # % \\")
    return list(zip(names, found, strict=True))


@routes.add("GET", f"{API}/workflows", role=Role.VIEWER, answer=WorkflowList)
def listing(call: Call[Nothing, None]) -> WorkflowList:
    """The newest version of every published workflow."""
    return WorkflowList(call.service.workflows(call.actor))


@routes.add("GET", f"{API}/workflows/{{name}}", role=Role.VIEWER, answer=WorkflowVersions, refusals=(UnknownWorkflow,))
def show(call: Call[Nothing, None]) -> WorkflowVersions:
    """One workflow: its newest definition, how it is called (`parameters`, `shorthand`), and all its versions."""
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
