"""Questions about committed data, the same SQL on both stores.

Statements are written with `?`; a backend provides `rows`. All of them are bounded: lists come in pages
by key, so that no reader stays open for long. Every order is total, so both stores list alike.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from holdfast.core.codec import unpack, unpack_due
from holdfast.core.ids import from_key, to_key
from holdfast.core.model import BlockOffer, Level, LogLine, Status
from holdfast.core.reads import (
    BlobKey,
    BlockKey,
    DefinitionKey,
    HeaderKey,
    HistoryKey,
    Key,
    LockKey,
    Published,
    SensorKey,
    StartKey,
    WorkflowKey,
)
from holdfast.core.rows import AgendaRow, JobRow, LogRow

from .entities import EntityQueries
from .records import EngineRow, Header, HistoryRow, PublishedRow, StartRow, TokenRow, WorkerRow
from .sharing import SharingQueries, lock_row, watched

HEADER = (
    "id, tenant, workflow, workflow_version, definition, status, version, digest, snapshot, logs, run,"
    " created_at, updated_at, started_at, ended_at, jobs_done, jobs_total, summary, entity, retention, retention_hash,"
    " retry_of"
)
JOB = "execution, job, queue, block, since, attempt, incarnation, timeout"
WORKER = "name, incarnation, engine, host, pid, slots, queues, blocks, registered_at, seen_at, lease, state"
TOKEN = "id, hash, tenant, name, role, created_at, expires_at, is_revoked"  # noqa: S105


def storable(text: str) -> str:
    """Text both stores can keep: U+0000 (refused by PostgreSQL) and lone surrogates (no UTF-8 at all)
    become U+FFFD. One such log line would otherwise fail its whole batch, for ever."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def bindable(params: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(storable(value) if isinstance(value, str) else value for value in params)


class Queries(SharingQueries, EntityQueries):
    @abstractmethod
    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, fetch everything."""

    @abstractmethod
    def consistent(self) -> AbstractContextManager[None]:
        """What is read inside is as of one moment, whatever is committed meanwhile. Keep it short."""

    def shared(self, key: Key) -> Any:
        """One shared row a decision depends on; None where absent."""
        match key:
            case BlobKey(execution=execution, digest=digest):
                return self.blob(execution, digest)
            case DefinitionKey(digest=digest):
                return self.definition(digest)
            case WorkflowKey(tenant=tenant, name=name, version=version):
                sql = "SELECT version, definition FROM workflows WHERE tenant = ? AND name = ?"
                sql += " AND version = ?" if version else " AND ? = 0 ORDER BY version DESC LIMIT 1"
                found = self.rows(sql, (tenant, name, version))
                return Published(found[0][0], bytes(found[0][1])) if found else None
            case BlockKey(name=name):
                sql = "SELECT offer FROM blocks WHERE name = ? ORDER BY registered_at, version"
                return tuple(msgspec.convert(unpack(bytes(o)), BlockOffer) for (o,) in self.rows(sql, (name,)))
            case StartKey(tenant=tenant, key=start):
                return self.start(tenant, start)
            case HistoryKey(execution=execution):
                return self.history(execution, 0, 1 << 40)
            case LockKey():
                return lock_row(self.rows, key)
            case SensorKey():
                return watched(self.rows, key)
            case HeaderKey(execution=execution, tenant=tenant):
                header = self.headers_of([execution]).get(execution)
                return header if header is None or tenant in ("", header.tenant) else None
            case _:
                return self.about_entities(key)

    # --- executions ---------------------------------------------------------------------------------
    def header(self, tenant: str, id: str) -> Header | None:
        found = self.rows(f"SELECT {HEADER} FROM executions WHERE id = ? AND tenant = ?", (to_key(id), tenant))
        return header_of(found[0]) if found else None

    def headers_of(self, ids: Sequence[str]) -> dict[str, Header]:
        """Those of the ids that there are, of any tenant."""
        found: dict[str, Header] = {}
        for first in range(0, len(ids), 200):
            keys = [to_key(id) for id in ids[first : first + 200]]
            sql = f"SELECT {HEADER} FROM executions WHERE id IN ({', '.join('?' * len(keys))})"
            found |= {header.id: header for header in map(header_of, self.rows(sql, keys))}
        return found

    def headers(
        self,
        tenant: str,
        *,
        statuses: Sequence[Status] = (),
        workflow: str = "",
        before: str = "",
        limit: int = 50,
    ) -> list[Header]:
        """Newest first; `before` is the last id of the previous page."""
        where, params = ["tenant = ?"], [tenant]  # type: list[str], list[Any]
        if before:
            where.append("id < ?")
            params.append(to_key(before))
        if statuses:
            where.append(f"status IN ({', '.join('?' * len(statuses))})")
            params += [int(status) for status in statuses]
        if workflow:
            where.append("workflow = ?")
            params.append(workflow)
        sql = f"SELECT {HEADER} FROM executions WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"
        return [header_of(row) for row in self.rows(sql, (*params, limit))]

    def find(self, tenant: str, prefix: str, limit: int = 10) -> list[str]:
        """Ids that begin with `prefix` (hexadecimal), newest first."""
        try:
            first, last = (bytes.fromhex(prefix[:20].ljust(20, digit)) for digit in "0f")
        except ValueError:
            return []
        sql = (
            "SELECT id FROM executions WHERE tenant = ? AND substr(id, 7, 10) BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
        )
        found = self.rows(sql, (tenant, first, last, limit))
        return [id for (key,) in found if (id := from_key(bytes(key))).startswith(prefix)]

    def retries_of(self, tenant: str, id: str, limit: int = 100) -> list[str]:
        """Executions that do that one again, oldest first."""
        # Word for word what the index is limited to: otherwise it would not be used.
        sql = "SELECT id FROM executions WHERE tenant = ? AND retry_of = ? AND length(retry_of) > 0 ORDER BY id LIMIT ?"
        return [from_key(bytes(key)) for (key,) in self.rows(sql, (tenant, to_key(id), limit))]

    def ids(self, after: bytes = b"", limit: int = 500) -> list[bytes]:
        """Stored keys in order, for scanners."""
        return [
            bytes(row[0])
            for row in self.rows("SELECT id FROM executions WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        ]

    def stopping(self, limit: int = 5000) -> list[tuple[str, int]]:
        """Jobs of any tenant whose workers have to be told to stop."""
        sql = "SELECT execution, job FROM jobs WHERE stopping = 1 LIMIT ?"
        return [(from_key(bytes(key)), job) for key, job in self.rows(sql, (limit,))]

    def status_counts(self, tenant: str) -> dict[Status, int]:
        sql = "SELECT status, count(*) FROM executions WHERE tenant = ? GROUP BY status"
        return {Status(status): count for status, count in self.rows(sql, (tenant,))}

    def history(self, id: str, after: int = 0, limit: int = 1000) -> list[HistoryRow]:
        """Rows that hold events numbered above `after`, oldest first."""
        sql = "SELECT seq, at, body, digest FROM history WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [
            HistoryRow(id, seq, at, bytes(body), bytes(digest))
            for seq, at, body, digest in self.rows(sql, (to_key(id), after, limit))
        ]

    def parts(self, id: str) -> dict[str, bytes]:
        sql = "SELECT part, data FROM parts WHERE execution = ?"
        return {part: bytes(data) for part, data in self.rows(sql, (to_key(id),))}

    def logs(self, id: str, after: int = 0, limit: int = 500) -> list[LogRow]:
        sql = (
            "SELECT number, at, level, step, job, message FROM logs"
            " WHERE execution = ? AND number > ? ORDER BY number LIMIT ?"
        )
        return [
            LogRow(id, number, at, LogLine(message, Level(level), step, job))
            for number, at, level, step, job, message in self.rows(sql, (to_key(id), after, limit))
        ]

    def blob(self, id: str, digest: bytes) -> bytes | None:
        found = self.rows("SELECT data FROM blobs WHERE execution = ? AND digest = ?", (to_key(id), digest))
        return bytes(found[0][0]) if found else None

    # --- work ---------------------------------------------------------------------------------------
    def jobs_of(self, id: str) -> list[JobRow]:
        sql = f"SELECT {JOB} FROM jobs WHERE execution = ? ORDER BY job"
        return [_job(row) for row in self.rows(sql, (to_key(id),))]

    def ready(self, limit: int = 1000, places: Sequence[tuple[str, str]] | None = None) -> list[JobRow]:
        """Jobs nobody has claimed, longest waiting first; with `places`, only of these queues and blocks."""
        where, params = "incarnation = ''", []  # type: str, list[Any]
        if places is not None:
            if not places:
                return []
            where += f" AND (queue, block) IN (VALUES {', '.join(['(?, ?)'] * len(places))})"
            params = [text for place in places for text in place]
        sql = f"SELECT {JOB} FROM jobs WHERE {where} ORDER BY since, execution, job LIMIT ?"
        return [_job(row) for row in self.rows(sql, (*params, limit))]

    def claimed(self, incarnation: str = "", limit: int = 10000) -> list[JobRow]:
        if incarnation:
            sql = f"SELECT {JOB} FROM jobs WHERE incarnation = ? ORDER BY execution, job LIMIT ?"
            return [_job(row) for row in self.rows(sql, (incarnation, limit))]
        sql = f"SELECT {JOB} FROM jobs WHERE incarnation <> '' ORDER BY execution, job LIMIT ?"
        return [_job(row) for row in self.rows(sql, (limit,))]

    def orphan_claims(self, limit: int = 1000) -> list[JobRow]:
        """Claims of incarnations that no worker's row has: a newer one took its place."""
        sql = (
            f"SELECT {JOB} FROM jobs WHERE incarnation <> '' AND NOT EXISTS"
            " (SELECT 1 FROM workers WHERE workers.incarnation = jobs.incarnation)"
            " ORDER BY execution, job LIMIT ?"
        )
        return [_job(row) for row in self.rows(sql, (limit,))]

    def claim_counts(self) -> dict[str, int]:
        """Incarnation → how many jobs it has claimed."""
        sql = "SELECT incarnation, count(*) FROM jobs WHERE incarnation <> '' GROUP BY incarnation"
        return {incarnation: int(count) for incarnation, count in self.rows(sql)}

    def beat(self, id: str, job: int) -> tuple[int, Any] | None:
        """The attempt that last gave a sign of itself, and what it said."""
        found = self.rows("SELECT attempt, details FROM beats WHERE execution = ? AND job = ?", (to_key(id), job))
        return (found[0][0], unpack(bytes(found[0][1]))) if found else None

    def stale_beats(self, limit: int = 500) -> list[str]:
        """Executions that have ended or are gone, whose attempts' words are still kept."""
        sql = (
            "SELECT DISTINCT execution FROM beats LEFT JOIN executions ON executions.id = beats.execution"
            " WHERE coalesce(executions.status, 20) >= 20 LIMIT ?"
        )
        return [from_key(bytes(key)) for (key,) in self.rows(sql, (limit,))]

    def queue_depths(self) -> list[tuple[str, str, int, int, int]]:
        """(queue, block, waiting, claimed, since of the oldest waiting)."""
        sql = (
            "SELECT queue, block, sum(CASE WHEN incarnation = '' THEN 1 ELSE 0 END),"
            " sum(CASE WHEN incarnation = '' THEN 0 ELSE 1 END),"
            " coalesce(min(CASE WHEN incarnation = '' THEN since END), 0)"
            " FROM jobs GROUP BY queue, block ORDER BY queue, block"
        )
        return [(q, b, int(w), int(c), int(o)) for q, b, w, c, o in self.rows(sql)]

    def due(self, now: int, limit: int = 500) -> list[AgendaRow]:
        sql = "SELECT execution, item, due, request FROM agenda WHERE due <= ? ORDER BY due, execution, item LIMIT ?"
        return [
            AgendaRow(from_key(bytes(key)), item, due, unpack_due(bytes(request)))
            for key, item, due, request in self.rows(sql, (now, limit))
        ]

    def agenda_of(self, id: str) -> list[AgendaRow]:
        sql = "SELECT item, due, request FROM agenda WHERE execution = ? ORDER BY due, item"
        return [
            AgendaRow(id, item, due, unpack_due(bytes(request))) for item, due, request in self.rows(sql, (to_key(id),))
        ]

    def next_due(self) -> int | None:
        found = self.rows("SELECT min(due) FROM agenda")
        return found[0][0] if found else None

    # --- the rest -----------------------------------------------------------------------------------
    def definition(self, digest: bytes) -> bytes | None:
        found = self.rows("SELECT data FROM definitions WHERE digest = ?", (digest,))
        return bytes(found[0][0]) if found else None

    def published(self, tenant: str, name: str = "", limit: int = 500) -> list[PublishedRow]:
        """Versions of one workflow, or the newest version of each; newest first."""
        columns = "tenant, name, version, definition, published_at, published_by"
        if name:
            sql = f"SELECT {columns} FROM workflows WHERE tenant = ? AND name = ? ORDER BY version DESC LIMIT ?"
            found = self.rows(sql, (tenant, name, limit))
        else:
            sql = (
                f"SELECT {columns} FROM workflows AS w WHERE tenant = ? AND version = (SELECT max(version)"
                " FROM workflows WHERE tenant = w.tenant AND name = w.name) ORDER BY name LIMIT ?"
            )
            found = self.rows(sql, (tenant, limit))
        return [PublishedRow(t, n, v, bytes(d), at, by) for t, n, v, d, at, by in found]

    def start(self, tenant: str, key: str) -> StartRow | None:
        sql = "SELECT execution, content, at FROM starts WHERE tenant = ? AND key = ?"
        found = self.rows(sql, (tenant, key))
        return StartRow(tenant, key, from_key(bytes(found[0][0])), bytes(found[0][1]), found[0][2]) if found else None

    def blocks(self) -> list[BlockOffer]:
        """Every version of every block ever registered."""
        found = self.rows("SELECT offer FROM blocks ORDER BY name, registered_at, version")
        return [msgspec.convert(unpack(bytes(offer)), BlockOffer) for (offer,) in found]

    def workers(self) -> list[WorkerRow]:
        return [_worker(row) for row in self.rows(f"SELECT {WORKER} FROM workers ORDER BY name")]

    def worker(self, name: str) -> WorkerRow | None:
        found = self.rows(f"SELECT {WORKER} FROM workers WHERE name = ?", (name,))
        return _worker(found[0]) if found else None

    def departed(self, before: int, limit: int = 500) -> list[str]:
        """Names of workers that left, and have not been heard of since `before`."""
        sql = "SELECT name FROM workers WHERE state = 'offline' AND seen_at < ? ORDER BY name LIMIT ?"
        return [name for (name,) in self.rows(sql, (before, limit))]

    def engines(self) -> list[EngineRow]:
        sql = "SELECT id, name, started_at, seen_at, address FROM engines ORDER BY started_at, id"
        return [EngineRow(*row) for row in self.rows(sql)]

    def tokens(self) -> list[TokenRow]:
        return [_token(row) for row in self.rows(f"SELECT {TOKEN} FROM tokens ORDER BY created_at, id")]

    def token(self, id: str) -> TokenRow | None:
        found = self.rows(f"SELECT {TOKEN} FROM tokens WHERE id = ?", (id,))
        return _token(found[0]) if found else None

    def expired_tokens(self, before: int, limit: int = 500) -> list[str]:
        """Ids of tokens that ended before that time."""
        sql = "SELECT id FROM tokens WHERE expires_at > 0 AND expires_at < ? ORDER BY id LIMIT ?"
        return [id for (id,) in self.rows(sql, (before, limit))]

    def meta(self, key: str) -> bytes | None:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return bytes(found[0][0]) if found else None

    def count(self, table: str) -> int:
        assert table in TABLES, table
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def orphans(self) -> list[tuple[str, str]]:
        """(table, execution) of rows that belong to no execution. Keys of starts may outlive theirs."""
        found = []
        for table in (*OWNED, "lock_queue", "sensor_waits"):
            sql = (
                f"SELECT DISTINCT execution FROM {table} WHERE NOT EXISTS"
                f" (SELECT 1 FROM executions WHERE executions.id = {table}.execution) LIMIT 10"
            )
            found += [(table, from_key(bytes(key))) for (key,) in self.rows(sql)]
        return found


#: tables whose rows belong to one execution and go with it
OWNED = (
    "history", "jobs", "beats", "agenda", "logs", "blobs", "parts", "entity_claims", "entity_flags", "entity_changes",
)  # fmt: skip
TABLES = frozenset(
    [
        "executions",
        "history",
        "jobs",
        "beats",
        "agenda",
        "logs",
        "blobs",
        "parts",
        "definitions",
        "workflows",
        "starts",
        "blocks",
        "workers",
        "engines",
        "tokens",
        "meta",
        "entities",
        "sensors",
        "sensor_waits",
        "locks",
        "lock_queue",
        "entity_terms",
        "entity_claims",
        "entity_flags",
        "entity_changes",
    ]
)


def header_of(row: tuple[Any, ...]) -> Header:
    (
        key, tenant, workflow, number, definition, status, version, digest, snapshot, logs, run,
        created_at, updated_at, started_at, ended_at, jobs_done, jobs_total, summary, entity, retention, hash,
        retry_of,
    ) = row  # fmt: skip
    return Header(
        from_key(bytes(key)), tenant, workflow, number, bytes(definition), Status(status), version,
        bytes(digest), snapshot, logs, run, created_at, updated_at, started_at, ended_at, jobs_done,
        jobs_total, bytes(summary), entity=entity, retention=retention, retention_hash=hash,
        retry_of=from_key(bytes(retry_of)) if retry_of else "",
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> JobRow:
    return JobRow(from_key(bytes(row[0])), *row[1:])


def _worker(row: tuple[Any, ...]) -> WorkerRow:
    name, incarnation, engine, host, pid, slots, queues, blocks, *rest = row
    return WorkerRow(
        name,
        incarnation,
        engine,
        host,
        pid,
        slots,
        [q for q in queues.split("\n") if q],
        [b for b in blocks.split("\n") if b],
        *rest,
    )


def _token(row: tuple[Any, ...]) -> TokenRow:
    id, hash, tenant, name, role, created_at, expires_at, is_revoked = row
    return TokenRow(id, bytes(hash), tenant, name, role, created_at, expires_at, bool(is_revoked))
