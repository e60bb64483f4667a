"""A store in memory: what an engine may ask of a store, with the port's promises and none of its disks.

It compares versions and refuses what would write over others (`Conflict`), but it holds no locks: two engines
can be between lock and commit at the same time, which the real stores only allow for rows that do not exist
yet. Rows are kept as they are given; `--paranoid` shows that nobody changes them afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.codec import pack, unpack
from holdfast.core.errors import Conflict
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
from holdfast.core.rows import AgendaRow, ClaimRow, JobRow, LockHead
from holdfast.core.sensors import SensorRow, Watched
from holdfast.store.records import Batch, EngineRow, Header, HistoryRow, Locked, StartRow, WorkerRow

from .memory_entities import LOCKING, EntityTables


class Tables:
    """What is durable: it outlives every engine."""

    def __init__(self, is_paranoid: bool = False) -> None:
        self.headers: dict[str, Header] = {}
        self.history: dict[str, list[HistoryRow]] = {}
        #: execution → job → row
        self.jobs: dict[str, dict[int, JobRow]] = {}
        self.stopping: dict[tuple[str, int], None] = {}
        #: execution → item → row
        self.agenda: dict[str, dict[str, AgendaRow]] = {}
        self.blobs: dict[tuple[str, bytes], bytes] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.beats: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.definitions: dict[bytes, bytes] = {}
        self.published: dict[tuple[str, str], Published] = {}
        self.starts: dict[tuple[str, str], StartRow] = {}
        self.blocks: dict[str, dict[str, BlockOffer]] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.engines: dict[str, EngineRow] = {}
        self.logs: dict[str, int] = {}
        #: (tenant, entity, name)
        self.locks: dict[tuple[str, str, str], LockHead] = {}
        #: (tenant, entity, name, seq)
        self.claims: dict[tuple[str, str, str, int], ClaimRow] = {}
        #: (tenant, entity, kind, name)
        self.sensors: dict[tuple[str, str, str, str], SensorRow] = {}
        #: (tenant, entity, kind, name, execution, lane)
        self.sensor_waits: set[tuple[str, str, str, str, str, int]] = set()
        self.about_entities = EntityTables()
        #: rows as they were given, and what they looked like then; only where somebody wants to know
        self.given: list[tuple[Any, bytes]] | None = [] if is_paranoid else None

    def compare(self, batch: Batch, expected: Mapping[str, int]) -> None:
        """Conflicts are found before anything is changed: all or nothing."""
        for header in batch.headers:
            known = self.headers.get(header.id)
            if header.is_new:
                if known is not None:
                    raise Conflict
            elif known is None or known.version != expected[header.id]:
                raise Conflict
        for row in batch.starts:
            if (row.tenant, row.key) in self.starts:
                raise Conflict
        for one in batch.published:
            newest = self.published.get((one.tenant, one.name))
            if one.version != (newest.version + 1 if newest else 1):
                raise Conflict

    # --- what executions share --------------------------------------------------------------------------
    def lock(self, key: LockKey) -> LockRow:
        lock = (key.tenant, key.entity, key.name)
        head = self.locks.get(lock, LockHead())
        rows = sorted((row for place, row in self.claims.items() if place[:3] == lock), key=lambda row: row.claim.seq)
        holders = [row.claim for row in rows if row.fence]
        waiters = tuple(row.claim for row in rows if not row.fence)
        is_whole = len(waiters) <= key.window
        return LockRow(head.fence, head.next_seq, holders[0] if holders else None, waiters[: key.window], is_whole)

    def sensor(self, key: SensorKey) -> Watched:
        sensor = (key.tenant, key.entity, key.kind, key.name)
        waiters = tuple(sorted(wait[4:] for wait in self.sensor_waits if wait[:4] == sensor))
        return Watched(self.sensors.get(sensor), waiters)

    def _write_shared(self, batch: Batch) -> None:
        for *lock, fence, next_seq in batch.locks:
            head = self.locks.get(tuple(lock), LockHead())
            self.locks[tuple(lock)] = LockHead(max(head.fence, fence), max(head.next_seq, next_seq))
        for gone in batch.claims_gone:
            self.claims.pop(gone, None)
        for row in batch.claims:
            self.claims[row.tenant, row.entity, row.name, row.claim.seq] = copy.copy(row)
        for *place, fence, since in batch.grants:
            row = self.claims[tuple(place)]
            row.fence, row.claim = fence, msgspec.structs.replace(row.claim, since=since)
        for sensor in batch.sensors_gone:
            self.sensors.pop(sensor, None)
        for change in batch.sensors:
            value = SensorRow(change.value, change.version, change.at)
            self.sensors[change.tenant, change.entity, change.kind, change.name] = value
        gone_lanes = set(batch.sensor_waits_gone)
        self.sensor_waits = {wait for wait in self.sensor_waits if wait[4:] not in gone_lanes}
        self.sensor_waits.update(batch.sensor_waits)

    def write(self, batch: Batch, expected: Mapping[str, int]) -> None:
        self.compare(batch, expected)
        if self.given is not None:
            self._watch(batch)
            batch = copy.deepcopy(batch)
        for header in batch.headers:
            self.headers[header.id] = header
        for past in batch.history:
            rows = self.history.get(past.execution)
            if rows is None:
                rows = self.history[past.execution] = []
            rows.append(past)
        for execution, job in batch.jobs_gone:
            self.jobs.get(execution, {}).pop(job, None)
            self.stopping.pop((execution, job), None)
        for row in batch.jobs:
            self.jobs.setdefault(row.execution, {})[row.job] = row
        self.stopping.update(dict.fromkeys(batch.stopping))
        for execution, item in batch.agenda_gone:
            self.agenda.get(execution, {}).pop(item, None)
        for due in batch.agenda:
            self.agenda.setdefault(due.execution, {})[due.item] = due
        for line in batch.logs:
            self.logs[line.execution] = max(self.logs.get(line.execution, 0), line.number)
        for execution, digest, data in batch.blobs:
            self.blobs[execution, digest] = data
        for execution in batch.parts_gone:
            self.parts.pop(execution, None)
        for execution, part, data in batch.parts:
            parts = self.parts.setdefault(execution, {})
            if data:
                parts[part] = data
            else:
                parts.pop(part, None)
        if batch.is_sharing:
            self._write_shared(batch)
        if batch.is_about_entities:
            self.about_entities.write(batch)
        self._write_rare(batch)

    def _write_rare(self, batch: Batch) -> None:
        for execution, job, attempt, data in batch.beats:
            self.beats[execution, job] = (attempt, data)
        for execution in batch.beats_gone:
            for key in [key for key in self.beats if key[0] == execution]:
                del self.beats[key]
        for digest, data in batch.definitions:
            self.definitions.setdefault(digest, data)
        for one in batch.published:
            self.published[one.tenant, one.name] = Published(one.version, one.definition)
        for start in batch.starts:
            self.starts[start.tenant, start.key] = start
        for offer in batch.blocks:
            versions = self.blocks.setdefault(offer.name, {})
            versions.pop(offer.version, None)
            versions[offer.version] = offer
        for name in batch.workers_gone:
            if name in self.workers and self.workers[name].state == "offline":
                del self.workers[name]
        for worker in batch.workers:
            self.workers[worker.name] = worker
        for engine in batch.engines:
            self.engines[engine.id] = engine
        for id in batch.engines_gone:
            self.engines.pop(id, None)

    # --- paranoia -------------------------------------------------------------------------------------
    def _watch(self, batch: Batch) -> None:
        assert self.given is not None
        for rows in (batch.headers, batch.history, batch.jobs, batch.agenda, batch.workers, batch.engines):
            self.given += [(row, pack(row)) for row in rows]

    def changed_afterwards(self) -> list[Any]:
        """Rows somebody changed after having committed them."""
        return [row for row, before in self.given or () if pack(row) != before]


class MemoryQueries:
    """The questions rounds and exchanges ask. Worker rows are given out as copies: whoever reads them may
    write on them, as on rows that came out of a database."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __enter__(self) -> MemoryQueries:
        return self

    def __exit__(self, *_: object) -> None: ...

    def workers(self) -> list[WorkerRow]:
        return [copy.copy(self._tables.workers[name]) for name in sorted(self._tables.workers)]

    def worker(self, name: str) -> WorkerRow | None:
        return copy.copy(self._tables.workers.get(name))

    def engines(self) -> list[EngineRow]:
        return list(self._tables.engines.values())

    def _jobs(self) -> Iterator[JobRow]:
        for execution in sorted(self._tables.jobs):
            yield from self._tables.jobs[execution].values()

    def claimed(self, incarnation: str = "", limit: int = 10_000) -> list[JobRow]:
        found = [row for row in self._jobs() if row.incarnation and incarnation in ("", row.incarnation)]
        return sorted(found, key=lambda row: (row.execution, row.job))[:limit]

    def orphan_claims(self, limit: int = 1000) -> list[JobRow]:
        known = {worker.incarnation for worker in self._tables.workers.values()}
        return [row for row in self.claimed() if row.incarnation not in known][:limit]

    def ready(self, limit: int = 1000, places: Sequence[tuple[str, str]] = ()) -> list[JobRow]:
        found = [row for row in self._jobs() if not row.incarnation and (row.queue, row.block) in places]
        return sorted(found, key=lambda row: (row.since, row.execution, row.job))[:limit]

    def due(self, now: int, limit: int = 500) -> list[AgendaRow]:
        found = [row for rows in self._tables.agenda.values() for row in rows.values() if row.due <= now]
        return sorted(found, key=lambda row: (row.due, row.execution, row.item))[:limit]

    def history(self, id: str, after: int = 0, limit: int = 1000) -> list[HistoryRow]:
        return [row for row in self._tables.history.get(id, ()) if row.seq > after][:limit]

    def beat(self, id: str, job: int) -> tuple[int, Any] | None:
        found = self._tables.beats.get((id, job))
        return (found[0], unpack(found[1])) if found else None

    def stale_beats(self) -> list[str]:
        headers = self._tables.headers
        return list(dict.fromkeys(id for id, _ in self._tables.beats if id in headers and headers[id].status.is_ended))

    def departed(self, before: int) -> list[str]:
        rows = self._tables.workers.values()
        return sorted(row.name for row in rows if row.state == "offline" and row.seen_at < before)

    def expired_tokens(self, before: int) -> list[str]:
        return []

    def contended(self, limit: int = 20_000) -> list[ClaimRow]:
        tables = self._tables
        waited = {place[:3] for place, row in tables.claims.items() if not row.fence}
        found = [(place, copy.copy(row)) for place, row in tables.claims.items() if place[:3] in waited]
        return [row for _, row in sorted(found, key=lambda one: one[0])][:limit]

    def stopping(self) -> list[tuple[str, int]]:
        return list(self._tables.stopping)


class MemoryStore:
    """One engine's view of the tables. `happen` is told of each moment of a transaction, and may raise."""

    kind = "memory"
    is_shared = True
    address = "memory"

    def __init__(
        self,
        tables: Tables,
        now: Callable[[], int],
        living: Callable[[], list[str] | None],
        happen: Callable[[str, Batch | None], None],
        committed: Callable[[Batch], None],
    ) -> None:
        self.tables = tables
        self.living_engines = living
        self._now = now
        self.happen = happen
        self.committed = committed
        self._queries = MemoryQueries(tables)

    def now(self) -> int:
        self.happen("read", None)
        return self._now()

    def begin(self) -> MemoryTransaction:
        self.happen("begin", None)
        return MemoryTransaction(self, self._now())

    def reading(self) -> MemoryQueries:
        self.happen("read", None)
        return self._queries

    def hint(self) -> None:
        """Losing all of them costs only latency, so none is ever sent."""

    def on_hint(self, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class MemoryTransaction:
    def __init__(self, store: MemoryStore, now: int) -> None:
        self._store = store
        self.now = now
        self._versions: dict[str, int] = {}
        self._seen: dict[LockKey | SensorKey, LockRow | Watched] = {}
        self._held: dict[Key, Any] = {}

    def lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        tables = self._store.tables
        answer: dict[str, Locked | None] = {}
        for id, version in known.items():
            header = tables.headers.get(id)
            if header is None:
                answer[id] = None
                continue
            self._versions[id] = header.version
            if header.version == version:
                continue
            rows = [row for row in tables.history[id] if row.seq > (version or header.snapshot)]
            parts = dict(tables.parts.get(id, {})) if not version else {}
            answer[id] = Locked(header.version, header.digest, header.snapshot, header.logs, rows, parts)
        return answer

    def read(self, keys: Sequence[Key]) -> dict[Key, Any]:
        tables = self._store.tables
        answer: dict[Key, Any] = {}
        for key in keys:
            match key:
                case BlobKey():
                    answer[key] = tables.blobs.get((key.execution, key.digest))
                case DefinitionKey():
                    answer[key] = tables.definitions.get(key.digest)
                case WorkflowKey():
                    answer[key] = tables.published.get((key.tenant, key.name))
                case BlockKey():
                    answer[key] = tuple(tables.blocks.get(key.name, {}).values())
                case StartKey():
                    answer[key] = tables.starts.get((key.tenant, key.key))
                case HistoryKey():
                    answer[key] = list(tables.history.get(key.execution, ()))
                case LockKey():
                    answer[key] = self._seen[key] = tables.lock(key)
                case SensorKey():
                    answer[key] = self._seen[key] = tables.sensor(key)
                case HeaderKey():
                    header = tables.headers.get(key.execution)
                    is_there = header is not None and key.tenant in ("", header.tenant)
                    answer[key] = header if is_there else None
                case _:
                    answer[key] = tables.about_entities.read(key)
                    if isinstance(key, LOCKING):
                        self._held[key] = (answer[key], tables.about_entities.stamp(key))
        return answer

    def commit(self, batch: Batch) -> None:
        store = self._store
        store.happen("before commit", batch)
        # The real stores hold these rows from the reading on; here whoever commits second has to look again.
        for held, found in self._held.items():
            if (store.tables.about_entities.read(held), store.tables.about_entities.stamp(held)) != found:
                raise Conflict
        for key, row in self._seen.items():
            if (store.tables.lock(key) if isinstance(key, LockKey) else store.tables.sensor(key)) != row:
                raise Conflict
        store.tables.write(batch, self._versions)
        store.committed(batch)
        store.happen("after commit", batch)

    def abort(self) -> None: ...
