"""What is counted about the entities of an execution, so that nobody has to go through all of them."""

from __future__ import annotations

from holdfast.core.inventory import EntityRow
from holdfast.core.snapshot import encode, restore
from holdfast.core.subjects import Progress
from holdfast.language.reaching import count_of

from .test_entities import failing_on, world


def test_those_that_are_out_are_counted_live_and_after_a_restore() -> None:
    text = "run-on: device\nconfig: {max-failures: 3}\nsteps: [net.a, net.b]"
    blocks = {"net.a": failing_on("d01", "d03"), "net.b": failing_on("d02")}
    state = world(text, 6, blocks).run().states["e1"]
    assert sum(subject.progress is Progress.FAILED for subject in state.subjects.values()) == 3
    assert state.out == 3
    assert restore(encode(state)).out == 3


def test_subjects_are_counted_by_type() -> None:
    more = (
        EntityRow("g1", "group"), EntityRow("i1", "interface", parent="d00"), EntityRow("i2", "interface"),
        EntityRow("c1", "cloud"), EntityRow("r1", "rack"), EntityRow("r2", "rack"),
    )  # fmt: skip
    text = "run-on: device\nsteps: [net.a, {step: net.g, run-on: group}]"
    subjects = world(text, 4, more=more).run().states["e1"].subjects
    there = [subject.type for subject in subjects.values()]
    for types in (
        {"device"},
        {"interface"},
        {"group"},
        {"rack"},
        {"cloud", "rack"},
        {"device", "nothing"},
        set(),
        {"zoo"},
    ):
        assert count_of(subjects, types) == sum(type in types for type in there), types
    assert {"device", "interface", "rack"} <= set(there)
