"""Entities, claims to them, flags and wishes for changes, as both stores read them.

A question about many entities is one statement, however many there are. Both stores are led from the list that is
asked about to the rows: what others wait for elsewhere is never looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

import msgspec

from holdfast.core.codec import unpack
from holdfast.core.entity_locks import IX, Contention, EntityClaim, X
from holdfast.core.ids import from_key, to_key
from holdfast.core.inventory import EntityChange, EntityRow, Flag, Found, index_keys
from holdfast.core.model import Mode
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
EntitiesKey = (
    EntityKey
    | SelectKey
    | FoundKey
    | RelatedKey
    | ContentionKey
    | WatchersKey
    | FlaggedKey
    | ChangesKey
    | TicketKey
    | TraceKey
)

ENTITY = (
    "id", "type", "name", "labels", "created_at", "updated_at", "parent", "groups", "facts", "source", "external",
    "version", "is_stale",
)  # fmt: skip
_BRIEF = ("id", "type", "parent", "groups")
CLAIM = ("entity", "execution", "mode", "ticket", "priority", "fence", "since", "is_watching")
FLAG = ("entity", "execution", "kind", "reason", "at")
#: By what few entities have: selectors are answered from the first of their terms.
_SELECTIVE = ("id", "parent", "group", "label", "any", "fact", "type")


_MODES = {int(mode): mode for mode in Mode}


def columns(names: Iterable[str], table: str = "") -> str:
    return ", ".join(f"{table}.{name}" if table else name for name in names)


class Dialect(ABC):
    """How a store is asked about a list."""

    @abstractmethod
    def listed(self, ids: Sequence[str]) -> Any:
        """The list as a parameter."""

    @abstractmethod
    def among(self, names: str, table: str, column: str, where: str) -> str:
        """A question for these columns of the rows `r` of a table of which a column is one of a list. The list is the
        first parameter."""


def contention(rows: Ask, dialect: Dialect, keys: Sequence[ContentionKey]) -> dict[ContentionKey, Contention]:
    """What stands in the way, of several keys at once."""
    found: dict[ContentionKey, Contention] = {}
    for tenant in sorted({key.tenant for key in keys}):
        here = [key for key in keys if key.tenant == tenant]
        ids = here[0].ids if len(here) == 1 else sorted({id for key in here for id in key.ids})
        given = (dialect.listed(ids), tenant)
        there = {id for (id,) in rows(dialect.among("r.id", "entities", "id", "r.tenant = ?"), given)}
        live = dialect.among(columns(CLAIM, "r"), "entity_claims", "entity", "r.tenant = ? AND r.is_over = 0")
        claims = claims_of(rows(live, given))
        flags_at = dialect.among(columns(FLAG, "r"), "entity_flags", "entity", "r.tenant = ?")
        flags = [flag_of(row) for row in rows(flags_at, given)]
        # In an order of their own, so that both stores answer alike.
        claims.sort(key=lambda claim: (claim.entity, claim.ticket, claim.execution))
        flags.sort(key=lambda flag: (flag.entity, flag.execution, flag.kind))
        for key in here:
            wanted = set(key.ids)
            found[key] = Contention(
                tuple(id for id in key.ids if id not in there),
                tuple(claims) if len(here) == 1 else tuple(claim for claim in claims if claim.entity in wanted),
                tuple(flags) if len(here) == 1 else tuple(flag for flag in flags if flag.entity in wanted),
            )
    return found


def entity_rows(rows: Ask, dialect: Dialect, tenant: str, ids: Sequence[str]) -> dict[str, EntityRow]:
    sql = dialect.among(columns(ENTITY, "r"), "entities", "id", "r.tenant = ?")
    return {row[0]: entity_of(row) for row in rows(sql, (dialect.listed(ids), tenant))}


def found_entities(rows: Ask, dialect: Dialect, key: FoundKey) -> tuple[Found, ...]:
    sql = dialect.among(columns(_BRIEF, "r"), "entities", "id", "r.tenant = ?")
    return _by_id(rows(sql, (dialect.listed(key.ids), key.tenant)))


def related(rows: Ask, dialect: Dialect, key: RelatedKey) -> tuple[Found, ...]:
    term = {"children": "parent", "members": "group"}[key.relation]
    sql = dialect.among("r.id", "entity_terms", "value", "r.tenant = ? AND r.key = ?")
    found = rows(sql, (dialect.listed(key.ids), key.tenant, term))
    ids = tuple({id: None for (id,) in found})  # who is in two of the groups is one member
    return found_entities(rows, dialect, FoundKey(key.tenant, ids)) if ids else ()


def selected(rows: Ask, key: SelectKey, after: str = "", limit: int = 0) -> tuple[Found, ...] | tuple[EntityRow, ...]:
    """Through the index of the first term; the others are looked up for each that it gives. All, or a page."""
    names = _BRIEF if key.is_brief else ENTITY
    terms = sorted(key.terms, key=lambda term: _SELECTIVE.index(term[0].partition(".")[0]))
    # In the order of the terms; all are led from the first one.
    tables: list[str] = []
    where: list[str] = []
    params: list[Any] = []
    for n, (name, value) in enumerate(terms):
        if name == "id":
            continue
        keys = index_keys(name)
        tables.append(f"entity_terms AS t{n}")
        where.append(f"t{n}.tenant = ? AND t{n}.key IN ({', '.join('?' * len(keys))}) AND t{n}.value = ?")
        params += [key.tenant, *keys, value]
    first = tables[0].removeprefix("entity_terms AS ") if tables else "e"
    where += [f"{table.removeprefix('entity_terms AS ')}.id = {first}.id" for table in tables[1:]]
    where += ["e.tenant = ?", f"e.id = {first}.id" if tables else "e.id > ''"]
    params.append(key.tenant)
    if after:
        where.append(f"{first}.id > ?")
        params.append(after)
    for name, value in terms:
        if name == "id":
            where.append(f"{first}.id = ?")
            params.append(value)
    tables.append("entities AS e")
    sql = f"SELECT {columns(names, 'e')} FROM {' CROSS JOIN '.join(tables)} WHERE {' AND '.join(where)}"
    if limit:
        sql += f" ORDER BY {first}.id LIMIT ?"
        params.append(limit)
    found = rows(sql, params)
    if key.is_brief:
        return _by_id(found)
    return tuple(sorted(map(entity_of, found), key=lambda row: row.id))


def _by_id(found: Sequence[tuple[Any, ...]]) -> tuple[Found, ...]:
    groups: dict[bytes, tuple[str, ...]] = {}
    brief = []
    for id, type, parent, packed in found:
        packed = bytes(packed)
        if packed not in groups:
            groups[packed] = tuple(unpack(packed))
        brief.append(Found(id, type, parent, groups[packed]))
    brief.sort(key=lambda one: one.id)
    return tuple(brief)


def trace(rows: Ask, key: TraceKey) -> tuple[EntityClaim, ...]:
    """Who else had the entities of an execution, to change them, under a greater fence."""
    since = " UNION ALL ".join(
        f"SELECT {columns(CLAIM, 'r')} FROM own CROSS JOIN entity_claims AS r WHERE r.tenant = own.tenant"
        f" AND r.entity = own.entity AND r.is_over = {over} AND r.fence > own.fence AND r.mode IN ({IX:d}, {X:d})"
        " AND r.execution <> ?"
        for over in (0, 1)
    )
    sql = (
        "WITH own AS MATERIALIZED (SELECT tenant, entity, max(fence) AS fence FROM entity_claims WHERE execution = ?"
        f" AND tenant = ? GROUP BY tenant, entity) {since}"
    )
    execution = to_key(key.execution)
    found = claims_of(rows(sql, (execution, key.tenant, execution, execution)))
    return tuple(sorted(found, key=lambda claim: (claim.entity, claim.fence)))


def changes(rows: Ask, key: ChangesKey) -> tuple[EntityChange, ...]:
    found = rows("SELECT change FROM entity_changes WHERE execution = ? ORDER BY n", (to_key(key.execution),))
    return tuple(_change.decode(bytes(change)) for (change,) in found)


_change = msgspec.msgpack.Decoder(EntityChange)


def entity_of(row: Sequence[Any]) -> EntityRow:
    id, type, name, labels, created_at, updated_at, parent, groups, facts, source, external, version, is_stale = row
    return EntityRow(
        id, type, name, unpack(bytes(labels)), created_at, updated_at, parent, tuple(unpack(bytes(groups))),
        unpack(bytes(facts)), source, external, version, bool(is_stale),
    )  # fmt: skip


def claim_of(row: Sequence[Any]) -> EntityClaim:
    return claims_of([row])[0]


def claims_of(rows: Iterable[Sequence[Any]]) -> list[EntityClaim]:
    """Ten thousand of them belong to a few executions."""
    ids: dict[bytes, str] = {}
    claims = []
    for entity, execution, mode, ticket, priority, fence, since, is_watching in rows:
        id = ids.get(execution)
        if id is None:
            id = ids[execution] = from_key(bytes(execution))
        claims.append(EntityClaim(entity, id, _MODES[mode], ticket, priority, fence, since, bool(is_watching)))
    return claims


def flag_of(row: Sequence[Any]) -> Flag:
    entity, execution, kind, reason, at = row
    return Flag(entity, from_key(bytes(execution)), kind, reason, at)


class EntityQueries(ABC):
    """Questions about entities and claims to them."""

    dialect: Dialect

    @abstractmethod
    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def next_ticket(self) -> int:
        """The number that is given next; nothing is given by asking."""

    def about_entities(self, key: EntitiesKey) -> Any:
        match key:
            case EntityKey(tenant, id):
                return self.entity(tenant, id)
            case SelectKey():
                return selected(self.rows, key)
            case FoundKey():
                return found_entities(self.rows, self.dialect, key)
            case RelatedKey():
                return related(self.rows, self.dialect, key)
            case ContentionKey():
                return contention(self.rows, self.dialect, [key])[key]
            case WatchersKey():
                return self.watchers(key.execution)
            case FlaggedKey():
                return self.flag_watchers(key.execution)
            case ChangesKey():
                return changes(self.rows, key)
            case TraceKey():
                return trace(self.rows, key)
            case TicketKey():
                return self.next_ticket()
            case _:
                assert_never(key)

    def entities(self, tenant: str, after: str = "", limit: int = 1000) -> list[EntityRow]:
        """By id; `after` is the last one of the previous page."""
        sql = f"SELECT {columns(ENTITY)} FROM entities WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"
        return [entity_of(row) for row in self.rows(sql, (tenant, after, limit))]

    def entities_where(
        self, tenant: str, terms: tuple[tuple[str, str], ...], after: str = "", limit: int = 1000
    ) -> list[EntityRow]:
        """Those for which all the equalities hold, by id."""
        found = selected(self.rows, SelectKey(tenant, terms, is_brief=False), after, limit)
        return [row for row in found if isinstance(row, EntityRow)]

    def entity(self, tenant: str, id: str) -> EntityRow | None:
        found = self.rows(f"SELECT {columns(ENTITY)} FROM entities WHERE tenant = ? AND id = ?", (tenant, id))
        return entity_of(found[0]) if found else None

    def entities_by_id(self, tenant: str, ids: Sequence[str]) -> dict[str, EntityRow]:
        """Those of the ids that there are."""
        return entity_rows(self.rows, self.dialect, tenant, ids)

    def entities_from(self, tenant: str, source: str) -> list[EntityRow]:
        """All that one importer brought, by what they are called there."""
        sql = (
            f"SELECT {columns(ENTITY)} FROM entities WHERE tenant = ? AND source = ? AND source <> '' ORDER BY external"
        )
        return [entity_of(row) for row in self.rows(sql, (tenant, source))]

    def terms_of(self, tenant: str, id: str) -> list[tuple[str, str]]:
        """What the index knows of an entity."""
        sql = "SELECT key, value FROM entity_terms WHERE tenant = ? AND id = ? ORDER BY key, value"
        return [(key, value) for key, value in self.rows(sql, (tenant, id))]

    # --- claims and flags -----------------------------------------------------------------------------
    def watchers(self, execution: str) -> tuple[str, ...]:
        """Executions that watch an entity which this one holds or waits for."""
        sql = (
            "SELECT DISTINCT w.execution FROM entity_claims AS c CROSS JOIN entity_claims AS w WHERE c.execution = ?"
            " AND c.is_over + 0 = 0 AND w.tenant = c.tenant AND w.entity = c.entity AND w.is_watching = 1"
            " AND w.execution <> c.execution"
        )
        return tuple(sorted(from_key(bytes(key)) for (key,) in self.rows(sql, (to_key(execution),))))

    def flag_watchers(self, execution: str) -> tuple[str, ...]:
        """Executions that watch an entity which this one has quarantined."""
        sql = (
            "SELECT DISTINCT w.execution FROM entity_flags AS f CROSS JOIN entity_claims AS w WHERE f.execution = ?"
            " AND f.kind = 'quarantine' AND w.tenant = f.tenant AND w.entity = f.entity AND w.is_watching = 1"
        )
        return tuple(sorted(from_key(bytes(key)) for (key,) in self.rows(sql, (to_key(execution),))))

    def entity_claims(self, tenant: str, entity: str = "", limit: int = 1000) -> list[EntityClaim]:
        """Held and waited for; of each entity the holders first, then who waits in the order of the queue."""
        where, params = ("AND entity = ?", (tenant, entity)) if entity else ("", (tenant,))
        sql = (
            f"SELECT {columns(CLAIM)} FROM entity_claims WHERE tenant = ? {where} AND is_over = 0"
            " ORDER BY entity, CASE WHEN fence > 0 THEN 0 ELSE 1 END, priority DESC, ticket LIMIT ?"
        )
        return claims_of(self.rows(sql, (*params, limit)))

    def entity_past(self, tenant: str, entity: str, limit: int = 10) -> list[EntityClaim]:
        """Who had it, the last one first; as long as those executions are kept."""
        sql = (
            f"SELECT {columns(CLAIM)} FROM entity_claims WHERE tenant = ? AND entity = ? AND is_over = 1 AND fence > 0"
            " ORDER BY fence DESC LIMIT ?"
        )
        return [claim_of(row) for row in self.rows(sql, (tenant, entity, limit))]

    def entity_claims_of(self, id: str, limit: int = 100_000) -> list[EntityClaim]:
        """The live ones of one execution, by entity."""
        where = "execution = ? AND is_over + 0 = 0"
        sql = f"SELECT {columns(CLAIM)} FROM entity_claims WHERE {where} ORDER BY entity LIMIT ?"
        return claims_of(self.rows(sql, (to_key(id), limit)))

    def entity_blocks(self, tenant: str, limit: int = 20_000) -> list[tuple[EntityClaim, EntityClaim]]:
        """Everybody who waits, at the entity it watches, with each of the others that are there."""
        sql = (
            f"SELECT {columns(CLAIM, 'w')}, {columns(CLAIM, 'c')} FROM entity_claims AS w CROSS JOIN entity_claims AS c"
            " WHERE w.tenant = ? AND w.is_watching = 1 AND c.tenant = w.tenant AND c.entity = w.entity"
            " AND c.is_over = 0 AND c.execution <> w.execution ORDER BY w.ticket, c.ticket LIMIT ?"
        )
        size = len(CLAIM)
        return [(claim_of(row[:size]), claim_of(row[size:])) for row in self.rows(sql, (tenant, limit))]

    def flags(self, tenant: str, entity: str = "", limit: int = 1000) -> list[Flag]:
        where, params = ("AND entity = ?", (tenant, entity)) if entity else ("", (tenant,))
        order = "entity, execution, kind"
        sql = f"SELECT {columns(FLAG)} FROM entity_flags WHERE tenant = ? {where} ORDER BY {order} LIMIT ?"
        return [flag_of(row) for row in self.rows(sql, (*params, limit))]

    def flags_of(self, id: str) -> list[Flag]:
        """Those that one execution has left."""
        sql = f"SELECT {columns(FLAG)} FROM entity_flags WHERE execution = ? ORDER BY entity, kind"
        return [flag_of(row) for row in self.rows(sql, (to_key(id),))]
