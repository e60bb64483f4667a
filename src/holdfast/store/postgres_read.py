"""The shared rows a batch of decisions depends on: one question per kind, however many keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.core.codec import unpack
from holdfast.core.ids import from_key, to_key
from holdfast.core.model import BlockOffer
from holdfast.core.program import BlobKey, BlockKey, DefinitionKey, HeaderKey, Key, Published, StartKey, WorkflowKey

from .postgres_arrays import bigints, byteas, texts
from .queries import HEADER, header_of, storable
from .records import StartRow

Rows = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_WORKFLOWS = (
    "SELECT k.n, w.version, w.definition"
    " FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k(tenant, name, version, n)"
    " CROSS JOIN LATERAL (SELECT version, definition FROM workflows WHERE tenant = k.tenant AND name = k.name"
    " AND (version = k.version OR k.version = 0) ORDER BY version DESC LIMIT 1) AS w"
)
_DEFINITIONS = "SELECT digest, data FROM definitions WHERE digest = ANY($1::bytea[])"
_BLOCKS = (
    "SELECT DISTINCT ON (name) name, offer FROM blocks WHERE name = ANY($1::text[])"
    " ORDER BY name, registered_at DESC, version DESC"
)
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


def shared_rows(rows: Rows, keys: Sequence[Key]) -> dict[Key, Any]:
    """Every key, with its row or None."""
    found: dict[Key, Any] = dict.fromkeys(keys)
    if workflows := [key for key in found if isinstance(key, WorkflowKey)]:
        columns = [texts([k.tenant for k in workflows]), texts([k.name for k in workflows])]
        for n, version, definition in rows(_WORKFLOWS, [*columns, bigints([k.version for k in workflows])]):
            found[workflows[n - 1]] = Published(version, definition)
    if definitions := [key for key in found if isinstance(key, DefinitionKey)]:
        for digest, data in rows(_DEFINITIONS, [byteas([k.digest for k in definitions])]):
            found[DefinitionKey(digest)] = data
    if blocks := [key for key in found if isinstance(key, BlockKey)]:
        offers = {
            name: msgspec.convert(unpack(offer), BlockOffer)
            for name, offer in rows(_BLOCKS, [texts([k.name for k in blocks])])
        }
        for block in blocks:
            found[block] = offers.get(storable(block.name))
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
    if headers := [key for key in found if isinstance(key, HeaderKey)]:
        for row in rows(_HEADERS, [byteas([to_key(k.execution) for k in headers])]):
            header = header_of(row)
            found[HeaderKey(header.id)] = header
    return found
