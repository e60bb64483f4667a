"""Rows to write, with everything filled in that a test does not care about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.codec import chain
from holdfast.core.ids import make_id
from holdfast.core.model import Status
from holdfast.store.port import Store
from holdfast.store.records import Batch, Header, HistoryRow

T0 = 1_750_000_000_000_000


def an_id(n: int) -> str:
    """The n-th id: later ones sort later, and every one begins differently."""
    return make_id(1_750_000_000_000 + n, (n * 2654435761 % (1 << 80)).to_bytes(10, "big")[::-1])


def header(id: str, version: int = 1, **changes: Any) -> Header:
    fields: dict[str, Any] = {
        "id": id, "tenant": "default", "workflow": "deploy", "workflow_version": 3, "definition": b"d" * 16,
        "status": Status.RUNNING, "version": version, "digest": bytes([version % 256]) * 16, "snapshot": 0,
        "logs": 0, "run": 1, "created_at": T0, "updated_at": T0 + version, "started_at": T0 + 1, "ended_at": 0,
        "jobs_done": version, "jobs_total": version + 1, "summary": b"\x80", "is_new": version == 1,
    }  # fmt: skip
    return Header(**{**fields, **changes})


def history(id: str, *versions: int) -> list[HistoryRow]:
    """Rows of these versions, chained from the first."""
    rows, digest = [], b""
    for version in versions:
        body = b"body of %d" % version
        digest = chain(digest, version, T0 + version, body)
        rows.append(HistoryRow(id, version, T0 + version, body, digest))
    return rows


def put(store: Store, batch: Batch, known: Mapping[str, int] | None = None) -> int:
    """One commit; returns its time."""
    transaction = store.begin()
    known = {h.id: h.version - 1 for h in batch.headers if not h.is_new} if known is None else known
    transaction.lock(known)
    transaction.commit(batch)
    return transaction.now


def start(store: Store, *ids: str, **changes: Any) -> None:
    put(
        store,
        Batch(
            headers=[header(id, **changes) for id in ids],
            history=[row for id in ids for row in history(id, 1)],
        ),
    )
