"""Cycles of waiting lanes are found, whatever else waits, and the youngest waiter of each gives way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core.locks import Claim
from holdfast.core.rows import ClaimRow
from holdfast.engine.deadlock import knots, victims
from tests.core.puppets import World, execution_id

ONE, TWO, THREE = (execution_id(n) for n in (1, 2, 3))


def row(
    name: str, execution: str, lane: int, fence: int = 0, *, path: tuple[int, ...] = (), since: int = 0
) -> ClaimRow:
    seq = 1 if fence else since + 2
    return ClaimRow("t", "web", name, Claim(seq, execution, lane, path or (lane,), since), fence)


def test_nobody_gives_way_where_everybody_gets_his_turn() -> None:
    rows = [row("a", ONE, 1, 1), row("a", TWO, 1, since=1), row("a", THREE, 1, since=2), row("b", TWO, 1, 5)]
    assert victims(rows) == []


def test_of_two_that_wait_for_each_other_the_younger_gives_way_and_is_told_why() -> None:
    rows = [
        row("a", ONE, 1, 1), row("b", TWO, 1, 1),
        row("b", ONE, 1, since=10), row("a", TWO, 1, since=20),
    ]  # fmt: skip
    (victim,) = victims(rows)
    assert victim.execution == TWO
    assert (victim.request.name, victim.request.lane, victim.request.seq) == ("a", 1, 22)
    assert victim.request.why == f"execution {ONE[:8]} has it and waits for lock b of web, which this execution has"


def test_the_holder_waits_for_the_lanes_inside_it_and_not_for_its_siblings() -> None:
    inside = [row("a", ONE, 2, 1), row("b", TWO, 1, 1), row("a", TWO, 1, since=1)]
    nested = row("b", ONE, 5, path=(5, 2, 1), since=2)
    beside = row("b", ONE, 3, path=(3, 1), since=2)
    assert [victim.execution for victim in victims([*inside, nested])] == [ONE]
    assert victims([*inside, beside]) == []


def test_a_lane_that_waits_for_what_lies_around_it_waits_for_itself() -> None:
    (victim,) = victims([row("a", ONE, 1, 1), row("a", ONE, 4, path=(4, 1), since=3)])
    assert (victim.request.lane, victim.request.why) == (4, "a lane around this one has it")


def test_a_long_chain_is_no_cycle_and_no_trouble() -> None:
    count = 5000
    rows = [row(f"l{n}", f"{n:032x}", 1, 1) for n in range(count)]
    rows += [row(f"l{n + 1}", f"{n:032x}", 1, since=n) for n in range(count - 1)]
    assert victims(rows) == []
    closing = row("l0", f"{count - 1:032x}", 1, since=count)
    (victim,) = victims([*rows, closing])
    assert victim.request.name == "l0"


def test_locks_of_other_tenants_are_other_locks() -> None:
    rows = [row("a", ONE, 1, 1), row("b", TWO, 1, 1), row("b", ONE, 1, since=10), row("a", TWO, 1, since=20)]
    rows[0].tenant = "other"
    assert victims(rows) == []


graphs = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=4), min_size=n, max_size=n)
)


@given(graphs)
def test_knots_are_exactly_the_nodes_that_reach_themselves(edges: list[list[int]]) -> None:
    def reached(start: int) -> set[int]:
        seen: set[int] = set()
        left = list(edges[start])
        while left:
            node = left.pop()
            if node not in seen:
                seen.add(node)
                left += edges[node]
        return seen

    reach = [reached(node) for node in range(len(edges))]
    expected = {
        frozenset(other for other in range(len(edges)) if other in reach[node] and node in reach[other])
        for node in range(len(edges))
        if node in reach[node]
    }
    assert {frozenset(knot) for knot in knots(edges)} == expected


def test_breaking_one_cycle_lets_the_other_go_on() -> None:
    """The whole way, in the core: two executions, two locks, opposite order."""
    world = World(2)
    world.tell(1, "take", 2, "default", "a")
    world.tell(2, "take", 2, "default", "b")
    world.tell(1, "take", 2, "default", "b")
    world.tell(2, "take", 2, "default", "a")
    rows = [ClaimRow(*place[:3], claim, fence) for place, (claim, fence) in world.shared.claims.items()]
    (victim,) = victims(rows)
    assert victim.execution == execution_id(2)
    assert isinstance(world.when(2, victim.request)[0], e.LockReleased)
    assert isinstance(world.shared.program_.told[-1], p.LockBroken)
    world.tell(2, "fail")
    assert world.wake() == [e.LockGranted(2, "default", "b", 2, 2)]
