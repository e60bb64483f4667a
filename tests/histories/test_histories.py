"""Recorded histories fold for ever: files in this folder are only ever added, never changed.

`python -m tests.histories.test_histories NAME` records the executions of a scratch run under NAME, for a new
format number or a new kind of event.
"""

from __future__ import annotations

import json
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core import events
from holdfast.core.codec import chain, pack, unpack_events
from holdfast.core.folding import fold
from holdfast.core.lanes import Frame, Lane
from holdfast.core.ledger import Entry
from holdfast.core.model import Gate, JobSpec, Policy
from holdfast.core.snapshot import encode
from holdfast.core.state import Job, State, open_state
from holdfast.core.subjects import Subject
from holdfast.language import canonical as spelled
from holdfast.language import program_from_bytes

#: Fields a frame had when the first lanes were recorded; newer records say how many theirs have.
V2_FRAME = 8
#: Fields that specs, jobs and entries of the ledger had before there were entities; newer records say theirs.
V2_WIDTHS = {"specs": 8, "jobs": 18, "ledger": 6}
FOLDER = Path(__file__).parent
RECORDED = sorted(FOLDER.glob("*.json"))
#: Fields a state had when the first histories were recorded; newer records name theirs.
V1_FIELDS = (
    "id", "tenant", "version", "status", "format", "run", "epoch", "workflow", "workflow_version", "definition",
    "input", "actor", "labels", "specs", "timers", "signals", "signal_keys", "next_lane", "next_job", "next_timer",
    "turn", "is_turn_open", "cancel_reason", "failure", "failed_step", "output", "residue", "created_at", "started_at",
    "ended_at", "at", "jobs_done", "jobs_total", "running",
)  # fmt: skip


def folded(record: dict[str, Any]) -> str:
    """Digest of the state a history folds to, checking chain and numbering on the way."""
    state, digest, seq = open_state(record["id"]), b"", 0
    for row in record["rows"]:
        body = bytes.fromhex(row["body"])
        happened = unpack_events(body)
        assert row["seq"] == seq + len(happened)
        digest = chain(digest, row["seq"], row["at"], body)
        assert digest.hex() == row["digest"]
        assert unpack_events(pack(happened)) == happened, "what is stored survives being written again"
        fold(state, row["at"], happened)
        seq = row["seq"]
    assert state.status.name == record["status"]
    # What came later is not part of what was recorded then.
    head = {name: getattr(state, name) for name in record.get("fields", V1_FIELDS)}
    parts = encode(state)
    if "fields" not in record:
        # Lanes were forgotten at the end, and a failure had six fields.
        parts = {name: data for name, data in parts.items() if not name.startswith("lanes/")}
        if state.failure is not None:
            head["failure"] = msgspec.structs.astuple(state.failure)[:6]
    widths = record.get("widths", V2_WIDTHS)
    head["specs"] = [msgspec.structs.astuple(spec)[: widths["specs"]] for spec in head["specs"]]
    if "policy" in widths:
        head["policy"] = msgspec.structs.astuple(head["policy"])[: widths["policy"]]
        head["gates"] = [msgspec.structs.astuple(gate)[: widths["gates"]] for gate in head["gates"]]
    parts["head"] = pack(head)
    for name, data in parts.items():
        if data and (width := widths.get(name.partition("/")[0])):
            parts[name] = pack([item[:width] for item in msgspec.msgpack.decode(data)])
    width = record.get("frame", V2_FRAME)
    parts = {name: _narrowed(data, width) if name.startswith("lanes/") else data for name, data in parts.items()}
    return blake2b(pack(sorted(parts.items())), digest_size=16).hexdigest()


def _narrowed(data: bytes, width: int) -> bytes:
    """Lanes whose frames have only the fields they had when they were recorded; the others must be empty."""
    lanes: list[list[Any]] = msgspec.msgpack.decode(data)
    for lane in lanes:
        marks = [mark[0] for mark in lane[Lane.__struct_fields__.index("waypoints")].values()]
        for frames in (lane[Lane.__struct_fields__.index("frames")], *marks):
            for frame in frames:
                assert not any(frame[width:])
                del frame[width:]
    return pack(lanes)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_history_folds_to_the_recorded_state(path: Path) -> None:
    record = json.loads(path.read_text())
    assert folded(record) == record["state"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_its_definition_still_compiles_to_the_same_steps(path: Path) -> None:
    record = json.loads(path.read_text())
    program = program_from_bytes(spelled(record["definition"]))
    assert [program.label(step.index) for step in program.steps] == record["labels"]


def test_every_kind_of_event_is_recorded_somewhere() -> None:
    seen = {
        type(event).__name__
        for path in RECORDED
        for row in json.loads(path.read_text())["rows"]
        for event in unpack_events(bytes.fromhex(row["body"]))
    }
    kinds = {kind.__name__ for kind in events.Event.__args__}
    assert kinds <= seen, f"never recorded: {sorted(kinds - seen)}"


def record(name: str) -> None:
    from holdfast.store.sqlite import SqliteStore

    for scratch in (_blocks, _language, _entities):
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(Path(folder) / "x.db")
            _write(name, store, scratch(store))
            store.close()


def _blocks(store: Any) -> dict[int, dict[str, Any]]:
    """Jobs in all their fates, timers, signals, turns. The definitions by number of their execution."""
    from holdfast.core.model import Failure
    from holdfast.core.requests import (
        CancelExecution,
        ClaimJob,
        CompleteJob,
        FailJob,
        FireTimer,
        LoseJob,
        ReleaseJob,
        SendSignal,
        TakeTurn,
    )  # fmt: skip
    from tests.engine.driver import Hand

    boom = Failure("block-error", "boom", details={"n": 1})
    long = {"name": "long", "steps": ["let x = 0"] * 1100 + ["test.noop"]}
    retry = {"step": "test.idempotent", "retry": {"attempts": 3, "delay": "1s"}}
    wide = {"parallel": ["test.noop", ["sleep 1s", "log slept"], [retry]]}
    mixed = {"name": "mixed", "inputs": {"who": "string = world"}, "steps": [wide, "wait-signal go", "return ${who}"]}
    hand = Hand(store)
    definitions = {1: mixed, 2: mixed, 3: mixed, 4: long, 5: {"name": "none", "steps": ["no.block"]}}
    hand.turn([hand.start(n, definition) for n, definition in definitions.items()])
    claim = [hand.ask(n, ClaimJob(j, "w", "inc")) for n in (1, 2, 3) for j in (1, 2)]
    for ask in claim:
        ask.session = "inc"
    hand.session.slots = 50
    hand.dispatch.attach(hand.session)
    hand.turn([*claim])
    hand.turn([hand.ask(1, CompleteJob(1, 1, {"a": [1, 2.5, None, True]})), hand.ask(1, FailJob(2, 1, boom)),
               hand.ask(2, LoseJob(1, 1, "worker-lost", "gone")), hand.ask(3, CancelExecution("enough")),
               hand.ask(4, TakeTurn(1))])  # fmt: skip
    hand.now += 60_000_000
    hand.turn([hand.ask(1, FireTimer(1)), hand.ask(1, ReleaseJob(2, 1)), hand.ask(2, CompleteJob(1, 1, "late"))])
    hand.turn([hand.ask(1, CompleteJob(2, 2, "x" * 3000)), hand.ask(3, FailJob(1, 1, boom, is_cancelled=True)),
               hand.ask(3, CompleteJob(2, 1)), hand.ask(2, FailJob(2, 1, boom))])  # fmt: skip
    hand.turn([hand.ask(1, SendSignal("go", {"ok": True})), hand.ask(4, CompleteJob(1, 1))])
    return definitions


def _language(store: Any) -> dict[int, dict[str, Any]]:
    """What the step language adds: locks, sensors, loops, handlers, waypoints, going on after an end."""
    from holdfast.core.requests import CancelExecution, FreeLock, ReplayExecution, ResumeExecution
    from tests.engine.driver import ACTOR, Hand, execution_id

    locked = {"name": "locked", "lock": "site", "steps": ["sleep 5s", "test.noop"]}
    watcher = {
        "name": "watcher",
        "retention": "30d hash sites",
        "steps": ["wait ${entity.attributeWhenReady.go}", "workflow retention 3", "return ${entity.sensor.go}"],
    }
    setter = {
        "name": "setter",
        "steps": ["sleep 8s", "set-sensor go = 7", "clear-sensor old",
                  f"signal hello to {execution_id(4)}"],
    }  # fmt: skip
    flow = {
        "name": "flow",
        "steps": [
            "let n = 0",
            {"id": "point", "step": "test.idempotent", "replayable": "from here"},
            {"step": "foreach x in 1..3", "concurrency": 2, "steps": [{"step": "test.noop", "input": {"x": "${x}"}}]},
            {"id": "shaky", "step": "test.idempotent", "input": {"fail": 2}, "on-error": ["retry limit 3 backoff 1s"]},
            {"type": "workflow", "timeout": "3s", "steps": [{"step": "test.noop", "input": {"hang": True}}],
             "on-error": ["log took too long"]},
            {"id": "broken", "step": "test.idempotent", "input": {"fail": 1}},
            "let n = ${n} + 1",
        ],
        "finally": ["log tidy"],
    }  # fmt: skip
    definitions = {1: locked, 2: locked, 3: locked, 4: watcher, 5: setter, 6: flow, 7: locked}
    hand = Hand(store, slots=50)
    hand.turn([hand.start(n, definition) for n, definition in definitions.items()])
    _play(hand, 3)
    with store.reading() as queries:
        holder = next(row.claim for row in queries.claims("default") if row.fence)
    hand.turn([hand.ask(1, FreeLock("default", "site", holder.seq, "ada")), hand.ask(7, CancelExecution("enough"))])
    _play(hand, 60)
    hand.turn([hand.ask(6, ResumeExecution("mended", actor=ACTOR)), hand.ask(7, ResumeExecution(actor=ACTOR))])
    _play(hand, 60)
    hand.turn([hand.ask(6, ReplayExecution("last", "once more", actor=ACTOR))])
    _play(hand, 60)
    hand.turn([hand.ask(4, ReplayExecution("start", is_forced=True, actor=ACTOR))])
    _play(hand, 60)
    refused = [error for _, error in hand.answers if error is not None]
    assert not refused, refused
    return definitions


def _entities(store: Any) -> dict[int, dict[str, Any]]:
    """What entities add: gates, discovery, locks and their loss, verify, rollback, inventory, acknowledging."""
    from holdfast.core.inventory import EntityRow
    from holdfast.core.model import Actor, BlockOffer
    from holdfast.core.requests import (
        AckExecution,
        CancelExecution,
        FreeEntity,
        MeetGate,
        ResumeExecution,
        RollBack,
        SendSignal,
    )  # fmt: skip
    from holdfast.engine.items import Put
    from holdfast.store.records import Batch
    from tests.engine.driver import Hand, execution_id

    ada = Actor("ada")
    hand = Hand(store)
    offers = [BlockOffer("test.noop"), BlockOffer("test.idempotent", idempotent=True),
              BlockOffer("test.change", run_on="device", has_verify=True, has_rollback=True),
              BlockOffer("test.ask", pure=True, has_acquire=True)]  # fmt: skip
    rows = [EntityRow(id, "device", groups=("core",)) for id in "abcdefgh"]
    rows += [EntityRow("core", "group"), EntityRow("a0", "interface", parent="a")]
    hand.turn([Put(Batch(blocks=offers, entities=[("default", row) for row in rows]))])
    hand.session.slots = 50
    hand.session.offer(offers)
    hand.dispatch.attach(hand.session)

    def change(**input: Any) -> dict[str, Any]:
        return {"step": "test.change", "input": input}

    def work(name: str, *steps: Any, **config: Any) -> dict[str, Any]:
        return {"name": name, "run-on": "device", "config": config, "steps": list(steps)}

    hold = "wait-signal go"
    definitions = {
        1: work("change", {"step": "test.ask", "run-on": "global"}, change(facts={"os": "17"}), hold),
        2: work("queued", change()),
        3: work("taken", change(), hold),
        4: work("undone", change(), change(fail="unknown"), change(fail="none")),
        5: work("left", change(undo="no"), change(fail="unknown"), **{"on-unsafe": "quarantine"}),
        6: work("gated", change(), **{"execution-strategy": {"parallel": True}}),
        7: work("asked", change(), change(fail="none"), rollback="manual"),
        8: work("stopped", change(), hold),
        9: {"name": "part", "run-on": "interface", "steps": ["test.noop"]},
        10: work("again", {"step": "test.idempotent", "input": {"fail": "none", "times": 1}}),
        11: work("some", change(), change(fail="unknown", only="h"), **{"max-failures": 1}),
        12: work("tidied", change(fail="unknown") | {"on-error": ["log so be it"]}, hold) | {"finally": ["test.noop"]},
    }
    on = {1: "ab", 2: "bc", 3: "c", 4: "d", 5: "e", 6: "ab", 7: "f", 8: "g", 9: ("a0",), 10: "d", 11: "gh", 12: "f"}

    def start(n: int, **more: Any) -> Any:
        ask = hand.start(n, definitions[n])
        ask.request = msgspec.structs.replace(ask.request, entities=tuple(on[n]), **more)
        return ask

    after = (Gate("approval", "tonight?"), Gate("after", execution_id(1)))
    hand.turn([start(n) for n in (1, 3, 4, 5, 7, 8, 9, 10)])
    _act(hand, 3)
    hand.turn([start(2), start(6, gates=after), start(11)])
    _act(hand, 8)
    hand.turn([hand.ask(1, SendSignal("go")), hand.ask(6, MeetGate(actor=ada)), hand.ask(8, CancelExecution("enough"))])
    _act(hand, 8)
    with store.reading() as queries:
        held = [row for row in queries.entity_claims("default", "c") if row.fence]
    hand.turn([hand.ask(3, FreeEntity("c", held[0].fence, "ada")), hand.ask(7, RollBack(reason="no use", actor=ada))])
    _act(hand, 20)
    hand.turn([hand.ask(5, AckExecution("looked at by hand", ada)), hand.ask(10, ResumeExecution(actor=ada))])
    _act(hand, 20)
    hand.turn([hand.ask(1, AckExecution(actor=ada)), start(12)])
    _act(hand, 8)
    hand.turn([hand.ask(12, CancelExecution("enough"))])
    _act(hand, 8)
    refused = [error for _, error in hand.answers if error is not None]
    assert not refused, refused
    return definitions


def _act(hand: Any, turns: int) -> None:
    """Blocks and hooks that do as their input says; whatever is due."""
    from holdfast.core.inventory import EntityChange
    from holdfast.core.model import Effect, Failure
    from holdfast.core.requests import CompleteJob, FailJob
    from holdfast.engine.items import Ask

    for _ in range(turns):
        items = []
        for parcel in hand.parcels():
            hand.finish((parcel.execution, parcel.job))
            given, job, attempt = parcel.input or {}, parcel.job, parcel.attempt
            failures = hand.__dict__.setdefault("failures", {})
            times = failures.get((parcel.execution, parcel.step), 0)
            boom = Failure("block-error", "boom")
            is_meant = given.get("only", parcel.entity) == parcel.entity
            if parcel.kind == "VERIFY":
                request: Any = CompleteJob(job, attempt, {"outcome": "applied", "data": {"found": True}})
            elif parcel.kind == "ACQUIRE":
                request = CompleteJob(job, attempt, {"ids": ["b"], "select": []})
            elif parcel.kind == "ROLLBACK":
                failed = FailJob(job, attempt, boom, is_permanent=True)
                request = failed if given.get("undo") == "no" else CompleteJob(job, attempt)
            elif "fail" in given and is_meant and times < given.get("times", 99):
                failures[parcel.execution, parcel.step] = times + 1
                request = FailJob(job, attempt, boom, Effect[given["fail"].upper()], is_permanent=True)
            else:
                wanted = (EntityChange(parcel.entity, facts=given["facts"]),) if "facts" in given else ()
                request = CompleteJob(job, attempt, {"job": job}, changes=wanted)
            items.append(Ask(parcel.execution, request))
        with hand.store.reading() as queries:
            items += [Ask(row.execution, row.request) for row in queries.due(hand.now)]
        hand.turn(items)


def _play(hand: Any, turns: int) -> None:
    """Blocks that fail or hang as their input says; whatever is due."""
    from holdfast.core.model import Failure
    from holdfast.core.requests import CompleteJob, FailJob
    from holdfast.engine.items import Ask

    for _ in range(turns):
        items = []
        for parcel in hand.parcels():
            given = parcel.input or {}
            key = (parcel.execution, parcel.job)
            if given.get("hang"):
                hand.hanging = [*getattr(hand, "hanging", []), parcel]
                continue
            hand.finish(key)
            failures = hand.__dict__.setdefault("failures", {})
            times = failures.get((parcel.execution, parcel.step), 0)
            if times < given.get("fail", 0):
                failures[parcel.execution, parcel.step] = times + 1
                items.append(Ask(parcel.execution, FailJob(parcel.job, parcel.attempt, Failure("block-error", "boom"))))
            else:
                items.append(Ask(parcel.execution, CompleteJob(parcel.job, parcel.attempt, {"job": parcel.job})))
        told, hand.session.cancels = hand.session.cancels, []
        for notice in told:
            hand.finish((notice.execution, notice.job))
            stopped = Failure("cancelled", "told to stop")
            items.append(Ask(notice.execution, FailJob(notice.job, notice.attempt, stopped, is_cancelled=True)))
        with hand.store.reading() as queries:
            items += [Ask(row.execution, row.request) for row in queries.due(hand.now)]
        hand.turn(items)


def _write(name: str, store: Any, definitions: dict[int, dict[str, Any]]) -> None:
    from tests.engine.driver import execution_id

    for n, definition in definitions.items():
        with store.reading() as queries:
            found = queries.history(execution_id(n))
            header = queries.header("default", execution_id(n))
        rows = [{"seq": r.seq, "at": r.at, "body": r.body.hex(), "digest": r.digest.hex()} for r in found]
        assert header is not None
        program = program_from_bytes(spelled(definition))
        made = {"id": execution_id(n), "status": header.status.name, "definition": definition,
                "labels": [program.label(step.index) for step in program.steps], "rows": rows}  # fmt: skip
        grouped = ("dirty", "lanes", "jobs", "ledger", "subjects")
        made["fields"] = [name for name in State.__struct_fields__ if name not in grouped]
        made["frame"] = len(Frame.__struct_fields__)
        kinds = {"specs": JobSpec, "jobs": Job, "ledger": Entry, "subjects": Subject, "policy": Policy, "gates": Gate}
        made["widths"] = {what: len(kind.__struct_fields__) for what, kind in kinds.items()}
        made["state"] = folded(made)
        path = FOLDER / f"{name}-{n}-{definition['name']}-{header.status.name.lower()}.json"
        assert not path.exists(), "recorded histories are never changed"
        path.write_text(json.dumps(made, indent=1) + "\n")
        print(path.name, len(rows), {type(e).__name__ for r in found for e in unpack_events(r.body)})


if __name__ == "__main__":
    record(sys.argv[1])
