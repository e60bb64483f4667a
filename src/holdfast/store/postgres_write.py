"""One batch as a few bulk statements, one per table, whatever the number of rows.

Rows of tables that executions share are written in the order of their keys. Two engines that write the
same ones then wait for each other instead of deadlocking.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.codec import pack
from holdfast.core.ids import to_key

from .postgres_arrays import bigints, byteas, texts
from .postgres_bulk import Bulk, Check, Column, Run, drop, insert, keep, last, put
from .postgres_entities import write_entities
from .queries import OWNED
from .records import Batch, Header

_STEP: dict[str, Column] = {
    "status": bigints, "version": bigints, "digest": byteas, "snapshot": bigints, "logs": bigints,
    "run": bigints, "updated_at": bigints, "started_at": bigints, "ended_at": bigints, "jobs_done": bigints,
    "jobs_total": bigints, "summary": byteas, "retention": texts, "retention_hash": texts,
}  # fmt: skip
new_headers = insert(
    "executions", id=byteas, tenant=texts, workflow=texts, workflow_version=bigints, definition=byteas,
    created_at=bigints, entity=texts, retry_of=byteas, **_STEP,
)  # fmt: skip
# Another engine may have written log lines or a snapshot without an event, so without a new version. Whoever
# missed that would number lines twice, or declare fresh parts to stand for an old version: it has to reload.
headers = Bulk(
    f"UPDATE executions AS e SET {', '.join(f'{name} = n.{name}' for name in _STEP)} FROM {{rows}}"
    " WHERE e.id = n.id AND e.version = n.expected AND e.logs <= n.logs"
    " AND (e.snapshot <= n.snapshot OR n.snapshot = 0)",
    id=byteas, expected=bigints, **_STEP,
)  # fmt: skip
history = insert("history", execution=byteas, seq=bigints, at=bigints, body=byteas, digest=byteas)
jobs_gone = drop("jobs", execution=byteas, job=bigints)
jobs = put(
    "jobs", "execution, job", execution=byteas, job=bigints, queue=texts, block=texts, since=bigints,
    attempt=bigints, incarnation=texts, timeout=bigints,
)  # fmt: skip
_STOPPING = (
    "UPDATE jobs SET stopping = 1 FROM unnest($1::bytea[], $2::bigint[]) AS k(execution, job)"
    " WHERE jobs.execution = k.execution AND jobs.job = k.job"
)
agenda_gone = drop("agenda", execution=byteas, item=texts)
agenda = put("agenda", "execution, item", execution=byteas, item=texts, due=bigints, request=byteas)
logs = insert(
    "logs",
    execution=byteas,
    number=bigints,
    at=bigints,
    level=bigints,
    step=texts,
    job=bigints,
    message=texts,
)
blobs = keep("blobs", execution=byteas, digest=byteas, data=byteas)
parts_gone = drop("parts", execution=byteas)
part_gone = drop("parts", execution=byteas, part=texts)
parts = put("parts", "execution, part", execution=byteas, part=texts, data=byteas)
# A word that was on its way while its execution was purged is nobody's.
beats = Bulk(
    "INSERT INTO beats ({columns}) SELECT * FROM {rows} WHERE EXISTS (SELECT 1 FROM executions WHERE id = n.execution)"
    " ON CONFLICT (execution, job) DO UPDATE SET attempt = EXCLUDED.attempt, details = EXCLUDED.details",
    execution=byteas, job=bigints, attempt=bigints, details=byteas,
)  # fmt: skip
beats_gone = drop("beats", execution=byteas)
definitions = keep("definitions", digest=byteas, data=byteas)
published = insert(
    "workflows", tenant=texts, name=texts, version=bigints, definition=byteas, published_at=bigints,
    published_by=texts,
)  # fmt: skip
starts = insert("starts", tenant=texts, key=texts, execution=byteas, content=byteas, at=bigints)
blocks = put("blocks", "name, version", name=texts, version=texts, offer=byteas, registered_at=bigints)
workers = put(
    "workers", "name", name=texts, incarnation=texts, engine=texts, host=texts, pid=bigints, slots=bigints,
    queues=texts, blocks=texts, registered_at=bigints, seen_at=bigints, lease=bigints, state=texts,
)  # fmt: skip
workers_gone = drop("workers", name=texts, state=texts)
engines = put("engines", "id", id=texts, name=texts, started_at=bigints, seen_at=bigints, address=texts)
engines_gone = drop("engines", id=texts)
tokens = put(
    "tokens", "id", id=texts, hash=byteas, tenant=texts, name=texts, role=texts, created_at=bigints,
    expires_at=bigints, is_revoked=bigints,
)  # fmt: skip
tokens_gone = drop("tokens", id=texts)
starts_gone = drop("starts", tenant=texts, key=texts)
purged = drop("executions", id=byteas, version=bigints)
rest_of_purged = [drop(table, execution=byteas) for table in OWNED]
meta = put("meta", "key", key=texts, value=byteas)
_LOCK: dict[str, Column] = {"tenant": texts, "entity": texts, "name": texts}
locks = Bulk(
    "INSERT INTO locks AS l ({columns}) SELECT * FROM {rows} ON CONFLICT (tenant, entity, name) DO UPDATE SET"
    " fence = greatest(l.fence, EXCLUDED.fence), next_seq = greatest(l.next_seq, EXCLUDED.next_seq)",
    **_LOCK, fence=bigints, next_seq=bigints,
)  # fmt: skip
claims_gone = drop("lock_queue", **_LOCK, seq=bigints)
claims = insert(
    "lock_queue", **_LOCK, seq=bigints, execution=byteas, lane=bigints, path=byteas, since=bigints, fence=bigints
)  # fmt: skip
grants = Bulk(
    "UPDATE lock_queue AS q SET fence = n.fence, since = n.since FROM {rows} WHERE q.tenant = n.tenant"
    " AND q.entity = n.entity AND q.name = n.name AND q.seq = n.seq AND q.fence = 0",
    **_LOCK, seq=bigints, fence=bigints, since=bigints,
)  # fmt: skip
_SENSOR: dict[str, Column] = {"tenant": texts, "entity": texts, "kind": texts, "name": texts}
sensors_gone = drop("sensors", **_SENSOR)
sensors = put(
    "sensors", "tenant, entity, kind, name", **_SENSOR, value=byteas, version=bigints, at=bigints, author=texts
)  # fmt: skip
sensor_waits_gone = drop("sensor_waits", execution=byteas, lane=bigints)
sensor_waits = keep("sensor_waits", **_SENSOR, execution=byteas, lane=bigints)


def write(run: Run, batch: Batch, now: int, expected: Mapping[str, int]) -> list[Check]:
    """`expected` has the version of every execution this transaction has locked."""
    checks = [_write_headers(run, batch.headers, expected), _write_shared(run, batch) if batch.is_sharing else None]
    if batch.history:
        history(run, [(to_key(row.execution), row.seq, row.at, row.body, row.digest) for row in batch.history])
    if batch.jobs_gone:
        jobs_gone(run, [(to_key(execution), job) for execution, job in batch.jobs_gone])
    if batch.jobs:
        jobs(run, last([
            (to_key(j.execution), j.job, j.queue, j.block, j.since, j.attempt, j.incarnation, j.timeout)
            for j in batch.jobs
        ], 2))  # fmt: skip
    if batch.stopping:
        keys = sorted((to_key(execution), job) for execution, job in batch.stopping)
        run(_STOPPING, [byteas([key for key, _ in keys]), bigints([job for _, job in keys])])
    if batch.agenda_gone:
        agenda_gone(run, sorted((to_key(execution), item) for execution, item in batch.agenda_gone))
    if batch.agenda:
        agenda(run, last([(to_key(a.execution), a.item, a.due, pack(a.request)) for a in batch.agenda], 2))
    if batch.logs:
        logs(run, [
            (to_key(g.execution), g.number, g.at, int(g.line.level), g.line.step, g.line.job, g.line.message)
            for g in batch.logs
        ])  # fmt: skip
    if batch.blobs:
        blobs(run, [(to_key(execution), digest, data) for execution, digest, data in batch.blobs])
    if batch.parts or batch.parts_gone:
        parts_gone(run, [(to_key(execution),) for execution in batch.parts_gone])
        part_gone(run, [(to_key(execution), part) for execution, part, data in batch.parts if not data])
        filled = [(to_key(execution), part, data) for execution, part, data in batch.parts if data]
        parts(run, last(filled, 2))
    if batch.beats:
        beats(run, last([(to_key(id), job, attempt, data) for id, job, attempt, data in batch.beats], 2))
    if batch.beats_gone:
        beats_gone(run, [(to_key(execution),) for execution in batch.beats_gone])
    if batch.is_about_entities:
        write_entities(run, batch)
    _write_rare(run, batch, now)
    checks += _purge(run, batch.purged)
    return [check for check in checks if check is not None]


def _write_headers(run: Run, changed: list[Header], expected: Mapping[str, int]) -> Check | None:
    new_headers(run, sorted(
        (
            to_key(h.id), h.tenant, h.workflow, h.workflow_version, h.definition, h.created_at, h.entity,
            to_key(h.retry_of) if h.retry_of else b"", h.status, h.version,
            h.digest, h.snapshot, h.logs, h.run, h.updated_at, h.started_at, h.ended_at,
            h.jobs_done, h.jobs_total, h.summary, h.retention, h.retention_hash,
        )
        for h in changed if h.is_new
    ))  # fmt: skip
    old = [h for h in changed if not h.is_new]
    assert all(h.id in expected for h in old), "an execution was changed without having been locked"
    touched = headers(run, [
        (
            to_key(h.id), expected[h.id], h.status, h.version, h.digest, h.snapshot, h.logs, h.run,
            h.updated_at, h.started_at, h.ended_at, h.jobs_done, h.jobs_total, h.summary, h.retention,
            h.retention_hash,
        )
        for h in old
    ])  # fmt: skip
    return Check(touched, len(old)) if touched is not None else None


def _purge(run: Run, gone: list[tuple[str, int]]) -> list[Check]:
    dropped = purged(run, sorted((to_key(id), version) for id, version in gone))
    if dropped is None:
        return []
    for rest in rest_of_purged:
        rest(run, sorted((to_key(id),) for id, _ in gone))
    return [Check(dropped, len(gone))]


def _write_shared(run: Run, batch: Batch) -> Check | None:
    """What executions share. Whoever decided about it holds its lock (`postgres_read.secure`)."""
    locks(run, last(batch.locks, 3))
    claims_gone(run, sorted(batch.claims_gone))
    claims(run, [
        (
            c.tenant, c.entity, c.name, c.claim.seq, to_key(c.claim.execution), c.claim.lane, pack(c.claim.path),
            c.claim.since, c.fence,
        )
        for c in batch.claims
    ])  # fmt: skip
    granted = grants(run, sorted(batch.grants))
    sensors_gone(run, sorted(batch.sensors_gone))
    sensors(run, last([
        (s.tenant, s.entity, s.kind, s.name, pack(s.value), s.version, s.at, s.by) for s in batch.sensors
    ], 4))  # fmt: skip
    sensor_waits_gone(run, sorted((to_key(execution), lane) for execution, lane in batch.sensor_waits_gone))
    waits = [(*sensor, to_key(execution), lane) for *sensor, execution, lane in batch.sensor_waits]
    sensor_waits(run, sorted(waits))
    return Check(granted, len(batch.grants), "locks") if granted is not None else None


def _write_rare(run: Run, batch: Batch, now: int) -> None:
    """Everything that is not written on every step."""
    definitions(run, sorted(batch.definitions))
    published(run, sorted(
        (w.tenant, w.name, w.version, w.definition, w.published_at, w.published_by) for w in batch.published
    ))  # fmt: skip
    starts(run, sorted((s.tenant, s.key, to_key(s.execution), s.content, s.at) for s in batch.starts))
    blocks(run, last([(b.name, b.version, pack(b), now) for b in batch.blocks], 2))
    workers_gone(run, sorted((name, "offline") for name in batch.workers_gone))
    workers(run, last([
        (
            w.name, w.incarnation, w.engine, w.host, w.pid, w.slots, "\n".join(w.queues), "\n".join(w.blocks),
            w.registered_at, w.seen_at, w.lease, w.state,
        )
        for w in batch.workers
    ], 1))  # fmt: skip
    engines(run, last([(e.id, e.name, e.started_at, e.seen_at, e.address) for e in batch.engines], 1))
    engines_gone(run, sorted((id,) for id in batch.engines_gone))
    tokens(run, last([
        (t.id, t.hash, t.tenant, t.name, t.role, t.created_at, t.expires_at, int(t.is_revoked))
        for t in batch.tokens
    ], 1))  # fmt: skip
    tokens_gone(run, sorted((id,) for id in batch.tokens_gone))
    starts_gone(run, sorted(batch.starts_gone))
    meta(run, last(list(batch.meta.items()), 1))
