"""A campaign that finds nothing shows something only if it would have found a bug."""

from __future__ import annotations

from pathlib import Path

from .kills import arena


def test_an_acknowledgement_before_the_commit_is_found(tmp_path: Path) -> None:
    with arena(tmp_path, seed=1) as made:
        made.run("embedded", ["sqlite.commit.before"] * 12, program="hasty")
    assert made.tally.seen["lost"] > 0
    assert any("was acknowledged and is gone" in text for text in made.tally.violations)


def test_a_block_that_runs_twice_is_found(tmp_path: Path) -> None:
    with arena(tmp_path, seed=1) as made:
        made.run("embedded", ["worker.block.after"] * 4, program="eager")
    assert made.tally.seen["doubled"] > 0
    assert any("a step ran twice" in text for text in made.tally.violations)
