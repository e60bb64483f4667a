"""What people see of locks, sensors and entities."""

from __future__ import annotations

from typing import Any

import msgspec


class ClaimView(msgspec.Struct, frozen=True):
    """A place at a lock."""

    execution: str
    lane: int
    #: held, or waited for, since then
    since: int
    #: who has the lower number came first
    seq: int


class LockView(msgspec.Struct, frozen=True):
    entity: str
    name: str
    #: grows with every holder, and whenever the lock is taken away from one
    fence: int
    holder: ClaimView | None
    #: first come first
    waiters: list[ClaimView]
    waiting: int


class EntityLockView(msgspec.Struct, frozen=True):
    """Who holds an entity, and who waits for it."""

    entity: str
    holders: list[EntityHoldView]
    #: in the order of the queue
    waiters: list[EntityHoldView]
    waiting: int
    flags: list[FlagView] = []


class GraphNode(msgspec.Struct, frozen=True):
    execution: str
    workflow: str = ""
    status: str = ""


class GraphEdge(msgspec.Struct, frozen=True):
    """One execution waits for another."""

    waiter: str
    holder: str
    #: `holder`, or `waiter` where the other is only before it in the queue
    kind: str
    entity: str
    #: of a named lock; empty where the entity itself is waited for
    lock: str
    mode: str
    since: int


class GraphView(msgspec.Struct, frozen=True):
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    #: executions that wait for each other by named locks, and will be set free soon; entities never lead to one
    cycles: list[list[str]]


class SensorView(msgspec.Struct, frozen=True):
    entity: str
    #: `sensor` or `config`
    kind: str
    name: str
    value: Any
    #: counts its changes
    version: int
    at: int
    #: the execution or person that set it
    by: str


class EntityHoldView(msgspec.Struct, frozen=True):
    """An execution at an entity: one that holds it, waits for it, or did hold it."""

    execution: str
    #: IS, IX, S or X
    mode: str
    #: 0 while it waits
    fence: int
    since: int
    priority: int = 0
    #: of two of the same priority, who has the lower number came first
    ticket: int = 0


class FlagView(msgspec.Struct, frozen=True):
    """An execution left the entity in doubt."""

    execution: str
    #: `suspect`, or `quarantine`: nobody may lock it
    kind: str
    reason: str
    at: int


class EntityView(msgspec.Struct, frozen=True):
    id: str
    type: str
    name: str
    labels: dict[str, str]
    #: null for the default entity, which exists by itself
    created_at: int | None
    updated_at: int | None
    #: these three only in answers about one entity
    sensors: list[SensorView] = []
    config: list[SensorView] = []
    locks: list[LockView] = []
    #: entity it is a part of
    parent: str = ""
    groups: list[str] = []
    facts: dict[str, Any] = {}
    #: which importer it came from, and what it is called there
    source: str = ""
    external: str = ""
    #: counts its changes; 0 where nobody made it
    version: int = 0
    #: its source does not have it any more
    is_stale: bool = False
    #: these only in answers about one entity: how many parts and members it has, who holds it or waits for it, and who
    #: had it before (the last one first)
    parts: int = 0
    members: int = 0
    held: list[EntityHoldView] = []
    waiting: list[EntityHoldView] = []
    past: list[EntityHoldView] = []
    #: who left it in doubt
    flags: list[FlagView] = []


class EditView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entity of an import."""

    id: str
    #: added, changed, unchanged, stale, deleted, skipped or refused
    outcome: str
    #: what changes: `facts.os: "16" → "17"`
    changes: list[str] = []
    #: why it was skipped or refused
    why: str = ""
    #: file and line
    place: str = ""


class ImportView(msgspec.Struct, frozen=True):
    source: str
    is_dry_run: bool = False
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    stale: int = 0
    deleted: int = 0
    skipped: int = 0
    refused: int = 0
    #: the first of those to which something happened, and of those that were skipped or refused
    first: list[EditView] = []
    #: what was left out, and why
    warnings: list[str] = []
