"""Verify: does what the store holds agree with itself? Every invariant that rows can show, on any store.

Safe to run beside a working engine: each execution is checked as of one moment. It derives everything
from the histories with the same `apply` that made them, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.core import events as e
from holdfast.core import ledger as ledgers
from holdfast.core import requests as r
from holdfast.core.codec import chain, pack, unpack, unpack_events
from holdfast.core.errors import Refused
from holdfast.core.folding import apply
from holdfast.core.ids import from_key, to_key
from holdfast.core.model import DEFAULT_ENTITY, BlobRef, Effect, JobKind, JobStatus, Status, blob_digest
from holdfast.core.rows import GRACE, AgendaRow, JobRow
from holdfast.core.snapshot import canonical, restore
from holdfast.core.state import FAR, Job, State, open_state, spec_of
from holdfast.core.versions import place_of
from holdfast.core.views import Summary, summary_of
from holdfast.store.keeping import KEY_KEPT, lost_starts
from holdfast.store.port import Store
from holdfast.store.queries import Queries, storable
from holdfast.store.records import Header, HistoryRow

from .verify_entities import wrong_about_entities, wrong_with_entity_locks, wrong_with_index
from .verify_shared import Fences, wrong_with_execution, wrong_with_locks

#: µs a claim may outlive its worker's row, or a heartbeat its execution: an engine sweeps both away, and needs
#: a lease and a round to notice
CLAIM_GRACE = 600_000_000
#: µs in which an engine is sure to look at every key of a start
START_GRACE = 3 * 3600 * 1_000_000
#: how a reference to a blob begins in packed data; bytes without it hold none
_REFERENCE = pack(BlobRef(bytes(16), 0))[:3]


class Finding(msgspec.Struct, frozen=True):
    """A broken invariant."""

    #: as numbered in docs/reference/invariants.md
    invariant: str
    execution: str
    text: str


class Report(msgspec.Struct):
    executions: int = 0
    events: int = 0
    findings: list[Finding] = []

    @property
    def is_clean(self) -> bool:
        return not self.findings


def verify(store: Store, progress: Callable[[int], None] | None = None) -> Report:
    """Check everything. `progress` hears how many executions are done."""
    report = Report()
    incarnations: set[str] = set()
    after = b""
    with store.reading() as queries:
        while keys := queries.ids(after, 200):
            for key in keys:
                id = from_key(key)
                with queries.consistent():
                    report.findings += _Check(queries, id, report, incarnations).run()
                report.executions += 1
            after = keys[-1]
            if progress is not None:
                progress(report.executions)
        with queries.consistent():
            report.findings += _orphans(queries)
            report.findings += _left_beats(queries)
            report.findings += [Finding(*wrong) for wrong in wrong_with_locks(queries)]
            report.findings += [Finding(*wrong) for wrong in wrong_with_entity_locks(queries)]
            report.findings += [Finding(*wrong) for wrong in wrong_with_index(queries)]
            report.findings += _left_starts(queries)
    return report


def _orphans(queries: Queries) -> Iterator[Finding]:
    for table, execution in queries.orphans():
        yield Finding("I-36", execution, f"table {table} has rows of an execution that does not exist")


def _left_beats(queries: Queries) -> Iterator[Finding]:
    now, started_at = _signs(queries)
    for id, ended_at in queries.rows(
        "SELECT executions.id, max(executions.ended_at) FROM beats JOIN executions ON executions.id = beats.execution"
        " WHERE executions.status >= 20 GROUP BY executions.id ORDER BY executions.id LIMIT 100"
    ):
        if now - max(ended_at, started_at) > CLAIM_GRACE:
            yield Finding("I-36", from_key(bytes(id)), "it has ended but heartbeats of its attempts are still kept")


def _left_starts(queries: Queries) -> Iterator[Finding]:
    """Keys of starts outlive an execution that was purged, by a day and until an engine comes by."""
    now, started_at = _signs(queries)
    if now - started_at > START_GRACE:
        for key, execution in lost_starts(queries, now - KEY_KEPT - START_GRACE):
            yield Finding("I-36", execution, f"it does not exist, but the key {key!r} of its start is still kept")


def _signs(queries: Queries) -> tuple[int, int]:
    """The last sign of life in the store, and the last start of an engine: nothing is swept away while all are
    away, so what should be gone is measured by these and not by a clock."""
    engines = queries.engines()
    seen = [*(worker.seen_at for worker in queries.workers()), *(engine.seen_at for engine in engines)]
    return max(seen, default=0), max((engine.started_at for engine in engines), default=0)


class _Check:
    """One execution. One thing wrong is reported once: what merely follows from it is not compared."""

    def __init__(self, queries: Queries, id: str, report: Report, incarnations: set[str]) -> None:
        self.queries = queries
        self.id = id
        self.report = report
        #: of workers, as far as they were looked up; shared by all checks
        self.incarnations = incarnations
        self.findings: list[Finding] = []
        #: attempts that may have had an effect, by job that may not run twice
        self.starts: dict[int, int] = {}
        self.fences = Fences()
        #: blobs that the history refers to
        self.blobs: dict[bytes, BlobRef] = {}
        #: nothing was found that makes the fold of the history meaningless
        self.is_sound = True

    def bad(self, invariant: str, text: str) -> None:
        self.findings.append(Finding(invariant, self.id, text))

    def unsound(self, invariant: str, text: str) -> None:
        """The history itself is broken, so nothing can be derived from it."""
        self.bad(invariant, text)
        self.is_sound = False

    def run(self) -> list[Finding]:
        found = self.queries.rows("SELECT tenant FROM executions WHERE id = ?", (to_key(self.id),))
        try:
            header = self.queries.header(found[0][0], self.id) if found else None
        except ValueError as error:
            self.bad("I-4", f"the header cannot be read: {error}")
            return self.findings
        if header is None:
            return []
        parts = self.queries.parts(self.id)
        snapshot = self._restored(header, parts)
        state = open_state(self.id)
        self._fold(header, snapshot, state)
        if self.is_sound:
            self._against_header(header, state)
            self._against_rows(state)
            self._verdict(state)
        self._lines(header)
        self._blobs()
        return self.findings

    # --- history and snapshot -----------------------------------------------------------------------
    def _restored(self, header: Header, parts: dict[str, bytes]) -> State | None:
        """The state that the snapshot stands for, if there should be one and it can be read."""
        if header.status.is_ended:
            if parts:
                self.bad("I-36", "it has ended but still has snapshot parts")
            return None
        if not header.snapshot:
            if parts:
                self.bad("I-4", "there are snapshot parts although the header names no snapshot")
            return None
        if not parts:
            self.bad("I-4", f"the snapshot at {header.snapshot} that the header names is missing")
            return None
        try:
            snapshot = restore(parts)
        except Exception as error:
            self.bad("I-4", f"the snapshot cannot be read: {type(error).__name__}: {error}")
            return None
        if snapshot.version != header.snapshot:
            self.bad("I-4", f"the snapshot is of version {snapshot.version}, the header says {header.snapshot}")
            return None
        return snapshot

    def _fold(self, header: Header, snapshot: State | None, state: State) -> None:
        """All rows, each against the one before it, into `state`."""
        # Two digests after a row that does not fit: which of its columns was changed shows in the next row.
        digests: tuple[bytes, ...] = (b"",)
        seq = 0
        while rows := self.queries.history(self.id, seq, 500):
            for row in rows:
                digests = self._row(row, seq, digests, state)
                seq = row.seq
                if self.is_sound and snapshot is not None and state.version == snapshot.version:
                    if canonical(state) != canonical(snapshot):
                        self.bad("I-4", f"the snapshot at {snapshot.version} is not the fold of the history")
                    snapshot = None
        if header.version != seq:
            self.unsound("I-5", f"the header says version {header.version}, the history ends at {seq}")
        elif header.digest not in digests:
            self.unsound("I-3", "the header's digest is not that of the last row")
        if snapshot is not None and self.is_sound:
            self.bad("I-4", f"the snapshot stands at {snapshot.version}, where the history has no row")

    def _row(self, row: HistoryRow, seq: int, digests: tuple[bytes, ...], state: State) -> tuple[bytes, ...]:
        expected = [chain(digest, row.seq, row.at, row.body) for digest in digests]
        try:
            events = unpack_events(row.body)
        except msgspec.DecodeError as error:
            is_chained = row.digest in expected
            why = f"cannot be read: {error}" if is_chained else "does not continue the chain: it was changed afterwards"
            self.unsound("I-4" if is_chained else "I-3", f"row {row.seq} {why}")
            return (row.digest, *expected)
        self.report.events += len(events)
        if row.seq != seq + len(events):
            self.unsound("I-2", f"row {row.seq} should end at event {seq + len(events)}: a gap or a repeat")
            return (row.digest,)
        if row.digest not in expected:
            self.unsound("I-3", f"row {row.seq} does not continue the chain: it was changed afterwards")
            return (row.digest, *expected)
        if self.is_sound and row.at < state.at:
            self.unsound("I-18", f"row {row.seq} is dated before the one it follows")
        if _REFERENCE in row.body:
            self.blobs.update((ref.digest, ref) for ref in _refs(events))
        if self.is_sound:
            try:
                self._apply(row, events, state)
            except Refused:
                raise
            except Exception as error:
                # Anything may come of an event that does not fit the state it meets.
                self.unsound("I-4", f"row {row.seq} cannot be folded: {type(error).__name__}: {error}")
        return (row.digest,)

    def _apply(self, row: HistoryRow, events: tuple[e.Event, ...], state: State) -> None:
        state.at = row.at
        before: e.Event | None = None
        for event in events:
            self._count(state, event)
            self.fences.see(event)
            self._in_time(state, event, before, row)
            apply(state, event)
            before = event

    def _count(self, state: State, event: e.Event) -> None:
        """At most once per visit: attempts that may have had an effect, of jobs that may not repeat."""
        match event:
            case e.JobStarted(job=id):
                if not spec_of(state, state.jobs[id]).may_repeat:
                    self.starts[id] = self.starts.get(id, 0) + 1
                    if self.starts[id] > 1:
                        self.bad("I-16", f"job {id} may run once, yet a second attempt was started")
            case e.JobReleased(job=id, undelivered=True):
                self.starts[id] = self.starts.get(id, 1) - 1
            case e.JobRescheduled(job=id, effect=Effect.NONE):
                self.starts[id] = self.starts.get(id, 1) - 1
            case _:
                pass

    def _in_time(self, state: State, event: e.Event, before: e.Event | None, row: HistoryRow) -> None:
        """Nothing that waits for a time happens before it."""
        match event:
            case e.TimerFired(timer=id):
                if row.at < (due := state.timers[id].due):
                    self.bad("I-18", f"timer {id} fired {due - row.at} µs early, in row {row.seq}")
            case e.JobReleased(job=id, undelivered=False):
                # Lost with its worker, it goes back into the queue without a pause, in one breath.
                is_lost = isinstance(before, e.JobRescheduled) and before.job == id
                if not is_lost and row.at < (due := state.jobs[id].due):
                    self.bad("I-17", f"the back-off of job {id} was cut short by {due - row.at} µs, in row {row.seq}")
            case _:
                pass

    # --- the fold against the header ----------------------------------------------------------------
    def _against_header(self, header: Header, state: State) -> None:
        # Texts are compared in the form that both stores can keep; the history has the original.
        pairs: tuple[tuple[str, Any, Any], ...] = (
            ("status", header.status, state.status),
            ("workflow", header.workflow, storable(state.workflow)),
            ("workflow version", header.workflow_version, state.workflow_version),
            ("definition", header.definition, state.definition),
            ("run", header.run, state.run),
            ("created-at", header.created_at, state.created_at),
            ("updated-at", header.updated_at, state.at),
            ("started-at", header.started_at, state.started_at),
            ("ended-at", header.ended_at, state.ended_at),
            ("jobs done", header.jobs_done, state.jobs_done),
            ("jobs total", header.jobs_total, state.jobs_total),
            ("tenant", header.tenant, storable(state.tenant)),
            # Executions from before there were entities have none in their rows.
            ("entity", header.entity or DEFAULT_ENTITY, storable(state.entity)),
            ("retention", header.retention, storable(state.retention)),
            ("retention hash", header.retention_hash, storable(state.retention_hash)),
            ("retry-of", header.retry_of, state.retry_of),
        )
        for name, stored, folded in pairs:
            if stored != folded:
                self.bad("I-4", f"the header says {name} {stored!r}, the history {folded!r}")
        if not _is_same_summary(header.summary, summary_of(state)):
            self.bad("I-4", "the header's summary (who, labels, output, failure) is not that of the history")
        if self.queries.definition(state.definition) is None:
            self.bad("I-36", "its definition is not stored")

    def _lines(self, header: Header) -> None:
        lines = self.queries.rows(
            "SELECT count(*), coalesce(max(number), 0) FROM logs WHERE execution = ?", (to_key(self.id),)
        )[0]
        if lines[0] != lines[1] or lines[1] != header.logs:
            self.bad("I-2", f"{lines[0]} log lines, the last is {lines[1]}, the header says {header.logs}")

    # --- the fold against the work ------------------------------------------------------------------
    def _against_rows(self, state: State) -> None:
        rows = {row.job: row for row in self.queries.jobs_of(self.id)}
        for job in state.jobs.values():
            self._place(state, job, rows.pop(job.id, None))
        for left in rows:
            self.bad("I-11", f"a queue holds job {left}, which the history does not")
        try:
            items = {row.item: row for row in self.queries.agenda_of(self.id)}
        except msgspec.DecodeError as error:
            self.bad("I-18", f"the agenda cannot be read: {error}")
            return
        for invariant, text in wrong_with_execution(self.queries, state, self.fences, items):
            self.bad(invariant, text)
        for invariant, text in wrong_about_entities(self.queries, state, items):
            self.bad(invariant, text)
        self._agenda(state, items)

    def _place(self, state: State, job: Job, row: JobRow | None) -> None:
        """A job that is not over is in exactly one place; its row says what the history says."""
        spec = spec_of(state, job)
        if job.status not in (JobStatus.SENT, JobStatus.STARTED):
            if row is not None:
                where = "in back-off and in a queue at once"
                is_waiting = job.status is JobStatus.RESCHEDULED
                self.bad("I-11", f"job {job.id} is {where if is_waiting else 'over but still in a queue'}")
        elif row is None:
            how = "scheduled but in no queue" if job.status is JobStatus.SENT else "started but nobody has claimed it"
            self.bad("I-12", f"job {job.id} is {how}")
        elif job.status is JobStatus.SENT and row.incarnation:
            self.bad("I-11", f"job {job.id} waits according to the history, its row is claimed")
        elif job.status is JobStatus.STARTED and not row.incarnation:
            self.bad("I-13", f"job {job.id} is started according to the history, its row is not claimed")
        elif row.attempt != job.attempt:
            self.bad("I-13", f"job {job.id} is at attempt {job.attempt}, its row at {row.attempt}")
        elif row.queue != storable(spec.queue) or row.block not in (storable(place_of(spec)), storable(spec.block)):
            wanted = f"block {spec.block} in queue {spec.queue}"
            self.bad("I-12", f"job {job.id} is of {wanted}, its row says {row.block} in {row.queue}")
        elif row.incarnation:
            self._claim(row)

    def _claim(self, row: JobRow) -> None:
        """A claim whose worker has no row any more is given up by an engine. Quiet as long as none can have
        noticed."""
        if row.incarnation in self.incarnations:
            return
        self.incarnations.update(worker.incarnation for worker in self.queries.workers())
        if row.incarnation in self.incarnations:
            return
        now, started_at = _signs(self.queries)
        if now - max(row.since, started_at) > CLAIM_GRACE:
            minutes = (now - row.since) // 60_000_000
            text = f"job {row.job} was claimed {minutes} minutes ago by {row.incarnation}, which is no worker's"
            self.bad("I-12", f"{text} incarnation: nobody will answer for it")

    def _agenda(self, state: State, items: dict[str, AgendaRow]) -> None:
        expected: dict[str, tuple[int, r.Due]] = {
            f"timer/{timer.id}": (timer.due, r.FireTimer(timer.id)) for timer in state.timers.values()
        }
        for job in state.jobs.values():
            if job.status is JobStatus.RESCHEDULED and job.due != FAR:
                expected[f"job/{job.id}"] = (job.due, r.ReleaseJob(job.id, job.attempt))
        if state.status is Status.CANCELLING and items.pop(GRACE, None) is None:
            left = [
                job.id for job in state.jobs.values() if job.status is JobStatus.STARTED and _is_stopped(state, job)
            ]
            if left:
                self.bad("I-18", f"jobs {left} were told to stop, and nothing on the agenda ends their time for it")
        if state.is_turn_open and not state.status.is_ended:
            expected[f"turn/{state.turn}"] = (-1, r.TakeTurn(state.turn))
        for item, (due, request) in expected.items():
            row = items.pop(item, None)
            if row is None:
                self.bad("I-18", f"{item} is missing on the agenda: it would never happen")
            elif due >= 0 and row.due != due:
                self.bad("I-18", f"{item} is due at {row.due} on the agenda, at {due} in the history")
            elif row.request != request:
                self.bad("I-18", f"{item} asks for {row.request} on the agenda, the history for {request}")
        for item in items:
            self.bad("I-18", f"{item} is on the agenda, but not in the history")

    # --- the verdict --------------------------------------------------------------------------------
    def _verdict(self, state: State) -> None:
        if not state.status.is_ended or state.status in (Status.COMPLETED, Status.COMPLETED_ACK):
            return
        left = ledgers.residue(state.ledger)
        is_safe = state.status in (Status.FAILED_SAFE, Status.FAILED_SAFE_ACK)
        is_unsafe = state.status in (Status.FAILED_UNSAFE, Status.FAILED_UNSAFE_ACK)
        if is_safe and left:
            self.bad("I-33", f"called safe although the effects of jobs {list(left)} remain")
        elif is_unsafe and not state.residue:
            self.bad("I-34", "called unsafe without naming what remains")
        elif left != state.residue:
            self.bad("I-33", f"residue is {list(state.residue)}, the ledger says {list(left)}")

    # --- blobs --------------------------------------------------------------------------------------
    def _blobs(self) -> None:
        """Everything the history refers to is stored, and so is what that refers to."""
        seen = set(self.blobs)
        left = list(self.blobs.values())
        while left:
            ref = left.pop()
            data = self.queries.blob(self.id, ref.digest)
            if data is None:
                self.bad("I-36", f"{ref} is referred to but not stored")
            elif blob_digest(data) != ref.digest:
                self.bad("I-3", f"{ref} was changed after it was stored")
            elif _REFERENCE in data:
                for inner in _refs(unpack(data)):
                    if inner.digest not in seen:
                        seen.add(inner.digest)
                        left.append(inner)


def _is_same_summary(stored: bytes, folded: Summary) -> bool:
    if stored == pack(folded):
        return True
    try:
        # Written by another version, it may have fewer fields.
        return pack(msgspec.convert(unpack(stored), Summary)) == pack(folded)
    except (msgspec.MsgspecError, NotImplementedError):
        return False


def _is_stopped(state: State, job: Job) -> bool:
    is_at_work = job.status is JobStatus.STARTED and job.kind is not JobKind.VERIFY
    return is_at_work and (job.is_stopping or not state.is_cleaning)


def _refs(value: Any) -> Iterator[BlobRef]:
    """All references in a value, a struct or events, however deep."""
    left = [value]
    while left:
        item = left.pop()
        match item:
            case BlobRef():
                yield item
            case dict():
                left += item.values()
            case list() | tuple():
                left += item
            case msgspec.Struct():
                left += [getattr(item, name) for name in item.__struct_fields__]
            case _:
                pass
