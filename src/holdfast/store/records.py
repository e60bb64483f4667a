"""What the store keeps, one class per table, and `Batch`: everything one commit writes."""

from __future__ import annotations

from operator import attrgetter

import msgspec

from holdfast.core.inventory import EntityChange, EntityRow, Flag
from holdfast.core.model import BlockOffer, Status
from holdfast.core.rows import AgendaRow, ClaimRow, EntityClaims, JobRow, LogRow, Rows, SensorChange


class HistoryRow(msgspec.Struct, gc=False):
    """The events of one execution in one commit."""

    execution: str
    #: number of the last event in `body`
    seq: int
    at: int
    #: packed events
    body: bytes
    #: chained over everything before it
    digest: bytes


class Header(msgspec.Struct):
    """One row per execution: what lists show, and what a transition is checked against."""

    id: str
    tenant: str
    workflow: str
    workflow_version: int
    definition: bytes
    status: Status
    version: int
    digest: bytes
    #: version the snapshot parts stand for; 0 = none
    snapshot: int
    #: log lines written
    logs: int
    run: int
    created_at: int
    updated_at: int
    started_at: int
    ended_at: int
    jobs_done: int
    jobs_total: int
    #: packed `Summary`
    summary: bytes
    is_new: bool = False
    #: in the commit it comes from, jobs of it came into a queue and nobody took them
    is_queued: bool = False
    #: what it works upon
    entity: str = ""
    #: by which rule it is kept once it has ended, and together with which others
    retention: str = ""
    retention_hash: str = ""
    #: execution it does again; never changes
    retry_of: str = ""


class Locked(msgspec.Struct):
    """What a transaction learns about an execution it has locked."""

    version: int
    digest: bytes
    snapshot: int
    logs: int
    #: newer than the version the caller said it knows; empty if it knows everything
    rows: list[HistoryRow] = []
    #: snapshot parts, where the caller knows nothing
    parts: dict[str, bytes] = {}


class PublishedRow(msgspec.Struct):
    tenant: str
    name: str
    version: int
    definition: bytes
    published_at: int
    published_by: str


class StartRow(msgspec.Struct):
    """An idempotency key: (tenant, key) stands for that execution and that content."""

    tenant: str
    key: str
    execution: str
    content: bytes
    at: int


class WorkerRow(msgspec.Struct):
    name: str
    incarnation: str
    #: the engine process it lives in; empty for a worker of its own
    engine: str
    host: str
    pid: int
    slots: int
    queues: list[str]
    #: `name:version` of each
    blocks: list[str]
    registered_at: int
    seen_at: int
    #: µs after `seen_at` at which it is given up
    lease: int
    #: online, draining, offline
    state: str


class EngineRow(msgspec.Struct):
    id: str
    name: str
    started_at: int
    seen_at: int
    #: address its API listens on
    address: str = ""


class TokenRow(msgspec.Struct):
    """An API token; only its hash is kept."""

    id: str
    hash: bytes
    tenant: str
    name: str
    role: str
    created_at: int
    expires_at: int
    is_revoked: bool = False


class Batch(msgspec.Struct):
    """Everything one commit writes."""

    headers: list[Header] = []
    history: list[HistoryRow] = []
    jobs: list[JobRow] = []
    jobs_gone: list[tuple[str, int]] = []
    #: claimed jobs whose workers have to be told to stop
    stopping: list[tuple[str, int]] = []
    agenda: list[AgendaRow] = []
    agenda_gone: list[tuple[str, str]] = []
    logs: list[LogRow] = []
    #: (execution, digest, data)
    blobs: list[tuple[str, bytes, bytes]] = []
    #: (execution, part, data); empty data deletes the part
    parts: list[tuple[str, str, bytes]] = []
    #: executions whose snapshot is no longer needed
    parts_gone: list[str] = []
    #: (execution, job, attempt, packed details)
    beats: list[tuple[str, int, int, bytes]] = []
    #: executions that have ended, with whose attempts' words nobody can do anything any more
    beats_gone: list[str] = []
    definitions: list[tuple[bytes, bytes]] = []
    published: list[PublishedRow] = []
    starts: list[StartRow] = []
    blocks: list[BlockOffer] = []
    workers: list[WorkerRow] = []
    #: names of workers to be forgotten, unless they are back
    workers_gone: list[str] = []
    engines: list[EngineRow] = []
    engines_gone: list[str] = []
    tokens: list[TokenRow] = []
    tokens_gone: list[str] = []
    #: (tenant, key) of starts whose key may be used anew
    starts_gone: list[tuple[str, str]] = []
    #: (execution, version): ended, and everything of it to be deleted but the key it was started with. One that is
    #: not at that version is a `Conflict`
    purged: list[tuple[str, int]] = []
    meta: dict[str, bytes] = {}
    #: (tenant, entity, name, fence, next seq); both numbers only grow
    locks: list[tuple[str, str, str, int, int]] = []
    claims: list[ClaimRow] = []
    #: (tenant, entity, name, seq)
    claims_gone: list[tuple[str, str, str, int]] = []
    #: (tenant, entity, name, seq, fence, since) of claims that waited and hold now
    grants: list[tuple[str, str, str, int, int, int]] = []
    sensors: list[SensorChange] = []
    #: (tenant, entity, kind, name)
    sensors_gone: list[tuple[str, str, str, str]] = []
    #: (tenant, entity, kind, name, execution, lane); written after the lanes that are gone
    sensor_waits: list[tuple[str, str, str, str, str, int]] = []
    #: (execution, lane)
    sensor_waits_gone: list[tuple[str, int]] = []
    #: (tenant, entity)
    entities: list[tuple[str, EntityRow]] = []
    #: (tenant, id)
    entities_gone: list[tuple[str, str]] = []
    # Entity locks; `Rows` says in which order they are written: what is over first.
    entity_claims: list[EntityClaims] = []
    #: (execution, fence, since)
    entity_grants: list[tuple[str, int, int]] = []
    #: (execution, entity): the only one it watches
    entity_watches: list[tuple[str, str]] = []
    #: (tenant, entity, execution)
    entity_claims_lost: list[tuple[str, str, str]] = []
    #: executions
    entity_claims_over: list[str] = []
    #: (tenant, flag)
    flags: list[tuple[str, Flag]] = []
    #: executions whose flags are gone
    flags_gone: list[str] = []
    #: (execution, job, change) to the inventory, kept aside until the execution completes
    changes: list[tuple[str, int, EntityChange]] = []
    #: executions whose changes were made, or never will be
    changes_gone: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not any(_all(self))

    def share(self, rows: Rows) -> None:
        """What follows from a turn's events for rows that executions share."""
        self.locks += [(*key, head.fence, head.next_seq) for key, head in rows.locks.items()]
        self.claims += [row for row in rows.claims.values() if row is not None]
        self.claims_gone += [place for place, row in rows.claims.items() if row is None]
        self.grants += [(*place, *granted) for place, granted in rows.grants.items()]
        self.sensors += [row for row in rows.sensors.values() if row is not None]
        self.sensors_gone += [sensor for sensor, row in rows.sensors.items() if row is None]
        self.sensor_waits += rows.sensor_waits
        self.sensor_waits_gone += rows.sensor_waits_gone

    def share_entities(self, rows: Rows) -> None:
        """The same for entities, their locks and their changes."""
        self.entities += [(tenant, row) for (tenant, _), row in rows.entities.items() if row is not None]
        self.entities_gone += [key for key, row in rows.entities.items() if row is None]
        self.entity_claims += rows.entities_queued.values()
        self.entity_grants += [(id, *granted) for id, granted in rows.entities_granted.items()]
        self.entity_watches += rows.entities_watching.items()
        self.entity_claims_lost += rows.entities_lost
        self.entity_claims_over += rows.entities_released
        self.flags += rows.flags
        self.flags_gone += rows.flags_gone
        self.changes += rows.changes
        self.changes_gone += rows.changes_gone

    @property
    def is_sharing(self) -> bool:
        """Whether it has rows of locks, sensors or subscriptions; most have not."""
        return any(_sharing(self))

    @property
    def is_about_entities(self) -> bool:
        """Whether it has rows of the inventory or of locks on it."""
        return any(_entities(self))

    def merge(self, more: Batch) -> None:
        for field, value in zip(self.__struct_fields__, _all(more), strict=True):
            if not value:
                continue
            if isinstance(value, dict):
                getattr(self, field).update(value)
            else:
                getattr(self, field).extend(value)


_all = attrgetter(*Batch.__struct_fields__)
_sharing = attrgetter("claims", "claims_gone", "sensors", "sensors_gone", "sensor_waits", "sensor_waits_gone")
_entities = attrgetter(
    "entities", "entities_gone", "entity_claims", "entity_grants", "entity_watches", "entity_claims_lost",
    "entity_claims_over", "flags", "flags_gone", "changes", "changes_gone",
)  # fmt: skip
