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
from holdfast.core.snapshot import encode
from holdfast.core.state import State, fold, open_state
from holdfast.language import canonical as spelled
from holdfast.language import program_from_bytes

FOLDER = Path(__file__).parent
RECORDED = sorted(FOLDER.glob("*.json"))
#: Fields a state had when the first histories were recorded; newer records name theirs.
V1_FIELDS = (
    "id", "tenant", "version", "status", "format", "run", "epoch", "workflow", "workflow_version", "definition",
    "input", "actor", "labels", "specs", "timers", "signals", "signal_keys", "next_lane", "next_job", "next_timer",
    "turn", "is_turn_open", "cancel_reason", "failure", "failed_step", "output", "residue", "created_at", "started_at",
    "ended_at", "at", "jobs_done", "jobs_total", "running",
)  # fmt: skip
#: Kinds the step language cannot make yet. They are recorded as soon as it can; nothing may be added here.
TO_COME = {
    "LockTaken", "LockQueued", "LockGranted", "LockReleased", "LockForced",
    "SensorChanged", "SensorAwaited", "SensorLeft", "RetentionSet",
}  # fmt: skip


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
    parts["head"] = pack(head)
    return blake2b(pack(sorted(parts.items())), digest_size=16).hexdigest()


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
    assert kinds - TO_COME <= seen, f"never recorded: {sorted(kinds - TO_COME - seen)}"


def record(name: str) -> None:
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
    from holdfast.store.sqlite import SqliteStore
    from tests.engine.driver import Hand, execution_id

    boom = Failure("block-error", "boom", details={"n": 1})
    long = {"name": "long", "steps": ["let x = 0"] * 1100 + ["test.noop"]}
    retry = {"step": "test.idempotent", "retry": {"attempts": 3, "delay": "1s"}}
    wide = {"parallel": ["test.noop", ["sleep 1s", "log slept"], [retry]]}
    mixed = {"name": "mixed", "inputs": {"who": "string = world"}, "steps": [wide, "wait-signal go", "return ${who}"]}
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "x.db")
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
        for n, definition in definitions.items():
            rows = [{"seq": r.seq, "at": r.at, "body": r.body.hex(), "digest": r.digest.hex()} for r in hand.history(n)]
            with store.reading() as queries:
                header = queries.header("default", execution_id(n))
            assert header is not None
            program = program_from_bytes(spelled(definition))
            made = {"id": execution_id(n), "status": header.status.name, "definition": definition,
                    "labels": [program.label(step.index) for step in program.steps], "rows": rows}  # fmt: skip
            made["fields"] = [
                name for name in State.__struct_fields__ if name not in ("dirty", "lanes", "jobs", "ledger")
            ]
            made["state"] = folded(made)
            path = FOLDER / f"{name}-{n}-{definition['name']}-{header.status.name.lower()}.json"
            assert not path.exists(), "recorded histories are never changed"
            path.write_text(json.dumps(made, indent=1) + "\n")
            print(path.name, len(rows))
        store.close()


if __name__ == "__main__":
    record(sys.argv[1])
