"""One suite for every line between a worker and an engine: in the process, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.blocks import Registry
from holdfast.core.errors import StaleAttempt, StaleExchange, UnknownWorker, WorkerSuperseded
from holdfast.core.inventory import EntityChange
from holdfast.core.model import Effect, Failure, LogLine
from holdfast.transport.http import HttpLink
from holdfast.transport.local import LocalLink
from holdfast.transport.messages import Answer, Beat, Exchange, Hello, Holding, Outcome, Parcel
from holdfast.transport.port import Link
from tests.api.support import ECHO, LONG, House, house

SECOND = 1_000_000
OFFERS = Registry().offers()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("transport"), with_worker=False) as made:
        yield made


class Wire:
    """The engine under test, and new lines to it."""

    def __init__(self, home: House, kind: str) -> None:
        self.home = home
        self.kind = kind
        self._names = 0

    def link(self) -> Link:
        if self.kind == "local":
            return LocalLink(self.home.holdfast.engine)
        return HttpLink(self.home.server.address, self.home.tokens["worker"])

    def start(self, definition: Any = ECHO) -> str:
        return self.home.service.start(self.home.holdfast.actor, definition=definition).id

    def show(self, id: str) -> Any:
        return self.home.service.show(self.home.holdfast.actor, id)

    @asynccontextmanager
    async def worker(self, name: str = "", slots: int = 8) -> AsyncIterator[Hand]:
        self._names += 1
        hand = Hand(self.link(), name or f"{self.kind}-{self._names}", f"{self.kind}-life-{self._names}", slots)
        try:
            yield hand
        finally:
            await hand.link.goodbye(hand.incarnation)
            await hand.link.close()


class Hand:
    """A worker moved by hand."""

    def __init__(self, link: Link, name: str, incarnation: str, slots: int) -> None:
        self.link = link
        self.name = name
        self.incarnation = incarnation
        self.slots = slots
        self.number = 0

    async def hello(self, *holding: Holding) -> None:
        await self.link.hello(Hello(self.name, self.incarnation, OFFERS, self.slots, holding=list(holding)))

    async def exchange(self, *outcomes: Outcome, wait: float = 0.0, **more: Any) -> Answer:
        if "number" not in more:
            self.number += 1
        number = more.pop("number", self.number)
        return await self.link.exchange(
            Exchange(self.incarnation, number, list(outcomes), wait=int(wait * SECOND), **more)
        )

    async def jobs(self, count: int = 1) -> list[Parcel]:
        found: list[Parcel] = []
        while len(found) < count:
            found += (await self.exchange(wait=5)).jobs
        return found


def done(parcel: Parcel, value: Any = None, **more: Any) -> Outcome:
    return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, value, **more)


@pytest.fixture(params=["local", "http"])
def wire(request: pytest.FixtureRequest, home: House) -> Wire:
    return Wire(home, request.param)


Test = Callable[[Wire], Awaitable[None]]


def run(test: Test) -> Callable[[Wire], None]:
    """Each test is a coroutine with half a minute to live."""

    def wrapped(wire: Wire) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await test(wire)

        asyncio.run(limited())

    wrapped.__name__ = test.__name__
    return wrapped


@run
async def test_hello_is_answered_with_lease_and_beat(wire: Wire) -> None:
    async with wire.worker() as hand:
        welcome = await hand.link.hello(Hello(hand.name, hand.incarnation, OFFERS))
        assert 0 < welcome.beat < welcome.lease
        # The same incarnation may introduce itself again.
        await hand.hello()


@run
async def test_a_stranger_is_told_to_say_hello(wire: Wire) -> None:
    link = wire.link()
    with pytest.raises(UnknownWorker):
        await link.exchange(Exchange("nobody", 1))
    await link.close()


@run
async def test_a_job_goes_out_and_its_outcome_ends_the_execution(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        assert (parcel.execution, parcel.block, parcel.input) == (id, "test.echo", {"value": "hello"})
        assert bool(parcel.token) == (wire.kind != "local")
        lines = [LogLine("first line"), LogLine("second line")]
        answer = await hand.exchange(done(parcel, {"a": [1, 2.5, None, "ü"]}, logs=lines))
        assert answer.refused == []
        view = wire.show(id)
        assert (view.status, view.output) == ("COMPLETED", {"a": [1, 2.5, None, "ü"]})


@run
async def test_an_exchange_sent_again_gets_the_same_answer(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        wire.start()
        answer = await hand.exchange(wait=5)
        assert len(answer.jobs) == 1
        again = await hand.exchange(number=answer.number, wait=5)
        assert again == answer
        # Once it is seen, it is forgotten, and is not decided again.
        await hand.exchange(done(answer.jobs[0]), seen=answer.number)
        with pytest.raises(StaleExchange):
            await hand.exchange(number=answer.number, seen=answer.number)


@run
async def test_outcomes_sent_again_change_nothing(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        first = await hand.exchange(done(parcel, 1))
        again = await hand.exchange(done(parcel, 1), number=first.number)
        assert again == first
        assert wire.show(id).output == 1


@run
async def test_a_stale_attempt_is_refused_by_name(wire: Wire) -> None:
    async with wire.worker() as old, wire.worker() as new:
        await old.hello()
        id = wire.start({"name": "again", "steps": [{"block": "test.idempotent"}]})
        [parcel] = await old.jobs()
        # Given up by its worker, taken by another; then the first one speaks after all.
        await old.link.goodbye(old.incarnation)
        await new.hello()
        [again] = await new.jobs()
        await old.hello()
        answer = await old.exchange(done(parcel, "late"))
        assert answer.refused == [(id, parcel.job, parcel.attempt, StaleAttempt.code)]
        await new.exchange(done(again, "right"))
        assert wire.show(id).output == "right"


@run
async def test_a_result_that_comes_twice_changes_nothing(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        await hand.exchange(done(parcel, "right"))
        await hand.exchange(done(parcel, "wrong"))
        assert wire.show(id).output == "right"


@run
async def test_a_new_life_of_the_same_name_ends_the_old_one(wire: Wire) -> None:
    async with wire.worker("twin") as old, wire.worker("twin") as new:
        await old.hello()
        await new.hello()
        with pytest.raises(WorkerSuperseded):
            await old.exchange()
        assert (await new.exchange()).jobs == []


@run
async def test_cancel_is_pushed_to_whoever_runs_the_job(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start(LONG)
        [parcel] = await hand.jobs()
        poll = asyncio.create_task(hand.exchange(wait=10))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(wire.home.service.cancel, wire.home.holdfast.actor, id, "enough")
        [notice] = (await poll).cancels
        assert (notice.execution, notice.job, notice.attempt, notice.reason) == (
            id,
            parcel.job,
            parcel.attempt,
            "enough",
        )
        await hand.exchange(done(parcel, failure=Failure("cancelled", "enough"), effect=Effect.NONE, is_cancelled=True))
        assert wire.show(id).status == "CANCELLED"


@run
async def test_a_waiting_poll_wakes_when_there_is_work(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        poll = asyncio.create_task(hand.exchange(wait=25))
        await asyncio.sleep(0.2)
        assert not poll.done()
        id = await asyncio.to_thread(wire.start)
        answer = await asyncio.wait_for(poll, 20)  # less than it may wait
        assert [parcel.execution for parcel in answer.jobs] == [id]
        await hand.exchange(done(answer.jobs[0]))


@run
async def test_a_poll_with_nothing_to_say_ends_with_its_time(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        answer = await hand.exchange(wait=0.2)
        assert (answer.jobs, answer.cancels, answer.refused) == ([], [], [])


@run
async def test_an_answer_nobody_received_is_sent_again(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        # The poller goes away while the engine holds its answer back.
        poll = asyncio.create_task(hand.exchange(wait=20))
        await asyncio.sleep(0.2)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        id = await asyncio.to_thread(wire.start)
        answer = await hand.exchange(number=hand.number, wait=5)
        assert [parcel.execution for parcel in answer.jobs] == [id]
        await hand.exchange(done(answer.jobs[0]))
        assert wire.show(id).status == "COMPLETED"


@run
async def test_a_poll_asked_twice_has_one_answer(wire: Wire) -> None:
    """Found by the simulator (seed 3): of two copies of a poll one was answered with nothing and the other with
    the job. Whoever heard the first and not the second went on, and the job was in nobody's hands."""
    async with wire.worker() as hand:
        await hand.hello()
        polls = [asyncio.create_task(hand.exchange(wait=20))]
        await asyncio.sleep(0.1)
        polls.append(asyncio.create_task(hand.exchange(number=hand.number, wait=20)))
        await asyncio.sleep(0.1)
        id = await asyncio.to_thread(wire.start)
        first, again = await asyncio.gather(*polls)
        assert first == again
        assert [parcel.execution for parcel in first.jobs] == [id]
        await hand.exchange(done(first.jobs[0]))


@run
async def test_nothing_is_said_to_who_has_said_hello_again(wire: Wire) -> None:
    """Found by the simulator (seed 9026): a worker that went elsewhere and came back asks under new numbers, so
    a job in the answer to an old one was in nobody's hands."""
    async with wire.worker() as hand:
        await hand.hello()
        old = asyncio.create_task(hand.exchange(wait=20))
        await asyncio.sleep(0.1)
        await hand.link.hello(Hello(hand.name, hand.incarnation, OFFERS, hand.slots, greeting=2))
        id = await asyncio.to_thread(wire.start)
        answer = await hand.exchange(wait=5, greeting=2)
        assert [parcel.execution for parcel in answer.jobs] == [id]
        assert (await old).jobs == []
        await hand.exchange(done(answer.jobs[0]), greeting=2)


@run
async def test_what_a_reconnecting_worker_lacks_is_sent_again(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        first, second = wire.start(), wire.start()
        parcels = {parcel.execution: parcel for parcel in await hand.jobs(2)}
        kept = parcels[first]
        await hand.hello(Holding(first, kept.job, kept.attempt))
        [resent] = (await hand.exchange(wait=5)).jobs
        assert resent == parcels[second]
        await hand.exchange(done(kept), done(resent))


@run
async def test_no_more_jobs_than_slots(wire: Wire) -> None:
    async with wire.worker(slots=2) as hand:
        await hand.hello()
        ids = [wire.start() for _ in range(3)]
        parcels = await hand.jobs(2)
        assert (await hand.exchange(wait=0.2)).jobs == []
        # The next claim rides with the result that makes room for it.
        answer = await hand.exchange(done(parcels[0]), done(parcels[1]))
        parcels += answer.jobs or await hand.jobs()
        await hand.exchange(done(parcels[2]))
        assert {wire.show(id).status for id in ids} == {"COMPLETED"}


@run
async def test_goodbye_gives_back_what_was_held(wire: Wire) -> None:
    async with wire.worker() as other:
        async with wire.worker() as leaving:
            await leaving.hello()
            id = wire.start({"name": "again", "steps": [{"block": "test.idempotent"}]})
            [parcel] = await leaving.jobs()
        await other.hello()
        [again] = await other.jobs()
        assert (again.execution, again.attempt) == (id, parcel.attempt + 1)
        await other.exchange(done(again))
        assert wire.show(id).status == "COMPLETED"


@run
async def test_a_draining_worker_gets_nothing_new(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        await hand.exchange(drain=True)
        id = wire.start()
        assert (await hand.exchange(wait=0.3, drain=True)).jobs == []
        await hand.hello()
        [parcel] = await hand.jobs()
        assert parcel.execution == id
        await hand.exchange(done(parcel))


@run
async def test_beats_carry_details_to_the_next_attempt(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        wire.start({"name": "beats", "steps": [{"block": "test.flaky", "retry": {"attempts": 2, "delay": "10ms"}}]})
        [parcel] = await hand.jobs()
        beat = Beat(parcel.execution, parcel.job, parcel.attempt, parcel.token, {"at": 7})
        await hand.exchange(beats=[beat])
        await hand.exchange(done(parcel, failure=Failure("block-error", "not yet")))
        [again] = await hand.jobs()
        assert (again.attempt, again.details) == (2, {"at": 7})
        await hand.exchange(done(again))


@run
async def test_a_result_over_the_limit_fails_the_job(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        await hand.exchange(done(parcel, "x" * (2 * 1024 * 1024 + 100)))
        view = wire.show(id)
        assert (view.is_ended, view.error.code) == (True, "HF0701")


@run
async def test_a_job_names_the_version_it_was_pinned_to(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        assert (parcel.version, parcel.kind, parcel.entity, parcel.forward) == ("1.0.0", "EXECUTE", "", None)
        await hand.exchange(done(parcel, 1))
        assert wire.show(id).status == "COMPLETED"


@run
async def test_a_worker_with_another_version_is_not_given_the_job(wire: Wire) -> None:
    async with wire.worker() as hand, wire.worker() as other:
        await hand.hello()
        offers = [msgspec.structs.replace(offer, version="0.9") for offer in OFFERS]
        await other.link.hello(Hello(other.name, other.incarnation, offers, 100))
        started = [wire.start() for _ in range(4)]
        jobs = await hand.jobs(4)
        assert {job.execution for job in jobs} == set(started)
        assert (await other.exchange()).jobs == []
        await hand.exchange(*(done(job, 1) for job in jobs))


@run
async def test_changes_nobody_can_keep_fail_the_job_for_good(wire: Wire) -> None:
    async with wire.worker() as hand:
        await hand.hello()
        id = wire.start()
        [parcel] = await hand.jobs()
        answer = await hand.exchange(done(parcel, 1, changes=[EntityChange(f"e{n}") for n in range(1001)]))
        assert answer.refused == []
        view = wire.show(id)
        assert view.status == "FAILED_UNSAFE"
        assert "1001 changes of the inventory" in view.error.message
