"""Locks on entities: which modes go together, and who has to wait for whom. Pure.

An execution asks for all its entities at once and gets them all at once, or it waits and holds none of them. Whoever
waits has a place in the queue of every entity it asked for, under one ticket for all: tickets only grow, so of two
executions that want several of the same entities one is before the other everywhere, and they never wait for each
other. Nobody overtakes on conflict.

A waiter watches one entity at a time, the first at which it is blocked. Whoever lets go of an entity wakes the
executions that watch it; each then looks again at everything it asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from .inventory import Flag
from .model import Mode

IS, IX, S, X = Mode
#: held → asked modes that go together with it
COMPATIBLE: dict[Mode, frozenset[Mode]] = {
    IS: frozenset({IS, IX, S}),
    IX: frozenset({IS, IX}),
    S: frozenset({IS, S}),
    X: frozenset(),
}


class EntityClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One execution's place at one entity."""

    entity: str
    execution: str
    mode: Mode
    #: place in the queue, the same at all its entities
    ticket: int
    priority: int = 0
    #: 0 while it waits
    fence: int = 0
    #: µs; waiting since, or holding since
    since: int = 0
    is_watching: bool = False


class Contention(msgspec.Struct, frozen=True, gc=False):
    """What stands in the way at some entities."""

    #: of those that were asked about, the ones that do not exist
    missing: tuple[str, ...] = ()
    #: held and waited for, at these entities, by anybody
    claims: tuple[EntityClaim, ...] = ()
    flags: tuple[Flag, ...] = ()


class Block(msgspec.Struct, frozen=True, gc=False):
    """Why an execution has to wait: the first entity it cannot have, and who is before it there."""

    entity: str
    claims: tuple[EntityClaim, ...] = ()
    #: quarantined
    flags: tuple[Flag, ...] = ()


def goes_with(held: Mode, asked: Mode) -> bool:
    return asked in COMPATIBLE[held]


def is_before(claim: EntityClaim, ticket: int, priority: int) -> bool:
    """Whether that claim counts for somebody with such a place: it holds, or waits further ahead."""
    return bool(claim.fence) or (-claim.priority, claim.ticket) < (-priority, ticket)


def first_block(
    asked: Mapping[str, Mode], found: Contention, execution: str, ticket: int, priority: int
) -> Block | None:
    """The first of the entities, by id, that cannot be had now."""
    in_way: dict[str, list[EntityClaim]] = {}
    for claim in found.claims:
        mode = asked.get(claim.entity)
        if mode is None or claim.execution == execution or goes_with(claim.mode, mode):
            continue
        if is_before(claim, ticket, priority):
            in_way.setdefault(claim.entity, []).append(claim)
    shut: dict[str, list[Flag]] = {}
    for flag in found.flags:
        if flag.kind == "quarantine" and flag.execution != execution and flag.entity in asked:
            shut.setdefault(flag.entity, []).append(flag)
    if not in_way and not shut:
        return None
    first = min((*in_way, *shut))
    claims = sorted(in_way.get(first, ()), key=lambda claim: (not claim.fence, -claim.priority, claim.ticket))
    return Block(first, tuple(claims), tuple(shut.get(first, ())))


def lock_set(subjects: Mapping[str, Mode], parents: Mapping[str, str], groups: Iterable[str]) -> dict[str, Mode]:
    """Everything that has to be locked, sorted by id: the subjects, an intention on whatever they are parts of, and
    their groups so that nobody joins or leaves."""
    asked = dict(subjects)
    for id, mode in subjects.items() if parents else ():
        intention = IX if mode is X else IS
        around = parents.get(id, "")
        seen = {id}
        while around and around not in seen:
            seen.add(around)
            asked[around] = stronger(asked.get(around), intention)
            around = parents.get(around, "")
    for group in groups:
        asked[group] = stronger(asked.get(group), S)
    return {id: asked[id] for id in sorted(asked)}


def stronger(one: Mode | None, other: Mode) -> Mode:
    """A mode that gives both rights. An intention to change parts of what is held shared takes the whole."""
    if one is None or one is other:
        return other
    return X if {one, other} == {S, IX} else max(one, other)
