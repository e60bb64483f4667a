"""A short run of the simulator in every build; `make sim` runs as many seeds as there is time for."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.engine.exchanges import Exchanges
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


def test_it_finds_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answering a copy of an old exchange anew loses the jobs in that answer; seed 79 showed it first."""
    real = Exchanges.exchange

    def forgetful(self: Exchanges, exchange, now, reply):  # type: ignore[no-untyped-def]
        session = self.dispatch.sessions.get(exchange.incarnation)
        if session is not None:
            session.forgotten = 0
            exchange = type(exchange)(**{**{f: getattr(exchange, f) for f in exchange.__struct_fields__}, "seen": 0})
            for number in [n for n in session.answers if n < exchange.number]:
                del session.answers[number]
        return real(self, exchange, now, reply)

    monkeypatch.setattr(Exchanges, "exchange", forgetful)

    def campaign() -> None:
        for seed in range(400):
            run_seed(seed)

    with pytest.raises(AssertionError, match="stuck"):
        campaign()
