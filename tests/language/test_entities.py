"""Steps that are done for each of many entities: in the real core and interpreter, with an inventory in memory."""

from __future__ import annotations

from typing import Any

from holdfast.core.inventory import EntityRow
from holdfast.core.model import BlockOffer

from .world import Block, Boom, World


def devices(count: int, **facts: Any) -> dict[str, EntityRow]:
    return {f"d{n:02}": EntityRow(f"d{n:02}", "device", f"Device {n}", facts={"n": n, **facts}) for n in range(count)}


def world(
    text: str, count: int = 3, blocks: dict[str, Block] | None = None, input: Any = None, more: tuple[EntityRow, ...] = (),
    offers: dict[str, BlockOffer] | None = None, on: tuple[str, ...] | None = None,
) -> World:  # fmt: skip
    made = World(blocks, offers)
    made.entities = {**devices(count), **{row.id: row for row in more}}
    made.start(text, input, on=tuple(made.entities) if on is None else on)
    return made


def progress(made: World) -> dict[str, str]:
    return {subject.id: subject.progress.name for subject in made.states["e1"].subjects.values()}


def failing_on(*ids: str) -> Block:
    def block(given: Any) -> Any:
        if given.entity in ids:
            raise Boom(f"boom on {given.entity}")
        return {"on": given.entity}

    return block


def test_a_step_is_done_for_each_entity_before_the_next_begins() -> None:
    made = world("run-on: device\nsteps: [{id: a, step: net.a}, {id: b, step: net.b}]").run()
    assert made.labels() == ["a"] * 3 + ["b"] * 3
    assert made.ran_on == ["d00", "d01", "d02"] * 2
    assert made.output() == {id: {"ran": "net.b"} for id in ("d00", "d01", "d02")}
    assert progress(made) == dict.fromkeys(("d00", "d01", "d02"), "DONE")
