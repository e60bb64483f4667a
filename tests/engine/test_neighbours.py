"""What is wrong with one request, definition or claim stays with it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast.embedded as embedded_module
from holdfast.blocks import Registry, block
from holdfast.core.errors import Conflict, InvalidDefinition, SyncFailed
from holdfast.core.reads import TooLong
from holdfast.embedded import Embedded
from holdfast.engine.engine import new_execution_id
from holdfast.engine.turn import Turn


@block
async def act() -> int:
    return 1


def two(name: str) -> dict[str, Any]:
    return {"name": name, "steps": ["act", "act"]}


def opened(folder: Path, *, with_worker: bool = True) -> Embedded:
    registry = Registry([act])
    return Embedded(f"sqlite:///{folder}/s.db", folder=folder, registry=registry, processes=0, with_worker=with_worker)


def leave_waiting(folder: Path, name: str) -> str:
    """An execution whose first job waits for a worker."""
    with opened(folder) as holdfast:
        assert holdfast.run(two("known"), timeout=20).status == "COMPLETED"
    with opened(folder, with_worker=False) as holdfast:
        return holdfast.service.start(holdfast.actor, definition=two(name)).id


def test_a_definition_that_no_longer_compiles_harms_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = leave_waiting(tmp_path, "old")
    real = embedded_module.program_from_bytes

    def compile(data: bytes) -> Any:
        if b'"old"' in data:
            raise InvalidDefinition("it does not compile any more")
        return real(data)

    monkeypatch.setattr(embedded_module, "program_from_bytes", compile)
    with opened(tmp_path) as holdfast:
        assert holdfast.run(two("new"), timeout=20).status == "COMPLETED"
        ended = holdfast.service.wait(holdfast.actor, old, 20)
    assert ended.status == "FAILED_UNSAFE", "one of its jobs has run"
    assert ended.error is not None
    assert ended.error.kind == "program-error"


def test_a_claim_that_cannot_be_sent_gives_its_slot_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = leave_waiting(tmp_path, "late")
    real = Turn._parcel

    def parcel(self: Turn, *args: Any) -> Any:
        real(self, *args)
        raise TooLong("too long for any worker")

    holdfast = opened(tmp_path)
    monkeypatch.setattr(Turn, "_parcel", parcel)
    begin, conflicts = holdfast.store.begin, [None, None]

    def contested() -> Any:
        transaction = begin()
        commit = transaction.commit

        def refuse(batch: Any) -> None:
            if batch.history and conflicts:
                conflicts.pop()
                raise Conflict
            commit(batch)

        transaction.commit = refuse  # type: ignore[method-assign]
        return transaction

    monkeypatch.setattr(holdfast.store, "begin", contested)
    with holdfast:
        assert holdfast.service.wait(holdfast.actor, waiting, 20).status == "FAILED_SAFE"
        assert [session.planned for session in holdfast.engine.dispatch.sessions.values()] == [0]
    assert not conflicts


def test_everybody_hears_that_the_engine_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is being halved because of one of its requests when the disk stops confirming."""
    holdfast = opened(tmp_path, with_worker=False)
    holdfast.open()
    engine, service = holdfast.engine, holdfast.service
    real, calls = engine.driver.run, []

    def run(items: Any) -> Any:
        calls.append(len(items))
        if len(calls) == 1:
            raise Conflict
        raise SyncFailed("the disk does not confirm")

    gate, answered = threading.Event(), threading.Semaphore(0)

    def hold() -> list[Any]:
        gate.wait(20)
        return []

    engine._queue.put(hold)
    for _ in range(8):
        service.submit_start(
            holdfast.actor,
            definition={"name": "n", "steps": ["return 1"]},
            id=new_execution_id(),
            reply=lambda value, error: answered.release() if error is not None else None,
        )
    monkeypatch.setattr(engine.driver, "run", run)
    gate.set()
    for n in range(8):
        assert answered.acquire(timeout=20), f"only {n} of 8 were answered"
    assert calls[0] > calls[1] > 1, "it was halved, and the first half brought the end"
    monkeypatch.setattr(engine.driver, "run", real)
    holdfast.close()
