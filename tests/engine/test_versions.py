"""Jobs meet the version they were pinned to, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Registry, block
from holdfast.core.model import BlockOffer, JobSpec
from holdfast.core.requests import CompleteJob
from holdfast.core.rows import JobRow
from holdfast.embedded import Embedded
from holdfast.engine.dispatch import Dispatch, Session
from holdfast.engine.items import Put
from holdfast.engine.patience import PATIENCE, worker_state
from holdfast.engine.why import queue_reason
from holdfast.language import compile_definition
from holdfast.store.port import Store
from holdfast.store.records import Batch, WorkerRow
from holdfast.transport.local import LocalLink
from holdfast.worker import Worker
from tests.engine.driver import Hand, execution_id

SECOND = 1_000_000


def named(reference: str) -> dict[str, Any]:
    return {"name": "w", "steps": [{"block": reference, "id": "s"}]}


def session(name: str, *blocks: str) -> Session:
    made = Session(name, f"{name}.1", 4, ["default"], blocks)
    made.is_local = True
    return made


def test_dispatch_matches_name_and_version() -> None:
    dispatch = Dispatch()
    old, new = session("old", "ping:1.0.0"), session("new", "ping:1.1.0", "ping:2.0.0")
    dispatch.attach(old)
    dispatch.attach(new)
    assert dispatch.choose("default", "ping:1.0.0") is old
    assert dispatch.choose("default", "ping:1.1.0") is new
    assert dispatch.choose("default", "ping:1.2.0") is None
    assert dispatch.choose("default", "ping") in (old, new)
    dispatch.add(JobRow("x", 1, "default", "ping:1.0.0", 0))
    dispatch.add(JobRow("x", 2, "default", "ping:2.0.0", 0))
    dispatch.add(JobRow("x", 3, "default", "ping", 0))
    dispatch.add(JobRow("x", 4, "default", "ping:3.0.0", 0))
    matched = {key[1]: taker.name for key, taker in dispatch.match()}
    assert matched.pop(3) in ("old", "new")
    assert matched == {1: "old", 2: "new"}
    assert dispatch.waiting() == 1
    dispatch.detach("old.1")
    assert dispatch.choose("default", "ping:1.0.0") is None


def test_other_code_of_one_version_does_not_stand_in_the_way_of_another_version() -> None:
    dispatch = Dispatch()
    first, second = session("first"), session("second")
    first.offer([BlockOffer("ping", "1.0.0", digest="a"), BlockOffer("ping", "2.0.0", digest="c")])
    second.offer([BlockOffer("ping", "1.0.0", digest="b")])
    dispatch.attach(first)
    dispatch.attach(second)
    assert dispatch.choose("default", "ping:1.0.0") is second
    assert dispatch.choose("default", "ping:2.0.0") is first


@pytest.mark.parametrize(
    ("reference", "version"), [("ping", "1.10.0"), ("ping:1", "1.10.0"), ("ping:1.9", "1.9.1"), ("ping:1.9.0", "1.9.0")]
)
def test_an_execution_pins_the_newest_that_fits(store: Store, reference: str, version: str) -> None:
    hand = Hand(store)
    offers = [BlockOffer("ping", v) for v in ("1.9.0", "1.10.0", "1.9.1", "2.0.0-rc.1")]
    hand.turn([Put(Batch(blocks=offers))])
    hand.turn([hand.start(1, named(reference))])
    state = hand.committer.cache[execution_id(1)].state
    assert state.specs == (JobSpec("ping", version),)
    with store.reading() as queries:
        assert [row.block for row in queries.jobs_of(execution_id(1))] == [f"ping:{version}"]
        # Who reads the queue for a worker finds it by the version it offers, and by no other.
        assert queries.ready(10, [("default", f"ping:{version}")])
        assert not queries.ready(10, [("default", "ping:3.0.0")])


def test_a_version_nobody_registered_fails_safe_and_says_which_there_are(store: Store) -> None:
    hand = Hand(store)
    hand.turn([Put(Batch(blocks=[BlockOffer("ping", "1.9.0"), BlockOffer("ping", "1.10.0")]))])
    hand.turn([hand.start(1, named("ping:2"))])
    header, error = hand.last()
    assert error is None
    assert header.status.name == "FAILED_SAFE"
    assert hand.committer.cache.get(execution_id(1)) is None
    with store.reading() as queries:
        assert b"HF0771" in queries.history(execution_id(1))[0].body
        assert b"there is 1.10.0, 1.9.0" in queries.history(execution_id(1))[0].body
        assert b"$.steps[0]" in queries.history(execution_id(1))[0].body


def test_a_new_version_is_taken_from_the_next_execution_on(store: Store) -> None:
    hand = Hand(store)
    hand.turn([Put(Batch(blocks=[BlockOffer("ping", "1.0.0")]))])
    hand.turn([hand.start(1, named("ping"))])
    hand.turn([Put(Batch(blocks=[BlockOffer("ping", "1.1.0")]))])
    hand.turn([hand.start(2, named("ping"))])
    cache = hand.committer.cache
    assert [cache[execution_id(n)].state.specs[0].version for n in (1, 2)] == ["1.0.0", "1.1.0"]


def test_hooks_are_pinned_with_the_version() -> None:
    up = BlockOffer("up", "1.0.0", run_on="device", has_acquire=True, has_verify=True, has_rollback=True)
    look = BlockOffer("look", "1.0.0", pure=True, has_acquire=True, has_verify=True, has_rollback=True)
    program = compile_definition({"name": "w", "run-on": "device", "steps": [{"block": "up:1"}, {"block": "look"}]})
    (upgraded, looked), problems = program.pin({"up:1": up, "look": look})
    assert not problems
    assert (upgraded.block, upgraded.version, upgraded.run_on) == ("up", "1.0.0", "device")
    assert (upgraded.has_acquire, upgraded.has_verify, upgraded.has_rollback) == (True, True, True)
    # What changes nothing leaves nothing to look for or to undo.
    assert (looked.has_acquire, looked.has_verify, looked.has_rollback) == (True, False, False)


def test_why_says_which_versions_are_online() -> None:
    worker = WorkerRow("w1", "w1.1", "", "h", 1, 4, ["default"], ["ping:1.2.4", "ping:1.10.0"], 0, 100 * SECOND,
                       30 * SECOND, "online")  # fmt: skip
    said = queue_reason("default", "ping:1.2.3", [worker], {}, 101 * SECOND)
    assert said.startswith("no worker online offers `ping` 1.2.3 (online: 1.2.4, 1.10.0);")
    assert "1 worker online offers it" in queue_reason("default", "ping:1.2.4", [worker], {}, 101 * SECOND)
    assert "1 worker online offers it" in queue_reason("default", "ping", [worker], {}, 101 * SECOND)
    assert worker_state(worker, 101 * SECOND, PATIENCE) == "online"


# --- two real workers ---------------------------------------------------------------------------------
def greeting(version: str) -> Registry:
    @block(name="fb.example.io/greet", version=version)
    async def greet() -> str:
        return f"from {version}"

    return Registry([greet], built_in=False)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Embedded]:
    with Embedded(f"sqlite:///{tmp_path}/holdfast.db", with_worker=False) as holdfast:
        workers = [Worker(LocalLink(holdfast.engine), greeting(v), f"w-{v}") for v in ("1.0.0", "1.1.0")]
        for worker in workers:
            worker.start_in_thread()
        yield holdfast
        for worker in workers:
            worker.stop(5)


def test_two_workers_with_two_versions_each_get_their_own(two: Embedded) -> None:
    steps = [
        {"block": "fb.example.io/greet:1.0", "id": "old"},
        {"block": "fb.example.io/greet", "id": "new"},
        "fb.example.io/greet:1.0.0",
    ]
    output = "${steps.old.output}, ${steps.new.output}"
    view = two.run({"name": "w", "steps": steps, "output": output}, timeout=30)
    assert view.status == "COMPLETED", view
    assert view.output == "from 1.0.0, from 1.1.0"
    jobs = two.service.jobs(two.actor, view.id)
    assert [(job.block, job.worker) for job in jobs] == [
        ("fb.example.io/greet", "w-1.0.0"),
        ("fb.example.io/greet", "w-1.1.0"),
        ("fb.example.io/greet", "w-1.0.0"),
    ]
    views = {view.version: view.workers for view in two.service.blocks()}
    assert views == {"1.0.0": ["w-1.0.0"], "1.1.0": ["w-1.1.0"]}


def test_a_job_whose_version_nobody_offers_waits_and_is_explained(tmp_path: Path) -> None:
    with Embedded(f"sqlite:///{tmp_path}/holdfast.db", with_worker=False) as holdfast:
        old = Worker(LocalLink(holdfast.engine), greeting("1.0.0"), "old")
        old.start_in_thread()
        new = Worker(LocalLink(holdfast.engine), greeting("1.1.0"), "new")
        new.start_in_thread()
        new.stop(5)
        started = holdfast.service.start(holdfast.actor, definition=named("fb.example.io/greet"))
        [reason] = holdfast.service.why(holdfast.actor, started.id).reasons
        assert "no worker online offers `fb.example.io/greet` 1.1.0 on queue `default` (online: 1.0.0)" in reason.text
        back = Worker(LocalLink(holdfast.engine), greeting("1.1.0"), "back")
        back.start_in_thread()
        view = holdfast.service.wait(holdfast.actor, started.id, 30)
        assert (view.status, view.output) == ("COMPLETED", "from 1.1.0")
        back.stop(5)
        old.stop(5)


def test_a_late_result_of_an_older_version_still_counts(store: Store) -> None:
    """What was pinned and claimed is answered whatever is registered meanwhile."""
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, named("test.noop"))])
    [parcel] = hand.parcels()
    assert (parcel.block, parcel.version, parcel.kind) == ("test.noop", "1.0.0", "EXECUTE")
    hand.turn([Put(Batch(blocks=[BlockOffer("test.noop", "2.0.0")]))])
    hand.turn([hand.ask(1, CompleteJob(1, 1, "done"))])
    assert hand.last()[0].status.name == "COMPLETED"
