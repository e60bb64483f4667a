"""Entities made, changed and deleted by somebody who is no execution: an item of a batch like any other.

Every check is made in the commit, on rows as they are there: what an edit refers to exists, and nobody works upon what
it changes. An edit of one entity is refused as a whole; an import does what it can and says what it skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.core import events as e
from holdfast.core.entity_locks import EntityClaim, S, X
from holdfast.core.errors import (
    BadRelation,
    EntityHeld,
    EntityMoved,
    EntityNeeded,
    EntityTooLarge,
    InvalidRequest,
    Refused,
    UnknownEntity,
)
from holdfast.core.inventory import GROUP, EntityChange, EntityRow, Found, Imported, applied, excess, is_alike
from holdfast.core.model import DEFAULT_ENTITY
from holdfast.core.reads import ContentionKey, EntityKey, Key, Missing, RelatedKey, SensorKey
from holdfast.core.rows import Rows, wake_sensor
from holdfast.inventory.differences import Outcome, upserted

if TYPE_CHECKING:
    from .items import Reply
    from .reads import TurnReads

#: Levels of parts within parts.
DEPTH = 16


class PutEntity(msgspec.Struct, frozen=True):
    """Make it, or replace everything that is known about it. Its sensors stay."""

    row: EntityRow
    #: which it has to have; 0: it must not exist yet; nothing: whichever
    version: int | None = None

    @property
    def id(self) -> str:
        return self.row.id


class PatchEntity(msgspec.Struct, frozen=True):
    change: EntityChange
    version: int | None = None

    @property
    def id(self) -> str:
        return self.change.id


class DropEntity(msgspec.Struct, frozen=True):
    """Delete it, `with_parts` together with all that is part of it; members of a group only leave it."""

    id: str
    version: int | None = None
    with_parts: bool = False


class ImportEntity(msgspec.Struct, frozen=True):
    said: Imported
    source: str
    replaces: bool = False

    @property
    def id(self) -> str:
        return self.said.id


class LeaveStale(msgspec.Struct, frozen=True):
    """The source does not have it any more. `is_pruned`: delete it."""

    id: str
    source: str
    is_pruned: bool = False


Edit: TypeAlias = PutEntity | PatchEntity | DropEntity | ImportEntity | LeaveStale


class Edited(msgspec.Struct, frozen=True):
    """What became of an edit."""

    id: str
    outcome: Outcome
    before: EntityRow | None = None
    after: EntityRow | None = None
    why: str = ""


class EditEntities:
    """All of them, or none; `is_lenient`: those that can be done. Answers with one `Edited` each, and one for every
    part that goes with a whole."""

    __slots__ = ("edits", "is_lenient", "reply", "sensors", "tenant")
    size = 0

    def __init__(
        self,
        tenant: str,
        edits: list[Edit],
        reply: Reply,
        *,
        is_lenient: bool = False,
        sensors: Mapping[str, Iterable[tuple[str, str]]] | None = None,
    ) -> None:
        self.tenant = tenant
        self.edits = edits
        self.reply = reply
        self.is_lenient = is_lenient
        #: (kind, name) of what goes with each that is deleted
        self.sensors = sensors or {}

    def decide(self, reads: TurnReads, rows: Rows, now: int) -> list[Edited]:
        """Raises `Missing` for what has not been read."""
        editing = Editing(self.tenant, reads, now)
        made = editing.all(self.edits, is_lenient=self.is_lenient)
        gone = [each.id for each in made if each.outcome is Outcome.DELETED]
        waiting = {key: reads.waiters(key) for key in self._sensors_of(gone, reads)}
        # Nothing is written before everything is known.
        for id in editing.changed:
            rows.entities[self.tenant, id] = editing.rows[id]
        for key, waiters in waiting.items():
            rows.sensors[key.tenant, key.entity, key.kind, key.name] = None
            reads.put_sensor(key, None)
            wake_sensor(waiters, now, rows)
        return made

    def _sensors_of(self, gone: list[str], reads: TurnReads) -> list[SensorKey]:
        wanted = [SensorKey(self.tenant, id, kind, name) for id in gone for kind, name in self.sensors.get(id, ())]
        _all(reads.sensor, wanted)
        return [key for key in wanted if reads.sensor(key) is not None]


class Editing:
    """Edits one after the other, each on what the ones before it left."""

    def __init__(self, tenant: str, reads: Any, now: int) -> None:
        self.tenant = tenant
        self.reads = reads
        self.now = now
        self.rows: dict[str, EntityRow | None] = {}
        self.changed: dict[str, None] = {}
        self.claims: dict[str, list[EntityClaim]] = {}
        self.children: dict[str, list[Found]] = {}
        self.members: dict[str, list[Found]] = {}

    def all(self, edits: list[Edit], *, is_lenient: bool) -> list[Edited]:
        self._read(edits)
        made: list[Edited] = []
        for edit in edits:
            before = self.rows[edit.id]
            try:
                made += self._one(edit, before)
            except Refused as refused:
                if not is_lenient:
                    raise
                kind = Outcome.SKIPPED if isinstance(refused, (EntityHeld, EntityNeeded)) else Outcome.REFUSED
                made.append(Edited(edit.id, kind, before, before, refused.message))
        return made

    # --- reading, many rows at a time ------------------------------------------------------------------------
    def _read(self, edits: list[Edit]) -> None:
        ids = {edit.id: None for edit in edits}
        # First whose they are, which also keeps others from changing them; then what they are.
        self._contend(ids)
        self._rows(ids)
        drops = {edit.id for edit in edits if isinstance(edit, DropEntity) or _is_pruned(edit)}
        deep = {edit.id for edit in edits if isinstance(edit, DropEntity) and edit.with_parts}
        below = self._below(drops, deep) if drops else {}
        self._contend(below)
        self._rows(below)
        around = {group for id in below for group in self._row_groups(id)}
        for edit in edits:
            around |= self._around(edit)
        self._rows(around)
        level = {parent for id in (*ids, *below, *around) if (parent := self._parent(id))}
        for _ in range(DEPTH):
            self._rows(level)
            around |= level
            level = {parent for id in level if (parent := self._parent(id)) and parent not in self.rows}
            if not level:
                break
        self._contend(around - set(self.claims))

    def _row_groups(self, id: str) -> tuple[str, ...]:
        row = self.rows[id]
        return row.groups if row is not None else ()

    def _parent(self, id: str) -> str:
        row = self.rows.get(id)
        return row.parent if row is not None else ""

    def _around(self, edit: Edit) -> set[str]:
        """What it refers to, or did."""
        row = self.rows[edit.id]
        found = set(row.groups) if row is not None else set()
        match edit:
            case PutEntity(row=wanted):
                found |= {wanted.parent, *wanted.groups}
            case PatchEntity(change=change):
                found |= {change.parent or "", *(change.groups or ())}
            case ImportEntity(said=said):
                found |= {said.parent or "", *(said.groups or ())}
            case _:
                pass
        return found - {""}

    def _rows(self, ids: Iterable[str]) -> None:
        new = [id for id in ids if id not in self.rows]
        found = _all(self.reads.entity, [EntityKey(self.tenant, id) for id in new])
        for id, row in zip(new, found, strict=True):
            # The default entity is there without anybody having made it.
            self.rows[id] = None if row is not None and id == DEFAULT_ENTITY and not row.created_at else row

    def _contend(self, ids: Iterable[str]) -> None:
        new = tuple(sorted(set(ids) - set(self.claims)))
        if not new:
            return
        self.claims |= {id: [] for id in new}
        for claim in self.reads.contention(ContentionKey(self.tenant, new)).claims:
            self.claims[claim.entity].append(claim)

    def _below(self, drops: set[str], deep: set[str]) -> dict[str, None]:
        """Parts of those that are to go, all the way down where they go along; and members of groups."""
        found: dict[str, None] = {}
        level = tuple(sorted(drops))
        for one in self.reads.related(RelatedKey(self.tenant, "members", level)):
            found[one.id] = None
            for group in one.groups:
                self.members.setdefault(group, []).append(one)
        for _ in range(DEPTH):
            more = []
            for one in self.reads.related(RelatedKey(self.tenant, "children", level)):
                self.children.setdefault(one.parent, []).append(one)
                found[one.id] = None
                if one.parent in deep:
                    deep.add(one.id)
                    more.append(one.id)
            level = tuple(sorted(more))
            if not level:
                break
        return found

    # --- one edit --------------------------------------------------------------------------------------------
    def _one(self, edit: Edit, before: EntityRow | None) -> list[Edited]:
        match edit:
            case PutEntity(row=row, version=version):
                self._expect(edit.id, before, version)
                return [self._put(before, _replaced(before, row, self.now))]
            case PatchEntity(change=change, version=version):
                if before is None and edit.id == DEFAULT_ENTITY:
                    raise InvalidRequest("the default entity has no facts of its own yet; put it first")
                if before is None and change.op != "create":
                    raise unknown(edit.id)
                self._expect(edit.id, before, version)
                return [self._put(before, applied(before, change, self.now))]
            case DropEntity(id=id, version=version, with_parts=with_parts):
                if id == DEFAULT_ENTITY:
                    raise InvalidRequest("every tenant has the entity `default`; it cannot be deleted")
                if before is None:
                    raise unknown(id)
                self._expect(id, before, version)
                return self._drop(before, with_parts)
            case ImportEntity(said=said, source=source, replaces=replaces):
                if before is not None and before.source not in ("", source):
                    why = f"it belongs to the source {before.source}"
                    return [Edited(edit.id, Outcome.SKIPPED, before, before, why)]
                own = {
                    group for group in (before.groups if before is not None else ()) if self._source(group) == source
                }
                return [self._put(before, upserted(before, said, source, self.now, own, replaces=replaces))]
            case LeaveStale(id=id, source=source, is_pruned=is_pruned):
                if before is None or before.source != source or (before.is_stale and not is_pruned):
                    return [Edited(id, Outcome.UNCHANGED, before, before)]
                if is_pruned:
                    return self._drop(before, False)
                stale = msgspec.structs.replace(
                    before, is_stale=True, updated_at=self.now, version=before.version + 1
                )  # fmt: skip
                made = self._put(before, stale)
                return [msgspec.structs.replace(made, outcome=Outcome.STALE)]

    def _source(self, id: str) -> str:
        row = self.rows.get(id)
        return row.source if row is not None else ""

    def _expect(self, id: str, before: EntityRow | None, version: int | None) -> None:
        found = before.version if before is not None else 0
        if version is not None and version != found:
            now = f"in version {found}" if found else "not there"
            raise EntityMoved(f"entity {id} is {now}, and not in version {version}; look at it again")

    def _put(self, before: EntityRow | None, after: EntityRow | None) -> Edited:
        assert after is not None
        id = after.id
        if before is not None and (after is before or is_alike(before, after)):
            return Edited(id, Outcome.UNCHANGED, before, before)
        if too_much := excess(after):
            raise EntityTooLarge(too_much)
        self._check_held(id)
        if before is None or before.parent != after.parent:
            self._check_parent(after)
            self._check_still(id)
        self._check_groups(before, after)
        self.rows[id] = after
        self.changed[id] = None
        return Edited(id, Outcome.CHANGED if before is not None else Outcome.ADDED, before, after)

    def _drop(self, row: EntityRow, with_parts: bool) -> list[Edited]:
        going = [row]
        for one in going:
            parts = [part for found in self.children.get(one.id, ()) if (part := self.rows[found.id]) is not None]
            parts = [part for part in parts if part.parent == one.id]
            if parts and not with_parts:
                listed = ", ".join(part.id for part in parts[:3]) + (", …" if len(parts) > 3 else "")
                raise EntityNeeded(f"entity {one.id} has {len(parts)} parts: {listed}; delete those first, or with it")
            going += parts
        members = [
            member for found in self.members.get(row.id, ()) if (member := self.rows[found.id]) is not None
            and row.id in member.groups
        ]  # fmt: skip
        if members and not with_parts:
            raise EntityNeeded(f"group {row.id} has {len(members)} members; they have to leave it first")
        for one in going:
            self._check_free(one)
        for member in members:
            self._check_held(member.id)
        for member in members:
            left = tuple(group for group in member.groups if group != row.id)
            self.rows[member.id] = msgspec.structs.replace(
                member, groups=left, version=member.version + 1, updated_at=self.now
            )
            self.changed[member.id] = None
        for one in going:
            self.rows[one.id] = None
            self.changed[one.id] = None
        return [Edited(one.id, Outcome.DELETED, one) for one in going]

    # --- may it? ---------------------------------------------------------------------------------------------
    def _check_held(self, id: str) -> None:
        """Nobody holds it, or something it is a part of, exclusively."""
        above, seen = id, set[str]()
        while above and above not in seen:
            seen.add(above)
            for claim in self.claims.get(above, ()):
                if claim.fence and claim.mode is X:
                    part = f", of which {id} is a part," if above != id else ""
                    raise EntityHeld(
                        f"execution {claim.execution} works on entity {above}{part} and holds it; it cannot be changed"
                        " before that execution has ended"
                    )
            above = self._parent(above)

    def _check_still(self, id: str) -> None:
        """Nobody works upon it or upon parts of it, or waits for that: what is locked above it was chosen by what it is
        a part of, and would not keep others from it elsewhere."""
        for claim in self.claims.get(id, ()):
            does = "works with" if claim.fence else "waits for"
            raise EntityHeld(
                f"execution {claim.execution} {does} entity {id} or parts of it; it cannot become a part of something"
                " else before the end"
            )

    def _check_free(self, row: EntityRow) -> None:
        for claim in self.claims.get(row.id, ()):
            does = "holds" if claim.fence else "waits for"
            raise EntityNeeded(
                f"execution {claim.execution} {does} entity {row.id}; it cannot be deleted before the end"
            )
        self._check_held(row.id)
        for group in row.groups:
            self._check_members(group, row.id)

    def _check_parent(self, row: EntityRow) -> None:
        if not row.parent:
            return
        if row.parent == row.id:
            raise BadRelation(f"entity {row.id} cannot be a part of itself")
        above = self.rows.get(row.parent)
        if above is None:
            raise BadRelation(f"entity {row.id} cannot be a part of {row.parent}, which does not exist")
        for _ in range(DEPTH):
            if above is None:
                break
            if above.id == row.id:
                raise BadRelation(f"entity {row.id} cannot be a part of {row.parent}, which is a part of it")
            above = self.rows.get(above.parent) if above.parent else None
        else:
            raise BadRelation(f"parts within parts end at {DEPTH} levels; {row.parent} is that deep already")
        # What is held whole is held with its parts: nothing is added to it.
        self._check_held(row.parent)

    def _check_groups(self, before: EntityRow | None, after: EntityRow) -> None:
        old = set(before.groups) if before is not None else set()
        for group in sorted(set(after.groups) - old):
            row = self.rows.get(group)
            if row is None or row.type != GROUP:
                what = f"which is a {row.type or 'thing without a type'}" if row is not None else "which does not exist"
                raise BadRelation(f"entity {after.id} cannot be in the group {group}, {what}")
        for group in sorted(old ^ set(after.groups)):
            self._check_members(group, after.id)

    def _check_members(self, group: str, id: str) -> None:
        for claim in self.claims.get(group, ()):
            if claim.fence and claim.mode in (S, X):
                raise EntityHeld(
                    f"execution {claim.execution} works with the group {group}, so {id} can neither join nor leave it"
                    " before that execution has ended"
                )


def follow_changes(reads: TurnReads, rows: Rows, tenant: str, event: e.InventoryChanged, now: int) -> None:
    """The rows of what blocks asked for. Decided by the execution, on these very rows."""
    for change in event.changes:
        rows.entities[tenant, change.id] = applied(reads.entity(EntityKey(tenant, change.id)), change, now)


def unknown(id: str) -> UnknownEntity:
    return UnknownEntity(f"no entity {id!r}; `holdfast entity list` lists them, `holdfast entity set {id}` makes one")


def _is_pruned(edit: Edit) -> bool:
    return isinstance(edit, LeaveStale) and edit.is_pruned


def _replaced(before: EntityRow | None, row: EntityRow, now: int) -> EntityRow:
    if before is None:
        return msgspec.structs.replace(row, created_at=now, updated_at=now, version=1)
    return msgspec.structs.replace(
        row, created_at=before.created_at, updated_at=now, version=before.version + 1, source=before.source,
        external=before.external, is_stale=before.is_stale,
    )  # fmt: skip


def _all(read: Any, keys: list[Any]) -> list[Any]:
    """All these rows, and what is missing of them at once."""
    found, missing = [], list[Key]()
    for key in keys:
        try:
            found.append(read(key))
        except Missing as more:
            missing += more.keys
    if missing:
        raise Missing(*missing)
    return found
