"""The compiled form of a definition, which `interpret` walks over: only data and closures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.model import Level, Retry

from .evaluate import Scope
from .names import Value
from .nodes import Node


@dataclass(slots=True)
class Spec:
    """What the definition says about a job; steps that say the same share one."""

    block: str
    queue: str = ""
    timeout: int | None = None
    retry: Retry | None = None
    idempotent: bool | None = None


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
    #: of `let`: the variable and its type
    variable: str = ""
    type: str = ""
    level: Level = Level.INFO
    #: of `sleep`: µs, if they are literal
    duration: int = -1
    spec: int = -1
    #: of `parallel`
    bodies: int = 0
    keys: tuple[str, ...] | None = None
    #: where it was read, for problems found later; nothing if that was not a file
    node: Node | None = None

    @property
    def is_plain(self) -> bool:
        """A block that is entered without evaluating anything."""
        return self.kind == "block" and self.condition is None and (self.fixed is not None or not self.inputs)


@dataclass(slots=True, frozen=True)
class Parameter:
    name: str
    type: str = "string"
    default: Any = None
    required: bool = True
    description: str = ""
    enum: tuple[Any, ...] = ()


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
    output: Value | None
    specs: tuple[Spec, ...]
    labels: dict[str, str]
    metadata: dict[str, Any]
    digest: bytes = b""
