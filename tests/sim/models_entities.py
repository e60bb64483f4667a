"""Models on entities: a small fleet, workflows over overlapping parts of it, blocks with hooks, a pivot.

What their blocks do is done to the devices of the witness, at some moment of the attempt: whoever dies before it has
done nothing, whoever dies after it cannot say so any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.inventory import EntityChange, EntityRow
from holdfast.core.model import BlockOffer, Effect, Failure
from holdfast.language import canonical, compile_definition
from holdfast.transport.messages import Outcome, Parcel

from .base import MS, SECOND
from .models import MODELS, OFFERS, OPEN, Done, Model

if TYPE_CHECKING:
    from .world import World

OFFERS += [
    BlockOffer("put", parameters=OPEN, has_verify=True, has_rollback=True),
    BlockOffer("both", parameters=OPEN, has_verify=True, has_rollback=True, accepts_unknown=True),
    BlockOffer("any", parameters=OPEN, has_rollback=True, accepts_unknown=True),
    BlockOffer("sure", parameters=OPEN, has_rollback=True),
    BlockOffer("told", parameters=OPEN, has_verify=True),
    BlockOffer("fix", idempotent=True, parameters=OPEN, has_verify=True, has_rollback=True, accepts_unknown=True),
    BlockOffer("burn-in", parameters=OPEN, has_rollback=True, is_pivot=True),
    BlockOffer("need", parameters=OPEN, has_acquire=True, has_rollback=True),
]
ONCE = frozenset(offer.name for offer in OFFERS if not offer.pure and not offer.idempotent)
ACCEPTS_UNKNOWN = frozenset(offer.name for offer in OFFERS if offer.accepts_unknown)
_PURE = frozenset(offer.name for offer in OFFERS if offer.pure)


# --- the fleet -------------------------------------------------------------------------------------------
def _inventory() -> list[EntityRow]:
    devices = [
        EntityRow(f"d{n}", "device", labels={"site": "ab"[n % 2]}, groups=("g1",) if n < 3 else ("g2",), facts={"n": n})
        for n in range(1, 6)
    ]
    parts = [EntityRow(f"d{n}/{m}", "interface", parent=f"d{n}") for n in (1, 2) for m in (1, 2)]
    return [EntityRow("g1", "group"), EntityRow("g2", "group"), *devices, *parts]


INVENTORY = _inventory()
PARTS = {row.id: row.parent for row in INVENTORY if row.parent}
GROUPS = frozenset(row.id for row in INVENTORY if row.type == "group")
DEVICES = tuple(row.id for row in INVENTORY if row.type == "device")


class Upon(NamedTuple):
    """What a start asks to work upon."""

    entities: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


def _devices(random: Callable[[], float]) -> Upon:
    if random() < 0.2:
        return Upon(select=(f'type == "device" && site == "{"ab"[random() < 0.5]}"',))
    wanted = {DEVICES[int(random() * len(DEVICES))] for _ in range(1 + int(random() * 3))}
    return Upon(tuple(sorted(wanted)))


def _interfaces(random: Callable[[], float]) -> Upon:
    wanted = {sorted(PARTS)[int(random() * len(PARTS))] for _ in range(1 + int(random() * 3))}
    return Upon(tuple(sorted(wanted)))


def _mixed(random: Callable[[], float]) -> Upon:
    """Wholes and parts of them, or groups and members."""
    wanted = {*_devices(random).entities, *_interfaces(random).entities, sorted(GROUPS)[int(random() * 2)]}
    return Upon(tuple(sorted(wanted)))


#: model → what a start of it asks for
PICKS: dict[str, Callable[[Callable[[], float]], Upon]] = {}
#: models that put up with failures: completed does not mean all of it
TOLERANT: set[str] = set()


def fleet(
    *steps: Any,
    run_on: str = "device",
    pick: Callable[[Callable[[], float]], Upon] = _devices,
    name: str,
    **config: Any,
) -> None:
    definition = {"name": name, "run-on": run_on, "steps": [*steps, "return ${1}"]}
    if config:
        definition["config"] = {key.replace("_", "-"): value for key, value in config.items()}
    MODELS[name] = Model(name, canonical(definition), compile_definition(definition), 1)
    PICKS[name] = pick
    if "max_failures" in config:
        TOLERANT.add(name)


_PARALLEL = {"parallel": True}
fleet("pure", "put luck=0.2", "fix", "both luck=0.25", "any", name="upgrade")
fleet("put", "sleep 150ms", "sure luck=0.3", "any luck=0.3", name="lanes", execution_strategy=_PARALLEL)
fleet("any", "burn-in", "sure luck=0.6", "put", name="pivot")
fleet(
    "sure", {"step": "any", "run-on": "global"}, "put luck=0.4", {"step": "both luck=0.2", "run-on": "global"},
    name="wide",
)  # fmt: skip
fleet("plain luck=0.3", "put luck=0.3", "fix", name="tolerant", max_failures="50%")
fleet("told luck=0.3", "any luck=0.2", name="rollout", rollout={"batches": 1}, max_failures=1)
fleet("put luck=0.3", "sure luck=0.4", name="batches", rollout={"batches": [1, "50%"]})
fleet("any", "both luck=0.5", name="by-hand", rollback="manual")
fleet("any", "put luck=0.5", name="no-way-back", rollback="none")
fleet("told", "plain luck=0.4", name="shut", on_unsafe="quarantine")
fleet("pure", "sleep 100ms", "pure", name="readers", lock={"mode": "shared"})
fleet("fix", "sleep 300ms", "put", name="impatient", lock={"timeout": "400ms"})
fleet("put", name="at-once", lock={"on-conflict": "fail"})
fleet("put luck=0.2", "fix", "sure luck=0.3", run_on="interface", pick=_interfaces, name="parts")
fleet("put luck=0.1", {"step": "any", "run-on": "interface"}, {"step": "put", "run-on": "group"}, "both luck=0.4",
      pick=_mixed, name="mixed")  # fmt: skip
fleet("need", "put luck=0.3", name="asks")
_RETRY = {"attempts": 3, "delay": "100ms", "max-delay": "500ms"}
fleet({"step": "put luck=0.5", "retry": _RETRY}, {"step": "fix luck=0.4", "retry": _RETRY}, "any luck=0.2",
      name="again-and-again")  # fmt: skip
fleet({"step": "put slow=0.4", "timeout": "800ms", "retry": _RETRY}, {"step": "both slow=0.3", "timeout": "800ms"},
      name="too-slow")  # fmt: skip
fleet("fix", "put luck=0.2", name="urgent", priority=5)
fleet("any slow=0.6", "sure slow=0.4", name="at-length")
FLEET = tuple(PICKS)


# --- what blocks do --------------------------------------------------------------------------------------
def perform(world: World, parcel: Parcel) -> Done:
    """One attempt, at one entity or at none."""
    random = world.random
    takes = int((20 + 110 * random()) * MS)
    at = int(takes * random())
    match parcel.kind:
        case "ACQUIRE":
            return _acquire(world, parcel, takes)
        case "VERIFY":
            return Done(takes, False, _failed(parcel, "cannot be seen"), act=_looking(world, parcel), acts_after=at)
        case "ROLLBACK":
            return _rollback(world, parcel, takes, at)
    wants, chance = parcel.input or {}, random()
    if chance < wants.get("slow", 0.0):
        takes = int((0.7 + 2 * random()) * SECOND)
        return _doing(world, parcel, takes, int(takes * random()), _succeeded(parcel))
    if chance < wants.get("luck", 0.0):
        share = chance / wants["luck"]
        if share < 0.3:
            return Done(takes, False, _failed(parcel, "could not even begin", Effect.NONE))
        if share < 0.5:
            return Done(takes, False, _failed(parcel, "broke off, and did nothing, which it does not know"))
        return _doing(world, parcel, takes, at, _failed(parcel, "broke off half way"))
    return _doing(world, parcel, takes, at, _succeeded(parcel))


def _succeeded(parcel: Parcel) -> Outcome:
    changes = [EntityChange(parcel.entity, facts={"by": parcel.execution})] if parcel.block == "fix" else []
    return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, parcel.job,
                   changes=changes if parcel.entity else [])  # fmt: skip


def _failed(parcel: Parcel, why: str, effect: Effect | None = None, *, is_permanent: bool = False) -> Outcome:
    return Outcome(
        parcel.execution, parcel.job, parcel.attempt, parcel.token, failure=Failure("block-error", why), effect=effect,
        is_permanent=is_permanent,
    )  # fmt: skip


def _doing(world: World, parcel: Parcel, takes: int, at: int, outcome: Outcome) -> Done:
    if parcel.block in _PURE:
        return Done(takes, False, outcome)

    def act() -> Outcome | None:
        if world.witness.does(parcel):
            return None
        return _failed(parcel, "the device refused it", Effect.NONE, is_permanent=True)

    return Done(takes, False, outcome, act=act, acts_after=at)


def _looking(world: World, parcel: Parcel) -> Callable[[], Outcome | None]:
    def act() -> Outcome | None:
        is_there = world.witness.looks(parcel)
        chance = world.random()
        if chance < 0.1:
            return None
        effect = Effect.UNKNOWN if chance < 0.25 else Effect.DONE if is_there else Effect.NONE
        key = (parcel.execution, parcel.job, parcel.attempt)
        if chance < 0.6:
            return Outcome(*key, parcel.token, "seen", effect=effect)
        said = {Effect.DONE: "applied", Effect.NONE: "not-applied", Effect.UNKNOWN: "unknown"}[effect]
        return Outcome(*key, parcel.token, {"outcome": said, "data": "seen"})

    return act


def _rollback(world: World, parcel: Parcel, takes: int, at: int) -> Done:
    chance = world.random()
    fine = Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token)
    if chance < 0.12:
        return Done(takes, False, _failed(parcel, "did not let itself be undone", is_permanent=chance < 0.07))

    def act() -> Outcome | None:
        if not world.witness.undoes(parcel):
            return _failed(parcel, "the device refused it", is_permanent=True)
        return _failed(parcel, "undone, but it does not know") if chance > 0.93 else None

    return Done(takes, False, fine, act=act, acts_after=at)


def _acquire(world: World, parcel: Parcel, takes: int) -> Done:
    chance = world.random()
    if chance < 0.1:
        return Done(takes, False, _failed(parcel, "does not know", is_permanent=True))
    more: Any = {"ids": [DEVICES[int(chance * len(DEVICES))]]} if chance < 0.7 else ['site == "a"']
    return Done(takes, False, Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, more))
