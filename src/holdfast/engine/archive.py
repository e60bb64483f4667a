"""The archive: what was purged, as compressed lines of JSON in a folder. Written here, and read back.

One file per purge, in a folder per day. A file is written and synced beside its place, renamed, and its folder synced,
before anything is purged: a crash in between archives an execution twice, never zero times. Readers take the newest
line of each execution and run. Nothing here knows what is purged, or when.
"""

from __future__ import annotations

import gzip
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.codec import event_json, plain, unpack
from holdfast.core.errors import BadArchive
from holdfast.core.model import PAYLOAD_LIMIT, BlobRef
from holdfast.core.reads import TooLong
from holdfast.core.views import ExecutionView, LogView, log_view
from holdfast.failpoints import failpoint
from holdfast.store.address import sync_folder
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from .reads import resolve
from .rebuild import transitions
from .showing import view_of

#: of a line; fields are only added
FORMAT = 1
SUFFIX = ".jsonl.gz"
#: of a file that is being written
_DRAFT = ".part"
#: seconds after which nobody is writing a draft any more
_ABANDONED = 3600


class Head(msgspec.Struct):
    """What a line says of the execution, without its history."""

    id: str
    run: int
    tenant: str
    archived_at: int
    execution: ExecutionView
    entity: str = ""
    retention: str = ""
    retention_hash: str = ""
    format: int = FORMAT


class Line(Head, kw_only=True):
    """An execution, whole."""

    #: events as the API shows them, with long values in their place
    events: list[dict[str, Any]]
    logs: list[LogView]
    definition: Any = None
    #: digest → value, only of those too long to stand in their place
    blobs: dict[str, Any] = {}


# --- an execution as a line ------------------------------------------------------------------------
def line_of(queries: Queries, header: Header, now: int) -> Line:
    """Everything there is about an execution; ask for it as of one moment."""
    values = _Values(queries, header.id)
    events = [
        values.event(event, seq, at)
        for last, at, found in transitions(queries, header.id)
        for seq, event in enumerate(found, last - len(found) + 1)
    ]
    logs: list[LogView] = []
    while page := queries.logs(header.id, logs[-1].number if logs else 0, 1000):
        logs += [log_view(row.number, row.at, row.line) for row in page]
    data = queries.definition(header.definition)
    return Line(
        id=header.id, run=header.run, tenant=header.tenant, archived_at=now, execution=view_of(queries, header),
        entity=header.entity, retention=header.retention, retention_hash=header.retention_hash, events=events,
        logs=logs, definition=msgspec.json.decode(data) if data else None, blobs=values.rest(),
    )  # fmt: skip


class _Values:
    """Values of one execution with what they refer to in its place."""

    def __init__(self, queries: Queries, id: str) -> None:
        self._queries = queries
        self._id = id
        #: too long to stand in their place
        self._left: dict[bytes, BlobRef] = {}

    def event(self, event: Any, seq: int, at: int) -> dict[str, Any]:
        fields = {name: self._whole(getattr(event, name)) for name in event.__struct_fields__ if name != "seq"}
        return {**event_json(event, seq, at), **fields}

    def rest(self) -> dict[str, Any]:
        """By digest; what they refer to may be too long in turn."""
        found: dict[str, Any] = {}
        while left := [ref for ref in self._left.values() if ref.digest.hex() not in found]:
            for ref in left:
                found[ref.digest.hex()] = self._whole(unpack(self._blob(ref)), is_inner=True)
        return found

    def _whole(self, value: Any, *, is_inner: bool = False) -> Any:
        match value:
            case BlobRef() if is_inner:
                self._left[value.digest] = value
                return plain(value)
            case BlobRef():
                try:
                    return plain(resolve(value, self._blob, PAYLOAD_LIMIT)[0])
                except TooLong:
                    self._left[value.digest] = value
                    return plain(value)
            case msgspec.Struct():
                return {name: self._whole(getattr(value, name), is_inner=is_inner) for name in value.__struct_fields__}
            case dict():
                return {str(name): self._whole(item, is_inner=is_inner) for name, item in value.items()}
            case list() | tuple():
                return [self._whole(item, is_inner=is_inner) for item in value]
            case _:
                return plain(value)

    def _blob(self, ref: BlobRef) -> bytes:
        return self._queries.blob(self._id, ref.digest) or b"\xc0"


# --- writing ---------------------------------------------------------------------------------------
def write(folder: Path, lines: Iterable[Line], now: int) -> Path:
    """One file with these lines, on the disk when this returns; `BadArchive` if that cannot be done."""
    moment = datetime.fromtimestamp(now / 1e6, UTC)
    day = folder / moment.strftime("%Y-%m-%d")
    # Chance in the name: several engines, and lives of one engine, may write in the same second.
    path = day / f"{moment.strftime('%H%M%S')}-{secrets.token_hex(6)}{SUFFIX}"
    draft = path.with_name(path.name + _DRAFT)
    failpoint("archive.before")
    try:
        _make(day)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="", mtime=0) as packed:
                for line in lines:
                    packed.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        failpoint("archive.written")
        draft.rename(path)
        sync_folder(day)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if not isinstance(error, OSError):
            raise
        raise BadArchive(f"the archive in {folder} cannot be written: {error.strerror or error}") from error
    failpoint("archive.after")
    return path


def _make(day: Path) -> None:
    new = [path for path in (day, *day.parents) if not path.exists()]
    for path in reversed(new):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def tidy(folder: Path) -> None:
    """Remove what was being written when somebody crashed. Its executions were not purged."""
    for draft in folder.glob(f"*/*{SUFFIX}{_DRAFT}"):
        try:
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()
        except OSError:
            continue


# --- reading ---------------------------------------------------------------------------------------
def files(folder: Path) -> list[Path]:
    """Oldest first."""
    if not folder.is_dir():
        raise BadArchive(f"there is no archive in {folder}; the setting `retention.archive` says where it is")
    return sorted(folder.glob(f"*/*{SUFFIX}"))


def heads(folder: Path) -> list[tuple[Head, Path]]:
    """Every execution and run once, in the order of their ends, and the file with its newest line."""
    newest: dict[tuple[str, int], tuple[Head, Path]] = {}
    for path in files(folder):
        for data in _lines(path):
            head = _decode(data, Head, path)
            known = newest.get((head.id, head.run))
            if known is None or _is_newer(head, known[0]):
                newest[head.id, head.run] = (head, path)
    return sorted(newest.values(), key=lambda pair: (pair[0].execution.ended_at or 0, pair[0].id, pair[0].run))


def _is_newer(head: Head, known: Head) -> bool:
    return (head.execution.events, head.archived_at) >= (known.execution.events, known.archived_at)


def lines(folder: Path, wanted: Iterable[tuple[Head, Path]]) -> Iterator[Line]:
    """The whole lines of these heads, file by file."""
    by_file: dict[Path, dict[tuple[str, int, int], None]] = {}
    for head, path in wanted:
        by_file.setdefault(path, {})[head.id, head.run, head.archived_at] = None
    for path, keys in by_file.items():
        for data in _lines(path):
            head = _decode(data, Head, path)
            if keys.pop((head.id, head.run, head.archived_at), 0) is None:
                yield _decode(data, Line, path)


def find(folder: Path, prefix: str) -> list[tuple[Head, Path]]:
    """Executions whose id begins so, the newest run of each."""
    found: dict[str, tuple[Head, Path]] = {}
    for head, path in heads(folder):
        if head.id.startswith(prefix.lower()) and (head.id not in found or head.run > found[head.id][0].run):
            found[head.id] = (head, path)
    return list(found.values())


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (OSError, EOFError) as error:
        raise BadArchive(f"{path} cannot be read: {error}") from error


def _decode(data: bytes, kind: type[Any], path: Path) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadArchive(f"{path} holds a line that cannot be read: {error}") from error
