"""Cycles of lanes that wait for each other's locks, and who has to give way. Pure: rows in, victims out.

A lane that waits for a lock waits for the lane that holds it, and so for every lane inside of that one: it ends
only after they do. Where that leads back to where it began, nobody would ever move again. The youngest waiter of
each cycle gives way: it has waited least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.ids import short
from holdfast.core.requests import BreakLock
from holdfast.core.rows import ClaimRow


class Victim(NamedTuple):
    execution: str
    request: BreakLock


def victims(claims: Sequence[ClaimRow]) -> list[Victim]:
    """One of each knot of cycles; what is still tied up after it shows next time."""
    waiters, edges = _waits(claims)
    chosen = []
    for knot in knots(edges):
        youngest = max(knot, key=lambda n: (waiters[n].claim.since, waiters[n].claim.execution, waiters[n].claim.seq))
        way = [waiters[n] for n in _way_back(edges, youngest, set(knot))]
        chosen.append(_victim(way))
    return chosen


def cycles(claims: Sequence[ClaimRow]) -> list[list[str]]:
    """Executions of each knot."""
    waiters, edges = _waits(claims)
    return [sorted({waiters[n].claim.execution for n in knot}) for knot in knots(edges)]


def _waits(claims: Sequence[ClaimRow]) -> tuple[list[ClaimRow], list[list[int]]]:
    """Claims that wait, and for each the others that have to get on before it can."""
    holders = {(row.tenant, row.entity, row.name): row for row in claims if row.fence}
    waiters = [row for row in claims if not row.fence]
    inside: dict[tuple[str, int], list[int]] = {}
    for n, row in enumerate(waiters):
        for lane in row.claim.path or (row.claim.lane,):
            inside.setdefault((row.claim.execution, lane), []).append(n)
    edges: list[list[int]] = []
    for row in waiters:
        holder = holders.get((row.tenant, row.entity, row.name))
        edges.append(inside.get((holder.claim.execution, holder.claim.lane), []) if holder is not None else [])
    return waiters, edges


def _victim(way: Sequence[ClaimRow]) -> Victim:
    first = way[0]
    chain = [
        f"execution {short(row.claim.execution)} has it and waits for lock {row.name} of {row.entity}"
        for row in way[1:]
    ]
    chain.append("which this execution has" if chain else "a lane around this one has it")
    request = BreakLock(first.entity, first.name, first.claim.lane, first.claim.seq, ", ".join(chain))
    return Victim(first.claim.execution, request)


def _way_back(edges: list[list[int]], start: int, knot: set[int]) -> list[int]:
    """The shortest way from there back to there: start, and what lies between."""
    came: dict[int, int] = {}
    level = [start]
    while level:
        further = []
        for node in level:
            for target in edges[node]:
                if target == start:
                    way = [node]
                    while way[-1] != start:
                        way.append(came[way[-1]])
                    return way[::-1]
                if target in knot and target not in came:
                    came[target] = node
                    further.append(target)
        level = further
    raise AssertionError("a knot leads back to each of its nodes")


def knots(edges: list[list[int]]) -> list[list[int]]:
    """Nodes that can reach each other (strongly connected, by Tarjan), where that takes at least one edge. Without
    recursion: a chain of waiters may be longer than Python's stack."""
    found: list[list[int]] = []
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(edges)):
        if root in order:
            continue
        todo = [(root, 0)]
        while todo:
            node, at = todo.pop()
            if at == 0:
                order[node] = lowest[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            else:
                lowest[node] = min(lowest[node], lowest[edges[node][at - 1]])
            while at < len(edges[node]):
                target = edges[node][at]
                at += 1
                if target not in order:
                    todo += [(node, at), (target, 0)]
                    break
                if target in on_stack:
                    lowest[node] = min(lowest[node], order[target])
            else:
                if lowest[node] == order[node]:
                    knot = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        knot.append(member)
                        if member == node:
                            break
                    if len(knot) > 1 or node in edges[node]:
                        found.append(knot)
    return found
