"""Routes of the inventory: entities listed, made, changed, deleted and imported."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.core.errors import (
    BadInventory,
    BadRelation,
    BadSelector,
    EntityHeld,
    EntityMoved,
    EntityNeeded,
    EntityTooLarge,
    InvalidRequest,
    StoreFull,
    StoreReadOnly,
    UnknownEntity,
)
from holdfast.core.inventory import EntityChange, EntityRow, Imported
from holdfast.core.views_shared import EntityView, ImportView
from holdfast.engine.editing import Edit, Edited
from holdfast.engine.inventory import chunks, gone, import_view
from holdfast.inventory import read

from .auth import Role
from .bodies import (
    DeletedList,
    DeleteQuery,
    EntitiesQuery,
    EntityBody,
    EntityList,
    EntityPatch,
    ImportBody,
)
from .routes import API, Call, Nothing, Table

routes = Table("entities")
_ENTITY = f"{API}/entities/{{entity}}"
_WRITING = (StoreFull, StoreReadOnly)
_EDITING = (EntityMoved, BadRelation, EntityHeld, EntityTooLarge, *_WRITING)


@routes.add(
    "GET", f"{API}/entities", role=Role.VIEWER, query=EntitiesQuery, answer=EntityList, refusals=(BadSelector,)
)  # fmt: skip
def entities(call: Call[EntitiesQuery, None]) -> EntityList:
    """Entities by id, without their sensors; `where` selects some. Without it the default entity is always there."""
    query = call.query
    found = call.service.entities(
        call.actor, where=query.where, type=query.type, after=query.after, limit=query.limit
    )  # fmt: skip
    return EntityList(found, found[-1].id if len(found) == query.limit else None)


@routes.add("GET", _ENTITY, role=Role.VIEWER, answer=EntityView, refusals=(UnknownEntity,))
def entity(call: Call[Nothing, None]) -> EntityView:
    """One entity with its sensors, its configuration, its locks, and who worked on it."""
    return call.service.entity(call.actor, call.path["entity"])


@routes.add("PUT", _ENTITY, role=Role.OPERATOR, body=EntityBody, answer=EntityView, refusals=_EDITING)
async def put_entity(call: Call[Nothing, EntityBody]) -> EntityView:
    """Make an entity, or replace all that is known about it. Its sensors stay."""
    id, body = call.path["entity"], call.body
    row = EntityRow(
        id, body.type, body.name, body.labels, parent=body.parent, groups=tuple(dict.fromkeys(body.groups)),
        facts=body.facts,
    )  # fmt: skip
    version = _version(call, body.version)
    await call.app.waiting.commit(lambda reply: call.service.submit_put(call.actor, row, version, reply))
    return await _shown(call, id)


@routes.add(
    "PATCH", _ENTITY, role=Role.OPERATOR, body=EntityPatch, answer=EntityView, refusals=(UnknownEntity, *_EDITING)
)  # fmt: skip
async def patch_entity(call: Call[Nothing, EntityPatch]) -> EntityView:
    """Change parts of what is known about an entity; facts and labels are merged key by key."""
    id, body = call.path["entity"], call.body
    groups = None if body.groups is None else tuple(dict.fromkeys(body.groups))
    change = EntityChange(id, "patch", body.type, body.name, body.parent, groups, body.labels, body.facts)
    version = _version(call, body.version)
    await call.app.waiting.commit(lambda reply: call.service.submit_patch(call.actor, change, version, reply))
    return await _shown(call, id)


@routes.add(
    "DELETE", _ENTITY, role=Role.OPERATOR, query=DeleteQuery, answer=DeletedList,
    refusals=(UnknownEntity, EntityMoved, EntityNeeded, EntityHeld, *_WRITING),
)  # fmt: skip
async def delete_entity(call: Call[DeleteQuery, None]) -> DeletedList:
    """Delete an entity with its sensors. Refused while an execution holds or awaits it, or it has parts."""
    id, query = call.path["entity"], call.query
    version = _version(call, query.version)
    made = await call.app.waiting.commit(
        lambda reply: call.service.submit_delete(call.actor, id, query.recursive, version, reply)
    )
    return DeletedList(gone(made))


@routes.add(
    "POST", f"{API}/entities/import", role=Role.OPERATOR, body=ImportBody, answer=ImportView,
    refusals=(BadInventory, *_WRITING), limit=32 * 1024 * 1024,
)  # fmt: skip
async def import_entities(call: Call[Nothing, ImportBody]) -> ImportView:
    """Take over what another inventory says, as a text or as rows. What somebody works upon is skipped, and what the
    source does not have any more becomes stale. With `dry_run` nothing is written."""
    body, service = call.body, call.service
    if bool(body.text) + bool(body.rows) > 1:
        raise InvalidRequest("an import has either `text` or `rows`")
    if not body.text and not body.rows and body.present is None:
        raise InvalidRequest("there is nothing to import: give `text` or `rows`")
    rows = [
        Imported(
            row.id, row.type, row.name, row.parent, None if row.groups is None else tuple(row.groups), row.labels,
            row.facts, row.place,
        )
        for row in body.rows
    ]  # fmt: skip
    warnings: list[str] = []
    if body.text:
        said = await call.app.threaded(_read, body)
        rows, warnings = said.entities, [f"{each.file}: {each.message}" for each in said.warnings]
    made = await _edit(call, service.import_edits(body.source, rows, body.replace))
    if not body.partial:
        present = [row.id for row in rows] if body.present is None else body.present
        left = await call.app.threaded(service.vanished, call.actor, body.source, present, body.prune)
        made += await _edit(call, left)
    view = import_view(body.source, made, {row.id: row.place for row in rows}, body.dry_run)
    view.warnings.extend(warnings)
    return view


def _read(body: ImportBody) -> Any:
    names = {"csv": "inventory.csv", "ansible": "inventory.yml", "nornir": "hosts.yaml"}
    name = names.get(body.format, "inventory")
    return read({name: body.text}, body.format, type=body.type, typed=body.typed)


async def _edit(call: Call[Nothing, ImportBody], edits: list[Edit]) -> list[Edited]:
    made: list[Edited] = []
    if call.body.dry_run:
        made = await call.app.threaded(call.service.foresee, call.actor, edits)
        return made
    for chunk in chunks(edits):
        made += await call.app.waiting.commit(partial(call.service.submit_import, call.actor, chunk))
    return made


async def _shown(call: Call[Any, Any], id: str) -> EntityView:
    view: EntityView = await call.app.threaded(call.service.entity, call.actor, id)
    return view


def _version(call: Call[Any, Any], said: int | None) -> int | None:
    """From the body or the address, or from the header If-Match."""
    header = call.header(b"if-match").strip()
    if not header:
        return said
    text = header.removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidRequest('the header If-Match holds the version of the entity, e.g. "3"')
    if said is not None and said != int(text):
        raise InvalidRequest("the header If-Match and `version` differ")
    return int(text)
