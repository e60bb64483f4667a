"""Models: the workflows that run in a world, and what their blocks pretend to do.

One decorated function per model, which gives its steps. A definition is compiled once per process. To add one,
write it here; plans draw from `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.model import BlockOffer, Effect, Failure
from holdfast.core.program import Program
from holdfast.language import canonical, compile_definition
from holdfast.transport.messages import Outcome, Parcel

from .base import MS, SECOND, Violation
from .locked import Locked

if TYPE_CHECKING:
    from .world import World

#: any parameters
OPEN = {"type": "object", "additionalProperties": True}
OFFERS = [
    BlockOffer("plain", parameters=OPEN),
    BlockOffer("again", idempotent=True, parameters=OPEN),
    BlockOffer("pure", pure=True, parameters=OPEN),
]
#: a value that has to travel by reference
LONG = "x" * 1200


class Model(NamedTuple):
    name: str
    definition: bytes
    program: Program
    #: what it completes with; None where it depends on chance
    output: Any
    #: signals its client has to send
    signals: tuple[str, ...] = ()


MODELS: dict[str, Model] = {}
#: programs of models with locks, by definition
LOCKED: dict[bytes, Program] = {}


def model(
    output: Any = 1,
    signals: tuple[str, ...] = (),
    blocks: tuple[str, ...] = ("plain", "again", "pure"),
    locks: tuple[str, ...] = (),
) -> Callable[[Callable[[str], list[Any]]], Callable[[str], list[Any]]]:
    """Register the workflow whose steps the function gives, once for each of these blocks; `locks` are taken, in
    that order, before the first of them."""

    def register(steps: Callable[[str], list[Any]]) -> Callable[[str], list[Any]]:
        for block in blocks:
            name = f"{steps.__name__}-{block}"
            definition = {"name": name, "steps": steps(block)}
            data = canonical(definition)
            program: Program = compile_definition(definition)
            if locks:
                program = LOCKED[data] = Locked(program, locks)
            MODELS[name] = Model(name, data, program, output, signals)
        return steps

    return register


@model()
def walk(block: str) -> list[Any]:
    work = {"parallel": [[block, block, block], [block, "sleep 400ms", block], block]}
    return [block, "let x = 1", work, "sleep 200ms", block, block, block, "return ${x}"]


@model()
def chain(block: str) -> list[Any]:
    return [*[block] * 5, "log half of it", *[block] * 4, "return ${1}"]


@model()
def fan(block: str) -> list[Any]:
    branch = [block, "sleep 200ms", block]
    return [block, {"parallel": [branch, branch, block]}, *[block] * 2, "return ${1}"]


@model(signals=("go",))
def waits(block: str) -> list[Any]:
    return [block, block, "wait-signal go", block, block, "sleep 300ms", *[block] * 2, "return ${1}"]


@model()
def retries(block: str) -> list[Any]:
    tried = {"step": f"{block} luck=0.6", "retry": {"attempts": 4, "delay": "150ms", "max-delay": "1s"}}
    return [block, tried, block, tried, *[block] * 2, "return ${1}"]


@model()
def long(block: str) -> list[Any]:
    """Values too long for an event: results that become inputs, variables and the output."""
    first = {"step": f"{block} long=1", "id": "first"}
    second = {"block": block, "input": {"data": "${steps.first.output}"}}
    return [first, second, {"type": "let", "variable": "x", "value": "${steps.first.output}"}, block,
            {"block": block, "input": {"data": "${x}"}}, *[block] * 3, "return ${1}"]  # fmt: skip


@model()
def turns(block: str) -> list[Any]:
    """More internal steps than a transition may take: it goes on in the next (see `Plan.fuel`)."""
    return [block, *[f"let x = {n}" for n in range(12)], block, block, "sleep 200ms", *[block] * 2, "return ${1}"]


@model()
def slow(block: str) -> list[Any]:
    """Attempts that may take too long for their limit, with heartbeats meanwhile."""
    limited = {"step": f"{block} slow=0.3", "timeout": "800ms", "retry": {"attempts": 3, "delay": "100ms"}}
    return [block, limited, block, "sleep 200ms", *[block] * 2, "return ${1}"]


@model()
def polls(block: str) -> list[Any]:
    """A block that asks to be called again later, which is no failure."""
    return [block, f"{block} poll=0.5", block, f"{block} poll=0.5", *[block] * 2, "return ${1}"]


@model(blocks=("plain", "again"), locks=("first",))
def locked(block: str) -> list[Any]:
    return [*[block] * 3, "sleep 200ms", *[block] * 5, "return ${1}"]


@model(blocks=("pure", "again"), locks=("first", "second"))
def forth(block: str) -> list[Any]:
    return [*[block] * 4, "sleep 100ms", *[block] * 4, "return ${1}"]


@model(blocks=("pure", "again"), locks=("second", "first"))
def back(block: str) -> list[Any]:
    """Against `forth`, which waits for it as it waits for that."""
    return [*[block] * 4, "sleep 100ms", *[block] * 4, "return ${1}"]


class Done(NamedTuple):
    takes: int
    has_effect: bool
    outcome: Outcome
    beat_after: int = 0
    #: done so long after it began, by whoever is alive then; may know better how it ends
    act: Callable[[], Outcome | None] | None = None
    acts_after: int = 0


def perform(world: World, parcel: Parcel) -> Done:
    """What an attempt will have done when it ends, and when that is."""
    random, wants = world.random, parcel.input or {}
    key = (parcel.execution, parcel.job, parcel.attempt)
    if "data" in wants and wants["data"] != {"pad": LONG}:
        raise Violation("I-36", f"job {parcel.job} of {parcel.execution} was given another value than its input")
    if parcel.details is not None and not parcel.details["attempt"] < parcel.attempt:
        raise Violation("I-19", f"attempt {parcel.attempt} of {key} was given words of a later one")
    takes = (20, 20, 70, 120)[int(random() * 4)] * MS
    has_effect = parcel.block != "pure"
    chance = random()
    if chance < wants.get("slow", 0.0):
        takes = int((0.7 + 3 * random()) * SECOND)
        return Done(takes, has_effect, Outcome(*key, parcel.token, 1), beat_after=takes // 2)
    if chance < wants.get("luck", 0.0):
        # Half of what fails says that it did nothing; of the rest nobody knows.
        if chance < wants["luck"] / 2:
            failure = Failure("block-error", "could not even begin")
            return Done(takes, False, Outcome(*key, parcel.token, failure=failure, effect=Effect.NONE))
        return Done(takes, has_effect, Outcome(*key, parcel.token, failure=Failure("block-error", "bad luck")))
    if chance < wants.get("poll", 0.0):
        return Done(takes, False, Outcome(*key, parcel.token, retry_after=int(300 * MS * random())))
    if chance > 0.99:
        failure = Failure("block-error", "for good")
        return Done(takes, has_effect, Outcome(*key, parcel.token, failure=failure, is_permanent=True))
    value: Any = {"pad": LONG} if "long" in wants else parcel.job
    return Done(takes, has_effect, Outcome(*key, parcel.token, value))
