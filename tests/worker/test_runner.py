"""From parcel to outcome, under each isolation. Real processes, no mocks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Failed, Registry, RetryLater, trees
from holdfast.core.model import Effect, Failure, Level
from holdfast.transport.messages import Outcome
from holdfast.worker import outcomes
from holdfast.worker import runner as runner_module
from tests.worker import sample
from tests.worker.support import bench, in_time, parcel


@pytest.fixture(scope="module")
def registry() -> Registry:
    registry = Registry()
    registry.discover([sample.__name__])
    return registry


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


def once(registry: Registry, block: str, given: Any = None, **more: Any) -> Outcome:
    async def main() -> Outcome:
        async with bench(registry) as b:
            return await b.run(parcel(block, given, **more))

    outcome: Outcome = run(main())
    return outcome


def failure(outcome: Outcome) -> Failure:
    assert outcome.failure is not None, outcome
    return outcome.failure


def test_a_value_comes_back_with_the_token(registry: Registry) -> None:
    assert once(registry, "add", {"a": 2}) == Outcome("x1", 1, 1, "token-1-1", 3)


def test_the_context_says_for_whom_it_runs(registry: Registry) -> None:
    outcome = once(
        registry, "who", attempt=2, step="s", workflow="w", entity="e", idempotency_key="k", details={"at": 7}
    )
    assert outcome.value == {
        "execution": "x1",
        "job": 1,
        "attempt": 2,
        "step": "s",
        "workflow": "w",
        "entity": "e",
        "key": "k",
        "details": {"at": 7},
    }


def test_an_unknown_block_and_wrong_input_change_nothing(registry: Registry) -> None:
    for block, given, kind in (("nope", None, "unknown-block"), ("add", {"a": "x"}, "invalid-input")):
        outcome = once(registry, block, given)
        assert failure(outcome).kind == kind
        assert outcome.is_permanent
        assert outcome.effect is Effect.NONE
    assert "block `add`: parameter `a`: expected `int`, got `str`" in failure(outcome).message


def test_an_error_tells_type_message_and_where(registry: Registry) -> None:
    outcome = once(registry, "raising", {"kind": "boom"})
    told = failure(outcome)
    assert (told.kind, told.type, told.message) == ("block-error", "KeyError", "'boom'")
    assert not outcome.is_permanent
    assert outcome.effect is None
    first = told.traceback.splitlines()[1]
    assert "sample.py" in first, "the traceback begins in the user's code"
    assert "_deeper" in told.traceback
    long = failure(once(registry, "raising", {"kind": "long"}))
    assert len(long.message) <= 4096
    assert len(long.traceback) <= 4096


def test_a_block_may_say_more_than_failed(registry: Registry) -> None:
    permanent = once(registry, "raising", {"kind": "permanent"})
    assert permanent.is_permanent
    assert failure(permanent).details == {"a": 1}
    nothing = once(registry, "raising", {"kind": "nothing"})
    assert nothing.effect is Effect.NONE
    assert not nothing.is_permanent
    later = once(registry, "raising", {"kind": "later"})
    assert later.retry_after == 1_500_000
    assert later.failure is None
    unchanged = once(registry, "raising", {"kind": "unchanged"})
    assert unchanged.value == {"same": True}
    assert unchanged.effect is Effect.NONE
    assert failure(once(registry, "raising", {"kind": "exit"})).type == "SystemExit"
    assert failure(once(registry, "raising", {"kind": "cancelled"})).type == "CancelledError"


def test_a_result_that_cannot_travel_is_a_permanent_failure(registry: Registry) -> None:
    large = once(registry, "raising", {"kind": "large"})
    assert (failure(large).kind, failure(large).code) == ("result-too-large", "HF0701")
    assert failure(large).details == {"size": 2 * 1024 * 1024 + 5}
    odd = once(registry, "raising", {"kind": "object"})
    assert failure(odd).kind == "result-not-sendable"
    assert "type object is unsupported" in failure(odd).message
    for outcome in (large, odd):
        assert outcome.is_permanent
        assert outcome.effect is None, "it did run"


def test_blocks_that_do_not_wait_do_not_see_each_other(registry: Registry) -> None:
    async def main() -> list[Any]:
        async with bench(registry) as b:
            futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
            parcels = [parcel("counts", job=n) for n in range(3)]
            for p, f in zip(parcels, futures, strict=True):
                b._waiting[("x1", p.job, 1)] = f
            b.runner.start(parcels)
            return [(await f).value for f in futures]

    assert run(main()) == [1, 1, 1], "a context variable of one block leaked into the next"


def test_one_block_that_waits_holds_up_nobody(registry: Registry) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            slow = b.start(parcel("test.sleep", {"seconds": 0.3, "value": "late"}, job=1))
            timed = b.start(parcel("timed", {"seconds": 0.05}, job=2))
            quick = [b.start(parcel("add", {"a": n}, job=n)) for n in range(3, 50)]
            assert [(await q).value for q in quick] == [n + 1 for n in range(3, 50)]
            assert not slow.done()
            # asyncio.timeout acts on the task it is entered in; it must be the block's own.
            assert (await timed).value == "own timeout"
            assert (await slow).value == "late"

    run(main())


def test_a_timeout_stops_a_block(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is given up nor killed: each of them ends because it is asked to, or not at all.
    monkeypatch.setattr(runner_module, "GIVE_UP", 30)
    monkeypatch.setattr(trees, "GRACE", 30)
    for name, given in (("test.sleep", {"seconds": 3600}), ("waits-thread", None), ("waits-process", None)):
        # A child process takes its time to start; the others do not.
        limit = 1_500_000 if name == "waits-process" else 100_000
        outcome = once(registry, name, given, timeout=limit)
        assert failure(outcome).kind == "timeout", name
        assert "did not end within" in failure(outcome).message
        assert outcome.effect is None
        assert not outcome.is_cancelled


def test_a_thread_that_never_listens_is_given_up(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "GIVE_UP", 0.1)
    outcome = once(registry, "deaf", timeout=50_000)
    assert failure(outcome).kind == "timeout"
    assert "may still be running" in failure(outcome).message


def test_cancel_stops_async_and_thread(registry: Registry) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            for job, (name, given) in enumerate((("test.sleep", {"seconds": 30}), ("waits-thread", None))):
                future = b.start(parcel(name, given, job=job))
                b.runner.cancel(("x1", job, 1), "enough")  # in the same turn of the loop
                outcome = await asyncio.wait_for(future, 5)
                assert outcome.is_cancelled, name
                assert failure(outcome).message == "enough"

    run(main())


def test_what_a_cancelled_block_still_says_counts(registry: Registry) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            future = b.start(parcel("stubborn"))
            await asyncio.sleep(0.02)
            b.runner.cancel(("x1", 1, 1))
            outcome = await future
            assert outcome.value == "finished anyway"
            assert not outcome.is_cancelled

    run(main())


@pytest.mark.parametrize("name", ["talks-async", "talks-thread", "talks-process"])
def test_logs_and_heartbeats_travel_from_every_isolation(registry: Registry, name: str) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            outcome = await b.run(parcel(name, step="s"))
            assert outcome.failure is None
            assert [(line.message, line.level, line.step) for line in outcome.logs] == [
                ("hello", Level.INFO, "s"),
                ("careful", Level.WARNING, "s"),
            ]
            assert b.beats == [{"done": 3}]

    run(main())


def test_a_child_process_is_kept_warm_and_serves_one_at_a_time(registry: Registry) -> None:
    async def main() -> None:
        async with bench(registry, processes=1) as b:
            outcomes = await asyncio.gather(*(b.run(parcel("who-child", job=n, details=n)) for n in range(5)))
            assert [(o.value["job"], o.value["details"]) for o in outcomes] == [(n, n) for n in range(5)]
            assert len({o.value["pid"] for o in outcomes}) == 1
            assert outcomes[0].value["pid"] != os.getpid()
            assert outcomes[0].value["parent"] == os.getpid()
            assert (await b.run(parcel("async-in-process", {"value": 1}, job=9))).value == 2
            assert failure(await b.run(parcel("who-child", {"x": 1}, job=10))).kind == "invalid-input"

    run(main())


def test_a_child_that_dies_is_replaced(registry: Registry) -> None:
    async def main() -> None:
        async with bench(registry, processes=1) as b:
            outcome = await b.run(parcel("test.crash", job=1))
            assert failure(outcome).kind == "process-died"
            assert "exit code 42" in failure(outcome).message
            assert outcome.effect is None
            assert not outcome.is_permanent
            assert (await b.run(parcel("who-child", job=2))).value["job"] == 2

    run(main())


def test_what_a_child_prints_stays_off_standard_output(registry: Registry, capfd: pytest.CaptureFixture[str]) -> None:
    assert once(registry, "prints").value == "printed"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "this must not reach" in captured.err


def test_cancel_ends_a_child_and_all_it_started(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "GRACE", 30)  # it listens to SIGTERM, so no need to wait for SIGKILL

    async def main() -> None:
        async with bench(registry) as b:
            pids = tmp_path / "pids"
            future = b.start(parcel("waits-process", {"path": str(pids)}))
            child, grandchild = await _pids(pids)
            b.runner.cancel(("x1", 1, 1), "stop it")
            outcome = await in_time(future)
            assert outcome.is_cancelled
            assert failure(outcome).message == "stop it"
            assert not _is_alive(child)
            assert not _is_alive(grandchild)

    run(main())


def test_a_child_that_ignores_sigterm_is_killed(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "GRACE", 0.3)

    async def main() -> None:
        async with bench(registry) as b:
            pids = tmp_path / "pids"
            future = b.start(parcel("waits-process", {"path": str(pids), "ignore": True}))
            child, grandchild = await _pids(pids)
            b.runner.cancel(("x1", 1, 1))
            assert (await asyncio.wait_for(future, 10)).is_cancelled
            assert not _is_alive(child)
            assert not _is_alive(grandchild)

    run(main())


def test_a_cancelled_child_may_clean_up(registry: Registry, tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            file = tmp_path / "state"
            future = b.start(parcel("cleans-up", {"path": str(file)}))
            await _exists(tmp_path / "state.begun")
            b.runner.cancel(("x1", 1, 1))
            assert (await asyncio.wait_for(future, 10)).is_cancelled
            assert file.read_text() == "clean"

    run(main())


def test_a_killed_worker_leaves_no_child_nor_grandchild(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from holdfast.blocks import Registry\n"
        "from tests.worker.support import bench, parcel\n"
        "async def main():\n"
        "    registry = Registry()\n"
        "    registry.discover(['tests.worker.sample'])\n"
        "    async with bench(registry) as b:\n"
        "        await b.run(parcel('waits-process', {'path': sys.argv[1], 'ignore': True}))\n"
        "asyncio.run(main())\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    pids = tmp_path / "pids"
    worker = subprocess.Popen([sys.executable, "-c", script, str(pids)], env={**os.environ, "PYTHONPATH": path})
    _until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    worker.kill()
    worker.wait()
    found = [int(pid) for pid in pids.read_text().split()]
    _until(lambda: not any(_is_alive(pid) for pid in found))


def test_a_block_of_the_main_script_runs_in_a_child(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\n"
        "from holdfast.blocks import Registry, block\n"
        "@block\n"
        "def twice(n: int) -> int:\n"
        "    return 2 * n\n"
        "async def main():\n"
        "    from tests.worker.support import bench, parcel\n"
        "    async with bench(Registry([twice])) as b:\n"
        "        print((await b.run(parcel('twice', {'n': 21}))).value)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


def test_an_attempt_that_waits_for_a_process_was_not_begun(registry: Registry, tmp_path: Path) -> None:
    async def main() -> None:
        async with bench(registry, processes=1) as b:
            pids = tmp_path / "pids"
            first = b.start(parcel("waits-process", {"path": str(pids)}, job=1))
            second = b.start(parcel("who-child", job=2))
            third = b.start(parcel("who-child", job=3, timeout=100_000))
            b.runner.cancel(("x1", 2, 1))
            for future in (second, third):
                outcome = await asyncio.wait_for(future, 5)
                assert outcome.effect is Effect.NONE
            assert second.result().is_cancelled
            assert failure(third.result()).kind == "timeout"
            await _exists(pids)
            b.runner.cancel(("x1", 1, 1))
            await asyncio.wait_for(first, 10)
            assert (await b.run(parcel("who-child", job=4))).value["job"] == 4

    run(main())


def test_a_child_that_cannot_import_the_blocks_says_so(tmp_path: Path) -> None:
    file = tmp_path / "moody.py"
    file.write_text("from holdfast.blocks import block\n@block\ndef moody() -> None: ...\n")
    registry = Registry()
    registry.discover([str(file)])
    file.write_text("import no_such_module_at_all\n")
    outcome = once(registry, "moody")
    assert failure(outcome).kind == "process-not-started"
    assert "no_such_module_at_all" in failure(outcome).message
    assert outcome.effect is Effect.NONE


async def _exists(path: Path) -> None:
    await asyncio.to_thread(_until, path.exists)


async def _pids(path: Path) -> list[int]:
    def read() -> list[int]:
        _until(lambda: path.exists() and len(path.read_text().split()) == 2)
        return [int(pid) for pid in path.read_text().split()]

    return await asyncio.to_thread(read)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("block", ["later", "later-child"])
def test_a_wait_nobody_can_want_is_a_permanent_failure(registry: Registry, block: str) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            for job, after in enumerate(["inf", "-inf", "nan", 1e308, -1, 365 * 86400 + 1, None, [2], 10**15]):
                outcome = await b.run(parcel(block, {"after": after}, job=job))
                assert outcome.retry_after is None, after
                assert outcome.is_permanent
                assert outcome.effect is Effect.NONE
                shown = f"{after:g}" if isinstance(after, float) else f"{after}"
                assert f"RetryLater({shown})" in failure(outcome).message
                assert "365 days" in failure(outcome).message
            for job, after in enumerate([0, 0.25, 365 * 86400], 20):
                outcome = await b.run(parcel(block, {"after": after}, job=job))
                assert (outcome.retry_after, outcome.failure) == (round(after * 1e6), None)

    run(main())


def test_a_number_too_long_to_be_shown_is_a_permanent_failure_too() -> None:
    outcome = outcomes.raised(parcel("later"), RetryLater(10**5000))
    assert outcome.is_permanent
    assert "RetryLater(<int that cannot be shown>)" in failure(outcome).message


@pytest.mark.parametrize("block", ["nests", "nests-thread", "nests-process"])
def test_a_result_nested_too_deeply_is_refused_before_it_is_sent(registry: Registry, block: str) -> None:
    async def main() -> None:
        async with bench(registry) as b:
            assert (await b.run(parcel(block, {"depth": 100}))).failure is None
            for job, depth in enumerate((101, 150, 5000), 2):
                outcome = await b.run(parcel(block, {"depth": depth}, job=job))
                assert outcome.is_permanent
                assert outcome.value is None
                assert outcome.effect is None, "it ran: what it did is not known"
                assert failure(outcome).kind == "result-not-sendable"
                assert "nested more than 100 levels deep" in failure(outcome).message

    run(main())


def test_an_exception_that_cannot_be_told_is_still_a_failure(registry: Registry) -> None:
    class Odd(Failed):
        def __init__(self) -> None:
            """Without the base class: no message, no details."""

    assert failure(outcomes.raised(parcel("raising"), Odd())).type == "Odd"
    outcome = once(registry, "raising", {"kind": "misfit"})
    assert outcome.failure is not None
    assert outcome.value is None


def test_a_log_line_with_half_a_surrogate_pair_can_be_sent(registry: Registry) -> None:
    outcome = once(registry, "says-half")
    assert outcome.value == "said"
    assert [line.message for line in outcome.logs] == ["half a pair: ?"]
