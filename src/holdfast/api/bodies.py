"""What requests carry and what answers are made of, beside the views of core. Nobody may send a tenant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.core.model import Status
from holdfast.core.views import (
    ApprovalView,
    BlockView,
    ExecutionView,
    JobView,
    LogView,
    QueueView,
    WorkerView,
    WorkflowView,
)
from holdfast.core.views_shared import EntityLockView, EntityView, LockView
from holdfast.store.records import TokenRow

Name = Annotated[str, Meta(min_length=1, max_length=200)]
MaybeName = Annotated[str, Meta(max_length=200)]
Key = Annotated[str, Meta(max_length=255, description="idempotency key")]
Text = Annotated[str, Meta(max_length=4096)]
Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=100)], Annotated[str, Meta(max_length=500)]],
    Meta(max_length=64),
]
Selector = Annotated[str, Meta(min_length=1, max_length=4096)]
Count = Annotated[int, Meta(ge=1, le=500)]
Cursor = Annotated[int, Meta(ge=0, le=2**62)]
Seconds = Annotated[float, Meta(ge=0, le=30)]
#: in any case; checked against `Status` by the handler, so that the message can list them
StatusName = Annotated[str, Meta(max_length=40, examples=[status.name for status in Status])]
RoleName = Literal["viewer", "operator", "author", "admin", "worker"]
#: stored forms of times and durations, µs
Micros = Annotated[int, Meta(ge=0, le=2**53)]


#: characters of a whole inventory in one request
BODY_TEXT = 2 * 1024 * 1024


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


# --- requests --------------------------------------------------------------------------------------
class ExecuteOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: ids of entities
    ids: Annotated[list[Name], Meta(max_length=100_000)] = []


class StartBody(_Strict):
    """Exactly one of `workflow`, `definition` and `source`."""

    #: `name` or `name:version` of a published workflow
    workflow: MaybeName = ""
    #: an inline definition; needs the role author
    definition: dict[str, Any] | None = None
    #: an inline definition as YAML text; needs the role author
    source: str = ""
    input: Any = None
    #: the same key and content start the same execution; the header Idempotency-Key says the same
    key: Key = ""
    labels: Labels = {}
    #: 32 hexadecimal digits made by the caller, so that a repeated request cannot start twice
    id: Annotated[str, Meta(max_length=32)] = ""
    #: where sensors and locks of a workflow live that works on no entities; without one, the tenant's default entity
    entity: MaybeName = ""
    #: ids of the entities to work upon
    entities: Annotated[list[Name], Meta(max_length=100_000)] = []
    #: selectors of more of them
    select: Selector | Annotated[list[Selector], Meta(max_length=100)] = []
    #: what has to be so before it begins, beside what the workflow says: `not-before`, `window`, `approval`, `after`,
    #: `deadline`
    gates: dict[str, Any] = {}
    #: in the queues of locks; the higher goes first; without one, what the workflow says
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    #: another way to say `entities`
    execute_on: ExecuteOn | None = msgspec.field(default=None, name="executeOnParameters")


class PublishBody(_Strict):
    """Either `definition` or `definitions`."""

    definition: dict[str, Any] | None = None
    #: instead of the name in the definition
    name: MaybeName = ""
    #: workflows that belong together; all are checked, and published in one commit
    definitions: Annotated[list[dict[str, Any]], Meta(max_length=1000)] = []


class SignalBody(_Strict):
    name: Name
    value: Any = None
    #: a signal with a key the execution has seen is not delivered again
    key: Key = ""


class CancelBody(_Strict):
    mode: Annotated[str, Meta(max_length=20)] = "cancel"
    reason: Text = ""


class ResumeBody(_Strict):
    #: also where something may have happened that may not happen twice; needs the role admin
    force: bool = False
    reason: Text = ""
    #: only say what would be done
    dry_run: bool = False
    #: also where other executions have had its entities since
    accept_changes: bool = False


class RetryBody(_Strict):
    #: only upon entities that failed, were never reached or were stopped half way, or whose effects were undone
    failed: bool = False
    #: also where something is left that nobody has acknowledged; needs the role admin
    force: bool = False
    #: replaces some of the input
    input: dict[str, Any] = {}
    #: the same key and content start the same execution; the header Idempotency-Key says the same
    key: Key = ""
    #: 32 hexadecimal digits made by the caller, so that a repeated request cannot start twice
    id: Annotated[str, Meta(max_length=32)] = ""


class AckBody(_Strict):
    #: what was done about it; needed where something is left
    note: Text = ""


class DecisionBody(_Strict):
    reason: Text = ""


class ReplayBody(_Strict, rename={"start": "from"}):
    #: a step's id or its number from 0, `start`, `last` or `end`
    start: Name
    #: also from a step that is no waypoint; needs the role admin
    force: bool = False
    reason: Text = ""
    #: only say what would be done
    dry_run: bool = False


class ActionBody(_Strict, rename={"start": "from"}):
    """One address for all verbs; `from` goes with `replay`."""

    action: Literal["cancel", "resume", "replay"]
    start: MaybeName = ""
    force: bool = False
    reason: Text = ""
    dry_run: bool = False


class ApprovalBody(_Strict):
    approved: bool
    #: why; goes into the history, and into the error of what is rejected
    note: Annotated[str, Meta(max_length=2000)] = ""


class PurgeBody(_Strict):
    #: only say what would go
    dry_run: bool = False


class TokenBody(_Strict):
    name: Name
    role: RoleName
    #: seconds; 0 = until revoked
    lifetime: Annotated[float, Meta(ge=0, le=10 * 366 * 86400)] = 0


class GoodbyeBody(_Strict):
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]


EntityVersion = Annotated[int, Meta(ge=0, le=2**53, description="the version it has to have; 0: it must not exist yet")]
Facts = dict[Name, Any]


class EntityBody(_Strict):
    """Everything that is known about an entity; what is left out is gone."""

    type: MaybeName = ""
    name: MaybeName = ""
    labels: Labels = {}
    #: entity it is a part of
    parent: MaybeName = ""
    #: ids of entities of type `group`
    groups: Annotated[list[Name], Meta(max_length=256)] = []
    facts: Facts = {}
    #: the header If-Match says the same
    version: EntityVersion | None = None


class EntityPatch(_Strict):
    """What is to change; null in labels and facts removes the key."""

    type: MaybeName | None = None
    name: MaybeName | None = None
    labels: dict[Name, Annotated[str, Meta(max_length=500)] | None] = {}
    parent: MaybeName | None = None
    groups: Annotated[list[Name], Meta(max_length=256)] | None = None
    facts: Facts = {}
    #: the header If-Match says the same
    version: EntityVersion | None = None


class ImportedBody(_Strict):
    """What another inventory says of an entity; of parts that are null it says nothing."""

    id: Name
    type: MaybeName = ""
    name: MaybeName | None = None
    parent: MaybeName | None = None
    groups: Annotated[list[Name], Meta(max_length=256)] | None = None
    labels: Labels = {}
    facts: Facts = {}
    #: file and line it came from
    place: Annotated[str, Meta(max_length=500)] = ""


class ImportBody(_Strict):
    """Either `text` or `rows`. An import in several requests sends its rows with `partial`, and at last `present`: what
    the source has in all."""

    source: Name
    #: csv, ansible or nornir; guessed where it is left out
    format: MaybeName = ""
    text: Annotated[str, Meta(max_length=BODY_TEXT)] = ""
    rows: Annotated[list[ImportedBody], Meta(max_length=100_000)] = []
    #: entities that the text does not give a type
    type: Name = "device"
    #: numbers and booleans of a table are no texts
    typed: bool = False
    dry_run: bool = False
    #: delete what the source does not have any more, instead of calling it stale
    prune: bool = False
    #: drop labels and facts that the source does not mention
    replace: bool = False
    #: this is not all that the source has
    partial: bool = False
    present: Annotated[list[Name], Meta(max_length=200_000)] | None = None


class SensorBody(_Strict):
    #: any JSON value of at most 64 KiB
    value: Any


# --- query parameters ------------------------------------------------------------------------------
class ListQuery(_Strict):
    #: repeatable, or with commas
    status: Annotated[list[StatusName], Meta(max_length=64)] = []
    workflow: MaybeName = ""
    limit: Count = 50
    #: `next` of the page before
    before: Annotated[str, Meta(max_length=32)] = ""


class EventsQuery(_Strict):
    after: Cursor = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500


class LogsQuery(_Strict):
    after: Cursor = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500
    #: as a stream, until the execution has ended
    follow: bool = False


class StreamQuery(_Strict):
    after: Cursor = 0


class WaitQuery(_Strict):
    #: seconds to wait for the end before answering
    wait: Seconds = 0


class PublishQuery(_Strict):
    #: instead of the name in the definition; for bodies in YAML
    name: MaybeName = ""
    #: what the text is called in messages, e.g. the path of the file it came from
    file: Annotated[str, Meta(max_length=1000)] = ""


class LoginQuery(_Strict):
    code: Annotated[str, Meta(max_length=100)] = ""
    #: a page of ours to go to
    to: MaybeName = "/"


class LocksQuery(_Strict):
    #: only those of this entity
    entity: MaybeName = ""


class FreeQuery(_Strict):
    #: only from this execution; empty: from all that hold it
    execution: MaybeName = ""


class EntitiesQuery(_Strict):
    #: a selector, e.g. `type == "device" && site == "ams1"`
    where: Text = ""
    type: MaybeName = ""
    #: `next` of the page before
    after: MaybeName = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class DeleteQuery(_Strict):
    #: with everything that is part of it; members of a group only leave it
    recursive: bool = False
    version: EntityVersion | None = None


class ReasonQuery(_Strict):
    reason: Text = ""


# --- answers ---------------------------------------------------------------------------------------
class ExecutionPage(msgspec.Struct):
    items: list[ExecutionView]
    #: `before` of the page that follows; null on the last one
    next: str | None


class EventPage(msgspec.Struct):
    #: `seq`, `at`, `type` and the fields of that type
    items: list[dict[str, Any]]
    #: `after` of the page that follows; null when this was all so far
    next: int | None


class LogPage(msgspec.Struct):
    items: list[LogView]
    next: int | None


class ApprovalList(msgspec.Struct):
    items: list[ApprovalView]


class JobList(msgspec.Struct):
    items: list[JobView]


class WorkflowList(msgspec.Struct):
    items: list[WorkflowView]


class PublishedView(WorkflowView, frozen=True, omit_defaults=True):
    """The workflow, or the last of several."""

    #: those that were published before it, in that order
    also: list[WorkflowView] = msgspec.field(default_factory=list)


class WorkflowVersions(msgspec.Struct):
    """The newest version with its definition, and all versions without."""

    name: str
    newest: WorkflowView
    versions: list[WorkflowView]


class BlockList(msgspec.Struct):
    items: list[BlockView]


class WorkerList(msgspec.Struct):
    items: list[WorkerView]


class QueueList(msgspec.Struct):
    items: list[QueueView]


class LockList(msgspec.Struct):
    #: locks that have a name
    items: list[LockView]
    #: entities that executions work upon, or wait for
    entities: list[EntityLockView] = []


class EntityList(msgspec.Struct):
    items: list[EntityView]
    #: `after` of the page that follows; null on the last one
    next: str | None = None


class DeletedList(msgspec.Struct):
    #: ids of what is gone
    items: list[str]


class Health(msgspec.Struct, omit_defaults=True):
    """`status` alone without a token."""

    status: str
    version: str | msgspec.UnsetType = msgspec.UNSET
    store: str | msgspec.UnsetType = msgspec.UNSET
    engine: str | msgspec.UnsetType = msgspec.UNSET
    pending: int | msgspec.UnsetType = msgspec.UNSET
    workers: int | msgspec.UnsetType = msgspec.UNSET


class Ready(msgspec.Struct, omit_defaults=True):
    """`reason` is there when `status` is not `ready`; where the store is, it says only to those with a token."""

    status: str
    reason: str = ""


class Version(msgspec.Struct):
    version: str
    api: str
    name: str
    role: str
    tenant: str


class TokenView(msgspec.Struct):
    id: str
    name: str
    role: str
    created_at: int
    #: null = until revoked
    expires_at: int | None
    is_revoked: bool


class NewToken(TokenView):
    #: shown once and never again
    token: str = ""


class TokenList(msgspec.Struct):
    items: list[TokenView]


class Gone(msgspec.Struct):
    """Nothing more to say."""


def token_view(row: TokenRow) -> TokenView:
    return TokenView(row.id, row.name, row.role, row.created_at, row.expires_at or None, row.is_revoked)
