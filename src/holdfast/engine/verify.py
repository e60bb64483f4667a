"""Verify: does what the store holds agree with itself? Every invariant that rows can show, on any store.

Safe to run beside a working engine: each execution is checked as of one moment. It derives everything
from the histories with the same `apply` and `follow_up` that made the rows, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.core import events as e
from holdfast.core import ledger as ledgers
from holdfast.core.codec import chain, unpack_events
from holdfast.core.ids import from_key, to_key
from holdfast.core.model import BlobRef, Effect, JobStatus, Status
from holdfast.core.snapshot import canonical, restore
from holdfast.core.state import State, apply, open_state
from holdfast.store.port import Store
from holdfast.store.queries import Queries
from holdfast.store.records import Header


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
    after = b""
    with store.reading() as queries:
        while keys := queries.ids(after, 200):
            for key in keys:
                id = from_key(key)
                with queries.consistent():
                    report.findings += _Check(queries, id, report).run()
                report.executions += 1
            after = keys[-1]
            if progress is not None:
                progress(report.executions)
        with queries.consistent():
            report.findings += _orphans(queries)
    return report


def _orphans(queries: Queries) -> Iterator[Finding]:
    for table, execution in queries.orphans():
        yield Finding("I-36", execution, f"table {table} has rows of an execution that does not exist")


class _Check:
    """One execution."""

    def __init__(self, queries: Queries, id: str, report: Report) -> None:
        self.queries = queries
        self.id = id
        self.report = report
        self.findings: list[Finding] = []
        #: attempts that may have had an effect, by job that may not run twice
        self.starts: dict[int, int] = {}

    def bad(self, invariant: str, text: str) -> None:
        self.findings.append(Finding(invariant, self.id, text))

    def run(self) -> list[Finding]:
        found = self.queries.rows("SELECT tenant FROM executions WHERE id = ?", (to_key(self.id),))
        header = self.queries.header(found[0][0], self.id) if found else None
        if header is None:
            return []
        parts = self.queries.parts(self.id)
        snapshot = self._restored(parts)
        try:
            state = self._fold(header, snapshot)
        except (AssertionError, KeyError, msgspec.DecodeError, IndexError) as error:
            self.bad("I-4", f"the history cannot be folded: {type(error).__name__}: {error}")
            return self.findings
        self._against_header(header, state, bool(parts))
        self._against_rows(header, state)
        self._verdict(state)
        self._blobs(state)
        return self.findings

    def _restored(self, parts: dict[str, bytes]) -> State | None:
        if not parts:
            return None
        try:
            return restore(parts)
        except (KeyError, msgspec.DecodeError) as error:
            self.bad("I-4", f"the snapshot cannot be read: {error}")
            return None

    def _fold(self, header: Header, snapshot: State | None) -> State:
        state = open_state(self.id)
        digest, seq = b"", 0
        while rows := self.queries.history(self.id, seq, 500):
            for row in rows:
                events = unpack_events(row.body)
                self.report.events += len(events)
                if row.seq != seq + len(events):
                    self.bad("I-2", f"row {row.seq} should end at event {seq + len(events)}: a gap or a repeat")
                expected = chain(digest, row.seq, row.at, row.body)
                if expected != row.digest:
                    self.bad("I-3", f"row {row.seq} does not continue the chain: it was changed afterwards")
                if row.at < state.at:
                    self.bad("I-18", f"row {row.seq} is dated before the one it follows")
                digest, seq = row.digest, row.seq
                state.at = max(state.at, row.at)
                for event in events:
                    self._count(state, event)
                    apply(state, event)
                is_there = snapshot is not None and state.version == snapshot.version
                if snapshot is not None and is_there and canonical(state) != canonical(snapshot):
                    self.bad("I-4", f"the snapshot at {snapshot.version} is not the fold of the history")
        if header.version != seq:
            self.bad("I-5", f"the header says version {header.version}, the history ends at {seq}")
        if header.digest != digest:
            self.bad("I-3", "the header's digest is not that of the last row")
        return state

    def _count(self, state: State, event: e.Event) -> None:
        """At most once per visit: attempts that may have had an effect, of jobs that may not repeat."""
        match event:
            case e.JobStarted(job=id):
                if not state.specs[state.jobs[id].spec].may_repeat:
                    self.starts[id] = self.starts.get(id, 0) + 1
                    if self.starts[id] > 1:
                        self.bad("I-16", f"job {id} may run once, yet a second attempt was started")
            case e.JobReleased(job=id, undelivered=True):
                self.starts[id] = self.starts.get(id, 1) - 1
            case e.JobRescheduled(job=id, effect=Effect.NONE):
                self.starts[id] = self.starts.get(id, 1) - 1
            case _:
                pass

    def _against_header(self, header: Header, state: State, has_parts: bool) -> None:
        pairs: tuple[tuple[str, Any, Any], ...] = (
            ("status", header.status, state.status),
            ("workflow", header.workflow, state.workflow),
            ("definition", header.definition, state.definition),
            ("created-at", header.created_at, state.created_at),
            ("ended-at", header.ended_at, state.ended_at),
            ("jobs done", header.jobs_done, state.jobs_done),
            ("jobs total", header.jobs_total, state.jobs_total),
            ("tenant", header.tenant, state.tenant),
        )
        for name, stored, folded in pairs:
            if stored != folded:
                self.bad("I-4", f"the header says {name} {stored!r}, the history {folded!r}")
        if has_parts and not header.snapshot:
            self.bad("I-4", "there are snapshot parts although the header names no snapshot")
        lines = self.queries.rows(
            "SELECT count(*), coalesce(max(number), 0) FROM logs WHERE execution = ?", (to_key(self.id),)
        )[0]
        if lines[0] != lines[1] or lines[1] != header.logs:
            self.bad("I-2", f"{lines[0]} log lines, the last is {lines[1]}, the header says {header.logs}")
        if self.queries.definition(header.definition) is None:
            self.bad("I-36", "its definition is not stored")

    def _against_rows(self, header: Header, state: State) -> None:
        rows = {row.job: row for row in self.queries.jobs_of(self.id)}
        items = {row.item: row for row in self.queries.agenda_of(self.id)}
        expected_items: dict[str, int] = {f"timer/{t.id}": t.due for t in state.timers.values()}
        if state.is_turn_open and not state.status.is_ended:
            expected_items[f"turn/{state.turn}"] = -1
        for job in state.jobs.values():
            row = rows.pop(job.id, None)
            match job.status:
                case JobStatus.SENT:
                    if row is None:
                        self.bad("I-12", f"job {job.id} is scheduled but in no queue")
                    elif row.incarnation:
                        self.bad("I-11", f"job {job.id} waits according to the history, its row is claimed")
                case JobStatus.STARTED:
                    if row is None:
                        self.bad("I-12", f"job {job.id} is started but nobody has claimed it")
                    elif not row.incarnation or row.attempt != job.attempt:
                        self.bad("I-13", f"job {job.id} is at attempt {job.attempt}, its row at {row.attempt}")
                case JobStatus.RESCHEDULED:
                    expected_items[f"job/{job.id}"] = job.due
                    if row is not None:
                        self.bad("I-11", f"job {job.id} is in back-off and in a queue at once")
                case _:
                    if row is not None:
                        self.bad("I-11", f"job {job.id} is over but still in a queue")
        for left in rows:
            self.bad("I-11", f"a queue holds job {left}, which the history does not")
        for item, due in expected_items.items():
            agenda = items.pop(item, None)
            if agenda is None:
                self.bad("I-18", f"{item} is missing on the agenda: it would never happen")
            elif due >= 0 and agenda.due != due:
                self.bad("I-18", f"{item} is due at {agenda.due} on the agenda, at {due} in the history")
        for item in items:
            self.bad("I-18", f"{item} is on the agenda, but not in the history")
        if header.status.is_ended and self.queries.parts(self.id):
            self.bad("I-36", "it has ended but still has snapshot parts")

    def _verdict(self, state: State) -> None:
        if not state.status.is_ended:
            return
        left = ledgers.residue(state.ledger)
        match state.status:
            case Status.FAILED_SAFE | Status.FAILED_SAFE_ACK:
                if left:
                    self.bad("I-33", f"called safe although the effects of jobs {list(left)} remain")
            case Status.FAILED_UNSAFE | Status.FAILED_UNSAFE_ACK:
                if not state.residue:
                    self.bad("I-34", "called unsafe without naming what remains")
            case _:
                pass
        if state.status not in (Status.COMPLETED, Status.COMPLETED_ACK) and left != state.residue:
            self.bad("I-33", f"residue is {list(state.residue)}, the ledger says {list(left)}")

    def _blobs(self, state: State) -> None:
        for ref in _refs(_values(state)):
            if self.queries.blob(self.id, ref.digest) is None:
                self.bad("I-36", f"{ref} is referred to but not stored")


def _values(state: State) -> list[Any]:
    """Everything in a state that may refer to a blob."""
    lanes = [
        [lane.output, lane.outputs, lane.results, [frame.variables for frame in lane.frames]]
        for lane in state.lanes.values()
    ]
    return [
        state.input,
        state.output,
        lanes,
        [[job.input, job.result] for job in state.jobs.values()],
        state.signals,
    ]


def _refs(value: Any) -> Iterator[BlobRef]:
    match value:
        case BlobRef():
            yield value
        case dict():
            for item in value.values():
                yield from _refs(item)
        case list() | tuple():
            for item in value:
                yield from _refs(item)
        case _:
            pass
