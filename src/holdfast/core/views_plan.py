"""What a start would do, as people are shown it before anything happens."""

from __future__ import annotations

import msgspec

from .model import Problem
from .views import ErrorView
from .views_shared import FlagView


class PlannedBlock(msgspec.Struct, frozen=True):
    """A block as it would be pinned."""

    block: str
    version: str
    pure: bool
    idempotent: bool
    hooks: list[str]
    accepts_unknown: bool
    is_pivot: bool


class PlannedClaim(msgspec.Struct, frozen=True):
    """Somebody who has an entity, or waits for it further ahead."""

    execution: str
    mode: str
    is_holding: bool
    #: µs
    since: int


class PlannedEntity(msgspec.Struct, frozen=True):
    """An entity that would be locked."""

    id: str
    #: empty for one that is only locked around others
    type: str
    mode: str
    #: False: locked because of what is worked upon, and not worked upon itself
    is_subject: bool = True
    #: who is in the way there now
    blocked_by: list[PlannedClaim] = []
    #: what earlier executions left in doubt there
    flags: list[FlagView] = []


class PlannedGate(msgspec.Struct, frozen=True):
    kind: str
    what: str
    is_met: bool
    #: µs; when it is met by itself, and when it is given up; 0 for never
    due: int = 0
    deadline: int = 0


class PlannedStep(msgspec.Struct, frozen=True):
    """A step with a block: how many jobs it would make, and the worst that can come of it."""

    step: str
    block: str
    #: type of the entities it is done for, one by one; empty for once
    run_on: str
    #: nothing where a loop goes round unknown times
    jobs: int | None
    #: it may be fewer; `why` says what decides
    is_at_most: bool
    why: str
    #: blocks have to be asked which entities they need: it may be more
    is_open: bool
    #: how many entities at a time, where it goes in batches
    batches: list[int]
    #: `SAFE`, `ROLLED_BACK`, `IF_VERIFIED` (rolled back if its verify can tell what was done), `WAITS` (for somebody to
    #: decide) or `UNSAFE`
    worst: str
    #: what happens if it fails for good, and why
    fails: str
    #: what happens if its worker is lost
    lost: str


class StartPlan(msgspec.Struct):
    """What a start would do; nothing has happened."""

    workflow: str
    #: 0 for a definition that is not published
    version: int
    #: everything wrong with it; an execution of it would end at once
    problems: list[Problem] = []
    #: it is well-formed and would still end before its first step
    refusal: ErrorView | None = None
    blocks: list[PlannedBlock] = []
    gates: list[PlannedGate] = []
    #: it locks entities before its first step
    works_on_entities: bool = False
    #: type → how many are worked upon
    counts: dict[str, int] = {}
    #: everything that is locked, in the order of the locks
    entities: list[PlannedEntity] = []
    #: steps whose blocks would be asked which more entities they need
    asks: list[str] = []
    #: it would have to wait for its entities
    is_blocked: bool = False
    steps: list[PlannedStep] = []
    #: in all, as far as it can be known; nothing where a loop decides
    jobs: int | None = 0
    #: `auto`, `manual` or `none`
    rollback: str = "auto"
    #: there are more steps than these
    is_more: bool = False
