"""The blocks under `test.`, as far as the other tests do not use them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.blocks import Context, Failed, RetryLater
from holdfast.blocks import testing as t
from holdfast.core.model import Effect


def test_the_witness_adds_one_line_each_time(tmp_path: Path) -> None:
    file = tmp_path / "witness"

    async def main() -> None:
        await asyncio.gather(*(t.witness(str(file), f"k{n}") for n in range(5)))
        await t.witness_idempotent(str(file), "k5", sync=True)

    asyncio.run(main())
    assert sorted(file.read_text().split()) == [f"k{n}" for n in range(6)]
    assert t.witness_idempotent.offer.idempotent


def test_flaky_and_retry_later_go_by_the_attempt() -> None:
    async def main() -> None:
        with pytest.raises(Failed):
            await t.flaky(Context(attempt=2), until=3)
        assert await t.flaky(Context(attempt=3), until=3, value=1) == 1
        with pytest.raises(RetryLater):
            await t.retry_later(Context(attempt=1))
        assert await t.retry_later(Context(attempt=2), value=2) == 2

    asyncio.run(main())


def test_fail_says_what_it_is_told_to() -> None:
    with pytest.raises(Failed, match="no") as caught:
        asyncio.run(t.fail("no", permanent=True, effect="done"))
    assert caught.value.permanent
    assert caught.value.effect is Effect.DONE


def test_noop_returns_its_input() -> None:
    assert asyncio.run(t.noop()) is None
    assert asyncio.run(t.noop(a=1)) == {"a": 1}


def test_a_log_that_floods_is_cut_and_says_so() -> None:
    ctx = Context(step="s")
    for n in range(1005):
        ctx.info(f"line {n}")
    lines = ctx.take_lines()
    assert len(lines) == 1001
    assert lines[-1].message == "5 log lines dropped"
    ctx.log("x" * 10_000, level="error")
    assert len(ctx.take_lines()[0].message) < 8300
    with pytest.raises(ValueError, match="unknown log level"):
        ctx.log("x", level="loud")
    with pytest.raises(ValueError, match="the limit is"):
        ctx.heartbeat("x" * 70_000)
