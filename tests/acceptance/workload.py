"""The load of the crash tests: two workflows, one of blocks that may repeat and one of blocks that may not.

Every step leaves a line in a witness file outside the engine; every acknowledged start leaves one in the
acknowledgement file. What the engine believes is then compared with what those files show.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.core.ids import from_key
from holdfast.core.model import Actor, Status
from holdfast.engine.engine import new_execution_id
from holdfast.engine.rebuild import rebuild
from holdfast.engine.service import Service
from holdfast.store.port import Store
from holdfast.store.queries import Queries
from holdfast.store.records import Header

ACTOR = Actor("feeder")


BLOCKS = {"repeatable": "test.witness-idempotent", "plain": "test.witness", "isolated": "sync.witness"}


def definition(kind: str) -> dict[str, Any]:
    """`kind` is `repeatable`, `plain`, or `isolated` (plain, in a process). Two witnesses, a sleep that must
    survive crashes, two more side by side."""
    block = BLOCKS[kind]

    def witness(key: str) -> dict[str, Any]:
        return {"block": block, "input": {"path": "${witness}", "key": "${workflow.id}/" + key}}

    return {
        "name": f"load-{kind}",
        "inputs": {"witness": "string", "n": "integer"},
        "steps": [
            witness("a"),
            "let x = ${n} * 2",
            witness("b"),
            "sleep 150ms",
            {"parallel": [witness("c"), [witness("d"), "let y = ${x} + 1"]]},
            "return ${x + 1}",
        ],
    }


def output(n: int) -> int:
    return n * 2 + 1


class Feeder:
    """Keeps so many executions in flight and notes each acknowledged start."""

    def __init__(self, service: Service, folder: Path, in_flight: int = 64) -> None:
        self.service = service
        self.witness = str(folder / "witness")
        self._acks = os.open(folder / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._room = threading.Semaphore(in_flight)
        self._definitions = {kind: definition(kind) for kind in BLOCKS}

    def feed(self, n: int, kind: str) -> None:
        self._room.acquire()
        id = new_execution_id()
        settled = threading.Lock()

        def settle() -> None:
            if settled.acquire(blocking=False):
                unwatch()
                self._room.release()

        def moved(header: Header | None) -> None:
            if header is not None and header.status.is_ended:
                settle()

        unwatch = self.service.engine.watch(id, moved)

        def acknowledged(header: Any, error: Exception | None) -> None:
            if error is not None:
                settle()
            else:
                os.write(self._acks, f"{id} {kind} {n}\n".encode())

        self.service.submit_start(
            ACTOR,
            definition=self._definitions[kind],
            input={"witness": self.witness, "n": n},
            id=id,
            reply=acknowledged,
        )


class Ledger:
    """What the files outside say."""

    def __init__(self, folder: Path) -> None:
        self.acks: dict[str, tuple[str, int]] = {}
        for line in _lines(folder / "acks"):
            id, kind, n = line.split()
            self.acks[id] = (kind, int(n))
        self.witness = Counter(_lines(folder / "witness"))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def judge(store: Store, folder: Path) -> dict[str, int]:
    """Compare store and files; returns counts, so that a pass is never empty. Every execution in the store is
    judged, also those whose start was committed and never acknowledged: they are the ones a crash caught."""
    outside = Ledger(folder)
    seen: Counter[str] = Counter()
    with store.reading() as queries:
        for id in outside.acks:
            assert queries.header(ACTOR.tenant, id) is not None, f"{id} was acknowledged and is gone"
        after = b""
        while keys := queries.ids(after, 500):
            after = keys[-1]
            for key in keys:
                _judge_one(queries, from_key(key), outside, seen)
    seen["acknowledged"] = len(outside.acks)
    return dict(seen)


def _judge_one(queries: Queries, id: str, outside: Ledger, seen: Counter[str]) -> None:
    state = rebuild(queries, id)
    kind, n = state.workflow.removeprefix("load-"), state.input["n"]
    assert state.status.is_ended, f"{id} is still {state.status.name}"
    marks = {key: outside.witness[f"{id}/{key}"] for key in "abcd"}
    if kind == "repeatable":
        assert state.status is Status.COMPLETED, f"{id}: {state.status.name} {state.failure}"
        assert all(count >= 1 for count in marks.values()), f"{id}: a step left no trace: {marks}"
    else:
        assert all(count <= 1 for count in marks.values()), f"{id}: a step ran twice: {marks}"
        if state.status is not Status.COMPLETED:
            assert state.status is Status.FAILED_UNSAFE, f"{id}: {state.status.name}"
            assert state.failure is not None
            assert state.failure.kind == "outcome-unknown", state.failure
            assert "job " in state.failure.message
            assert state.residue
    if state.status is Status.COMPLETED:
        assert state.output == output(n), f"{id}: {state.output}"
        assert all(marks.values()), f"{id}: completed, but a step left no trace: {marks}"
    seen[f"{kind} {state.status.name}"] += 1
    seen["unacknowledged"] += id not in outside.acks
    seen["repeated steps"] += sum(count - 1 for count in marks.values() if count > 1)
