"""A share of the simulator in every build; `make sim` runs as many seeds as there is time for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tests.sim.__main__ import commit, twice
from tests.sim.base import Violation
from tests.sim.bugs import BUGS, RARE, hunt, plant
from tests.sim.campaign import MEANINGFUL, paranoid, run_all, run_seed
from tests.sim.faults import FAULTS
from tests.sim.plan import draw
from tests.sim.shrink import breaks, ddmin, report, shrink

#: seconds of schedules in all, in so many tests: two processes may share them
BUDGET, SHARES = 90, 3
SEEDS = Path(__file__).with_name("seeds.txt")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_seed() -> int:
    """Another stretch of seeds for every commit, so that what was tried grows with the history."""
    try:
        return int(commit(), 16) % 1_000_000_000
    except ValueError:
        return date.today().toordinal() * 1000


@pytest.mark.parametrize("share", range(SHARES))
def test_no_schedule_breaks_a_promise_and_none_is_empty(share: int) -> None:
    first = first_seed() + share * 10_000_000
    print(f"seeds from {first}")
    try:
        # However slow the machine: enough of them that every fault and every rare path must have been there.
        summary = run_all(range(first, first + 10_000_000), seconds=BUDGET / SHARES, least=MEANINGFUL)
    except Violation as violation:
        pytest.fail(report(violation.seed, None, commit()))
    print(summary.text())
    assert summary.emptiness() == []
    assert all(summary.hits[name] >= 10 for name in FAULTS), summary.hits


def regressions() -> list[tuple[int, tuple[int, ...] | None]]:
    found = []
    for line in SEEDS.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            only = tuple(int(n) for n in words[1].split(",")) if len(words) > 1 else None
            found.append((int(words[0]), only))
    return found


@pytest.mark.parametrize(("seed", "only"), regressions())
def test_what_was_found_once_stays_mended(seed: int, only: tuple[int, ...] | None) -> None:
    assert breaks(seed, only) is None


def test_one_seed_is_one_world_in_any_process() -> None:
    assert twice(first_seed(), 60) == 0


def test_nothing_is_changed_after_it_was_committed_and_deciding_is_a_function() -> None:
    for seed in range(first_seed(), first_seed() + 40):
        paranoid(seed)


def rotation() -> list[str]:
    """Four bugs a day; every bug has its turn, but for those only a campaign finds."""
    names, day = sorted(BUGS.keys() - RARE), date.today().toordinal()
    return [names[(day * 4 + n) % len(names)] for n in range(4)]


@pytest.mark.parametrize("name", rotation())
def test_it_finds_planted_bugs(name: str) -> None:
    found = hunt(name)
    print(f"{name}: {found.violation} after {found.seeds} seeds")
    assert found.violation is not None, f"{name} was not found in {found.seeds} seeds"
    assert found.violation.invariant in BUGS[name].invariants, str(found.violation)


def test_there_are_enough_bugs_and_they_leave_nothing_behind() -> None:
    assert len(BUGS) >= 24
    before = run_seed(5).trace.digest()
    for name in BUGS:
        with plant(name):
            pass
    assert run_seed(5).trace.digest() == before


def test_a_schedule_shrinks_to_the_faults_that_matter() -> None:
    with plant("takes-unknown-for-done"):
        found = hunt("takes-unknown-for-done").violation
        assert found is not None
        result = shrink(found.seed)
        assert result is not None
        kept, violation = result
        assert violation.invariant == found.invariant
        events = draw(found.seed).events
        assert len(kept) < len(events)
        assert any("commit unknown" in event.name for event in events if event.number in kept)
        for event in kept:
            again = breaks(found.seed, [n for n in kept if n != event])
            assert again is None or again.invariant != violation.invariant, f"fault {event} is not needed"
        text = report(found.seed, kept, "abc")
        assert f"seed {found.seed}, commit abc, step {violation.step}, invariant {violation.invariant}" in text
        assert f"--seed {found.seed} --only {','.join(map(str, kept))}" in text


def test_ddmin_finds_the_smallest_set() -> None:
    assert ddmin(range(20), lambda some: {3, 11, 12} <= set(some)) == [3, 11, 12]
    assert ddmin(range(5), lambda some: True) == []
