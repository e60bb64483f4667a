"""Every failpoint, once: a real process is killed there, and nothing is lost, doubled or stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.failpoints import NAMES

from .kills import ROUND, arena
from .plan import PURGING


@pytest.mark.parametrize("number", range(len(ROUND)), ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(ROUND)])
def test_killed_at_every_failpoint(tmp_path: Path, number: int) -> None:
    kind, names = ROUND[number]
    with arena(tmp_path, seed=number) as made:
        made.run(kind, names)
    assert made.tally.violations == []
    print(dict(made.tally.seen), dict(made.tally.hits))
    assert made.tally.seen["acknowledged"] > 50
    assert made.tally.seen["completed"] > 20
    assert made.tally.hits.keys() >= set(names)


def test_the_round_reaches_all_of_them() -> None:
    # Nothing is old enough to be purged in a life of the campaign; a test of retention kills at those.
    assert {name for _, names in ROUND for name in names} == set(NAMES) - set(PURGING)
