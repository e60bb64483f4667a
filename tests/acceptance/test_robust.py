"""Situations a reviewer came up with; each went wrong once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.blocks import Registry, RetryLater, block
from holdfast.core.errors import Refused
from holdfast.core.model import Status
from holdfast.core.requests import FireTimer
from holdfast.core.rows import AgendaRow
from holdfast.embedded import Embedded
from tests.acceptance.test_walk import kinds, until

Open = Callable[..., Embedded]


def test_a_cache_smaller_than_the_load_costs_time_and_nothing_else(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast(slots=64)
    holdfast.engine.committer.cache_size = 4
    witness = tmp_path / "witness"
    definition = {
        "name": "many",
        "inputs": {"n": "integer"},
        "steps": [{"block": "test.witness", "input": {"path": str(witness), "key": "${n}/a"}}, "sleep 50ms"] * 2,
    }
    started = [holdfast.service.start(holdfast.actor, definition=definition, input={"n": n}) for n in range(60)]
    ended = [holdfast.service.wait(holdfast.actor, view.id, 30).status for view in started]
    assert Counter(ended) == {"COMPLETED": 60}
    assert set(Counter(witness.read_text().splitlines()).values()) == {2}


def test_a_backlog_of_one_block_does_not_hold_up_another(open_holdfast: Open) -> None:
    @block(name="rare")
    async def rare() -> None: ...

    open_holdfast(registry=Registry([rare]), worker_name="rare").close(1.0)
    holdfast = open_holdfast(with_worker=False)
    wide = {"name": "wide", "steps": [{"parallel": ["rare"] * 400}]}
    for _ in range(15):
        holdfast.service.start(holdfast.actor, definition=wide)
    late = holdfast.service.start(holdfast.actor, definition={"name": "late", "steps": ["test.noop"]})
    holdfast.close(1.0)
    again = open_holdfast(worker_name="common")
    assert again.service.wait(again.actor, late.id, 10).status == "COMPLETED"
    for view in again.service.executions(again.actor, statuses=(Status.RUNNING,), limit=100):
        again.service.cancel(again.actor, view.id)


def test_thousands_of_timers_due_at_once_are_not_late(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {"name": "naps", "steps": [{"parallel": ["sleep 1s"] * 500}]}
    started = [holdfast.service.start(holdfast.actor, definition=definition) for _ in range(10)]
    holdfast.close(1.0)
    time.sleep(1.0)
    again = open_holdfast()
    assert {again.service.wait(again.actor, view.id, 15).status for view in started} == {"COMPLETED"}


def test_a_timer_asked_for_too_early_does_not_fire(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    started = holdfast.service.start(holdfast.actor, definition={"name": "nap", "steps": ["sleep 1h"]})
    holdfast.engine.agenda.add([AgendaRow(started.id, "early", 0, FireTimer(1))], holdfast.store.now())
    time.sleep(1.2)
    assert "TimerFired" not in kinds(holdfast, started.id)


def test_a_clock_that_is_set_back_stops_nothing(open_holdfast: Open, monkeypatch: Any) -> None:
    holdfast = open_holdfast()
    real = holdfast.store.now
    monkeypatch.setattr(holdfast.store, "now", lambda: real() - 600_000_000)
    until(lambda: holdfast.engine.clock() < real() - 500_000_000)
    before = holdfast.engine.rounds._next_tick
    until(lambda: holdfast.engine.rounds._next_tick > before, 5)


def test_a_block_that_asks_for_eternity_hurts_nobody_else(open_holdfast: Open) -> None:
    @block(name="later")
    async def later(after: float) -> None:
        raise RetryLater(after)

    holdfast = open_holdfast(registry=Registry([later]))
    for after in (1e13, 1e308):
        definition = {"name": "never", "steps": [{"block": "later", "input": {"after": after}}]}
        strange = holdfast.service.start(holdfast.actor, definition=definition)
        assert holdfast.run({"name": "other", "steps": ["test.noop"]}, timeout=10).status == "COMPLETED"
        until(lambda id=strange.id: {"JobRescheduled", "JobFailed"} & set(kinds(holdfast, id)))  # type: ignore[misc]


def test_a_deeply_nested_result_is_refused_and_the_list_stays_readable(open_holdfast: Open) -> None:
    @block(name="deep")
    async def deep() -> Any:
        value: Any = 1
        for _ in range(900):
            value = [value]
        return value

    holdfast = open_holdfast(registry=Registry([deep]))
    view = holdfast.run({"name": "deep", "steps": [{"block": "deep"}]}, timeout=10)
    assert view.status == "FAILED_UNSAFE"
    assert holdfast.service.executions(holdfast.actor)


def test_an_input_just_under_the_limit_is_taken_or_refused_but_never_a_bug(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    inputs = {"t": "string", "u": {"type": "string", "default": "x" * 100}}
    definition = {"name": "brim", "inputs": inputs, "steps": ["no-op"]}
    answers = set()
    for size in range(2 * 1024 * 1024 - 300, 2 * 1024 * 1024 + 100, 50):
        try:
            answers.add(holdfast.run(definition, input={"t": "x" * size}).status)
        except Refused as refused:
            answers.add(str(refused.status))
    assert answers == {"COMPLETED", "413"}


def test_a_worker_that_comes_back_hears_of_a_cancel_it_missed(tmp_path: Path) -> None:
    """The engine dies between the cancel and the notice; on SQLite nobody else would repeat it."""
    import asyncio

    from holdfast.transport.local import LocalLink
    from holdfast.transport.messages import Exchange, Hello, Holding

    address = f"sqlite:///{tmp_path}/holdfast.db"
    offers = [offer for offer in Registry().offers() if offer.name == "test.noop"]

    async def scenario() -> None:
        with Embedded(address, with_worker=False) as first:
            remote = RemoteLink(first.engine)
            await remote.hello(Hello("w", "life", offers))
            started = await asyncio.to_thread(
                lambda: first.service.start(first.actor, definition={"name": "c", "steps": ["test.noop"]})
            )
            answer = await remote.exchange(Exchange("life", 1, wait=5_000_000))
            assert [parcel.job for parcel in answer.jobs] == [1]
            await asyncio.to_thread(lambda: first.service.cancel(first.actor, started.id))
        with Embedded(address, with_worker=False) as second:
            remote = RemoteLink(second.engine)
            await remote.hello(Hello("w", "life", offers, holding=[Holding(started.id, 1, 1)], greeting=2))
            answer = await remote.exchange(Exchange("life", 2, wait=5_000_000, greeting=2))
            assert [(notice.execution, notice.job) for notice in answer.cancels] == [(started.id, 1)]

    class RemoteLink(LocalLink):
        async def hello(self, hello: Hello) -> Any:
            return await self._call(lambda reply: self._engine.hello(hello, reply))

    asyncio.run(scenario())
