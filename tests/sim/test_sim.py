"""A short run of the simulator in every build; `make sim` runs as many seeds as there is time for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.core import ledger
from holdfast.core.model import Effect, JobSpec
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Item, Reply
from holdfast.engine.turn import Turn
from holdfast.transport.messages import Exchange
from tests.sim.__main__ import run_seed
from tests.sim.world import FAULTS


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="holdfast")


def test_no_schedule_breaks_a_promise_and_every_fault_was_there() -> None:
    hits: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in range(400):
        world, ended = run_seed(seed)
        hits.update(world.hit)
        ends.update(ended)
    assert all(hits[fault] > 50 for fault in FAULTS), hits
    assert ends["COMPLETED"] > 1000
    assert ends["FAILED_UNSAFE"] > 50
    assert ends["CANCELLED"] > 20


def test_one_seed_is_one_world() -> None:
    for seed in (3, 17, 79):
        assert run_seed(seed)[0].trace.digest() == run_seed(seed)[0].trace.digest()


def repeats_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobSpec, "may_repeat", property(lambda spec: True))


def calls_failures_harmless(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "effect_of_failure", lambda spec, said: Effect.NONE)


def answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    real = Turn._build

    def build(self: Turn) -> None:
        real(self)
        self.answer()

    patch.setattr(Turn, "_build", build)


def takes_any_greeting(patch: pytest.MonkeyPatch) -> None:
    """A worker that comes back from another engine is not asked what it holds."""
    real = Exchanges.exchange

    def exchange(self: Exchanges, exchange: Exchange, now: int, reply: Reply) -> list[Item]:
        session = self.dispatch.sessions.get(exchange.incarnation)
        if session is not None:
            session.greeting = exchange.greeting
        return real(self, exchange, now, reply)

    patch.setattr(Exchanges, "exchange", exchange)


@pytest.mark.parametrize(
    ("plant", "invariant", "first"),
    [
        (repeats_everything, "I-16", 0),
        (calls_failures_harmless, "I-33", 0),
        (answers_before_the_commit, "I-1", 0),
        (takes_any_greeting, "stuck", 600),
    ],
)
def test_it_finds_planted_bugs(plant: Any, invariant: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def campaign() -> None:
        for seed in range(first, first + 2000):
            run_seed(seed)

    with pytest.raises(AssertionError, match=invariant):
        campaign()
