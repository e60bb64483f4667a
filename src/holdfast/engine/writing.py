"""From what a turn has decided to what one commit writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.codec import chain, pack, pack_events
from holdfast.core.model import Status
from holdfast.core.snapshot import encode
from holdfast.core.views import summary_of
from holdfast.store.records import Header, HistoryRow

from .cached import Cached

if TYPE_CHECKING:
    from .turn import Turn

#: A snapshot is worth its writing after this many events.
SNAPSHOT_EVERY = 256


def build(turn: Turn) -> None:
    """Fill the batch with everything the turn has decided."""
    batch, rows = turn.batch, turn.rows
    for line in rows.logs:
        cached = turn.touched[line.execution]
        cached.logs += 1
        line.number = cached.logs
    for key, row in rows.jobs.items():
        if row is None:
            batch.jobs_gone.append(key)
        else:
            batch.jobs.append(row)
            if not row.incarnation:
                turn.queued.add(row.execution)
    for id, cached in turn.touched.items():
        _write_execution(turn, id, cached)
    for item, due in rows.agenda.items():
        if due is None:
            batch.agenda_gone.append(item)
        else:
            batch.agenda.append(due)
    batch.stopping += rows.stopping
    batch.logs += rows.logs
    if rows.is_sharing:
        batch.share(rows)
    if rows.is_about_entities:
        batch.share_entities(rows)
    batch.starts += turn.starts.values()
    for (execution, digest), data in turn.reads.fresh.items():
        if execution in turn.touched:
            batch.blobs.append((execution, digest, data))


def _write_execution(turn: Turn, id: str, cached: Cached) -> None:
    state = cached.state
    if cached.events:
        body = pack_events(cached.events)
        cached.digest = chain(cached.digest, state.version, state.at, body)
        turn.batch.history.append(HistoryRow(id, state.version, state.at, body, cached.digest))
    if state.status >= Status.COMPLETED:
        if cached.snapshot:
            turn.batch.parts_gone.append(id)
            cached.snapshot = 0
    elif state.version - cached.snapshot >= SNAPSHOT_EVERY:
        parts = state.dirty if cached.snapshot else None
        turn.batch.parts += [(id, part, data) for part, data in encode(state, parts).items()]
        state.dirty.clear()
        cached.snapshot = state.version
    if cached.summary is None:
        cached.summary = pack(summary_of(state))
    header = Header(
        id, state.tenant, state.workflow, state.workflow_version, state.definition, state.status,
        state.version, cached.digest, cached.snapshot, cached.logs, state.run, state.created_at, state.at,
        state.started_at, state.ended_at, state.jobs_done, state.jobs_total, cached.summary,
        id in turn.created, id in turn.queued, entity=state.entity, retention=state.retention,
        retention_hash=state.retention_hash, retry_of=state.retry_of,
    )  # fmt: skip
    turn.headers[id] = header
    turn.batch.headers.append(header)
