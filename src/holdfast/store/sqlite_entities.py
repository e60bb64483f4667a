"""Entities in SQLite: lists go over as JSON, so that ten thousand entities are one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.core.codec import pack
from holdfast.core.ids import to_key
from holdfast.core.inventory import EntityRow, terms_of
from holdfast.core.rows import EntityClaims

from .entities import ENTITY, Dialect, columns
from .queries import bindable, storable
from .records import Batch

_json = msgspec.json.encode


class SqliteDialect(Dialect):
    def listed(self, ids: Sequence[str]) -> str:
        return _json([storable(id) for id in ids]).decode()

    def among(self, names: str, table: str, column: str, where: str) -> str:
        # CROSS JOIN keeps the order: from the list to the rows.
        return f"SELECT {names} FROM json_each(?) AS k CROSS JOIN {table} AS r WHERE r.{column} = k.value AND {where}"


def write_entities(db: apsw.Connection, batch: Batch) -> None:
    """Entities, claims to them, flags and wishes; in the order that `Rows` names."""

    def many(sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        db.executemany(sql, [bindable(row) for row in rows])

    if batch.entities or batch.entities_gone:
        _write_inventory(db, batch)
    # By execution means by primary key: `+0` keeps SQLite from the indexes that have live claims only.
    over = [(to_key(execution),) for execution in batch.entity_claims_over]
    # Who only waited has worked upon nothing, and leaves no trace.
    many("DELETE FROM entity_claims WHERE execution=? AND is_over+0=0 AND fence=0", over)
    many("UPDATE entity_claims SET is_over=1, is_watching=0 WHERE execution=? AND is_over+0=0", over)
    for claims in batch.entity_claims:
        _write_claims(db, claims)
    many(
        "UPDATE entity_claims SET fence=?, since=?, is_watching=0 WHERE execution=? AND is_over+0=0",
        [(fence, since, to_key(execution)) for execution, fence, since in batch.entity_grants],
    )
    for execution, entity in batch.entity_watches:
        key = to_key(execution)
        db.execute("UPDATE entity_claims SET is_watching=0 WHERE execution=? AND is_watching+0=1", (key,))
        db.execute(
            "UPDATE entity_claims SET is_watching=1 WHERE execution=? AND entity=? AND is_over+0=0",
            (key, storable(entity)),
        )
    many(
        "UPDATE entity_claims SET is_over=1, is_watching=0 WHERE execution=? AND entity=? AND is_over+0=0",
        [(to_key(execution), entity) for _, entity, execution in batch.entity_claims_lost],
    )
    many("DELETE FROM entity_flags WHERE execution=?", [(to_key(execution),) for execution in batch.flags_gone])
    many(
        "INSERT OR REPLACE INTO entity_flags (tenant, entity, execution, kind, reason, at) VALUES (?,?,?,?,?,?)",
        [(tenant, f.entity, to_key(f.execution), f.kind, f.reason, f.at) for tenant, f in batch.flags],
    )
    many("DELETE FROM entity_changes WHERE execution=?", [(to_key(execution),) for execution in batch.changes_gone])
    many(
        "INSERT INTO entity_changes SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3 FROM entity_changes WHERE execution=?1",
        [(to_key(execution), job, pack(change)) for execution, job, change in batch.changes],
    )


def _write_claims(db: apsw.Connection, claims: EntityClaims) -> None:
    by_mode: dict[int, list[str]] = {}
    for entity, mode in zip(claims.entities, claims.modes, strict=True):
        by_mode.setdefault(int(mode), []).append(storable(entity))
    key, tenant = to_key(claims.execution), storable(claims.tenant)
    for number, entities in by_mode.items():
        db.execute(
            "INSERT INTO entity_claims"
            " (tenant, entity, ticket, execution, mode, priority, fence, since, is_watching, is_over)"
            " SELECT ?, value, ?, ?, ?, ?, ?, ?, value = ?, 0 FROM json_each(?)",
            (
                tenant, claims.ticket, key, number, claims.priority, claims.fence, claims.since,
                storable(claims.watch), _json(entities).decode(),
            ),
        )  # fmt: skip


def _write_inventory(db: apsw.Connection, batch: Batch) -> None:
    changes = ", ".join(f"{name}=excluded.{name}" for name in ENTITY if name not in ("id", "created_at"))
    db.executemany(
        f"INSERT INTO entities (tenant, {columns(ENTITY)}) VALUES (?{', ?' * len(ENTITY)})"
        f" ON CONFLICT DO UPDATE SET {changes}",
        [bindable(entity_values(tenant, row)) for tenant, row in batch.entities],
    )
    gone = [bindable(key) for key in batch.entities_gone]
    db.executemany("DELETE FROM entities WHERE tenant=? AND id=?", gone)
    db.executemany("DELETE FROM entity_terms WHERE tenant=? AND id=?", gone)
    write_terms(db, batch.entities)


def entity_values(tenant: str, row: EntityRow) -> tuple[Any, ...]:
    return (
        tenant, row.id, row.type, row.name, pack(row.labels), row.created_at, row.updated_at, row.parent,
        pack(row.groups), pack(row.facts), row.source, row.external, row.version, int(row.is_stale),
    )  # fmt: skip


def write_terms(db: apsw.Connection, entities: Iterable[tuple[str, EntityRow]]) -> None:
    """Only what is different is written: of many facts few change."""
    terms = {(storable(tenant), storable(row.id)): row for tenant, row in entities}
    given = [
        (*key, _json([[storable(name), storable(value)] for name, value in terms_of(row)]).decode())
        for key, row in terms.items()
    ]
    db.executemany(
        "DELETE FROM entity_terms WHERE tenant=?1 AND id=?2 AND (key, value) NOT IN"
        " (SELECT value ->> 0, value ->> 1 FROM json_each(?3))",
        given,
    )
    db.executemany(
        "INSERT OR IGNORE INTO entity_terms SELECT ?1, value ->> 0, value ->> 1, ?2 FROM json_each(?3)", given
    )
