"""The worker's side of the exchange: nothing lost, nothing twice, whatever breaks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Registry
from holdfast.core.errors import EngineBug, PayloadTooLarge, ServerUnreachable, Unauthenticated, WorkerSuperseded
from holdfast.core.model import Effect, Failure, LogLine
from holdfast.transport.messages import Exchange, Hello, Outcome, Welcome
from holdfast.worker import Worker, outcomes
from holdfast.worker import worker as worker_module
from tests.worker import sample
from tests.worker.support import FakeLink, Nowhere, Pauses, parcel, unreachable


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


@asynccontextmanager
async def living(link: FakeLink, **more: Any) -> AsyncIterator[Worker]:
    worker = Worker(link, name="w1", modules=[sample.__name__], **more)
    life = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.drain(0.1)
        await asyncio.wait({life}, timeout=10)
        if not life.cancelled() and life.exception() is not None and worker.error is None:
            life.result()


def test_it_says_what_it_offers_and_reports_outcomes() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link, slots=8, queues=["default", "gpu"]) as worker:
            link.give(*(parcel("add", {"a": n}, job=n) for n in range(20)))
            for n in range(20):
                assert (await link.outcome(n)).value == n + 1
            (hello,) = link.hellos
            assert (hello.name, hello.slots, hello.queues) == ("w1", 8, ["default", "gpu"])
            assert hello.incarnation == worker.incarnation
            assert {"add", "shell", "test.noop"} <= {offer.name for offer in hello.blocks}
            assert hello.pid > 0
            # All twenty ended in one turn of the loop, so they travelled together.
            assert max(len(e.outcomes) for e in link.exchanges) == 20
        assert link.goodbyes == [worker.incarnation]
        assert link.is_closed

    run(main())


def test_exchanges_are_numbered_and_what_was_seen_is_said() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link):
            for n in range(5):
                link.give(parcel("test.noop", job=n))
                await link.outcome(n)
        numbers = [e.number for e in link.exchanges]
        assert numbers == sorted(set(numbers))
        assert numbers[0] == 1
        for exchange in link.exchanges:
            assert exchange.seen < exchange.number
        # While a poll is under way its number is not seen, however many pushes were answered since.
        pushes = [e for e in link.exchanges if e.outcomes]
        for push in pushes:
            waiting = max(e.number for e in link.exchanges if e.wait and e.number < push.number)
            assert push.seen >= waiting - 1

    run(main())


def test_a_hello_that_is_said_again_has_another_number() -> None:
    """Found by the simulator: a hello without an answer was said again, under the same number, to another engine.
    Both then took themselves for the one the worker is with, and one of them kept its jobs."""

    class Deaf(FakeLink):
        async def hello(self, hello: Hello) -> Welcome:
            welcome = await super().hello(hello)
            if len(self.hellos) < 3:
                raise ServerUnreachable("the answer was lost")
            return welcome

    async def main() -> None:
        link = Deaf()
        async with living(link):
            link.give(parcel("test.noop"))
            await link.outcome(1)
        assert [hello.greeting for hello in link.hellos] == [1, 2, 3]
        assert {exchange.greeting for exchange in link.exchanges} == {3}

    run(main())


def test_an_exchange_whose_answer_was_lost_is_asked_again() -> None:
    async def main() -> None:
        link = FakeLink()
        link.before = unreachable(2, lambda e: bool(e.outcomes))
        link.after = unreachable(2, lambda e: bool(e.outcomes))
        async with living(link):
            link.give(parcel("add", {"a": 1}))
            await link.outcome(1)
            link.give(parcel("add", {"a": 1}, job=2))
            await link.outcome(2)
        pushes = [e for e in link.exchanges if e.outcomes and e.outcomes[0].job == 1]
        assert len(pushes) == 5, "two never arrived, two answers were lost, one came through"
        assert all(e == pushes[0] for e in pushes), "the very same exchange each time"

    run(main())


def test_a_lost_poll_answer_brings_its_jobs_the_second_time(tmp_path: Path) -> None:
    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "witness"
        async with living(link):
            link.after = unreachable(1, lambda e: bool(e.wait))
            link.give(parcel("test.witness", {"path": str(file), "key": "k"}))
            await link.outcome(1)
        assert file.read_text() == "k\n"

    run(main())


def test_the_same_parcel_again_is_not_run_again(tmp_path: Path) -> None:
    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "witness"
        given = {"path": str(file), "key": "k"}
        async with living(link):
            link.give(parcel("test.sleep", {"seconds": 0.2}, job=9), parcel("test.witness", given))
            await link.outcome(1)
            link.give(parcel("test.witness", given), parcel("test.sleep", {"seconds": 0.2}, job=9))
            await link.outcome(9)
            link.give(parcel("test.witness", given), parcel("add", {"a": 1}, job=3))
            await link.outcome(3)
            assert file.read_text() == "k\n"
            # Another token is another claim, decided by the engine; only the same one is a repetition.
            del link.accepted[("x1", 1, 1)]
            link.give(parcel("test.witness", given, token="newer"))
            assert (await link.outcome(1)).token == "newer"
        assert file.read_text() == "k\nk\n"

    run(main())


@pytest.mark.parametrize("token", ["", "t"])
def test_a_finished_attempt_is_recognised_whatever_its_token(tmp_path: Path, token: str) -> None:
    """In the same process attempts have no token; the empty one counts like any other."""

    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "witness"
        given = {"path": str(file), "key": "k"}
        async with living(link):
            link.give(parcel("test.witness", given, token=token))
            await link.outcome(1)
            for n in range(3):
                link.give(parcel("test.witness", given, token=token), parcel("test.noop", job=10 + n))
                await link.outcome(10 + n)
        assert file.read_text() == "k\n"

    run(main())


def test_a_finished_attempt_is_recognised_after_another_token_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "witness"

        def attempt(token: str) -> Any:
            return parcel("test.witness", {"path": str(file), "key": token}, token=token)

        async with living(link):
            for token in ("", "newer"):
                link.give(attempt(token))
                await link.outcome(1)
                del link.accepted[("x1", 1, 1)]
            link.give(attempt(""), attempt("newer"), parcel("test.noop", job=2))
            await link.outcome(2)
            # Nor does a late copy of the old one stop the newest while that runs.
            link.give(parcel("test.sleep", {"seconds": 0.3, "value": "newest"}, token="newest"))
            await asyncio.sleep(0.1)
            link.give(attempt(""))
            assert (await link.outcome(1)).value == "newest"
        assert file.read_text() == "\nnewer\n"

    run(main())


def test_an_attempt_that_was_superseded_while_it_ran_is_not_begun_again(tmp_path: Path) -> None:
    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "ran"
        old = parcel("stays-a-while", {"path": str(file)}, token="old")
        async with living(link):
            link.give(old)
            await asyncio.sleep(0.1)
            link.give(parcel("test.echo", {"value": "new"}, token="new"))
            assert (await link.outcome(1)).token == "new"
            link.give(old, parcel("test.noop", job=2))
            await link.outcome(2)
            await asyncio.sleep(0.1)
        assert file.read_text() == "begun\n"

    run(main())


def test_finished_attempts_are_remembered_for_two_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "RECENT_LIMIT", 4)

    async def main() -> None:
        link = FakeLink()
        file = tmp_path / "witness"
        given = {"path": str(file), "key": "k"}
        async with living(link):
            link.give(parcel("test.witness", given, token=""))
            await link.outcome(1)
            for n in range(2, 7):
                link.give(parcel("test.noop", job=n))
                await link.outcome(n)
            link.give(parcel("test.witness", given, token=""), parcel("test.noop", job=9))
            await link.outcome(9)
        assert file.read_text() == "k\n"

    run(main())


def test_a_newer_token_for_a_running_attempt_stops_the_older_one() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link):
            link.give(parcel("test.sleep", {"seconds": 30}, token="old"))
            await asyncio.sleep(0.1)
            link.give(parcel("test.sleep", {"seconds": 0, "value": "new"}, token="new"))
            outcome = await link.outcome(1)
            assert (outcome.token, outcome.value) == ("new", "new")

    run(main())


def test_a_forgotten_worker_says_hello_with_what_it_holds() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link) as worker:
            link.give(parcel("test.sleep", {"seconds": 0.3, "value": "kept"}, job=1), parcel("add", {"a": 1}, job=2))

            def forget(exchange: Exchange) -> None:
                if exchange.outcomes:
                    link.before = lambda exchange: None
                    link.known = False

            link.before = forget
            assert (await link.outcome(2)).value == 2
            assert (await link.outcome(1)).value == "kept"
            first, second = link.hellos
            assert second.incarnation == first.incarnation == worker.incarnation
            assert {(h.execution, h.job, h.attempt) for h in second.holding} == {("x1", 1, 1), ("x1", 2, 1)}

    run(main())


def test_a_superseded_worker_stops() -> None:
    async def main() -> None:
        link = FakeLink()
        worker = Worker(link, name="w1")
        life = asyncio.create_task(worker.run())
        link.give(parcel("test.sleep", {"seconds": 30}))
        await asyncio.sleep(0.1)

        def refuse(exchange: Exchange) -> None:
            raise WorkerSuperseded("another worker named w1 has registered")

        link.before = refuse
        link.give(parcel("test.noop", job=2))
        with pytest.raises(WorkerSuperseded, match="another worker named w1"):
            await asyncio.wait_for(life, 5)
        assert isinstance(worker.error, WorkerSuperseded)
        assert link.goodbyes == []
        assert link.is_closed

    run(main())


def test_an_outcome_the_engine_will_not_take_becomes_a_failure() -> None:
    async def main() -> None:
        link = FakeLink()

        def refuse(exchange: Exchange) -> None:
            if any(o.value == "poison" for o in exchange.outcomes):
                raise PayloadTooLarge("too much")

        link.before = refuse
        async with living(link):
            link.give(*(parcel("test.echo", {"value": n if n != 3 else "poison"}, job=n) for n in range(6)))
            for n in (0, 1, 2, 4, 5):
                assert (await link.outcome(n)).value == n
            outcome = await link.outcome(3)
            assert outcome.is_permanent
            assert outcome.failure is not None
            assert "too much" in outcome.failure.message

    run(main())


def test_what_stands_in_for_a_refused_outcome_says_nothing_else() -> None:
    lines = [LogLine("a line")]
    asked = Outcome("x1", 1, 1, "t", retry_after=5, logs=lines)
    stands = outcomes.refused(asked, PayloadTooLarge("too much"))
    assert (stands.retry_after, stands.value, stands.logs, stands.is_cancelled) == (None, None, [], False)
    assert stands.is_permanent
    assert stands.effect is Effect.NONE, "asking to be called again says that nothing was done"
    assert stands.failure is not None
    assert (stands.failure.kind, stands.failure.code) == ("result-refused", "HF0701")
    stopped = Outcome("x1", 1, 1, "t", failure=Failure("cancelled", "x"), effect=Effect.DONE, is_cancelled=True)
    stands = outcomes.refused(stopped, EngineBug("KeyError"))
    assert (stands.is_cancelled, stands.effect, stands.token) == (False, Effect.DONE, "t")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "BACKOFF_LIMIT", 0.01)


@pytest.mark.usefixtures("hasty")
def test_an_outcome_that_is_a_bug_to_the_engine_stops_no_other() -> None:
    async def main() -> None:
        link = FakeLink()

        def refuse(exchange: Exchange) -> None:
            if any(o.value == "poison" for o in exchange.outcomes):
                raise EngineBug("KeyError: 'x'")

        link.before = refuse
        async with living(link):
            link.give(*(parcel("test.echo", {"value": n if n != 3 else "poison"}, job=n) for n in range(6)))
            for n in (0, 1, 2, 4, 5):
                assert (await link.outcome(n)).value == n
            outcome = await link.outcome(3)
            assert outcome.is_permanent
            assert outcome.failure is not None
            assert (outcome.failure.kind, outcome.failure.code) == ("result-refused", "HF0901")
            link.give(parcel("add", {"a": 1}, job=7))
            assert (await link.outcome(7)).value == 2
        alone = [e for e in link.exchanges if [o.value for o in e.outcomes] == ["poison"]]
        assert len(alone) == worker_module.BUG_LIMIT, "it may have been a passing one"

    run(main())


@pytest.mark.usefixtures("hasty")
def test_a_bug_that_passes_costs_nothing() -> None:
    async def main() -> None:
        link = FakeLink()
        left = worker_module.BUG_LIMIT - 1

        def refuse(exchange: Exchange) -> None:
            nonlocal left
            if exchange.outcomes and left:
                left -= 1
                raise EngineBug("once more")

        link.before = refuse
        async with living(link):
            link.give(parcel("add", {"a": 1}), parcel("add", {"a": 2}, job=2))
            assert [(await link.outcome(n)).value for n in (1, 2)] == [2, 3]
        assert len({e.number for e in link.exchanges if e.outcomes}) == 1, "the very same exchange"

    run(main())


@pytest.mark.usefixtures("hasty")
def test_an_outcome_that_is_refused_in_every_form_is_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A logger of its own: the command line, tested in the same process, silences ours.
    log = logging.Logger("worker")
    log.addHandler(caplog.handler)
    monkeypatch.setattr(worker_module, "log", log)

    async def main() -> None:
        link = FakeLink()

        def refuse(exchange: Exchange) -> None:
            if any(o.job == 3 for o in exchange.outcomes):
                raise EngineBug("never")

        link.before = refuse
        async with living(link) as worker:
            link.give(*(parcel("test.echo", {"value": n}, job=n) for n in range(1, 6)))
            for n in (1, 2, 4, 5):
                assert (await link.outcome(n)).value == n
            while worker._outbox.has_outcomes or worker._sending:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert ("x1", 3, 1) not in link.accepted
        assert link.goodbyes == [worker.incarnation], "and it leaves in order"

    run(main())
    assert "the outcome of job 3 of x1 (attempt 1) was dropped" in caplog.text


@pytest.mark.usefixtures("hasty")
def test_signs_of_life_that_are_refused_take_no_outcome_with_them() -> None:
    async def main() -> None:
        link = FakeLink()

        def refuse(exchange: Exchange) -> None:
            if exchange.beats:
                raise EngineBug("no beats please")

        link.before = refuse
        async with living(link):
            link.give(*(parcel("talks-async", job=n) for n in range(1, 4)))
            for n in range(1, 4):
                assert (await link.outcome(n)).failure is None

    run(main())


def test_large_outcomes_go_in_several_exchanges() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link):
            link.give(*(parcel("test.echo", {"value": "x" * 400_000}, job=n) for n in range(6)))
            for n in range(6):
                await link.outcome(n)
            assert max(len(e.outcomes) for e in link.exchanges) == 2
            link.give(*(parcel("test.noop", job=n) for n in range(10, 610)))
            await link.outcome(609)
            assert max(len(e.outcomes) for e in link.exchanges) == 256

    run(main())


def test_a_cancel_notice_reaches_the_attempt() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link):
            link.give(parcel("test.sleep", {"seconds": 30}))
            link.cancel(1, reason="by Ann")  # in the very answer that brings the job
            outcome = await link.outcome(1)
            assert outcome.is_cancelled
            assert outcome.failure is not None
            assert outcome.failure.message == "by Ann"
            link.cancel(77)  # nobody has that one

    run(main())


def test_it_shows_life_while_nothing_happens() -> None:
    async def main() -> None:
        link = FakeLink(beat=50_000)
        async with living(link):
            link.give(parcel("test.sleep", {"seconds": 3600}))
            while sum(1 for e in link.exchanges if e.wait) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not link.accepted, "it polls although a job is running"
            assert {e.wait for e in link.exchanges} == {50_000}

    run(main())


def test_heartbeats_and_lines_travel_before_the_outcome() -> None:
    async def main() -> None:
        link = FakeLink()
        async with living(link):
            link.give(parcel("talks-then-waits", {"seconds": 0.8}))
            await link.outcome(1)
            beats = [beat for e in link.exchanges for beat in e.beats]
            assert [beat.details for beat in beats] == [{"done": 3}]
            assert [line.message for line in beats[0].logs] == ["hello", "careful"]
            link.give(parcel("talks-async", job=2))
            outcome = await link.outcome(2)
            assert [line.message for line in outcome.logs] == ["hello", "careful"]
            (last,) = [e for e in link.exchanges if any(o.job == 2 for o in e.outcomes)]
            assert [beat.details for beat in last.beats] == [{"done": 3}]

    run(main())


def test_drain_lets_running_jobs_end_and_takes_no_more() -> None:
    async def main() -> None:
        link = FakeLink()
        worker = Worker(link, name="w1")
        life = asyncio.create_task(worker.run())
        link.give(parcel("test.sleep", {"seconds": 0.3, "value": "done"}))
        await asyncio.sleep(0.1)
        drain = asyncio.create_task(worker.drain(5))
        await asyncio.sleep(0.05)
        assert link.exchanges[-1].drain
        link.give(parcel("test.noop", job=2))  # claimed before the engine heard of it
        handed_back = await link.outcome(2)
        assert (handed_back.retry_after, handed_back.effect) == (0, Effect.NONE)
        await drain
        await asyncio.wait_for(life, 5)
        assert link.accepted[("x1", 1, 1)].value == "done"
        assert link.goodbyes == [worker.incarnation]

    run(main())


def test_drain_cancels_what_does_not_end_in_time() -> None:
    async def main() -> None:
        link = FakeLink()
        worker = Worker(link, name="w1")
        life = asyncio.create_task(worker.run())
        link.give(parcel("test.sleep", {"seconds": 3600}))
        await asyncio.sleep(0.1)
        await worker.drain(0.2)
        assert link.accepted[("x1", 1, 1)].is_cancelled, "reported before the worker goes"
        await life
        assert link.goodbyes == [worker.incarnation]

    run(main())


def test_it_lives_in_a_thread_and_stops() -> None:
    link = FakeLink()
    worker = Worker(link, Registry(), name="w1", modules=[sample.__name__])
    link.give(parcel("who-child"), parcel("shell", {"command": "echo hi"}, job=2))
    worker.start_in_thread()
    deadline = time.monotonic() + 10
    while len(link.accepted) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    worker.stop(grace=1)
    assert link.accepted[("x1", 1, 1)].value["job"] == 1
    assert link.accepted[("x1", 2, 1)].value["stdout"] == "hi\n"
    assert link.is_closed
    assert worker.error is None


def test_a_worker_that_is_not_let_in_says_why() -> None:
    class Closed(FakeLink):
        async def hello(self, hello: Any) -> Any:
            raise Unauthenticated("no valid token")

    worker = Worker(Closed(), name="w1")
    with pytest.raises(Unauthenticated, match="no valid token"):
        worker.start_in_thread()
    worker.stop()


@pytest.mark.parametrize("hangs", [False, True])
def test_drain_interrupts_the_search_for_an_engine(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(4)
    monkeypatch.setattr(worker_module, "_pause", pauses)

    async def main() -> None:
        link = Nowhere(hangs)
        worker = Worker(link, name="w1")
        life = asyncio.create_task(worker.run())
        while not (link.hellos if hangs else pauses.is_reached.is_set()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await worker.drain(3600)
        await life
        assert (link.was_interrupted, pauses.was_interrupted) == (hangs, not hangs)
        assert len(link.hellos) == (1 if hangs else 5), "it was not tried once more"
        assert worker.error is None
        assert link.is_closed
        assert not link.goodbyes, "nobody to say it to"

    run(main())


def test_cancelling_interrupts_the_search_for_an_engine() -> None:
    async def main() -> None:
        link = Nowhere()
        life = asyncio.create_task(Worker(link, name="w1").run())
        while not link.hellos:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        life.cancel()
        await asyncio.wait({life})
        assert life.cancelled()
        assert link.is_closed

    run(main())


@pytest.mark.parametrize("hangs", [False, True])
def test_an_idle_worker_whose_engine_is_gone_drains_at_once(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was welcome once; now polls, hellos and the goodbye lead nowhere."""
    pauses = Pauses(3)
    monkeypatch.setattr(worker_module, "_pause", pauses)
    monkeypatch.setattr(worker_module, "FAREWELL", 30)  # for an engine that answers

    class Gone(Nowhere):
        async def hello(self, hello: Any) -> Any:
            return await (super().hello(hello) if self.hellos else FakeLink.hello(self, hello))

    async def main() -> None:
        link = Gone()
        link.before = unreachable(1_000_000)
        worker = Worker(link, name="w1")
        life = asyncio.create_task(worker.run())
        while not pauses.is_reached.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        link.hangs = hangs
        await worker.drain(3600)
        await life
        assert pauses.was_interrupted
        assert link.goodbyes == [worker.incarnation]
        assert link.was_interrupted == hangs, "a goodbye that nobody hears is given up"
        assert worker.error is None
        assert link.is_closed

    run(main())


def test_a_worker_told_to_go_before_it_came_says_nothing() -> None:
    async def main() -> None:
        link = FakeLink()
        worker = Worker(link, name="w1")
        await worker.drain()
        await worker.run()
        assert (link.hellos, link.is_closed) == ([], True)

    run(main())


def test_a_thread_that_finds_no_engine_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        pauses = Pauses(2)
        patch.setattr(worker_module, "_pause", pauses)
        link = Nowhere()
        worker = Worker(link, Registry(), name="w1")
        # Neither the time it may take to be let in nor the pause comes to an end: only `unless` and `stop` do.
        assert not worker.start_in_thread(20, unless=pauses.is_reached)
        worker.stop(0.1)
        assert pauses.was_interrupted
        assert worker._thread is not None
        assert not worker._thread.is_alive()
        assert worker.error is None
        assert link.is_closed
    with pytest.raises(ServerUnreachable, match=r"within 0\.2 s"):
        Worker(Nowhere(), name="w2").start_in_thread(0.2, threading.Event())


def test_a_thread_that_is_stopped_while_it_is_waited_for_lets_go() -> None:
    worker = Worker(Nowhere(), Registry(), name="w1")
    threading.Timer(0.2, worker.stop).start()
    assert not worker.start_in_thread(20), "not let go, it would have been refused after its 20 s"
