"""Stored headers and values as people are shown them."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.codec import plain, unpack_summary
from holdfast.core.model import DEFAULT_ENTITY, PAYLOAD_LIMIT, BlobRef, Status
from holdfast.core.reads import TooLong
from holdfast.core.views import ExecutionView, LedgerLine, Progress, error_view, subject_counts
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from .reads import resolve

_COMPLETED = (Status.COMPLETED, Status.COMPLETED_ACK)


class Unread(Exception):
    """More would have to be read for that."""


def view_of(queries: Queries | None, header: Header) -> ExecutionView:
    """Without `queries` only if nothing has to be read for it; else `Unread`."""
    summary = unpack_summary(header.summary)
    is_ended = header.status.is_ended
    return ExecutionView(
        id=header.id,
        workflow=header.workflow,
        version=header.workflow_version,
        status=header.status.name,
        is_ended=is_ended,
        is_safe=not summary.residue if is_ended and header.status not in _COMPLETED else None,
        progress=Progress(header.jobs_done, header.jobs_total),
        output=shown(queries, header.id, summary.output),
        error=error_view(summary.failure, summary.failed_step),
        residue=[*summary.residue],
        labels=summary.labels,
        started_by=summary.actor.name,
        run=header.run,
        events=header.version,
        created_at=header.created_at,
        started_at=header.started_at or None,
        ended_at=header.ended_at or None,
        updated_at=header.updated_at,
        entity=header.entity or DEFAULT_ENTITY,
        verdict=summary.verdict,
        acked_by=summary.acked_by,
        ack_note=summary.ack_note,
        subjects=subject_counts(summary.subjects),
        retry_of=header.retry_of,
    )


def shown_line(queries: Queries, id: str, line: LedgerLine) -> LedgerLine:
    if not line.late:
        return line
    late = [msgspec.structs.replace(each, value=shown(queries, id, each.value)) for each in line.late]
    return msgspec.structs.replace(line, late=late)


def shown(queries: Queries | None, id: str, value: Any) -> Any:
    """A value as people want to see it; what is too long or gone shows as a reference."""

    def blob(ref: BlobRef) -> bytes:
        if queries is None:
            raise Unread
        return queries.blob(id, ref.digest) or b"\xc0"

    try:
        return plain(resolve(value, blob, PAYLOAD_LIMIT)[0])
    except TooLong:
        return plain(value)
