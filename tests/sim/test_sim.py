"""A short run of the simulator in every build; `make sim` runs as many seeds as there is time for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.core import ledger
from holdfast.core.model import Effect, JobSpec
from holdfast.engine.dispatch import Session
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Item
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


def trusts_its_own_mailbox(patch: pytest.MonkeyPatch) -> None:
    """What never left this engine may have been sent by another one."""
    real = Exchanges._lose

    def lose(self: Exchanges, session: Session, why: str) -> list[Item]:
        self.is_shared = False
        return real(self, session, why)

    patch.setattr(Exchanges, "_lose", lose)


@pytest.mark.parametrize(
    ("plant", "invariant", "first"),
    [(repeats_everything, "I-16", 0), (calls_failures_harmless, "I-33", 0), (trusts_its_own_mailbox, "I-16", 20_500)],
)
def test_it_finds_planted_bugs(plant: Any, invariant: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def campaign() -> None:
        for seed in range(first, first + 2000):
            run_seed(seed)

    with pytest.raises(AssertionError, match=invariant):
        campaign()
