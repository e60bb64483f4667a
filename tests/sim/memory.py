"""A store in memory with faults: what the engine's logic may ask of a store, and ways for it to go wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.core.codec import unpack
from holdfast.core.errors import Conflict
from holdfast.core.model import BlockOffer
from holdfast.core.program import BlobKey, BlockKey, DefinitionKey, Key, Published, StartKey, WorkflowKey
from holdfast.core.rows import AgendaRow, JobRow
from holdfast.store.records import Batch, EngineRow, Header, HistoryRow, Locked, StartRow, WorkerRow


class Tables:
    """What is durable: it outlives every engine."""

    def __init__(self) -> None:
        self.headers: dict[str, Header] = {}
        self.history: dict[str, list[HistoryRow]] = {}
        self.jobs: dict[tuple[str, int], JobRow] = {}
        self.agenda: dict[tuple[str, str], AgendaRow] = {}
        self.blobs: dict[tuple[str, bytes], bytes] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.beats: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.definitions: dict[bytes, bytes] = {}
        self.published: dict[tuple[str, str], Published] = {}
        self.starts: dict[tuple[str, str], StartRow] = {}
        self.blocks: dict[str, BlockOffer] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.engines: dict[str, EngineRow] = {}
        self.logs: dict[str, int] = {}

    def write(self, batch: Batch, expected: Mapping[str, int]) -> None:
        """All or nothing: conflicts are found before anything is changed."""
        for header in batch.headers:
            known = self.headers.get(header.id)
            if header.is_new == (known is not None) or (known is not None and known.version != expected[header.id]):
                raise Conflict
        for row in batch.starts:
            if (row.tenant, row.key) in self.starts:
                raise Conflict
        batch = copy.deepcopy(batch)
        self.headers.update((header.id, header) for header in batch.headers)
        for past in batch.history:
            rows = self.history.setdefault(past.execution, [])
            assert not rows or rows[-1].seq < past.seq, "history grows only at its end"
            rows.append(past)
        for gone in batch.jobs_gone:
            self.jobs.pop(gone, None)
        self.jobs.update(((job.execution, job.job), job) for job in batch.jobs)
        for item in batch.agenda_gone:
            self.agenda.pop(item, None)
        self.agenda.update(((due.execution, due.item), due) for due in batch.agenda)
        self.blobs.update(((execution, digest), data) for execution, digest, data in batch.blobs)
        for execution in batch.parts_gone:
            self.parts.pop(execution, None)
        for execution, part, data in batch.parts:
            parts = self.parts.setdefault(execution, {})
            parts[part] = data
            if not data:
                del parts[part]
        self.beats.update(((execution, job), (attempt, data)) for execution, job, attempt, data in batch.beats)
        self.definitions.update(batch.definitions)
        self.starts.update(((row.tenant, row.key), row) for row in batch.starts)
        self.blocks.update((offer.name, offer) for offer in batch.blocks)
        self.workers.update((worker.name, worker) for worker in batch.workers)
        self.engines.update((engine.id, engine) for engine in batch.engines)
        for id in batch.engines_gone:
            self.engines.pop(id, None)


class MemoryQueries:
    """The questions rounds and exchanges ask."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def workers(self) -> list[WorkerRow]:
        return copy.deepcopy([self._tables.workers[name] for name in sorted(self._tables.workers)])

    def engines(self) -> list[EngineRow]:
        return list(self._tables.engines.values())

    def claimed(self, incarnation: str = "", limit: int = 10_000) -> list[JobRow]:
        rows = [row for row in self._tables.jobs.values() if row.incarnation]
        return copy.deepcopy([row for row in rows if not incarnation or row.incarnation == incarnation])

    def worker(self, name: str) -> WorkerRow | None:
        return copy.deepcopy(self._tables.workers.get(name))

    def departed(self, before: int) -> list[str]:
        return []

    def expired_tokens(self, before: int) -> list[str]:
        return []

    def orphan_claims(self) -> list[JobRow]:
        known = {worker.incarnation for worker in self._tables.workers.values()}
        return copy.deepcopy(
            [row for row in self._tables.jobs.values() if row.incarnation and row.incarnation not in known]
        )

    def ready(self, limit: int = 1000, places: Any = None) -> list[JobRow]:
        rows = [row for row in self._tables.jobs.values() if not row.incarnation and (row.queue, row.block) in places]
        return copy.deepcopy(sorted(rows, key=lambda row: (row.since, row.execution, row.job))[:limit])

    def due(self, now: int, limit: int = 500) -> list[AgendaRow]:
        rows = [row for row in self._tables.agenda.values() if row.due <= now]
        return sorted(rows, key=lambda row: (row.due, row.execution, row.item))[:limit]

    def history(self, id: str, after: int = 0, limit: int = 1000) -> list[HistoryRow]:
        return [row for row in self._tables.history.get(id, []) if row.seq > after][:limit]

    def beat(self, id: str, job: int) -> tuple[int, Any] | None:
        found = self._tables.beats.get((id, job))
        return (found[0], unpack(found[1])) if found else None

    def stale_beats(self) -> list[str]:
        return []

    def stopping(self) -> list[str]:
        return [h.id for h in self._tables.headers.values() if h.status.name == "CANCELLING"]


class MemoryStore:
    """One engine's view of the tables. `fault` is asked before and after each commit and may raise."""

    kind = "memory"
    is_shared = True
    address = "memory"

    def __init__(
        self, tables: Tables, now: Callable[[], int], fault: Callable[[str], None], living: Callable[[], list[str]]
    ) -> None:
        self.tables = tables
        self.now = now
        self.fault = fault
        self.living_engines = living

    def begin(self) -> MemoryTransaction:
        self.fault("begin")
        return MemoryTransaction(self)

    @contextmanager
    def reading(self) -> Iterator[MemoryQueries]:
        yield MemoryQueries(self.tables)

    def hint(self) -> None:
        """Losing all of them costs only latency, so none is ever sent."""

    def on_hint(self, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class MemoryTransaction:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.now = store.now()
        self._versions: dict[str, int] = {}

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
                    answer[key] = tables.blocks.get(key.name)
                case StartKey():
                    answer[key] = tables.starts.get((key.tenant, key.key))
        return answer

    def commit(self, batch: Batch) -> None:
        self._store.fault("before commit")
        self._store.tables.write(batch, self._versions)
        self._store.fault("after commit")

    def abort(self) -> None: ...
