"""Verbs of the inventory: entities listed, shown, made, changed, deleted and imported. Part of `Service`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.codec import pack
from holdfast.core.errors import InvalidRequest
from holdfast.core.inventory import EntityChange, EntityRow, Imported, default_entity, difference
from holdfast.core.model import DEFAULT_ENTITY, Actor
from holdfast.core.reads import Key, Missing, RelatedKey
from holdfast.core.sensors import KINDS
from holdfast.core.sharing import is_name
from holdfast.core.views_shared import EditView, EntityView, ImportView, LockView, SensorView
from holdfast.inventory.differences import Outcome
from holdfast.language.selectors import compile_selector
from holdfast.store.port import Store
from holdfast.store.queries import Queries

from .editing import DropEntity, Edit, Edited, Editing, ImportEntity, LeaveStale, PatchEntity, PutEntity, unknown
from .entity_locks import flags_of, hold_view
from .items import DEPTH_LIMIT, Reply, committed, future_reply, is_deeper

if TYPE_CHECKING:
    from .engine import Engine

#: Entities of an import that one commit takes.
CHUNK = 500
#: Edits of an import that an answer shows.
SHOWN = 20
PAGE = 1000


class InventoryVerbs(ABC):
    store: Store

    @property
    @abstractmethod
    def engine(self) -> Engine: ...

    # --- looking --------------------------------------------------------------------------------------
    def entities(
        self, actor: Actor, *, where: str = "", type: str = "", after: str = "", limit: int = PAGE
    ) -> list[EntityView]:
        """By id, without who holds them; `after` is the last id of the page before. Without a selector or a type, the
        default entity is among them, and so are those that nobody made but a workflow has set a sensor on."""
        if where or type:
            return self._listed(actor.tenant, self._selected(actor.tenant, where, type, after, limit))
        with self.store.reading() as queries:
            rows = {row.id: row for row in queries.entities(actor.tenant, after, limit)}
            for id in queries.sensed(actor.tenant):
                if id > after:
                    rows.setdefault(id, EntityRow(id, version=0))
        if after < DEFAULT_ENTITY and (DEFAULT_ENTITY not in rows or not rows[DEFAULT_ENTITY].created_at):
            rows[DEFAULT_ENTITY] = msgspec.structs.replace(default_entity(), version=0)
        return self._listed(actor.tenant, [rows[id] for id in sorted(rows)[:limit]])

    def _listed(self, tenant: str, rows: list[EntityRow]) -> list[EntityView]:
        """With who left them in doubt: a list without it would call everything well."""
        with self.store.reading() as queries:
            flags = flags_of(queries, tenant, [row.id for row in rows])
        return [msgspec.structs.replace(_entity_view(row), flags=flags.get(row.id, [])) for row in rows]

    def _selected(self, tenant: str, where: str, type: str, after: str, limit: int) -> list[EntityRow]:
        wanted = compile_selector(where or "true")
        terms = (*wanted.terms, *([("type", type)] if type else []))
        found: list[EntityRow] = []
        with self.store.reading() as queries:
            while len(found) < limit:
                rows = queries.entities_where(tenant, terms, after, PAGE)
                found += [row for row in rows if wanted.test is None or wanted.test(row)]
                if len(rows) < PAGE:
                    break
                after = rows[-1].id
        return found[:limit]

    def entity(self, actor: Actor, id: str) -> EntityView:
        """Everything about it."""
        from .sharing import CLAIMS, lock_views, sensor_view

        tenant = actor.tenant
        with self.store.reading() as queries:
            row = queries.entity(tenant, id)
            sensors = queries.sensors(tenant, id)
            locks = lock_views(queries, tenant, queries.claims(tenant, id, limit=CLAIMS))
            if row is None:
                if id != DEFAULT_ENTITY and not sensors and not locks:
                    raise unknown(id)
                # Nobody made it, but a workflow has set something on it.
                row = default_entity() if id == DEFAULT_ENTITY else EntityRow(id)
                row = msgspec.structs.replace(row, version=0)
            views = {kind: [sensor_view(one) for one in sensors if one.kind == kind] for kind in KINDS}
            view = _entity_view(row, views["sensor"], views["config"], locks)
            claims = queries.entity_claims(tenant, id)
            return msgspec.structs.replace(
                view,
                parts=len(queries.shared(RelatedKey(tenant, "children", (id,)))),
                members=len(queries.shared(RelatedKey(tenant, "members", (id,)))),
                held=[hold_view(claim) for claim in claims if claim.fence],
                waiting=[hold_view(claim) for claim in claims if not claim.fence],
                past=[hold_view(claim) for claim in queries.entity_past(tenant, id)],
                flags=flags_of(queries, tenant, [id]).get(id, []),
            )

    # --- one at a time --------------------------------------------------------------------------------
    def put_entity(
        self,
        actor: Actor,
        id: str,
        *,
        type: str = "",
        name: str = "",
        labels: dict[str, str] | None = None,
        parent: str = "",
        groups: Sequence[str] = (),
        facts: dict[str, Any] | None = None,
        version: int | None = None,
    ) -> EntityView:
        """Make it, or replace what is known about it; its sensors stay."""
        row = EntityRow(
            id, type, name, labels or {}, parent=parent, groups=tuple(dict.fromkeys(groups)), facts=facts or {}
        )
        self._commit(lambda reply: self.submit_put(actor, row, version, reply))
        return self.entity(actor, id)

    def submit_put(self, actor: Actor, row: EntityRow, version: int | None, reply: Reply) -> None:
        check_entity(row.id, row.type, row.name, row.parent, row.groups, row.labels, row.facts)
        facts = {key: value for key, value in row.facts.items() if value is not None}
        self._edit(actor, [PutEntity(msgspec.structs.replace(row, facts=facts), version)], reply)

    def patch_entity(self, actor: Actor, change: EntityChange, *, version: int | None = None) -> EntityView:
        """Change parts of what is known; facts and labels are merged, those that are null go."""
        self._commit(lambda reply: self.submit_patch(actor, change, version, reply))
        return self.entity(actor, change.id)

    def submit_patch(self, actor: Actor, change: EntityChange, version: int | None, reply: Reply) -> None:
        labels = {key: value for key, value in change.labels.items() if value is not None}
        check_entity(
            change.id, change.type or "", change.name or "", change.parent or "", change.groups or (), labels,
            change.facts,
        )  # fmt: skip
        self._edit(actor, [PatchEntity(change, version)], reply)

    def delete_entity(self, actor: Actor, id: str, *, recursive: bool = False, version: int | None = None) -> list[str]:
        """Delete it, with its sensors; `recursive`: with all its parts. Answers with what is gone."""
        made = self._commit(lambda reply: self.submit_delete(actor, id, recursive, version, reply))
        return gone(made)

    def submit_delete(self, actor: Actor, id: str, recursive: bool, version: int | None, reply: Reply) -> None:
        sensors = self._sensors_below(actor.tenant, id, recursive)
        edits: list[Edit] = [DropEntity(id, version, recursive)]
        self.engine.edit_entities(actor.tenant, edits, reply, sensors=sensors)

    def _sensors_below(self, tenant: str, id: str, recursive: bool) -> dict[str, list[tuple[str, str]]]:
        """Names of what goes with it. A sensor that comes a moment later stays; it does no harm."""
        with self.store.reading() as queries:
            ids, level = [id], [id]
            while recursive and level and len(ids) < 100_000:
                level = [one.id for one in queries.shared(RelatedKey(tenant, "children", tuple(level)))]
                ids += level
            return {one: [(row.kind, row.name) for row in queries.sensors(tenant, one)] for one in ids}

    # --- many at a time -------------------------------------------------------------------------------
    def import_entities(
        self,
        actor: Actor,
        source: str,
        rows: Sequence[Imported],
        *,
        dry_run: bool = False,
        replace: bool = False,
    ) -> ImportView:
        """What another inventory says, in commits of some hundred entities. What somebody works upon is skipped."""
        made = self._import(actor, self.import_edits(source, rows, replace), dry_run)
        return import_view(source, made, {row.id: row.place for row in rows}, dry_run)

    def _import(self, actor: Actor, edits: list[Edit], dry_run: bool) -> list[Edited]:
        if dry_run:
            return self.foresee(actor, edits)
        return [each for chunk in chunks(edits) for each in self._commit(partial(self.submit_import, actor, chunk))]

    def import_edits(self, source: str, rows: Sequence[Imported], replace: bool) -> list[Edit]:
        check_source(source)
        for row in rows:
            check_entity(row.id, row.type, row.name or "", row.parent or "", row.groups or (), row.labels, row.facts)
        seen = set[str]()
        for row in rows:
            if row.id in seen:
                raise InvalidRequest(f"entity {row.id} occurs twice in the import")
            seen.add(row.id)
        return [ImportEntity(row, source, replace) for row in rows]

    def end_import(
        self, actor: Actor, source: str, present: Iterable[str], *, dry_run: bool = False, prune: bool = False
    ) -> ImportView:
        """Everything of that source which is not among `present` is stale from now on; `prune`: deleted if it is
        free."""
        made = self._import(actor, self.vanished(actor, source, present, prune), dry_run)
        return import_view(source, made, {}, dry_run)

    def vanished(self, actor: Actor, source: str, present: Iterable[str], prune: bool) -> list[Edit]:
        check_source(source)
        kept = set(present)
        with self.store.reading() as queries:
            rows = {row.id: row for row in queries.entities_from(actor.tenant, source) if row.external not in kept}
        # Parts before what they are parts of, members before their groups.
        order = sorted(rows.values(), key=lambda row: (row.type == "group", -_depth(row, rows), row.id))
        return [LeaveStale(row.id, source, prune) for row in order if prune or not row.is_stale]

    def submit_import(self, actor: Actor, chunk: Sequence[Edit], reply: Reply) -> None:
        self.engine.edit_entities(actor.tenant, list(chunk), reply, is_lenient=True)

    def foresee(self, actor: Actor, edits: Sequence[Edit]) -> list[Edited]:
        """What would become of these edits now. Nothing is written."""
        with self.store.reading() as queries:
            reads = _Foreseen(queries)
            while True:
                try:
                    return Editing(actor.tenant, reads, 0).all(list(edits), is_lenient=True)
                except Missing as missing:
                    reads.learn(missing.keys)

    def _edit(self, actor: Actor, edits: list[Edit], reply: Reply) -> None:
        self.engine.edit_entities(actor.tenant, edits, reply)

    def _commit(self, submit: Callable[[Reply], None]) -> Any:
        future, reply = future_reply()
        submit(reply)
        return committed(future)


class _Foreseen:
    """Rows as the store has them now, for deciding without a commit."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.rows: dict[Key, Any] = {}

    def learn(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.rows[key] = self.queries.shared(key)

    def _read(self, key: Key) -> Any:
        if key not in self.rows:
            raise Missing(key)
        return self.rows[key]

    entity = contention = related = _read


# --- checks that need no rows --------------------------------------------------------------------------------
def check_entity(
    id: str, type: str, name: str, parent: str, groups: Sequence[str], labels: dict[str, str], facts: dict[str, Any]
) -> None:
    check_id(id)
    for what, text in (("type", type), ("name", name)):
        if len(text) > 200 or (text and not text.isprintable()):
            raise InvalidRequest(f"the {what} of an entity has at most 200 printable characters")
    for other in (parent, *groups):
        if other:
            check_id(other)
    if "" in groups:
        raise InvalidRequest("a group has a name")
    for key, value in labels.items():
        if not is_name(key) or len(value) > 500:
            raise InvalidRequest(
                f"a label has a name of 1 to 200 printable characters and 500 for its value: {key[:40]!r}"
            )
    for key in facts:
        if not is_name(key):
            raise InvalidRequest(f"a fact has a name of 1 to 200 printable characters, not {key[:40]!r}")
    try:
        pack(facts)
    except (NotImplementedError, TypeError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"a fact of {id} cannot be stored: {error}") from error
    if is_deeper(facts, DEPTH_LIMIT):
        raise InvalidRequest(f"a fact of {id} is nested more than {DEPTH_LIMIT} levels deep")


def check_id(id: str) -> None:
    """Slashes are welcome: interfaces have them. In an address they are written %2F."""
    if not is_name(id) or id != id.strip() or any(char in "?#%\\" for char in id):
        raise InvalidRequest(
            f"an id of an entity has 1 to 200 printable characters, none of ? # % \\, and no space around: {id[:40]!r}"
        )


def check_source(source: str) -> None:
    if not is_name(source):
        raise InvalidRequest("a source has a name of 1 to 200 printable characters")


def chunks(edits: Sequence[Edit]) -> Iterable[tuple[Edit, ...]]:
    at = 0
    while at < len(edits):
        yield tuple(edits[at : at + CHUNK])
        at += CHUNK


def gone(made: Iterable[Edited]) -> list[str]:
    return [each.id for each in made if each.outcome is Outcome.DELETED]


def _depth(row: EntityRow, rows: dict[str, EntityRow]) -> int:
    depth = 0
    while row.parent in rows and depth < 64:
        row, depth = rows[row.parent], depth + 1
    return depth


# --- views ---------------------------------------------------------------------------------------------------
def _entity_view(
    row: EntityRow,
    sensors: list[SensorView] | None = None,
    config: list[SensorView] | None = None,
    locks: list[LockView] | None = None,
) -> EntityView:
    times = (row.created_at or None, row.updated_at or None)
    return EntityView(
        row.id, row.type, row.name, row.labels, *times, sensors or [], config or [], locks or [], row.parent,
        list(row.groups), row.facts, row.source, row.external, row.version, row.is_stale,
    )  # fmt: skip


def import_view(source: str, made: Sequence[Edited], places: dict[str, str], dry_run: bool) -> ImportView:
    counts = dict.fromkeys(Outcome, 0)
    for each in made:
        counts[each.outcome] += 1
    shown = [each for each in made if each.outcome is not Outcome.UNCHANGED]
    # What needs somebody's attention is never crowded out.
    shown.sort(key=lambda each: each.outcome not in (Outcome.REFUSED, Outcome.SKIPPED))
    first = [
        EditView(each.id, each.outcome, changes_of(each), each.why, places.get(each.id, "")) for each in shown[:SHOWN]
    ]
    return ImportView(
        source, dry_run, counts[Outcome.ADDED], counts[Outcome.CHANGED], counts[Outcome.UNCHANGED],
        counts[Outcome.STALE], counts[Outcome.DELETED], counts[Outcome.SKIPPED], counts[Outcome.REFUSED], first,
    )  # fmt: skip


def changes_of(edited: Edited) -> list[str]:
    """What is different, one line each."""
    before, after = edited.before, edited.after
    if before is None or after is None:
        return []
    change = difference(before, after)
    if change is None:
        return []
    lines = [
        f"{name}: {_shown(getattr(before, name))} → {_shown(getattr(after, name))}"
        for name in ("type", "name", "parent", "groups")
        if getattr(change, name) is not None
    ]
    for kind in ("labels", "facts"):
        old, new = getattr(before, kind), getattr(after, kind)
        for key in getattr(change, kind):
            lines.append(f"{kind}.{key}: {_shown(old.get(key))} → {_shown(new.get(key))}")
    if before.is_stale and not after.is_stale:
        lines.append("it is back")
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"
