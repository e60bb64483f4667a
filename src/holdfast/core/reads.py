"""The shared rows that decisions depend on: their keys, and how a decision asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from .entity_locks import Contention, EntityClaim
from .inventory import EntityChange, EntityRow, Found
from .locks import WINDOW, LockRow
from .model import BlobRef, BlockOffer
from .sensors import SensorRow

if TYPE_CHECKING:
    from .program import Program


class Missing(Exception):
    """Raised inside a decision when it needs rows that were not read; becomes `Need`."""

    def __init__(self, *keys: Key) -> None:
        super().__init__(*keys)
        self.keys = keys


class TooLong(Exception):
    """A workflow made a value longer than PAYLOAD_LIMIT."""


class WorkflowKey(msgspec.Struct, frozen=True):
    tenant: str
    name: str
    #: 0 = newest
    version: int = 0


class DefinitionKey(msgspec.Struct, frozen=True):
    digest: bytes


class BlockKey(msgspec.Struct, frozen=True):
    """All versions of a block, as a tuple of offers, the latest registration last."""

    name: str


class BlobKey(msgspec.Struct, frozen=True):
    execution: str
    digest: bytes


class HistoryKey(msgspec.Struct, frozen=True):
    """All transitions of an execution, for replaying from a step that is no waypoint."""

    execution: str


class StartKey(msgspec.Struct, frozen=True):
    """An idempotency key for starting."""

    tenant: str
    key: str


class LockKey(msgspec.Struct, frozen=True):
    tenant: str
    entity: str
    name: str
    #: waiters to be read, at the most
    window: int = WINDOW


class SensorKey(msgspec.Struct, frozen=True):
    tenant: str
    entity: str
    #: `sensor` or `config`
    kind: str
    name: str


class EntityKey(msgspec.Struct, frozen=True):
    tenant: str
    id: str


class SelectKey(msgspec.Struct, frozen=True):
    """Entities for which all these equalities hold (see `Wanted.terms`); all of the tenant where there are none."""

    tenant: str
    terms: tuple[tuple[str, str], ...]
    #: `Found` is enough; otherwise whole rows
    is_brief: bool = True


class FoundKey(msgspec.Struct, frozen=True):
    """These entities, by id; those that do not exist are not in the answer."""

    tenant: str
    ids: tuple[str, ...]


class RelatedKey(msgspec.Struct, frozen=True):
    """`children` (their parent is one of these) or `members` (one of these is among their groups)."""

    tenant: str
    relation: str
    ids: tuple[str, ...]


class ContentionKey(msgspec.Struct, frozen=True):
    """What stands in the way at these entities, sorted by id. Reading it locks their rows until the commit."""

    tenant: str
    ids: tuple[str, ...]


class WatchersKey(msgspec.Struct, frozen=True):
    """Executions that watch an entity which that execution holds or waits for. Reading it locks those rows."""

    tenant: str
    execution: str


class FlaggedKey(msgspec.Struct, frozen=True):
    """Executions that watch an entity which that execution has quarantined. Reading it locks those rows."""

    tenant: str
    execution: str


class TicketKey(msgspec.Struct, frozen=True):
    """A number greater than all that were ever given; each key is given one of its own, once per transaction. To be
    asked for with the contention of the entities or after it, never before: who decides later has the greater one."""

    execution: str


class ChangesKey(msgspec.Struct, frozen=True):
    """Changes to the inventory that the jobs of an execution asked for, oldest first."""

    execution: str


class HeaderKey(msgspec.Struct, frozen=True):
    """The row of an execution, where its history does not matter. One of another tenant does not exist."""

    execution: str
    #: empty: whosoever it is
    tenant: str = ""


class TraceKey(msgspec.Struct, frozen=True):
    """Claims of *other* executions, live or over, of mode IX or X, to entities that execution has or had a claim to,
    under a fence greater than its own greatest one there: who may have changed them since."""

    tenant: str
    execution: str


Key: TypeAlias = (
    WorkflowKey
    | DefinitionKey
    | BlockKey
    | BlobKey
    | StartKey
    | HistoryKey
    | LockKey
    | SensorKey
    | EntityKey
    | SelectKey
    | FoundKey
    | RelatedKey
    | ContentionKey
    | WatchersKey
    | FlaggedKey
    | TicketKey
    | ChangesKey
    | HeaderKey
    | TraceKey
)


class Published(msgspec.Struct, frozen=True):
    """What a published name and version stand for."""

    version: int
    definition: bytes


class Need(msgspec.Struct, frozen=True):
    """A decision's answer when rows are missing: read these and ask again."""

    keys: tuple[Key, ...]


class Reads(Protocol):
    """The shared rows, read in the transaction of the decision. Absent rows are `None`; a row that was
    not read raises `Missing`. `keep` puts values that are too long to inline into blobs."""

    def workflow(self, key: WorkflowKey) -> Published | None: ...

    def program(self, digest: bytes) -> Program | None: ...

    def offers(self, name: str) -> tuple[BlockOffer, ...]:
        """All versions of a block that were ever registered, the latest registration last."""
        ...

    def history(self, execution: str) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """(time, events) of each transition."""
        ...

    def load(self, execution: str, value: Any) -> Any:
        """The value itself, where `value` may be a BlobRef."""
        ...

    def keep(self, execution: str, value: Any) -> Any | BlobRef:
        """The value, or a BlobRef to it where it is longer than INLINE_LIMIT."""
        ...

    def lock(self, key: LockKey) -> LockRow:
        """Never absent: a lock nobody ever took is an empty row."""
        ...

    def sensor(self, key: SensorKey) -> SensorRow | None: ...

    def waiters(self, key: SensorKey) -> tuple[tuple[str, int], ...]:
        """Lanes that wait for it to change, as (execution, lane)."""
        ...

    def entity(self, key: EntityKey) -> EntityRow | None: ...

    def select(self, key: SelectKey) -> tuple[Found, ...] | tuple[EntityRow, ...]: ...

    def found(self, key: FoundKey) -> tuple[Found, ...]: ...

    def related(self, key: RelatedKey) -> tuple[Found, ...]: ...

    def contention(self, key: ContentionKey) -> Contention:
        """With what the decisions of this turn did before."""
        ...

    def watchers(self, key: WatchersKey) -> tuple[str, ...]: ...

    def flagged(self, key: FlaggedKey) -> tuple[str, ...]: ...

    def ticket(self, key: TicketKey) -> int: ...

    def changes(self, key: ChangesKey) -> tuple[EntityChange, ...]: ...

    def header_status(self, execution: str, tenant: str) -> int | None:
        """The status another execution of that tenant has, by its row; nothing where there is none."""
        ...

    def trace(self, key: TraceKey) -> tuple[EntityClaim, ...]:
        """Sorted by entity, then fence."""
        ...
