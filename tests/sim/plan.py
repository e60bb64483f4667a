"""A plan: everything a seed decides before anything happens. Fault events are numbered, so that a schedule can be
run without some of them (`--only`), which is what shrinking does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from .base import MS, SECOND
from .faults import FAULTS
from .models import MODELS
from .models_entities import FLEET, PICKS, Upon

#: faults come within this time; the work of a world takes about as long
WINDOW = 2_200 * MS


class Event(NamedTuple):
    """One fault, at a time, with chances of its own: leaving one out changes no other."""

    number: int
    at: int
    name: str
    a: float
    b: float
    c: float

    def between(self, low: int, high: int) -> int:
        return low + int(self.a * (high - low))

    def __str__(self) -> str:
        return f"{self.number:3} {self.at / SECOND:7.3f} s  {self.name} ({self.a:.3f}, {self.b:.3f}, {self.c:.3f})"


class Wanted(NamedTuple):
    """One start: when, what, and whether with an idempotency key."""

    at: int
    model: str
    has_key: bool
    upon: Upon = Upon()


class Plan(NamedTuple):
    seed: int
    engines: int
    #: workers of their own, and workers that live inside of an engine
    remote: int
    local: int
    #: how much workers prefer the same engine; 1 means not at all
    crowding: int
    lease: int
    stuck_after: int
    cache_size: int
    snapshot_every: int
    fuel: int
    #: µs of idleness after which engines forget an execution
    sleep: int
    starts: tuple[Wanted, ...]
    events: tuple[Event, ...]


_OTHERS = tuple(name for name in MODELS if name not in PICKS)


def _start(random: Callable[[], float], is_fleet: bool) -> Wanted:
    names = FLEET if is_fleet and random() < 0.9 else _OTHERS
    at, name, has_key = int(random() * 400) * MS, names[int(random() * len(names))], random() < 0.75
    return Wanted(at, name, has_key, PICKS[name](random) if name in PICKS else Upon())


def draw(seed: int, only: tuple[int, ...] | None = None) -> Plan:
    chance = Random(seed * 2 + 1)
    random = chance.random
    #: swarm: each seed has its own mix of faults, so that each also meets few others
    share = (0.25, 0.5, 0.8)[int(random() * 3)]
    enabled = [fault for fault in FAULTS.values() if random() < share] or [FAULTS["engine crash"]]
    bag = [fault.name for fault in enabled for _ in range(fault.weight)]
    events = []
    for number in range(4 + int(random() * 4)):
        name = bag[int(random() * len(bag))]
        events.append(Event(number, int(random() * WINDOW) + 50 * MS, name, random(), random(), random()))
    # Where entities are worked upon, most are, and workers die: it is who meets whom that matters, and what remains.
    is_fleet = random() < 0.4
    starts = tuple(_start(random, is_fleet) for _ in range(3 + int(random() * 1.9) + 2 * is_fleet))
    for number in range(len(events), len(events) + (int(random() * 3) if is_fleet else 0)):
        at = int(random() * WINDOW) + 50 * MS
        events.append(Event(number, at, "worker dies at work", random(), random(), random()))
    engines = 2 + (random() < 0.15)
    local = (0, 0, 0, 1, 1, 2)[int(random() * 6)]
    return Plan(
        seed,
        engines,
        2 + (random() < 0.25) - (local > 0),
        local,
        (1, 9)[random() < 0.8],
        (3 * SECOND, 5 * SECOND)[random() < 0.7],
        600 * SECOND,
        (1, 1000)[random() < 0.92],
        (24, 150)[random() < 0.8],
        (6, 1000)[random() < 0.5],
        (100 * MS, 5 * SECOND)[random() < 0.85],
        starts,
        tuple(event for event in events if only is None or event.number in only),
    )
