"""The load of the crash tests: workflows of blocks that may repeat and of blocks that may not.

Every step leaves a line in a witness file outside the engine; every acknowledged start leaves one in the
acknowledgement file. What the engine believes is then compared with what those files show.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator
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

#: kind of workflow → its block, and whether that may run more than once
KINDS = {
    "repeatable": ("test.witness-idempotent", True),
    "plain": ("test.witness", False),
    "isolated": ("sync.witness", False),
    "isolated-repeatable": ("sync.witness-idempotent", True),
    "threaded": ("sync.threaded", False),
    "threaded-repeatable": ("sync.threaded-idempotent", True),
    "slow": ("slow.witness", False),
    "slow-repeatable": ("slow.witness-idempotent", True),
}
#: what a worker says of a child process that was killed under it
CHILD_KILLED = ("process-died", "process-not-started")

#: what `examine` counts, in the order of a report
FIGURES = (
    "acknowledged", "unacknowledged", "completed", "stopped", "unknown", "child killed", "blamed",
    "lost", "doubled", "open", "repeated steps",
)  # fmt: skip


def definition(kind: str) -> dict[str, Any]:
    """Two witnesses, a sleep that must survive crashes, two more side by side."""
    block = KINDS[kind][0]

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
        self._definitions = {kind: definition(kind) for kind in KINDS}

    def feed(self, n: int, kind: str) -> None:
        self._room.acquire()
        id = new_execution_id()
        settled = threading.Lock()

        def settle() -> None:
            if settled.acquire(blocking=False):
                unwatch()
                self._room.release()

        looked = time.monotonic()

        def moved(header: Header | None) -> None:
            nonlocal looked
            if header is None and time.monotonic() > looked + 1:
                # Another engine may have ended it; then nobody else would give its place back.
                looked = time.monotonic()
                with self.service.store.reading() as queries:
                    header = queries.header(ACTOR.tenant, id)
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
    """Compare store and files; returns counts, so that a pass is never empty."""
    seen, violations = examine(store, folder)
    assert not violations, violations[:5]
    assert not seen["blamed"], "a step that may repeat was given up"
    return dict(seen)


def examine(store: Store, folder: Path, also: Container[str] = ()) -> tuple[Counter[str], list[str]]:
    """What ended how, and what should not have. Every execution in the store is looked at, also those whose start
    was committed and never acknowledged: they are the ones a crash caught. `also`: kinds of failure that were
    provoked and are no surprise."""
    outside = Ledger(folder)
    seen: Counter[str] = Counter()
    violations: list[str] = []
    with store.reading() as queries:
        for id in outside.acks:
            if queries.header(ACTOR.tenant, id) is None:
                seen["lost"] += 1
                violations.append(f"{id} was acknowledged and is gone")
        after = b""
        while keys := queries.ids(after, 500):
            after = keys[-1]
            for key in keys:
                violations += _examine_one(queries, from_key(key), outside, seen, also)
    seen["acknowledged"] = len(outside.acks)
    return seen, violations


def _examine_one(queries: Queries, id: str, outside: Ledger, seen: Counter[str], also: Container[str]) -> Iterator[str]:
    state = rebuild(queries, id)
    kind, n = state.workflow.removeprefix("load-"), state.input["n"]
    may_repeat = KINDS[kind][1]
    marks = {key: outside.witness[f"{id}/{key}"] for key in "abcd"}
    how = f"{id} ({kind}): {state.status.name}, {state.failure}, {marks}"
    twice = sum(count - 1 for count in marks.values() if count > 1)
    seen[f"{kind} {state.status.name}"] += 1
    seen["unacknowledged"] += id not in outside.acks
    seen["repeated steps"] += twice
    if not may_repeat and twice:
        seen["doubled"] += twice
        yield f"a step ran twice: {how}"
    if not state.status.is_ended:
        seen["open"] += 1
        yield f"still open: {how}"
    elif state.status is Status.COMPLETED:
        seen["completed"] += 1
        if state.output != output(n):
            yield f"wrong output {state.output}: {how}"
        if not all(marks.values()):
            yield f"completed, but a step left no trace: {how}"
    else:
        seen["stopped"] += 1
        failure = state.failure
        if state.status is Status.FAILED_SAFE and any(marks.values()):
            yield f"called safe, but something was done: {how}"
        if failure is None:
            yield f"failed without a reason: {how}"
        elif failure.kind == "outcome-unknown" and not may_repeat:
            seen["unknown"] += 1
            if state.status is not Status.FAILED_UNSAFE or "job " not in failure.message or not state.residue:
                yield f"unknown, but it does not say what: {how}"
        elif may_repeat and "workers were lost with this job" in failure.message:
            # Repeated as often as it may: a job that takes every worker down with it must end some time.
            seen["blamed"] += 1
        elif failure.kind in also:
            seen["child killed"] += 1
        else:
            yield f"stopped for no good reason: {how}"
