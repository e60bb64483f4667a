"""Verify finds what is wrong, and says it once: real stores, damaged row by row behind their engine's back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from holdfast.core import events as e
from holdfast.core.codec import chain, pack, unpack_events
from holdfast.core.ids import to_key
from holdfast.core.model import BlobRef, Failure, LogLine, Status, blob_digest
from holdfast.core.requests import CancelExecution, CompleteJob, FailJob, FireTimer, ReleaseJob, SendSignal
from holdfast.core.state import fold, open_state
from holdfast.core.views import summary_of
from holdfast.engine.items import Put, spill
from holdfast.engine.verify import CLAIM_GRACE, Finding, verify
from holdfast.store.records import Batch, WorkerRow
from tests.engine.driver import Hand, execution_id
from tests.store.conftest import Backend

#: what the executions of the store under test are
DONE, CLAIMED, UNSAFE, BACKOFF, SNAPSHOT, TURN, TIMED, INVALID, WAITING, CANCELLED = range(1, 11)


def step(block: str, **more: Any) -> dict[str, Any]:
    return {"block": block, **more}


def furnish(hand: Hand) -> None:
    """Executions in every situation there is a check for; at the end one job is claimed, of CLAIMED."""
    worker = WorkerRow("w", "inc", "", "", 0, 1, ["default"], ["test.noop"], hand.now, hand.now, 30_000_000, "online")
    hand.turn([Put(Batch(workers=[worker]))])

    def one() -> Any:
        (parcel,) = hand.parcels()
        hand.finish((parcel.execution, parcel.job))
        return parcel

    def succeed(n: int, value: Any = None) -> None:
        parcel = one()
        done = hand.ask(n, None)
        done.request = CompleteJob(parcel.job, parcel.attempt, spill(done, value), logs=(LogLine("a line"),))
        hand.turn([done])

    def fail(n: int) -> None:
        parcel = one()
        hand.turn([hand.ask(n, FailJob(parcel.job, parcel.attempt, Failure("block-error", "no")))])

    steps = [{"id": "a", **step("test.noop")}, "return ${steps.a.output}"]
    hand.turn([hand.start(DONE, {"name": "done", "steps": steps})])
    succeed(DONE, {"long": "x" * 3000})
    hand.turn([hand.start(UNSAFE, {"name": "unsafe", "steps": ["test.noop", "test.noop"]})])
    succeed(UNSAFE)
    fail(UNSAFE)
    retry = {"attempts": 3, "delay": "1h"}
    hand.turn([hand.start(BACKOFF, {"name": "backoff", "steps": [step("test.idempotent", retry=retry)]})])
    fail(BACKOFF)
    hand.turn([hand.start(SNAPSHOT, {"name": "long", "steps": ["test.noop"] * 80 + ["sleep 1h"]})])
    for _ in range(80):
        succeed(SNAPSHOT)
    hand.turn([hand.start(TURN, {"name": "busy", "steps": ["let x = 1"] * 1500})])
    short = {"attempts": 3, "delay": "1s"}
    steps = [step("test.idempotent", retry=short), "sleep 1s"]
    hand.turn([hand.start(TIMED, {"name": "timed\0", "steps": steps})])
    fail(TIMED)
    hand.now += 10_000_000
    hand.turn([hand.ask(TIMED, ReleaseJob(1, 1))])
    succeed(TIMED)
    hand.now += 10_000_000
    hand.turn([hand.ask(TIMED, FireTimer(1))])
    hand.turn([hand.start(INVALID, {"name": "invalid", "steps": ["no.block"]}, key="key")])
    hand.turn([hand.start(CANCELLED, {"name": "cancelled", "steps": ["sleep 1h"]})])
    hand.turn([hand.ask(CANCELLED, SendSignal("early", 1)), hand.ask(CANCELLED, CancelExecution("enough"))])
    hand.turn([hand.start(CLAIMED, {"name": "claimed", "steps": ["test.noop"]})])
    hand.turn([hand.start(WAITING, {"name": "waiting", "steps": [{"parallel": ["test.noop", "sleep 1h"]}]})])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store in which nothing is wrong."""
    path = tmp_path_factory.mktemp("sound") / "holdfast.db"
    backend = Backend("sqlite", str(path))
    furnish(Hand(backend.open(), slots=1))
    backend.close()
    return path


class Patient:
    """A copy of it, to be damaged."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def key(self, n: int) -> str:
        hexadecimal = to_key(execution_id(n)).hex()
        return f"X'{hexadecimal}'" if self.backend.kind == "sqlite" else f"'\\x{hexadecimal}'::bytea"

    def sql(self, sql: str) -> None:
        """`{NAME}` stands for the key of an execution. What is changed has to be there."""
        keys = {name: self.key(n) for name, n in globals().items() if name.isupper() and isinstance(n, int)}
        self.backend.execute(sql.format(**keys))

    def rewrite(self, n: int, edit: Callable[[list[list[e.Event]]], None], blobs: tuple[bytes, ...] = ()) -> None:
        """Another history, chained and with a header that fits: as if the engine had decided so."""
        id = execution_id(n)
        key = to_key(id)
        db = apsw.Connection(self.backend.place)
        found: Any = db.execute("SELECT at, body FROM history WHERE execution = ? ORDER BY seq", (key,)).fetchall()
        rows = [list(unpack_events(body)) for _, body in found]
        edit(rows)
        state, digest = open_state(id), b""
        db.execute("DELETE FROM history WHERE execution = ?", (key,))
        for (at, _), events in zip(found, rows, strict=True):
            fold(state, at, events)
            body = pack(events)
            digest = chain(digest, state.version, at, body)
            db.execute("INSERT INTO history VALUES (?,?,?,?,?)", (key, state.version, at, body, digest))
        db.execute(
            "UPDATE executions SET version=?, digest=?, status=?, jobs_done=?, ended_at=?, summary=? WHERE id=?",
            (state.version, digest, int(state.status), state.jobs_done, state.ended_at, pack(summary_of(state)), key),
        )
        for blob in blobs:
            db.execute("INSERT INTO blobs VALUES (?,?,?)", (key, blob_digest(blob), blob))
        db.close()

    def findings(self) -> list[Finding]:
        store = self.backend.open()
        return verify(store).findings


@pytest.fixture
def patient(sound: Path, tmp_path: Path) -> Iterator[Patient]:
    copy = tmp_path / "holdfast.db"
    shutil.copy(sound, copy)
    backend = Backend("sqlite", str(copy))
    yield Patient(backend)
    backend.close()


def test_a_sound_store_has_no_findings(patient: Patient) -> None:
    """Among them a name with U+0000, of which the header keeps what both stores can."""
    store = patient.backend.open()
    report = verify(store)
    assert report.findings == []
    assert report.executions == 10
    with store.reading() as queries:
        statuses = {n: queries.rows("SELECT status FROM executions WHERE id = ?", (to_key(execution_id(n)),))[0][0]
                    for n in range(1, 11)}  # fmt: skip
        assert [row.execution for row in queries.claimed()] == [execution_id(CLAIMED)]
        assert {table for table in TABLES if not queries.count(table)} == set()
    ended = {DONE, UNSAFE, TIMED, INVALID, CANCELLED}
    assert {n for n, status in statuses.items() if Status(status).is_ended} == ended


TABLES = ("executions", "history", "jobs", "agenda", "logs", "blobs", "parts", "definitions", "starts", "workers")
LAST = "(SELECT max(seq) FROM history WHERE execution = {DONE})"
FIRST = "(SELECT min(seq) FROM history WHERE execution = {SNAPSHOT})"

#: (what, the damage, the execution it shows at or 0, invariant, words of the finding)
DAMAGES: list[tuple[str, str, int, str, str]] = [
    ("first row dropped", f"DELETE FROM history WHERE execution = {{SNAPSHOT}} AND seq = {FIRST}", SNAPSHOT, "I-2", "gap"),
    ("inner row dropped", "DELETE FROM history WHERE execution = {SNAPSHOT} AND seq = (SELECT max(seq) FROM history"
     " WHERE execution = {SNAPSHOT} AND seq < 100)", SNAPSHOT, "I-2", "gap"),
    ("last row dropped", f"DELETE FROM history WHERE execution = {{DONE}} AND seq = {LAST}", DONE, "I-5", "version"),
    ("history dropped", "DELETE FROM history WHERE execution = {WAITING}", WAITING, "I-5", "ends at 0"),
    ("time changed", f"UPDATE history SET at = at + 1 WHERE execution = {{SNAPSHOT}} AND seq = {FIRST}",
     SNAPSHOT, "I-3", "changed afterwards"),
    ("time of the last row changed", f"UPDATE history SET at = 1 WHERE execution = {{DONE}} AND seq = {LAST}",
     DONE, "I-3", "changed afterwards"),
    ("digest changed", f"UPDATE history SET digest = {{TIMED}} WHERE execution = {{SNAPSHOT}} AND seq = {FIRST}",
     SNAPSHOT, "I-3", "chain"),
    ("last digest changed", f"UPDATE history SET digest = {{TIMED}} WHERE execution = {{DONE}} AND seq = {LAST}",
     DONE, "I-3", "chain"),
    ("header's digest changed", "UPDATE executions SET digest = {TIMED} WHERE id = {DONE}", DONE, "I-3", "header"),
    ("header's version changed", "UPDATE executions SET version = version + 1 WHERE id = {WAITING}", WAITING, "I-5", "version"),
    *(
        (f"header's {column} changed", f"UPDATE executions SET {column} = {value} WHERE id = {{{name}}}",
         n, "I-4", words)
        for column, value, name, n, words in [
            ("status", "13", "WAITING", WAITING, "status"),
            ("status", "99", "WAITING", WAITING, "cannot be read"),
            ("workflow", "'other'", "DONE", DONE, "workflow"),
            ("workflow", "'timed?'", "TIMED", TIMED, "workflow"),
            ("workflow_version", "7", "DONE", DONE, "workflow version"),
            ("tenant", "'other'", "DONE", DONE, "tenant"),
            ("definition", "{TIMED}", "DONE", DONE, "definition"),
            ("run", "2", "DONE", DONE, "run"),
            ("created_at", "1", "DONE", DONE, "created-at"),
            ("updated_at", "1", "DONE", DONE, "updated-at"),
            ("started_at", "1", "DONE", DONE, "started-at"),
            ("ended_at", "1", "DONE", DONE, "ended-at"),
            ("jobs_done", "jobs_done + 1", "CLAIMED", CLAIMED, "jobs done"),
            ("jobs_total", "jobs_total - 1", "CLAIMED", CLAIMED, "jobs total"),
            ("summary", "{TIMED}", "DONE", DONE, "summary"),
            ("snapshot", "3", "WAITING", WAITING, "is missing"),
            ("snapshot", "0", "SNAPSHOT", SNAPSHOT, "names no snapshot"),
            ("snapshot", "snapshot + 1", "SNAPSHOT", SNAPSHOT, "snapshot is of version"),
        ]
    ),
    ("header's log count changed", "UPDATE executions SET logs = 9 WHERE id = {DONE}", DONE, "I-2", "log lines"),
    ("log line dropped", "DELETE FROM logs WHERE execution = {SNAPSHOT} AND number = 5", SNAPSHOT, "I-2", "log lines"),
    ("snapshot part dropped", "DELETE FROM parts WHERE execution = {SNAPSHOT} AND part LIKE 'lanes/_'",
     SNAPSHOT, "I-4", "not the fold"),
    ("snapshot head dropped", "DELETE FROM parts WHERE execution = {SNAPSHOT} AND part = 'head'",
     SNAPSHOT, "I-4", "cannot be read"),
    ("snapshot part unreadable", "UPDATE parts SET data = {SNAPSHOT} WHERE execution = {SNAPSHOT} AND part = 'lanes/0'",
     SNAPSHOT, "I-4", "cannot be read"),
    ("snapshot of an ended one", "INSERT INTO parts VALUES ({DONE}, 'head', {DONE})", DONE, "I-36", "snapshot parts"),
    ("waiting job's row dropped", "DELETE FROM jobs WHERE execution = {WAITING}", WAITING, "I-12", "in no queue"),
    ("claimed job's row dropped", "DELETE FROM jobs WHERE execution = {CLAIMED}", CLAIMED, "I-12", "nobody has claimed"),
    ("waiting job's row claimed", "UPDATE jobs SET incarnation = 'inc' WHERE execution = {WAITING}",
     WAITING, "I-11", "its row is claimed"),
    ("claim lost", "UPDATE jobs SET incarnation = '' WHERE execution = {CLAIMED}", CLAIMED, "I-13", "not claimed"),
    ("claim of another attempt", "UPDATE jobs SET attempt = 2 WHERE execution = {CLAIMED}", CLAIMED, "I-13", "attempt 1"),
    ("waiting at another attempt", "UPDATE jobs SET attempt = 2 WHERE execution = {WAITING}", WAITING, "I-13", "attempt 0"),
    ("row in another queue", "UPDATE jobs SET queue = 'gpu' WHERE execution = {WAITING}", WAITING, "I-12", "in gpu"),
    ("row of another block", "UPDATE jobs SET block = 'shell' WHERE execution = {CLAIMED}", CLAIMED, "I-12", "says shell"),
    ("row of a job in back-off", "INSERT INTO jobs VALUES ({BACKOFF}, 1, 'default', 'test.idempotent', 1, 1, '', 0)",
     BACKOFF, "I-11", "at once"),
    ("row of a job nobody knows", "INSERT INTO jobs VALUES ({WAITING}, 9, 'default', 'test.noop', 1, 0, '', 0)",
     WAITING, "I-11", "job 9"),
    ("row of an ended execution", "INSERT INTO jobs VALUES ({DONE}, 1, 'default', 'test.noop', 1, 1, '', 0)",
     DONE, "I-11", "job 1"),
    ("worker gone long ago", f"UPDATE workers SET incarnation = 'next', seen_at = seen_at + {CLAIM_GRACE + 10**9}",
     CLAIMED, "I-12", "nobody will answer"),
    ("timer not on the agenda", "DELETE FROM agenda WHERE execution = {WAITING}", WAITING, "I-18", "timer/1 is missing"),
    ("back-off not on the agenda", "DELETE FROM agenda WHERE execution = {BACKOFF}", BACKOFF, "I-18", "job/1 is missing"),
    ("turn not on the agenda", "DELETE FROM agenda WHERE execution = {TURN}", TURN, "I-18", "is missing"),
    ("due changed", "UPDATE agenda SET due = due + 1 WHERE execution = {BACKOFF}", BACKOFF, "I-18", "job/1 is due"),
    ("request changed", "UPDATE agenda SET request = (SELECT request FROM agenda WHERE execution = {TURN})"
     " WHERE execution = {WAITING}", WAITING, "I-18", "asks for TakeTurn"),
    ("request unreadable", "UPDATE agenda SET request = {TURN} WHERE execution = {WAITING}", WAITING, "I-18", "cannot be read"),
    ("agenda of nothing", "INSERT INTO agenda SELECT {DONE}, 'timer/1', due, request FROM agenda WHERE execution = {WAITING}",
     DONE, "I-18", "not in the history"),
    ("blob of an ended one dropped", "DELETE FROM blobs WHERE execution = {DONE}", DONE, "I-36", "not stored"),
    ("blob changed", "UPDATE blobs SET data = {DONE} WHERE execution = {DONE}", DONE, "I-3", "changed after"),
    ("definition dropped", "DELETE FROM definitions WHERE digest = (SELECT definition FROM executions WHERE id = {DONE})",
     DONE, "I-36", "definition"),
    *(
        (f"execution of a row in {table} unknown", f"INSERT INTO {table} VALUES ({values})", 0, "I-36", f"table {table}")
        for table, values in [
            ("history", "{NOBODY}, 1, 1, {DONE}, {DONE}"),
            ("jobs", "{NOBODY}, 1, 'default', 'test.noop', 1, 0, '', 0"),
            ("beats", "{NOBODY}, 1, 1, {DONE}"),
            ("agenda", "{NOBODY}, 'timer/1', 1, {DONE}"),
            ("logs", "{NOBODY}, 1, 1, 20, '', 0, 'x'"),
            ("blobs", "{NOBODY}, {DONE}, {DONE}"),
            ("parts", "{NOBODY}, 'head', {DONE}"),
            ("starts", "'default', 'k', {NOBODY}, {DONE}, 1"),
        ]
    ),
]  # fmt: skip
NOBODY = 99


@pytest.mark.parametrize(("what", "damage", "n", "invariant", "words"), DAMAGES, ids=[entry[0] for entry in DAMAGES])
def test_one_damage_is_one_finding(
    patient: Patient, what: str, damage: str, n: int, invariant: str, words: str
) -> None:
    patient.sql(damage)
    (found,) = patient.findings()
    assert (found.invariant, found.execution) == (invariant, execution_id(n or NOBODY)), what
    assert words in found.text


ON_POSTGRES = {"inner row dropped", "claim of another attempt", "timer not on the agenda", "header's jobs_done changed"}


def test_postgres_is_looked_at_alike(pg_dsn: str) -> None:
    backend = Backend("postgres", pg_dsn)
    furnish(Hand(backend.open(), slots=1))
    patient = Patient(backend)
    assert patient.findings() == []
    chosen = [entry for entry in DAMAGES if entry[0] in ON_POSTGRES]
    assert len(chosen) == len(ON_POSTGRES)
    for _, damage, *_ in chosen:
        patient.sql(damage)
    found = {(finding.execution, finding.invariant) for finding in patient.findings()}
    assert found == {(execution_id(n), invariant) for _, _, n, invariant, _ in chosen}
    assert len(patient.findings()) == len(chosen)
    backend.close()


# --- histories that are chained and yet wrong: what an engine with a bug would have written ------------
def replaced(kind: type[e.Event], **fields: Any) -> Callable[[list[list[e.Event]]], None]:
    """The last event of that class, with other fields."""

    def edit(rows: list[list[e.Event]]) -> None:
        events, index = [(row, i) for row in rows for i, event in enumerate(row) if isinstance(event, kind)][-1]
        events[index] = msgspec.structs.replace(events[index], **fields)

    return edit


def inserted(before: type[e.Event], event: e.Event) -> Callable[[list[list[e.Event]]], None]:
    def edit(rows: list[list[e.Event]]) -> None:
        events, index = [(row, i) for row in rows for i, one in enumerate(row) if isinstance(one, before)][-1]
        events.insert(index, event)

    return edit


NEVER = BlobRef(bytes(16), 5000)
FAR = 10**15
WRONG: list[tuple[str, int, Callable[[list[list[e.Event]]], None], str, str]] = [
    ("a timer that fired early", TIMED, replaced(e.TimerSet, due=FAR), "I-18", "timer 1 fired"),
    ("a back-off cut short", TIMED, replaced(e.JobRescheduled, due=FAR), "I-17", "the back-off of job 1"),
    ("a blob that never was", DONE, replaced(e.JobSucceeded, result=NEVER), "I-36", "BlobRef(000000000000, 5000 bytes)"),
    ("a blob inside a value", CANCELLED, replaced(e.SignalReceived, value={"a": [1, {"b": NEVER}]}), "I-36", "not stored"),
    ("a second attempt", UNSAFE, inserted(e.JobFailed, e.JobStarted(2, 2, "w")), "I-16", "job 2 may run once"),
    ("safe, but it is not", UNSAFE, replaced(e.ExecutionFailed, status=Status.FAILED_SAFE, residue=()), "I-33", "[1, 2]"),
    ("unsafe without a reason", UNSAFE, replaced(e.ExecutionFailed, residue=()), "I-34", "without naming"),
    ("half the residue", UNSAFE, replaced(e.ExecutionFailed, residue=(2,)), "I-33", "residue is [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "n", "edit", "invariant", "words"), WRONG, ids=[entry[0] for entry in WRONG])
def test_a_chained_history_may_be_wrong_too(
    patient: Patient, what: str, n: int, edit: Callable[[list[list[e.Event]]], None], invariant: str, words: str
) -> None:
    if what == "a blob that never was":
        # The execution's output is the same value; what is read first is the job's result.
        patient.rewrite(n, replaced(e.ExecutionCompleted, output=None))
    patient.rewrite(n, edit)
    found = [finding for finding in patient.findings() if finding.execution == execution_id(n)]
    assert [finding.invariant for finding in found] == [invariant], (what, found)
    assert words in found[0].text


def test_a_history_rewritten_without_a_change_is_sound(patient: Patient) -> None:
    """So what the tests above find is what they changed."""
    for n in (DONE, UNSAFE, TIMED, CANCELLED):
        patient.rewrite(n, lambda rows: None)
    assert patient.findings() == []


def test_a_lost_attempt_may_go_back_without_a_pause(patient: Patient) -> None:
    def edit(rows: list[list[e.Event]]) -> None:
        lost = e.JobRescheduled(1, 1, FAR, Failure("worker-lost", "gone"))
        events = next(row for row in rows if any(isinstance(event, e.JobRescheduled) for event in row))
        events[:] = [lost, e.JobReleased(1)]
        back = next(row for row in rows if row is not events and any(isinstance(event, e.JobReleased) for event in row))
        back[:] = [event for event in back if not isinstance(event, e.JobReleased)]

    patient.rewrite(TIMED, edit)
    assert patient.findings() == []


def test_what_a_stored_blob_refers_to_is_looked_for_too(patient: Patient) -> None:
    inner = pack({"long": "y" * 2000})
    middle = pack([BlobRef(blob_digest(inner), len(inner)), "z" * 2000])
    outer = pack({"list": BlobRef(blob_digest(middle), len(middle)), "text": "z" * 2000})
    refers = replaced(e.SignalReceived, value=BlobRef(blob_digest(outer), len(outer)))
    patient.rewrite(CANCELLED, refers, (outer, middle))
    (found,) = patient.findings()
    assert (found.invariant, found.execution) == ("I-36", execution_id(CANCELLED))
    assert blob_digest(inner).hex()[:12] in found.text
    patient.rewrite(CANCELLED, lambda rows: None, (inner,))
    assert patient.findings() == []


@pytest.mark.parametrize("body", [pack([]), pack(["nonsense"]), b"\xc1", b""])
def test_a_changed_body_is_one_finding(patient: Patient, body: bytes) -> None:
    db = apsw.Connection(patient.backend.place)
    key = to_key(execution_id(SNAPSHOT))
    db.execute("UPDATE history SET body = ? WHERE execution = ? AND seq = (SELECT max(seq) FROM history"
               " WHERE execution = ? AND seq < 100)", (body, key, key))  # fmt: skip
    db.close()
    (found,) = patient.findings()
    assert found.execution == execution_id(SNAPSHOT)
    assert found.invariant in ("I-2", "I-3")


def test_a_body_with_as_many_other_events_breaks_the_chain(patient: Patient) -> None:
    db = apsw.Connection(patient.backend.place)
    key = to_key(execution_id(UNSAFE))
    found: Any = db.execute("SELECT seq, body FROM history WHERE execution = ? ORDER BY seq", (key,)).fetchall()
    seq, body = found[1]
    events = [
        msgspec.structs.replace(event, attempt=7) if isinstance(event, e.JobSucceeded) else event
        for event in unpack_events(body)
    ]
    db.execute("UPDATE history SET body = ? WHERE execution = ? AND seq = ?", (pack(events), key, seq))
    db.close()
    (finding,) = patient.findings()
    assert (finding.invariant, finding.execution) == ("I-3", execution_id(UNSAFE))
    assert f"row {seq} " in finding.text


def test_an_event_that_does_not_fit_is_a_finding_and_no_crash(patient: Patient) -> None:
    for damage in (e.JobStarted(77, 1, "w"), e.TimerFired(9), e.LaneAdvanced(1, ((16, "no such signal"),))):
        db = apsw.Connection(patient.backend.place)
        key = to_key(execution_id(WAITING))
        db.execute("DELETE FROM history WHERE execution = ? AND seq > 100000", (key,))
        rows: Any = db.execute("SELECT version, digest, updated_at FROM executions WHERE id = ?", (key,)).fetchall()
        version, digest, at = rows[0]
        body = pack([damage])
        added = chain(digest, version + 1, at, body)
        db.execute("INSERT INTO history VALUES (?,?,?,?,?)", (key, version + 1, at, body, added))
        db.execute("UPDATE executions SET version = version + 1, digest = ? WHERE id = ?", (added, key))
        db.close()
        (finding,) = patient.findings()
        assert (finding.invariant, finding.execution) == ("I-4", execution_id(WAITING))
        assert "cannot be folded" in finding.text
        patient.backend.close()
        db = apsw.Connection(patient.backend.place)
        db.execute("DELETE FROM history WHERE execution = ? AND seq > ?", (key, version))
        db.execute("UPDATE executions SET version = ?, digest = ? WHERE id = ?", (version, digest, key))
        db.close()


@pytest.mark.parametrize(
    "quiet",
    [
        "UPDATE workers SET incarnation = 'next'",
        "DELETE FROM workers",
        "UPDATE workers SET seen_at = seen_at + 100000000000",
        f"UPDATE workers SET incarnation = 'next', seen_at = seen_at + {CLAIM_GRACE // 2}",
    ],
)
def test_a_claim_is_no_finding_while_nobody_can_have_noticed(patient: Patient, quiet: str) -> None:
    patient.sql(quiet)
    assert patient.findings() == []


def test_an_engine_that_has_just_come_back_may_still_find_claims_of_the_dead(patient: Patient) -> None:
    patient.sql(f"UPDATE workers SET incarnation = 'next', seen_at = seen_at + {CLAIM_GRACE * 3}")
    patient.sql("INSERT INTO engines SELECT 'e', 'e', seen_at - 5000000, seen_at, '' FROM workers")
    assert patient.findings() == []
