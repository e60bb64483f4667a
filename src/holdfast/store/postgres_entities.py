"""Entities in PostgreSQL: which rows a transaction locks, what it reads of them, and what a batch writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.codec import pack
from holdfast.core.ids import from_key, to_key
from holdfast.core.inventory import EntityRow, terms_of
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    Key,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)

from . import entities as asking
from .entities import ENTITY, Ask, Dialect
from .postgres_arrays import bigints, byteas, texts
from .postgres_bulk import Bulk, Column, Run, drop, keep, last, put
from .queries import storable
from .records import Batch

#: In the order of their ids, and in a statement of its own: the next one sees what others have committed meanwhile.
LOCK_ENTITIES = "SELECT id FROM entities WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR NO KEY UPDATE"
# By execution means by primary key. The index of live claims would do for `is_over = 0` too, and the planner takes all
# of it where it thinks that there are few; for `is_over + 0 = 0` it does not.
_CLAIMED = (
    "SELECT c.tenant, c.entity FROM unnest($1::bytea[]) AS k(execution) CROSS JOIN LATERAL (SELECT tenant, entity"
    " FROM entity_claims WHERE execution = k.execution AND is_over + 0 = 0 OFFSET 0) AS c"
)
_FLAGGED = (
    "SELECT f.tenant, f.entity FROM unnest($1::bytea[]) AS k(execution) CROSS JOIN LATERAL (SELECT tenant, entity"
    " FROM entity_flags WHERE execution = k.execution AND kind = 'quarantine' OFFSET 0) AS f"
)
_FLAG_WATCHERS = (
    "SELECT DISTINCT k.n, w.execution FROM unnest($1::bytea[]) WITH ORDINALITY AS k(execution, n)"
    " CROSS JOIN LATERAL (SELECT tenant, entity FROM entity_flags WHERE execution = k.execution"
    " AND kind = 'quarantine' OFFSET 0) AS f CROSS JOIN LATERAL (SELECT execution FROM entity_claims"
    " WHERE tenant = f.tenant AND entity = f.entity AND is_watching = 1 OFFSET 0) AS w"
)
_WATCHERS = (
    "SELECT DISTINCT k.n, w.execution FROM unnest($1::bytea[]) WITH ORDINALITY AS k(execution, n)"
    " CROSS JOIN LATERAL (SELECT tenant, entity FROM entity_claims WHERE execution = k.execution"
    " AND is_over + 0 = 0 OFFSET 0) AS c CROSS JOIN LATERAL (SELECT execution FROM entity_claims"
    " WHERE tenant = c.tenant AND entity = c.entity AND is_watching = 1 AND execution <> k.execution OFFSET 0) AS w"
)
_TICKETS = "SELECT nextval('tickets') FROM generate_series(1, $1::bigint)"


class PostgresDialect(Dialect):
    def listed(self, ids: Sequence[str]) -> Any:
        return texts(ids)

    def among(self, names: str, table: str, column: str, where: str) -> str:
        return f"SELECT {names} FROM {table} AS r WHERE r.{column} = ANY(?::text[]) AND {where}"


# --- reading -------------------------------------------------------------------------------------------
def entities_to_lock(rows: Ask, keys: Sequence[Key]) -> set[tuple[str, str]]:
    """(tenant, id) of entities that nobody else may decide about before we have committed."""
    wanted = {(storable(key.tenant), storable(id)) for key in keys if isinstance(key, ContentionKey) for id in key.ids}
    if watching := [to_key(key.execution) for key in keys if isinstance(key, WatchersKey)]:
        wanted.update((tenant, entity) for tenant, entity in rows(_CLAIMED, [byteas(watching)]))
    if flagging := [to_key(key.execution) for key in keys if isinstance(key, FlaggedKey)]:
        wanted.update((tenant, entity) for tenant, entity in rows(_FLAGGED, [byteas(flagging)]))
    return wanted


def read_entities(rows: Ask, ask: Ask, dialect: Dialect, found: dict[Key, Any]) -> None:
    """`rows` takes numbered statements, `ask` those of `entities.py`."""
    single: dict[str, list[EntityKey]] = {}
    contended: list[ContentionKey] = []
    watched: dict[str, list[WatchersKey | FlaggedKey]] = {}
    tickets: list[TicketKey] = []
    for key in found:
        match key:
            case EntityKey():
                single.setdefault(key.tenant, []).append(key)
            case ContentionKey():
                contended.append(key)
            case WatchersKey():
                watched.setdefault(_WATCHERS, []).append(key)
            case FlaggedKey():
                watched.setdefault(_FLAG_WATCHERS, []).append(key)
            case TicketKey():
                tickets.append(key)
            case SelectKey():
                found[key] = asking.selected(ask, key)
            case FoundKey():
                found[key] = asking.found_entities(ask, dialect, key)
            case RelatedKey():
                found[key] = asking.related(ask, dialect, key)
            case ChangesKey():
                found[key] = asking.changes(ask, key)
            case TraceKey():
                found[key] = asking.trace(ask, key)
            case _:
                pass
    for tenant, keys in single.items():
        there = asking.entity_rows(ask, dialect, tenant, [key.id for key in keys])
        found |= {key: there.get(storable(key.id)) for key in keys}
    if contended:
        found |= dict(asking.contention(ask, dialect, contended).items())
    for sql, watching in watched.items():
        waking: dict[int, list[str]] = {}
        for n, execution in rows(sql, [byteas([to_key(key.execution) for key in watching])]):
            waking.setdefault(n, []).append(from_key(execution))
        found |= {key: tuple(sorted(waking.get(n, ()))) for n, key in enumerate(watching, 1)}
    if tickets:
        # After everything is locked: of two who want the same entity, who decides later has the greater number.
        numbers = [number for (number,) in rows(_TICKETS, [len(tickets)])]
        found |= dict(zip(tickets, sorted(numbers), strict=True))


# --- writing -------------------------------------------------------------------------------------------
_COLUMNS: dict[str, Column] = {
    "id": texts, "type": texts, "name": texts, "labels": byteas, "created_at": bigints, "updated_at": bigints,
    "parent": texts, "groups": byteas, "facts": byteas, "source": texts, "external": texts, "version": bigints,
    "is_stale": bigints,
}  # fmt: skip
assert tuple(_COLUMNS) == ENTITY
_inventory = Bulk(
    "INSERT INTO entities ({columns}) SELECT * FROM {rows} ON CONFLICT (tenant, id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in ENTITY if name not in ("id", "created_at")),
    tenant=texts, **_COLUMNS,
)  # fmt: skip
_gone = drop("entities", tenant=texts, id=texts)
_terms_gone = drop("entity_terms", tenant=texts, id=texts)
# Only what is different is written: of many facts few change.
_OTHER_TERMS = (
    "DELETE FROM entity_terms AS t USING unnest($1::text[], $2::text[]) AS n(tenant, id) WHERE t.tenant = n.tenant"
    " AND t.id = n.id AND (t.tenant, t.key, t.value, t.id) NOT IN"
    " (SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]))"
)
_terms = keep("entity_terms", tenant=texts, key=texts, value=texts, id=texts)
_CLAIMS = (
    "INSERT INTO entity_claims (tenant, entity, ticket, execution, mode, priority, fence, since, is_watching, is_over)"
    " SELECT $1, n.entity, $2::bigint, $3, n.mode, $4::bigint, $5::bigint, $6::bigint,"
    " CASE WHEN n.entity = $7 THEN 1 ELSE 0 END, 0 FROM unnest($8::text[], $9::bigint[]) AS n(entity, mode)"
)
_grants = Bulk(
    "UPDATE entity_claims AS c SET fence = n.fence, since = n.since, is_watching = 0 FROM {rows}"
    " WHERE c.execution = n.execution AND c.is_over + 0 = 0",
    execution=byteas, fence=bigints, since=bigints,
)  # fmt: skip
_unwatch = Bulk(
    "UPDATE entity_claims AS c SET is_watching = 0 FROM {rows}"
    " WHERE c.execution = n.execution AND c.is_watching + 0 = 1",
    execution=byteas,
)
_watch = Bulk(
    "UPDATE entity_claims AS c SET is_watching = 1 FROM {rows}"
    " WHERE c.execution = n.execution AND c.entity = n.entity AND c.is_over + 0 = 0",
    execution=byteas, entity=texts,
)  # fmt: skip
_lost = Bulk(
    "UPDATE entity_claims AS c SET is_over = 1, is_watching = 0 FROM {rows}"
    " WHERE c.execution = n.execution AND c.entity = n.entity AND c.is_over + 0 = 0",
    execution=byteas, entity=texts,
)  # fmt: skip
# Who only waited has worked upon nothing, and leaves no trace.
_left = Bulk(
    "DELETE FROM entity_claims AS c USING {rows} WHERE c.execution = n.execution AND c.is_over + 0 = 0 AND c.fence = 0",
    execution=byteas,
)
_over = Bulk(
    "UPDATE entity_claims AS c SET is_over = 1, is_watching = 0 FROM {rows}"
    " WHERE c.execution = n.execution AND c.is_over + 0 = 0",
    execution=byteas,
)
_flags_gone = drop("entity_flags", execution=byteas)
_flags = put(
    "entity_flags", "execution, entity, kind", execution=byteas, entity=texts, kind=texts, tenant=texts, reason=texts,
    at=bigints,
)  # fmt: skip
_changes = Bulk(
    "INSERT INTO entity_changes (execution, n, job, change) SELECT n.execution, n.place + coalesce((SELECT max(c.n)"
    " FROM entity_changes AS c WHERE c.execution = n.execution), 0), n.job, n.change FROM {rows}",
    execution=byteas, place=bigints, job=bigints, change=byteas,
)  # fmt: skip
_changes_gone = drop("entity_changes", execution=byteas)


def write_entities(run: Run, batch: Batch) -> None:
    """Entities, claims to them, flags and wishes; in the order that `Rows` names."""
    if batch.entities or batch.entities_gone:
        _write_inventory(run, batch)
    over = sorted({(to_key(execution),) for execution in batch.entity_claims_over})
    _left(run, over)
    _over(run, over)
    for c in batch.entity_claims:
        places = [texts(c.entities), bigints([int(mode) for mode in c.modes])]
        watch = storable(c.watch)
        run(
            _CLAIMS,
            [storable(c.tenant), c.ticket, to_key(c.execution), c.priority, c.fence, c.since, watch, *places],
        )
    _grants(run, sorted((to_key(execution), fence, since) for execution, fence, since in batch.entity_grants))
    watches = last([(to_key(execution), entity) for execution, entity in batch.entity_watches], 1)
    _unwatch(run, [(execution,) for execution, _ in watches])
    _watch(run, watches)
    _lost(run, sorted({(to_key(execution), entity) for _, entity, execution in batch.entity_claims_lost}))
    _flags_gone(run, sorted({(to_key(execution),) for execution in batch.flags_gone}))
    _flags(run, last([
        (to_key(f.execution), f.entity, f.kind, tenant, f.reason, f.at) for tenant, f in batch.flags
    ], 3))  # fmt: skip
    _changes_gone(run, sorted({(to_key(execution),) for execution in batch.changes_gone}))
    _changes(run, [
        (to_key(execution), place, job, pack(change))
        for place, (execution, job, change) in enumerate(batch.changes, 1)
    ])  # fmt: skip


def _write_inventory(run: Run, batch: Batch) -> None:
    rows = last([
        (
            tenant, e.id, e.type, e.name, pack(e.labels), e.created_at, e.updated_at, e.parent, pack(e.groups),
            pack(e.facts), e.source, e.external, e.version, int(e.is_stale),
        )
        for tenant, e in batch.entities
    ], 2)  # fmt: skip
    _inventory(run, rows)
    gone = sorted(set(batch.entities_gone))
    _gone(run, gone)
    _terms_gone(run, gone)
    if batch.entities:
        write_terms(run, batch.entities)


def write_terms(run: Run, rows: Sequence[tuple[str, EntityRow]]) -> None:
    entities = {(tenant, row.id): row for tenant, row in rows}
    terms = sorted({
        (tenant, storable(key), storable(value), id)
        for (tenant, id), row in entities.items() for key, value in terms_of(row)
    })  # fmt: skip
    named = [texts([tenant for tenant, _ in entities]), texts([id for _, id in entities])]
    run(_OTHER_TERMS, [*named, *(texts([term[n] for term in terms]) for n in range(4))])
    _terms(run, terms)
