"""Faults, one decorated function each. To add one, write it here; plans draw from `FAULTS`.

Without a moment it happens when it is due: it returns False where there was nothing to do it to. With a moment it
is armed when it is due, and happens the next time that moment comes: `begin`, `read`, `before commit` and
`after commit` of a transaction (given the machine), `request` and `answer` on the wire (given the message).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import Conflict, StoreFull, StoreUnavailable
from holdfast.store.port import CommitUnknown

from .base import MS, SECOND, Crash

if TYPE_CHECKING:
    from .hosts import Host
    from .network import Message
    from .plan import Event
    from .workers import SimWorker
    from .world import World


class Fault(NamedTuple):
    name: str
    act: Callable[..., Any]
    moment: str
    weight: int
    #: a person's doing rather than a fault; it is not counted as one
    is_verb: bool


FAULTS: dict[str, Fault] = {}


def fault(name: str, moment: str = "", *, weight: int = 2, is_verb: bool = False) -> Callable[[Any], Any]:
    def register(act: Any) -> Any:
        FAULTS[name] = Fault(name, act, moment, weight, is_verb)
        return act

    return register


# --- processes and machines ----------------------------------------------------------------------------
@fault("engine crash", weight=3)
def engine_crash(world: World, event: Event) -> bool:
    return world.pick(world.hosts, event.b).crash(event.between(50 * MS, 2500 * MS))


@fault("engine stops")
def engine_stops(world: World, event: Event) -> bool:
    """Orderly: what was accepted is committed, the process ends, another one is started."""
    host = world.pick(world.hosts, event.b)
    if host.engine is None or host.is_busy:
        return False
    host.engine._is_stopping = True
    world.later(300 * MS, lambda: host.crash(event.between(50 * MS, SECOND)))
    return True


@fault("engine pause")
def engine_pause(world: World, event: Event) -> bool:
    """The process stands still, longer than a lease: it goes on with what it remembers."""
    host = world.pick(world.hosts, event.b)
    if host.engine is None:
        return False
    host.pause(
        event.between(3 * SECOND, 8 * SECOND) if event.c < 0.3 else event.between(MS, 1500 * MS), is_suspended=False
    )
    return True


@fault("engine suspended")
def engine_suspended(world: World, event: Event) -> bool:
    """The same, and its clock stood still too."""
    host = world.pick(world.hosts, event.b)
    if host.engine is None:
        return False
    host.pause(event.between(2500 * MS, 6 * SECOND), is_suspended=True)
    return True


@fault("engine unseen")
def engine_unseen(world: World, event: Event) -> bool:
    """The connection that proves it lives is broken; others may take it for dead."""
    host = world.pick(world.hosts, event.b)
    # Others look once a second: whoever was to be seen only in between was not seen.
    host.unseen_since = world.now if host.unseen_until + SECOND < world.now else host.unseen_since
    host.unseen_until = world.now + event.between(SECOND, 4 * SECOND)
    if event.c < 0.3:
        # What broke the connection may also be why somebody sets the clock.
        world.later(int(event.c * 3 * SECOND), lambda: world.set_clock(10 * SECOND))
    return host.engine is not None


@fault("worker crash", weight=3)
def worker_crash(world: World, event: Event) -> bool:
    worker = world.pick(world.workers, event.b)
    if not worker.is_alive or worker.home is not None:
        return False
    if event.c < 0.3:
        # For good; another one comes under another name, so that only its lease tells.
        worker.die()
        world.later(event.between(20 * MS, 2 * SECOND), world.hire(f"{worker.name}x").begin)
        return True
    worker.restart(event.between(20 * MS, 2 * SECOND))
    if event.c < 0.6:
        worker.move(world.pick(world.hosts, event.a))
    return True


@fault("worker dies at work")
def worker_dies_at_work(world: World, event: Event) -> bool:
    """In the middle of an attempt, so that nobody can say what came of it."""
    workers = [worker for worker in world.workers if worker.is_alive and worker.held and worker.home is None]
    if not workers:
        return False
    worker = world.pick(workers, event.b)
    if event.c < 0.3:
        worker.die()
        world.later(event.between(20 * MS, SECOND), world.hire(f"{worker.name}x").begin)
    else:
        worker.restart(event.between(20 * MS, SECOND))
    return True


@fault("worker pause")
def worker_pause(world: World, event: Event) -> bool:
    """Longer than a lease, sometimes: it comes back to find its jobs given up."""
    worker = world.pick(world.workers, event.b)
    length = event.between(3 * SECOND, 7 * SECOND) if event.c < 0.3 else event.between(MS, 1500 * MS)
    worker.paused_until = max(worker.paused_until, world.now + length)
    return worker.is_alive


@fault("worker twin")
def worker_twin(world: World, event: Event) -> bool:
    """Stopped, taken for dead and replaced under its name — and then it goes on."""
    worker = world.pick(world.workers, event.b)
    if worker.home is not None or not worker.is_alive:
        return False
    worker.paused_until = world.now + event.between(200 * MS, 5 * SECOND)
    world.hire(worker.name).begin()
    return True


@fault("worker moves")
def worker_moves(world: World, event: Event) -> bool:
    """A load balancer sends it to another engine."""
    worker: SimWorker = world.pick(world.workers, event.b)
    if worker.home is not None:
        return False
    worker.move(world.hosts[(worker.host.n + 1) % len(world.hosts)])
    if event.c < 0.5:
        world.later(event.between(100 * MS, 2 * SECOND), lambda: worker.move(world.pick(world.hosts, event.c * 2)))
    return True


@fault("worker leaves")
def worker_leaves(world: World, event: Event) -> bool:
    worker = world.pick(world.workers, event.b)
    if not worker.is_alive or worker.is_draining:
        return False
    worker.leave()
    return True


# --- clocks --------------------------------------------------------------------------------------------
@fault("clock forward")
def clock_forward(world: World, event: Event) -> bool:
    # Below two seconds it counts as drift, which costs patience; see `Engine.set_clock`.
    world.set_clock(
        event.between(3 * SECOND, 15 * SECOND) if event.c < 0.7 else event.between(60 * SECOND, 3600 * SECOND)
    )
    return True


@fault("clock back")
def clock_back(world: World, event: Event) -> bool:
    world.set_clock(-event.between(100 * MS, 8 * SECOND))
    return True


# --- the store -----------------------------------------------------------------------------------------
@fault("store away")
def store_away(world: World, event: Event) -> bool:
    world.away_until = max(world.away_until, world.now + event.between(50 * MS, 1500 * MS))
    return True


@fault("transaction refused", "begin")
def transaction_refused(world: World, event: Event, host: Host) -> None:
    raise StoreUnavailable("the store is away")


@fault("reading refused", "read")
def reading_refused(world: World, event: Event, host: Host) -> None:
    raise StoreUnavailable("the store is away")


@fault("store full", "before commit")
def store_full(world: World, event: Event, host: Host) -> None:
    raise StoreFull("no room")


@fault("conflict", "before commit")
def conflict(world: World, event: Event, host: Host) -> None:
    raise Conflict


@fault("commit fails", "before commit")
def commit_fails(world: World, event: Event, host: Host) -> None:
    raise StoreUnavailable("the connection was lost before COMMIT")


@fault("commit unknown, not done", "before commit")
def commit_not_done(world: World, event: Event, host: Host) -> None:
    _maybe_away(world, event)
    raise CommitUnknown("the connection was lost during COMMIT")


@fault("commit unknown, done", "after commit", weight=3)
def commit_done(world: World, event: Event, host: Host) -> None:
    """Executed, then timed out."""
    _maybe_away(world, event)
    raise CommitUnknown("the connection was lost during COMMIT")


def _maybe_away(world: World, event: Event) -> None:
    """Whoever asks whether it happened may have to wait for an answer."""
    if event.c < 0.4:
        world.away_until = max(world.away_until, world.now + event.between(100 * MS, SECOND))


@fault("race", "before commit", weight=4)
def race(world: World, event: Event, host: Host) -> None:
    """Between deciding and writing the process stands still, and the others go on."""
    host.nap(event.between(20 * MS, 600 * MS) if event.c < 0.8 else event.between(SECOND, 8 * SECOND))


@fault("slow answer of the store", "after commit")
def slow_commit(world: World, event: Event, host: Host) -> None:
    host.nap(event.between(20 * MS, 2 * SECOND))


@fault("crash before commit", "before commit")
def crash_before(world: World, event: Event, host: Host) -> None:
    raise Crash


@fault("crash after commit", "after commit", weight=3)
def crash_after(world: World, event: Event, host: Host) -> None:
    raise Crash


# --- the wire ------------------------------------------------------------------------------------------
@fault("lost request", "request")
def lost_request(world: World, event: Event, message: Message) -> None:
    message.copies = 0


@fault("lost answer", "answer", weight=4)
def lost_answer(world: World, event: Event, message: Message) -> None:
    message.copies = 0


@fault("duplicate", "request", weight=3)
def duplicate(world: World, event: Event, message: Message) -> None:
    message.copies = 2


@fault("duplicate answer", "answer")
def duplicate_answer(world: World, event: Event, message: Message) -> None:
    message.copies = 2


@fault("long delay", "request")
def long_delay(world: World, event: Event, message: Message) -> None:
    """So long that it was given up, asked again, and overtaken."""
    message.delay += event.between(300 * MS, 3 * SECOND)


@fault("long way back", "answer")
def long_way_back(world: World, event: Event, message: Message) -> None:
    message.delay += event.between(300 * MS, 3 * SECOND)


@fault("partition")
def partition(world: World, event: Event) -> bool:
    """Nothing gets through between one worker, or the clients, and one machine."""
    names = [*dict.fromkeys(worker.name for worker in world.workers if worker.home is None), "client"]
    pair = (world.pick(names, event.b), world.pick(world.hosts, event.c).n)
    world.network.cut[pair] = world.now + event.between(500 * MS, 4 * SECOND)
    return True


@fault("forged outcome")
def forged_outcome(world: World, event: Event) -> bool:
    """Somebody who is registered as a worker answers for an attempt that is not his, with a token he made up."""
    workers = [worker for worker in world.workers if worker.is_alive and worker.greeted and worker.home is None]
    jobs = [(id, job) for id, shadow in world.shadows.items() for job in shadow.state.jobs.values() if job.worker]
    if not workers or not jobs:
        return False
    id, job = world.pick(jobs, event.b)
    world.pick(workers, event.c).forge(id, job.id, job.attempt)
    return True


# --- people --------------------------------------------------------------------------------------------
@fault("cancel", weight=3, is_verb=True)
def cancel(world: World, event: Event) -> bool:
    known = sorted(world.acknowledged_starts)
    if not known:
        return False
    world.cancel(world.pick(known, event.b))
    return True


@fault("client repeats a start", is_verb=True)
def repeats(world: World, event: Event) -> bool:
    """Long after it was answered, somewhere else, under the same key."""
    known = [start for start in world.starts if start.key]
    if not known:
        return False
    world.repeat(world.pick(known, event.b))
    return True


@fault("force release", weight=2, is_verb=True)
def force_release(world: World, event: Event) -> bool:
    """An operator takes an entity away from whoever works on it."""
    held = [
        (id, subject.id, shadow.state.fence)
        for id, shadow in world.shadows.items()
        if shadow.state.fence and not shadow.is_ended
        for subject in shadow.state.subjects.values()
    ]
    if not held:
        return False
    # Mostly because somebody waits for it.
    claims = world.tables.about_entities.at
    wanted = [place for place in held if len(claims.get(("default", place[1]), ())) > 1]
    world.free(*world.pick(wanted or held, event.b))
    return True
