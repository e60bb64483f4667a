"""The tables say what DESIGN says, and the diagram in the docs is drawn from them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.core.lifecycle import EDGES, QUIET_START, VERBS, diagram, may, step_to
from holdfast.core.model import Status

DOCS = Path(__file__).parents[2] / "docs"


def test_every_status_can_be_reached_and_left() -> None:
    reached = {edge.target for edge in EDGES} | {Status.NEW}
    left = {edge.source for edge in EDGES}
    assert reached == set(Status)
    assert left == set(Status)


def test_an_ended_status_is_left_only_by_ack_or_by_resume_and_replay() -> None:
    for edge in EDGES:
        if edge.source.is_ended:
            assert edge.target.name == f"{edge.source.name}_ACK" or edge.when in ("resume, replay", "replay")
    # What went well is not resumed: there is nothing to carry on.
    assert {edge.when for edge in EDGES if edge.source is Status.COMPLETED} == {"acknowledged", "replay"}


def test_the_quiet_start_is_a_path_of_the_table() -> None:
    for source, target in pairwise(QUIET_START):
        step_to(source, target)


def test_a_pair_that_is_not_in_the_table_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="COMPLETED -> ERROR"):
        step_to(Status.COMPLETED, Status.ERROR)


def test_each_stop_verb_reaches_further_than_the_last() -> None:
    assert VERBS["cancel"].allowed < VERBS["force-cancel"].allowed < VERBS["kill"].allowed
    assert not may("cancel", Status.ROLLBACK)
    assert not may("kill", Status.COMPLETED)


def test_an_unsafe_execution_is_never_purged_before_it_is_acknowledged() -> None:
    assert not may("purge", Status.FAILED_UNSAFE)
    assert may("purge", Status.FAILED_UNSAFE_ACK)


def test_the_diagram_in_the_docs_is_the_table() -> None:
    assert diagram() in (DOCS / "reference" / "lifecycle.md").read_text()
