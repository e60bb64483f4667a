"""One batch as SQLite statements, inside the transaction that is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import apsw

from holdfast.core.codec import pack
from holdfast.core.errors import Conflict
from holdfast.core.ids import to_key

from .queries import OWNED, bindable, storable
from .records import Batch
from .sqlite_entities import write_entities

#: names that come again with every job
_name = lru_cache(maxsize=1024)(storable)


def write(db: apsw.Connection, batch: Batch, now: int, expected: Mapping[str, int]) -> None:
    many = db.executemany
    if batch.headers:
        new = [
            (
                to_key(h.id), storable(h.tenant), storable(h.workflow), h.workflow_version, h.definition,
                int(h.status), h.version,
                h.digest, h.snapshot, h.logs, h.run, h.created_at, h.updated_at, h.started_at, h.ended_at,
                h.jobs_done, h.jobs_total, h.summary, storable(h.entity), storable(h.retention),
                storable(h.retention_hash), to_key(h.retry_of) if h.retry_of else b"",
            )
            for h in batch.headers if h.is_new
        ]  # fmt: skip
        if new:
            many("INSERT INTO executions VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", new)
        old = [h for h in batch.headers if not h.is_new]
        assert all(h.id in expected for h in old), "an execution was changed without having been locked"
        changed = [
            (
                int(h.status), h.version, h.digest, h.snapshot, h.logs, h.run, h.updated_at, h.started_at,
                h.ended_at, h.jobs_done, h.jobs_total, h.summary, _name(h.retention),
                _name(h.retention_hash), to_key(h.id), expected[h.id],
            )
            for h in old
        ]  # fmt: skip
        if changed:
            before = db.total_changes()
            many(
                "UPDATE executions SET status=?, version=?, digest=?, snapshot=?, logs=?, run=?,"
                " updated_at=?, started_at=?, ended_at=?, jobs_done=?, jobs_total=?, summary=?,"
                " retention=?, retention_hash=?"
                " WHERE id=? AND version=?",
                changed,
            )
            if (missed := len(changed) - (db.total_changes() - before)) != 0:
                raise Conflict(f"{missed} of {len(changed)} executions are not as they were decided upon")
    if batch.history:
        many(
            "INSERT INTO history VALUES (?,?,?,?,?)",
            [(to_key(row.execution), row.seq, row.at, row.body, row.digest) for row in batch.history],
        )
    if batch.jobs_gone:
        many(
            "DELETE FROM jobs WHERE execution=? AND job=?",
            [(to_key(execution), job) for execution, job in batch.jobs_gone],
        )
    if batch.jobs:
        many(
            "INSERT OR REPLACE INTO jobs (execution, job, queue, block, since, attempt, incarnation, timeout)"
            " VALUES (?,?,?,?,?,?,?,?)",
            [
                (
                    to_key(j.execution),
                    j.job,
                    _name(j.queue),
                    _name(j.block),
                    j.since,
                    j.attempt,
                    _name(j.incarnation),
                    j.timeout,
                )
                for j in batch.jobs
            ],
        )  # fmt: skip
    if batch.stopping:
        many(
            "UPDATE jobs SET stopping=1 WHERE execution=? AND job=?",
            [(to_key(execution), job) for execution, job in batch.stopping],
        )
    if batch.agenda_gone:
        many(
            "DELETE FROM agenda WHERE execution=? AND item=?",
            [(to_key(execution), storable(item)) for execution, item in batch.agenda_gone],
        )
    if batch.agenda:
        many(
            "INSERT OR REPLACE INTO agenda VALUES (?,?,?,?)",
            [(to_key(a.execution), storable(a.item), a.due, pack(a.request)) for a in batch.agenda],
        )
    if batch.logs:
        many(
            "INSERT INTO logs VALUES (?,?,?,?,?,?,?)",
            [
                (
                    to_key(g.execution),
                    g.number,
                    g.at,
                    int(g.line.level),
                    storable(g.line.step),
                    g.line.job,
                    storable(g.line.message),
                )
                for g in batch.logs
            ],
        )  # fmt: skip
    if batch.blobs:
        many(
            "INSERT OR IGNORE INTO blobs VALUES (?,?,?)",
            [(to_key(execution), digest, data) for execution, digest, data in batch.blobs],
        )
    if batch.parts or batch.parts_gone:
        many("DELETE FROM parts WHERE execution=?", [(to_key(execution),) for execution in batch.parts_gone])
        empty = [(to_key(execution), storable(part)) for execution, part, data in batch.parts if not data]
        many("DELETE FROM parts WHERE execution=? AND part=?", empty)
        filled = [(to_key(execution), storable(part), data) for execution, part, data in batch.parts if data]
        many("INSERT OR REPLACE INTO parts VALUES (?,?,?)", filled)
    if batch.is_sharing:
        _write_shared(db, batch)
    if batch.is_about_entities:
        write_entities(db, batch)
    _write_rare(db, batch, now)


def _write_shared(db: apsw.Connection, batch: Batch) -> None:
    """What executions share."""

    def many(sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        db.executemany(sql, [bindable(row) for row in rows])

    many(
        "INSERT INTO locks VALUES (?,?,?,?,?) ON CONFLICT DO UPDATE"
        " SET fence=max(fence, excluded.fence), next_seq=max(next_seq, excluded.next_seq)",
        batch.locks,
    )
    many("DELETE FROM lock_queue WHERE tenant=? AND entity=? AND name=? AND seq=?", batch.claims_gone)
    many(
        "INSERT INTO lock_queue VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                c.tenant, c.entity, c.name, c.claim.seq, to_key(c.claim.execution), c.claim.lane,
                pack(c.claim.path), c.claim.since, c.fence,
            )
            for c in batch.claims
        ],
    )  # fmt: skip
    if batch.grants:
        before = db.total_changes()
        many(
            "UPDATE lock_queue SET fence=?, since=? WHERE tenant=? AND entity=? AND name=? AND seq=? AND fence=0",
            [(fence, since, *place) for *place, fence, since in batch.grants],
        )
        if (missed := len(batch.grants) - (db.total_changes() - before)) != 0:
            raise Conflict(f"{missed} of {len(batch.grants)} locks have another queue than was decided upon")
    many("DELETE FROM sensors WHERE tenant=? AND entity=? AND kind=? AND name=?", batch.sensors_gone)
    many(
        "INSERT OR REPLACE INTO sensors VALUES (?,?,?,?,?,?,?,?)",
        [(s.tenant, s.entity, s.kind, s.name, pack(s.value), s.version, s.at, s.by) for s in batch.sensors],
    )
    many(
        "DELETE FROM sensor_waits WHERE execution=? AND lane=?",
        [(to_key(execution), lane) for execution, lane in batch.sensor_waits_gone],
    )
    many(
        "INSERT OR IGNORE INTO sensor_waits VALUES (?,?,?,?,?,?)",
        [(*sensor, to_key(execution), lane) for *sensor, execution, lane in batch.sensor_waits],
    )


def _write_rare(db: apsw.Connection, batch: Batch, now: int) -> None:
    """Everything that is not written on every step."""

    def many(sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        db.executemany(sql, [bindable(row) for row in rows])

    if batch.beats:
        many(
            # A word that was on its way while its execution was purged is nobody's.
            "INSERT OR REPLACE INTO beats SELECT ?1,?2,?3,?4 WHERE EXISTS (SELECT 1 FROM executions WHERE id=?1)",
            [(to_key(execution), job, attempt, details) for execution, job, attempt, details in batch.beats],
        )
    if batch.beats_gone:
        many("DELETE FROM beats WHERE execution=?", [(to_key(execution),) for execution in batch.beats_gone])
    if batch.definitions:
        many("INSERT OR IGNORE INTO definitions VALUES (?,?)", batch.definitions)
    if batch.published:
        many(
            "INSERT INTO workflows VALUES (?,?,?,?,?,?)",
            [(w.tenant, w.name, w.version, w.definition, w.published_at, w.published_by) for w in batch.published],
        )
    if batch.starts:
        many(
            "INSERT INTO starts VALUES (?,?,?,?,?)",
            [(s.tenant, s.key, to_key(s.execution), s.content, s.at) for s in batch.starts],
        )
    if batch.blocks:
        many(
            "INSERT OR REPLACE INTO blocks VALUES (?,?,?,?)",
            [(b.name, b.version, pack(b), now) for b in batch.blocks],
        )
    if batch.workers_gone:
        many("DELETE FROM workers WHERE name=? AND state='offline'", [(storable(name),) for name in batch.workers_gone])
    if batch.workers:
        many(
            "INSERT OR REPLACE INTO workers VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    w.name, w.incarnation, w.engine, w.host, w.pid, w.slots, "\n".join(w.queues),
                    "\n".join(w.blocks), w.registered_at, w.seen_at, w.lease, w.state,
                )
                for w in batch.workers
            ],
        )  # fmt: skip
    if batch.engines:
        many(
            "INSERT OR REPLACE INTO engines VALUES (?,?,?,?,?)",
            [(e.id, e.name, e.started_at, e.seen_at, e.address) for e in batch.engines],
        )
    if batch.engines_gone:
        many("DELETE FROM engines WHERE id=?", [(id,) for id in batch.engines_gone])
    if batch.tokens:
        many(
            "INSERT OR REPLACE INTO tokens VALUES (?,?,?,?,?,?,?,?)",
            [
                (t.id, t.hash, t.tenant, t.name, t.role, t.created_at, t.expires_at, int(t.is_revoked))
                for t in batch.tokens
            ],
        )
    if batch.tokens_gone:
        many("DELETE FROM tokens WHERE id=?", [(id,) for id in batch.tokens_gone])
    if batch.starts_gone:
        many("DELETE FROM starts WHERE tenant=? AND key=?", batch.starts_gone)
    if batch.purged:
        before = db.total_changes()
        many("DELETE FROM executions WHERE id=? AND version=?", [(to_key(id), version) for id, version in batch.purged])
        if (missed := len(batch.purged) - (db.total_changes() - before)) != 0:
            raise Conflict(f"{missed} of {len(batch.purged)} executions to be purged are not as they were")
        for table in OWNED:
            many(f"DELETE FROM {table} WHERE execution=?", [(to_key(id),) for id, _ in batch.purged])
    if batch.meta:
        many("INSERT OR REPLACE INTO meta VALUES (?,?)", batch.meta.items())
