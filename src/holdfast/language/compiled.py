"""The compiled form of a definition, which `interpret` walks over: only data and closures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.model import Level, Policy, Retry

from .evaluate import Scope
from .limits import Backoff, Limit
from .names import Asks, Value
from .nodes import Node
from .places import Place
from .rollout import Share
from .transforms import Filter


@dataclass(slots=True)
class Spec:
    """What the definition says about a job; steps that say the same share one."""

    block: str
    queue: str = ""
    timeout: int | None = None
    retry: Retry | None = None
    idempotent: bool | None = None
    #: type of the entities it is done for, as the step says, or what is around it
    run_on: str = ""


@dataclass(slots=True)
class Owner:
    """What holds for a whole lane: of the workflow itself, of a nested one, of a registered type."""

    lock: Value | None = None
    lock_entity: Value | None = None
    #: µs to wait for the lock; 0 for ever
    lock_timeout: int = 0
    timeout: Value | None = None
    #: evaluated inside of the lane
    output: Value | None = None
    on_error: bool = False
    cleanup: bool = False
    from_start: bool = False
    automatically: bool = False
    is_replayable: bool = True
    #: `idempotent: no` or `replayable: disabled`: not to be entered again
    is_final: bool = False
    #: of the workflow itself: it does nothing unless this holds
    condition: Callable[[Scope], bool] | None = None

    @property
    def is_entered(self) -> bool:
        """Whether anything happens before the first step."""
        return self.lock is not None or self.timeout is not None or self.from_start or self.condition is not None


@dataclass(slots=True, frozen=True)
class Again:
    """Of the `retry` step."""

    replay: bool = False
    is_forced: bool = False
    target: Value | None = None
    limits: tuple[Limit, ...] = ()
    backoff: Backoff | None = None
    #: total µs from the first retry; 0 for ever
    timeout: int = 0
    hash: Value | None = None


@dataclass(slots=True, frozen=True)
class Repeat:
    """Of the `repeat` key."""

    #: passages in all; 0 for as many as the condition allows
    times: int = 0
    delay: int = 0
    #: goes on as long as it holds
    condition: Callable[[Scope], bool] | None = None


@dataclass(slots=True, frozen=True)
class Want:
    """An entry of `acquire`."""

    #: see `core.program.Wanted`
    kind: str
    #: selector, or list of ids
    value: Value | None = None
    type: str = ""
    #: see `core.program.Wanted`
    is_added: bool = False


@dataclass(slots=True, frozen=True)
class GateWanted:
    """An entry of `gates`."""

    kind: str
    value: Value
    node: Node | None = None


@dataclass(slots=True)
class Plan:
    """What a workflow says about the entities it works upon."""

    policy: Policy = field(default_factory=Policy)
    #: of its block steps; empty: what the blocks say
    run_on: str = ""
    #: every entity goes through consecutive steps by itself
    is_parallel: bool = False
    is_fail_fast: bool = False
    #: failed entities that are put up with; nothing: none
    tolerance: Share | None = None
    #: lanes of entities at the same time; nothing: all
    concurrency: Callable[[Scope, int], int] | None = None
    batches: tuple[Share, ...] = ()
    wants: tuple[Want, ...] = ()
    gates: tuple[GateWanted, ...] = ()
    #: µs that gates may take in all; 0 for ever
    deadline: int = 0
    #: before every batch but the first: µs to wait, 0 for a person's word; -1 for neither
    gate: int = -1


@dataclass(slots=True)
class Step:
    index: int
    kind: str
    label: str
    #: where it stands in the definition, e.g. `$.steps[2]`
    path: str
    id: str = ""
    #: the id if anything refers to the output, else empty
    keep: str = ""
    condition: Callable[[Scope], bool] | None = None
    #: in an order in which each can be evaluated
    inputs: tuple[tuple[str, Value], ...] = ()
    #: the same by name, for what is evaluated before or after the step's own work
    by_name: dict[str, Value] | None = None
    #: the whole input, if it is literal
    fixed: dict[str, Any] | None = None
    output: Value | None = None
    args: dict[str, Value] = field(default_factory=dict)
    #: of `let` and its like: what is assigned to, and its type
    place: Place | None = None
    type: str = ""
    level: Level = Level.INFO
    #: of `sleep`: µs, if they are literal
    duration: int = -1
    spec: int = -1
    #: of `parallel`, `graph`, `switch`: how many bodies
    bodies: int = 0
    keys: tuple[str, ...] | None = None
    #: of `graph`: for each branch those that come before it
    needs: tuple[tuple[int, ...], ...] | None = None
    #: of what runs in lanes of its own
    owner: Owner | None = None
    #: index of the step that stands for a registered type
    uses: int = -1
    #: of `foreach`: names of the loop variables
    loop: tuple[str, ...] = ()
    loop_index: str = ""
    concurrency: Callable[[Scope, int], int] | None = None
    #: a test of each target
    each: Callable[[Scope], bool] | None = None
    reducing: tuple[tuple[str, Value], ...] | None = None
    again: Again | None = None
    filters: tuple[Filter, ...] = ()
    require: Callable[[Scope, Any], bool] | None = None
    retention: Value | None = None
    #: handler and `finally`, bodies of their own
    on_error: bool = False
    cleanup: bool = False
    next: Value | None = None
    #: of a visit as a whole, where no block runs
    timeout: Value | None = None
    delay: Value | None = None
    asserts: tuple[tuple[Callable[[Scope], bool], str], ...] = ()
    repeat: Repeat | None = None
    continues: bool = False
    #: mode of `Op.WAYPOINT`, or -1
    waypoint: int = -1
    #: passages are counted, because it can be passed more than once
    is_counted: bool = False
    #: entering it again does no harm; for blocks the pinned specification says so
    is_idempotent: bool = True
    #: where it was read, for problems found later; nothing if that was not a file
    node: Node | None = None
    #: a block that is entered without evaluating anything; known when the step is complete
    is_plain: bool = False
    #: parameters that it does not give come from the entity's configuration
    wants_entity: bool = False
    #: anything happens before or after its own work
    has_before: bool = False
    has_after: bool = False
    #: type of the entities it is done for, one by one, as it was written; empty: by what its block and the workflow say
    run_on: str = ""
    #: of `entities`: index of the step that is done for each
    wraps: int = -1
    #: and what that step asks for: ids of steps, what it was given, facts of the entity as (kind, name)
    asks: Asks | None = None


@dataclass(slots=True, frozen=True)
class Parameter:
    name: str
    type: str = "string"
    default: Any = None
    required: bool = True
    description: str = ""
    enum: tuple[Any, ...] = ()


@dataclass(slots=True, frozen=True)
class StepUse:
    """A registered type as a step: what it takes."""

    name: str
    #: nothing where any input is taken
    parameters: tuple[Parameter, ...] | None
    defaults: dict[str, Any]


@dataclass(slots=True)
class Workflow:
    """A definition, compiled."""

    name: str
    description: str
    #: nothing where any input is taken
    parameters: tuple[Parameter, ...] | None
    #: values for inputs that are not given
    defaults: dict[str, Any]
    #: all steps, in the order of their indices
    steps: tuple[Step, ...]
    #: (scope, body) → its steps; scope -1 is the workflow itself
    bodies: dict[tuple[int, int], tuple[Step, ...]]
    specs: tuple[Spec, ...]
    labels: dict[str, str]
    metadata: dict[str, Any]
    owner: Owner = field(default_factory=Owner)
    #: text of the rule, hash
    retention: tuple[str, str] = ("", "")
    #: how it is written as a step of another workflow
    shorthand: str = ""
    #: names of registered types that it uses
    uses: tuple[str, ...] = ()
    #: step index → (scope, body, position)
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    #: (scope, body) → id of a step → its position
    positions: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    cleans_up: bool = False
    #: step that stands for a registered type → what it takes
    types: dict[int, StepUse] = field(default_factory=dict)
    #: steps whose body is written in one line with them
    inline: frozenset[int] = frozenset()
    #: nothing where it says nothing of entities
    plan: Plan | None = None
    #: of one that works on entities, for the blocks of an execution: step of kind `entities` → type of what it is done
    #: for, empty where it is done once; see `arranging`
    scopes: dict[int, str] = field(default_factory=dict)
    #: the same by id
    scopes_by_id: dict[str, str] = field(default_factory=dict)
    #: types of the entities that any step is done for
    types_upon: frozenset[str] = frozenset()
    #: type → the last step that is done for entities of it
    last_upon: dict[str, int] = field(default_factory=dict)

    def find(self, id: str) -> int | None:
        """The step of that id; of one that may be done for each entity, what stands around it."""
        return next((step.index for step in reversed(self.steps) if step.id and step.id == id), None)

    def rank(self, index: int) -> int:
        """Where a step stands among the others as they were written."""
        return self.steps[index].wraps if index >= 0 and self.steps[index].wraps >= 0 else index

    def is_sealed(self, scope: int) -> bool:
        return scope in self.types

    def owner_of(self, scope: int) -> Owner | None:
        """What holds for a lane whose outermost frame has that scope; nothing for a branch."""
        return self.owner if scope < 0 else self.steps[scope].owner
