"""The shared rows a batch of decisions depends on: one question per kind, however many keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.core.codec import unpack
from holdfast.core.ids import from_key, to_key
from holdfast.core.locks import LockRow
from holdfast.core.model import BlockOffer
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
from holdfast.core.sensors import SensorRow, Watched

from .postgres_arrays import bigints, byteas, texts
from .postgres_entities import PostgresDialect, read_entities
from .queries import HEADER, header_of, storable
from .records import HistoryRow, StartRow
from .sharing import lock_of

Rows = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_WORKFLOWS = (
    "SELECT k.n, w.version, w.definition"
    " FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k(tenant, name, version, n)"
    " CROSS JOIN LATERAL (SELECT version, definition FROM workflows WHERE tenant = k.tenant AND name = k.name"
    " AND (version = k.version OR k.version = 0) ORDER BY version DESC LIMIT 1) AS w"
)
_DEFINITIONS = "SELECT digest, data FROM definitions WHERE digest = ANY($1::bytea[])"
_BLOCKS = "SELECT name, offer FROM blocks WHERE name = ANY($1::text[]) ORDER BY name, registered_at, version"
_BLOBS = (
    "SELECT b.execution, b.digest, b.data FROM unnest($1::bytea[], $2::bytea[]) AS k(execution, digest)"
    " JOIN blobs AS b ON b.execution = k.execution AND b.digest = k.digest"
)
_STARTS = (
    "SELECT s.tenant, s.key, s.execution, s.content, s.at"
    " FROM unnest($1::text[], $2::text[]) AS k(tenant, key)"
    " JOIN starts AS s ON s.tenant = k.tenant AND s.key = k.key"
)

_HEADERS = f"SELECT {HEADER} FROM executions WHERE id = ANY($1::bytea[])"
_HISTORY = (
    "SELECT execution, seq, at, body, digest FROM history WHERE execution = ANY($1::bytea[]) ORDER BY execution, seq"
)
_LOCKS = (
    "SELECT k.n, l.fence, l.next_seq FROM unnest($1::text[], $2::text[], $3::text[])"
    " WITH ORDINALITY AS k(tenant, entity, name, n)"
    " JOIN locks AS l ON l.tenant = k.tenant AND l.entity = k.entity AND l.name = k.name"
)
_CLAIMS = (
    "SELECT k.n, q.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])"
    " WITH ORDINALITY AS k(tenant, entity, name, size, n)"
    " CROSS JOIN LATERAL (SELECT seq, execution, lane, path, since, fence FROM lock_queue WHERE tenant = k.tenant"
    " AND entity = k.entity AND name = k.name ORDER BY seq LIMIT k.size) AS q ORDER BY k.n, q.seq"
)
_SENSORS = (
    "SELECT k.n, s.value, s.version, s.at FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])"
    " WITH ORDINALITY AS k(tenant, entity, kind, name, n) JOIN sensors AS s"
    " ON s.tenant = k.tenant AND s.entity = k.entity AND s.kind = k.kind AND s.name = k.name"
)
_WAITERS = (
    "SELECT k.n, w.execution, w.lane FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])"
    " WITH ORDINALITY AS k(tenant, entity, kind, name, n) JOIN sensor_waits AS w"
    " ON w.tenant = k.tenant AND w.entity = k.entity AND w.kind = k.kind AND w.name = k.name"
    " ORDER BY k.n, w.execution, w.lane"
)
_DIALECT = PostgresDialect()
#: Takes these locks one after the other, to be held until the transaction ends.
SECURE = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k"
PATIENCE = "SELECT set_config('lock_timeout', $1::text, true)"


def advisory_key(key: LockKey | SensorKey) -> int:
    """A number for the lock that stands for the row, whether it exists or not. Two rows may share one; then they
    are decided about one after the other, and nothing worse."""
    named = ("lock", key.tenant, key.entity, key.name)
    if isinstance(key, SensorKey):
        named = (key.kind, key.tenant, key.entity, key.name)
    text = "\0".join(storable(word) for word in named)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def shared_rows(rows: Rows, ask: Rows, keys: Sequence[Key]) -> dict[Key, Any]:
    """Every key, with its row or None. `rows` takes numbered statements, `ask` those that both stores know."""
    found: dict[Key, Any] = dict.fromkeys(keys)
    if workflows := [key for key in found if isinstance(key, WorkflowKey)]:
        columns = [texts([k.tenant for k in workflows]), texts([k.name for k in workflows])]
        for n, version, definition in rows(_WORKFLOWS, [*columns, bigints([k.version for k in workflows])]):
            found[workflows[n - 1]] = Published(version, definition)
    if definitions := [key for key in found if isinstance(key, DefinitionKey)]:
        for digest, data in rows(_DEFINITIONS, [byteas([k.digest for k in definitions])]):
            found[DefinitionKey(digest)] = data
    if blocks := [key for key in found if isinstance(key, BlockKey)]:
        offers: dict[str, list[BlockOffer]] = {}
        for name, offer in rows(_BLOCKS, [texts([k.name for k in blocks])]):
            offers.setdefault(name, []).append(msgspec.convert(unpack(offer), BlockOffer))
        for block in blocks:
            found[block] = tuple(offers.get(storable(block.name), ()))
    if blobs := [key for key in found if isinstance(key, BlobKey)]:
        columns_of_blobs = [byteas([to_key(k.execution) for k in blobs]), byteas([k.digest for k in blobs])]
        for execution, digest, data in rows(_BLOBS, columns_of_blobs):
            found[BlobKey(from_key(execution), digest)] = data
    if starts := [key for key in found if isinstance(key, StartKey)]:
        used = {
            (tenant, key): (from_key(execution), content, at)
            for tenant, key, execution, content, at in rows(
                _STARTS, [texts([k.tenant for k in starts]), texts([k.key for k in starts])]
            )
        }
        for start in starts:
            if row := used.get((storable(start.tenant), storable(start.key))):
                found[start] = StartRow(start.tenant, start.key, *row)
    _shared_between(rows, found)
    read_entities(rows, ask, _DIALECT, found)
    if headers := [key for key in found if isinstance(key, HeaderKey)]:
        there = {
            header.id: header
            for header in map(header_of, rows(_HEADERS, [byteas([to_key(k.execution) for k in headers])]))
        }
        for asked in headers:
            header = there.get(asked.execution)
            if header is not None and asked.tenant in ("", header.tenant):
                found[asked] = header
    if histories := [key for key in found if isinstance(key, HistoryKey)]:
        found |= {key: [] for key in histories}
        for execution, *past in rows(_HISTORY, [byteas([to_key(k.execution) for k in histories])]):
            id = from_key(execution)
            found[HistoryKey(id)].append(HistoryRow(id, *past))
    return found


def _shared_between(rows: Rows, found: dict[Key, Any]) -> None:
    if locks := [key for key in found if isinstance(key, LockKey)]:
        places = [texts([k.tenant for k in locks]), texts([k.entity for k in locks]), texts([k.name for k in locks])]
        heads = {n: (fence, next_seq) for n, fence, next_seq in rows(_LOCKS, places)}
        claims: dict[int, list[tuple[Any, ...]]] = {}
        for n, *claim in rows(_CLAIMS, [*places, bigints([k.window + 2 for k in locks])]):
            claims.setdefault(n, []).append(tuple(claim))
        for n, lock in enumerate(locks, 1):
            found[lock] = lock_of(heads[n], claims.get(n, []), lock.window) if n in heads else LockRow()
    if sensors := [key for key in found if isinstance(key, SensorKey)]:
        named = [texts([k.tenant for k in sensors]), texts([k.entity for k in sensors])]
        named += [texts([k.kind for k in sensors]), texts([k.name for k in sensors])]
        values = {n: SensorRow(unpack(value), version, at) for n, value, version, at in rows(_SENSORS, named)}
        waiters: dict[int, list[tuple[str, int]]] = {}
        for n, execution, lane in rows(_WAITERS, named):
            waiters.setdefault(n, []).append((from_key(execution), lane))
        for n, sensor in enumerate(sensors, 1):
            found[sensor] = Watched(values.get(n), tuple(waiters.get(n, ())))
