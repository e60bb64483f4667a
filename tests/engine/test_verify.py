"""Verify finds what is wrong, and says it once: real stores, damaged row by row behind their engine's back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from holdfast.core import events as e
from holdfast.core.codec import chain, pack, unpack_events
from holdfast.core.folding import fold
from holdfast.core.ids import to_key
from holdfast.core.model import BlobRef, Failure, LogLine, Status, blob_digest
from holdfast.core.requests import CancelExecution, CompleteJob, FailJob, FireTimer, ReleaseJob, SendSignal
from holdfast.core.state import open_state
from holdfast.core.views import summary_of
from holdfast.engine.items import Put, spill
from holdfast.engine.verify import CLAIM_GRACE, Finding, verify
from holdfast.store.records import Batch, WorkerRow
from tests.engine.driver import Hand, execution_id
from tests.store.conftest import Backend

#: µs; longer than anybody needs to notice that a worker is gone
LONG = CLAIM_GRACE + 1_000_000_000
#: the executions of the store under test
DONE, CLAIMED, UNSAFE, BACKOFF, SNAPSHOT, TURN, TIMED, INVALID, WAITING, CANCELLED = range(1, 11)


Edit = Callable[[list[list[e.Event]]], None]


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

    def sql(self, sql: str, n: int = DONE) -> None:
        self.backend.execute(sql.format(x=self.key(n), other=self.key(77)))

    def rewrite(self, n: int, edit: Edit, blobs: tuple[bytes, ...] = ()) -> None:
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
        found = verify(self.backend.open()).findings
        self.backend.close()
        return found


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
FIRST = "seq = (SELECT min(seq) FROM history WHERE execution = {x})"
INNER = "seq = (SELECT max(seq) FROM history WHERE execution = {x} AND seq < 100)"
LAST = "seq = (SELECT max(seq) FROM history WHERE execution = {x})"


class Damage(NamedTuple):
    what: str
    #: the execution it shows at
    at: int
    #: `{x}` is the key of that execution, `{other}` of another one (and any sixteen bytes)
    sql: str
    invariant: str
    #: words of the finding
    words: str


def history(what: str, at: int, change: str, where: str, invariant: str, words: str) -> Damage:
    return Damage(what, at, f"{change} WHERE execution = {{x}} AND {where}", invariant, words)


def header(column: str, value: str, at: int, words: str, invariant: str = "I-4") -> Damage:
    return Damage(f"header: {column} = {value}", at, f"UPDATE executions SET {column} = {value} WHERE id = {{x}}",
                  invariant, words)  # fmt: skip


def table(name: str, what: str, change: str, at: int, invariant: str, words: str) -> Damage:
    return Damage(f"{name}: {what}", at, f"{change} WHERE execution = {{x}}", invariant, words)


def orphan(table: str, values: str) -> Damage:
    return Damage(f"orphan in {table}", NOBODY, f"INSERT INTO {table} VALUES ({values})", "I-36", f"table {table}")


NOBODY = 99
DROP, AT, DIGEST = "DELETE FROM history", "UPDATE history SET at = at - 1", "UPDATE history SET digest = {other}"
JOBS = "INSERT INTO jobs (execution, job, queue, block, since, attempt, incarnation, timeout) VALUES"
DAMAGES = [
    history("first row dropped", SNAPSHOT, DROP, FIRST, "I-2", "gap"),
    history("inner row dropped", SNAPSHOT, DROP, INNER, "I-2", "gap"),
    history("last row dropped", DONE, DROP, LAST, "I-5", "version"),
    history("all rows dropped", WAITING, DROP, "seq > 0", "I-5", "ends at 0"),
    history("first time changed", SNAPSHOT, AT, FIRST, "I-3", "changed afterwards"),
    history("inner time changed", SNAPSHOT, AT, INNER, "I-3", "changed afterwards"),
    history("last time changed", DONE, AT, LAST, "I-3", "changed afterwards"),
    history("first digest changed", SNAPSHOT, DIGEST, FIRST, "I-3", "chain"),
    history("inner digest changed", SNAPSHOT, DIGEST, INNER, "I-3", "chain"),
    history("last digest changed", DONE, DIGEST, LAST, "I-3", "chain"),
    header("digest", "{other}", DONE, "header's digest", "I-3"),
    header("version", "version + 1", WAITING, "version", "I-5"),
    header("logs", "9", DONE, "log lines", "I-2"),
    header("status", "13", WAITING, "status"),
    header("status", "99", WAITING, "cannot be read"),
    header("workflow", "'other'", DONE, "workflow"),
    header("workflow", "'timed?'", TIMED, "workflow"),
    header("workflow_version", "7", DONE, "workflow version"),
    header("tenant", "'other'", DONE, "tenant"),
    header("definition", "{other}", DONE, "definition"),
    header("run", "2", DONE, "run"),
    header("created_at", "1", DONE, "created-at"),
    header("updated_at", "1", DONE, "updated-at"),
    header("started_at", "1", DONE, "started-at"),
    header("ended_at", "1", DONE, "ended-at"),
    header("jobs_done", "jobs_done + 1", CLAIMED, "jobs done"),
    header("jobs_total", "jobs_total - 1", CLAIMED, "jobs total"),
    header("summary", "{other}", DONE, "summary"),
    header("snapshot", "3", WAITING, "is missing"),
    header("snapshot", "0", SNAPSHOT, "names no snapshot"),
    header("snapshot", "snapshot + 1", SNAPSHOT, "the snapshot is of version"),
    Damage("logs: dropped", SNAPSHOT, "DELETE FROM logs WHERE execution = {x} AND number = 5", "I-2", "log lines"),
    Damage("parts: dropped", SNAPSHOT, "DELETE FROM parts WHERE execution = {x} AND part = 'lanes/0'", "I-4", "fold"),
    Damage("parts: head dropped", SNAPSHOT, "DELETE FROM parts WHERE execution = {x} AND part = 'head'", "I-4", "read"),
    table("parts", "garbled", "UPDATE parts SET data = {other}", SNAPSHOT, "I-4", "cannot be read"),
    Damage("parts: of an ended one", DONE, "INSERT INTO parts VALUES ({x}, 'head', {x})", "I-36", "snapshot parts"),
    table("jobs", "waiting one dropped", "DELETE FROM jobs", WAITING, "I-12", "in no queue"),
    table("jobs", "claimed one dropped", "DELETE FROM jobs", CLAIMED, "I-12", "nobody has claimed"),
    table("jobs", "waiting one claimed", "UPDATE jobs SET incarnation = 'inc'", WAITING, "I-11", "is claimed"),
    table("jobs", "claim lost", "UPDATE jobs SET incarnation = ''", CLAIMED, "I-13", "not claimed"),
    table("jobs", "claim of another attempt", "UPDATE jobs SET attempt = 2", CLAIMED, "I-13", "attempt 1"),
    table("jobs", "waiting at another attempt", "UPDATE jobs SET attempt = 2", WAITING, "I-13", "attempt 0"),
    table("jobs", "another queue", "UPDATE jobs SET queue = 'gpu'", WAITING, "I-12", "in gpu"),
    table("jobs", "another block", "UPDATE jobs SET block = 'shell'", CLAIMED, "I-12", "says shell"),
    Damage("jobs: in back-off", BACKOFF, f"{JOBS} ({{x}}, 1, 'q', 'b', 1, 1, '', 0)", "I-11", "at once"),
    Damage("jobs: unknown", WAITING, f"{JOBS} ({{x}}, 9, 'q', 'b', 1, 0, '', 0)", "I-11", "job 9"),
    Damage("jobs: of an ended one", DONE, f"{JOBS} ({{x}}, 1, 'q', 'b', 1, 1, '', 0)", "I-11", "job 1"),
    Damage("jobs: worker long gone", CLAIMED, f"UPDATE workers SET incarnation = 'next', seen_at = seen_at + {LONG}",
           "I-12", "nobody will answer"),
    table("agenda", "timer dropped", "DELETE FROM agenda", WAITING, "I-18", "timer/1 is missing"),
    table("agenda", "back-off dropped", "DELETE FROM agenda", BACKOFF, "I-18", "job/1 is missing"),
    table("agenda", "turn dropped", "DELETE FROM agenda", TURN, "I-18", "turn/1 is missing"),
    table("agenda", "due changed", "UPDATE agenda SET due = due + 1", BACKOFF, "I-18", "job/1 is due"),
    table("agenda", "garbled", "UPDATE agenda SET request = {x}", WAITING, "I-18", "cannot be read"),
    table("agenda", "another request", "UPDATE agenda SET request = (SELECT max(request) FROM agenda"
          " WHERE item LIKE 'turn/_')", WAITING, "I-18", "asks for TakeTurn"),
    Damage("agenda: of nothing", DONE, "INSERT INTO agenda SELECT {x}, 'timer/1', max(due), max(request) FROM agenda",
           "I-18", "not in the history"),
    Damage("beats: of one long ended", DONE, "INSERT INTO beats VALUES ({x}, 1, 1, {x});"
           f" UPDATE workers SET seen_at = seen_at + {LONG}", "I-36", "heartbeats"),
    table("blobs", "dropped", "DELETE FROM blobs", DONE, "I-36", "not stored"),
    table("blobs", "changed", "UPDATE blobs SET data = {x}", DONE, "I-3", "changed after"),
    Damage("definitions: dropped", DONE, "DELETE FROM definitions WHERE digest IN"
           " (SELECT definition FROM executions WHERE id = {x})", "I-36", "definition"),
    orphan("history", "{x}, 1, 1, {x}, {x}"),
    orphan("jobs", "{x}, 1, 'default', 'test.noop', 1, 0, '', 0, 0"),
    orphan("beats", "{x}, 1, 1, {x}"),
    orphan("agenda", "{x}, 'timer/1', 1, {x}"),
    orphan("logs", "{x}, 1, 1, 20, '', 0, 'x'"),
    orphan("blobs", "{x}, {x}, {x}"),
    orphan("parts", "{x}, 'head', {x}"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.what for damage in DAMAGES])
def test_one_damage_is_one_finding(patient: Patient, damage: Damage) -> None:
    patient.sql(damage.sql, damage.at)
    (found,) = patient.findings()
    assert (found.invariant, found.execution) == (damage.invariant, execution_id(damage.at))
    assert damage.words in found.text


def test_a_heartbeat_that_an_engine_can_still_sweep_away_is_no_finding(patient: Patient) -> None:
    patient.sql("INSERT INTO beats VALUES ({x}, 1, 1, {x})", DONE)
    assert patient.findings() == [], "it has only just ended"
    patient.sql(f"UPDATE workers SET seen_at = seen_at + {LONG}")
    patient.sql("INSERT INTO engines SELECT 'e', 'e', seen_at, seen_at, '' FROM workers")
    assert patient.findings() == [], "the engine has only just come"
    patient.sql(f"UPDATE engines SET seen_at = seen_at + {LONG}")
    assert [found.invariant for found in patient.findings()] == ["I-36"]
    patient.sql("UPDATE beats SET execution = {x}", CLAIMED)
    assert patient.findings() == [], "an open one may have some"


def test_the_key_of_a_start_outlives_its_execution_by_a_day(patient: Patient) -> None:
    hour = 3600 * 1_000_000
    patient.sql("INSERT INTO starts VALUES ('default', 'k', {other}, {other}, 1000000000)")
    patient.sql("INSERT INTO engines SELECT 'e', 'e', 0, seen_at, '' FROM workers")
    assert patient.findings() == [], "it was just used"
    patient.sql(f"UPDATE engines SET seen_at = seen_at + 25 * {hour}")
    assert patient.findings() == [], "an engine has still to come by"
    patient.sql(f"UPDATE engines SET seen_at = seen_at + 3 * {hour}")
    assert [(found.invariant, "'k'" in found.text) for found in patient.findings()] == [("I-36", True)]


ON_POSTGRES = {
    "inner row dropped",
    "beats: of one long ended",
    "jobs: claim of another attempt",
    "agenda: timer dropped",
    "blobs: changed",
}


def test_postgres_is_looked_at_alike(pg_dsn: str) -> None:
    backend = Backend("postgres", pg_dsn)
    furnish(Hand(backend.open(), slots=1))
    patient = Patient(backend)
    assert patient.findings() == []
    chosen = [damage for damage in DAMAGES if damage.what in ON_POSTGRES]
    assert len(chosen) == len(ON_POSTGRES)
    for damage in chosen:
        patient.sql(damage.sql, damage.at)
    found = sorted((finding.execution, finding.invariant) for finding in patient.findings())
    assert found == sorted((execution_id(damage.at), damage.invariant) for damage in chosen)
    backend.close()


# --- histories that are chained and yet wrong: what an engine with a bug would have written ------------
def replaced(kind: type[e.Event], **fields: Any) -> Edit:
    """The last event of that class, with other fields."""

    def edit(rows: list[list[e.Event]]) -> None:
        events, index = [(row, i) for row in rows for i, event in enumerate(row) if isinstance(event, kind)][-1]
        events[index] = msgspec.structs.replace(events[index], **fields)

    return edit


def inserted(before: type[e.Event], event: e.Event) -> Edit:
    def edit(rows: list[list[e.Event]]) -> None:
        events, index = [(row, i) for row in rows for i, one in enumerate(row) if isinstance(one, before)][-1]
        events.insert(index, event)

    return edit


NEVER = BlobRef(bytes(16), 5000)
FAR = 10**15
WRONG: list[tuple[str, int, Edit, str, str]] = [
    ("early timer", TIMED, replaced(e.TimerSet, due=FAR), "I-18", "timer 1 fired"),
    ("short back-off", TIMED, replaced(e.JobRescheduled, due=FAR), "I-17", "the back-off of job 1"),
    (
        "blob that never was",
        UNSAFE,
        replaced(e.JobSucceeded, result=NEVER),
        "I-36",
        "BlobRef(000000000000, 5000 bytes)",
    ),
    ("blob inside", CANCELLED, replaced(e.SignalReceived, value={"a": [1, {"b": NEVER}]}), "I-36", "not stored"),
    ("second attempt", UNSAFE, inserted(e.JobFailed, e.JobStarted(2, 2, "w")), "I-16", "job 2 may run once"),
    ("not safe", UNSAFE, replaced(e.ExecutionFailed, status=Status.FAILED_SAFE, residue=()), "I-33", "[1, 2] remain"),
    ("nothing named", UNSAFE, replaced(e.ExecutionFailed, residue=()), "I-34", "without naming"),
    ("half of it named", UNSAFE, replaced(e.ExecutionFailed, residue=(2,)), "I-33", "residue is [2]"),
]


@pytest.mark.parametrize(("what", "n", "edit", "invariant", "words"), WRONG, ids=[entry[0] for entry in WRONG])
def test_a_chained_history_may_be_wrong_too(
    patient: Patient, what: str, n: int, edit: Edit, invariant: str, words: str
) -> None:
    patient.rewrite(n, edit)
    (found,) = patient.findings()
    assert (found.invariant, found.execution) == (invariant, execution_id(n)), what
    assert words in found.text


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
