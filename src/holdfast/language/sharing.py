"""Locks and sensors from a lane's point of view: rows that it shares with other executions.

`Shared` is what one call has read and changed of them; the core and the engine's turn make the same changes with
the same functions (`core.locks`, `core.sensors`) when they see the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core import events as e
from holdfast.core.codec import pack
from holdfast.core.lanes import ROOT_LANE, WAITING
from holdfast.core.locks import Hold, LockRow, after, ask, change, force, release
from holdfast.core.model import Failure, Wait
from holdfast.core.program import AwaitSensor, ClearSensor, ForceLock, LeaveSensor, ReleaseLock, SetSensor, TakeLock
from holdfast.core.reads import EntityKey, LockKey, Missing, SensorKey
from holdfast.core.sensors import VALUE_LIMIT, SensorRow
from holdfast.core.sharing import LOCK_SENSOR, NAME_LIMIT, heir_of, is_name

from . import entering, failing
from .compiled import Owner, Step
from .evaluate import ABSENT, settle
from .names import Value
from .operations import ExpressionError, truthy
from .places import assign, read, remove
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

_NO_NAME = f"{{!r}} is no name of a lock, sensor or entity: 1 to {NAME_LIMIT} printable characters"


class Shared:
    """Locks, sensors and entities as this call sees them."""

    __slots__ = ("_holds", "_locks", "_sensors", "left", "run", "seen")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._locks: dict[LockKey, LockRow] = {}
        self._sensors: dict[SensorKey, SensorRow | None] = {}
        self._holds: dict[tuple[str, str, int], Hold] | None = None
        #: lanes that stopped waiting for sensors during this call
        self.left: set[int] = set()
        #: sensors that were looked at since somebody cleared it: (entity, kind, name)
        self.seen: dict[tuple[str, str, str], None] = {}

    # --- what expressions see ----------------------------------------------------------------------
    def value(self, entity: str, kind: str, name: str) -> Any:
        for text in (entity, name):
            if not is_name(text):
                raise ExpressionError(_NO_NAME.format(text[:40]), code="HF0201")
        if kind == "about":
            return self._about(entity, name)
        if kind == "sensor" and name.startswith(LOCK_SENSOR):
            holder = self.lock(entity, name.removeprefix(LOCK_SENSOR)).holder
            return ABSENT if holder is None else holder.execution
        self.seen[entity, "sensor" if kind == "ready" else kind, name] = None
        row = self.sensor(entity, "sensor" if kind == "ready" else kind, name)
        if row is None or (kind == "ready" and not truthy(row.value)):
            return ABSENT
        return row.value

    def _about(self, entity: str, name: str) -> Any:
        if name == "id":
            return entity
        row = self.run.reads.entity(EntityKey(self.run.state.tenant, entity))
        if row is None:
            return entity if name == "name" else ABSENT
        if name == "name":
            return row.name or entity
        value = getattr(row, name)
        return list(value) if name == "groups" else value

    # --- rows --------------------------------------------------------------------------------------
    def lock(self, entity: str, name: str) -> LockRow:
        key = LockKey(self.run.state.tenant, entity, name)
        known = self._locks.get(key)
        return self.run.reads.lock(key) if known is None else known

    def sensor(self, entity: str, kind: str, name: str) -> SensorRow | None:
        key = SensorKey(self.run.state.tenant, entity, kind, name)
        return self._sensors[key] if key in self._sensors else self.run.reads.sensor(key)

    def put_sensor(self, entity: str, kind: str, name: str, row: SensorRow | None) -> None:
        self._sensors[SensorKey(self.run.state.tenant, entity, kind, name)] = row

    @property
    def holds(self) -> dict[tuple[str, str, int], Hold]:
        """The execution's claims, those of this call included."""
        return self.run.state.locks if self._holds is None else self._holds

    def happened(self, event: e.LockTaken | e.LockQueued | e.LockGranted | e.LockReleased | e.LockForced) -> None:
        run = self.run
        key = LockKey(run.state.tenant, event.entity, event.name)
        self._locks[key] = after(self.lock(event.entity, event.name), run.state.id, event, run.now)
        if self._holds is None:
            self._holds = dict(run.state.locks)
        change(self._holds, run.state.id, event, run.now)


# --- locks of blocks ---------------------------------------------------------------------------------
def lock_of(walk: Walk, owner: Owner) -> tuple[str, str]:
    """(entity, name)"""
    assert owner.lock is not None
    entity = walk.text(owner.lock_entity) if owner.lock_entity is not None else walk.place()
    return _name(entity), _name(walk.text(owner.lock))


def _name(text: str) -> str:
    """A name as it can be stored; an expression may have made anything of it."""
    if not is_name(text):
        raise failing.Raised(Failure("invalid", _NO_NAME.format(text[:40]), code="HF0201"))
    return text


def take(run: Run, walk: Walk, owner: Owner) -> bool:
    """Whether the lane has the lock of its block; otherwise it waits in the queue."""
    entity, name = lock_of(walk, owner)
    path = walk.path()
    for hold in run.shared.holds.values():
        if (hold.entity, hold.name) == (entity, name) and hold.lane in path and hold.fence:
            return True  # its own, or of a lane around it
    seq, fence = ask(run.shared.lock(entity, name), run.state.id, walk.id)
    run.flush(walk)
    run.commands.append(TakeLock(walk.id, entity, name, seq, fence, path))
    if fence:
        run.shared.happened(e.LockTaken(walk.id, entity, name, seq, fence, path))
        return True
    run.shared.happened(e.LockQueued(walk.id, entity, name, seq, path))
    walk.wait = Wait.LOCK
    if owner.lock_timeout:
        walk.set_timer(run.now + owner.lock_timeout)
    return False


def granted(run: Run, walk: Walk) -> bool:
    """The lock it waited for is its own: the event that says so comes before what this call makes."""
    walk.wait = Wait.NOTHING
    walk.cancel_timer(WAITING)
    for hold in [hold for hold in run.shared.holds.values() if hold.lane == walk.id and not hold.fence]:
        fence = run.shared.lock(hold.entity, hold.name).fence
        run.shared.happened(e.LockGranted(hold.lane, hold.entity, hold.name, hold.seq, fence))
    return True


def broken(run: Run, walk: Walk, name: str, why: str) -> bool:
    walk.wait = Wait.NOTHING
    walk.cancel_timer(WAITING)
    raise failing.Raised(Failure("deadlock", f"waiting for lock {name} would never end: {why}", is_repeatable=True))


def waited_too_long(run: Run, walk: Walk) -> bool:
    for hold in [hold for hold in run.shared.holds.values() if hold.lane == walk.id and not hold.fence]:
        holder = run.shared.lock(hold.entity, hold.name).holder
        if holder is not None and holder.seq == hold.seq:
            return False  # it came at the last moment; the lane is about to be told
        by = f", held by execution {holder.execution}" if holder is not None else ""
        leave(run, walk)
        walk.set_wait(Wait.NOTHING)
        message = f"waited too long for lock {hold.name} of {hold.entity}{by}"
        raise failing.Raised(Failure("lock-timeout", message, is_repeatable=True))
    return False


def leave(run: Run, walk: Walk) -> None:
    """Out of every queue the lane stands in."""
    for hold in [hold for hold in run.shared.holds.values() if hold.lane == walk.id and not hold.fence]:
        _give_back(run, hold)


def release_all(run: Run, walk: Walk) -> None:
    """The lane has come to its end."""
    holds = run.shared.holds
    if not holds:
        return
    for hold in [hold for hold in holds.values() if hold.lane == walk.id and not hold.is_by_sensor]:
        _give_back(run, hold)
    owner = run.workflow.owner_of(walk.scope_owner)
    if owner is not None and owner.lock is not None and any(hold.is_by_sensor for hold in run.shared.holds.values()):
        # The end of a block gives its lock back, also where the sensor had taken it before.
        lock = lock_of(walk, owner)
        for hold in [hold for hold in run.shared.holds.values() if hold.is_by_sensor]:
            if (hold.entity, hold.name) == lock:
                _give_back(run, hold)


def _give_back(run: Run, hold: Hold) -> None:
    row = run.shared.lock(hold.entity, hold.name)
    heir, fence = release(row, hold.seq)
    if heir is None and not row.is_whole and row.holder is not None and row.holder.seq == hold.seq:
        raise Missing(LockKey(run.state.tenant, hold.entity, hold.name, window=row.next_seq))
    named = heir_of(heir)
    run.commands.append(ReleaseLock(hold.lane, hold.entity, hold.name, hold.seq, named, fence))
    run.shared.happened(e.LockReleased(hold.lane, hold.entity, hold.name, hold.seq, named, fence))


# --- sensors -----------------------------------------------------------------------------------------
def set_value(run: Run, walk: Walk, step: Step, kind: str) -> bool:
    """`set-sensor` and `set-config`: read, check and write are one thing."""
    walk.bind(step)
    assert step.place is not None
    entity = _name(walk.text(step.args["entity"]) if "entity" in step.args else walk.place())
    name = _name(step.place.name)
    value = settle(walk, step.args["value"].get(walk), None)
    if step.type:
        value = walk.coerced(step.type, value)
    if kind == "sensor" and name.startswith(LOCK_SENSOR):
        return _try_lock(run, walk, step, entity, name.removeprefix(LOCK_SENSOR))
    row = run.shared.sensor(entity, kind, name)
    path = step.place.settled(walk.lookup)
    old = ABSENT if row is None else row.value
    if path:
        old = read(None if row is None else row.value, path, ABSENT)
    _require(walk, step, old, f"{kind} {step.place} of {entity}")
    if path:
        value = assign(None if row is None else row.value, path, value)
    size = len(pack(value))
    if size > VALUE_LIMIT:
        message = f"{kind} {name} of {entity}: {size:,} bytes are over the limit of {VALUE_LIMIT:,}"
        raise failing.Raised(Failure("value-too-large", message, code="HF0721"))
    version = 1 if row is None else row.version + 1
    run.flush(walk)
    run.commands.append(SetSensor(walk.id, entity, kind, name, value, version))
    run.shared.put_sensor(entity, kind, name, SensorRow(value, version, run.now))
    return entering.done(run, walk, step)


def _require(walk: Walk, step: Step, old: Any, what: str) -> None:
    if step.require is None or step.require(walk, old):
        return
    if old is ABSENT:
        raise failing.Raised(Failure("requirement-absent", f"{what} is not there, as it is required to be",
                                     is_repeatable=True))  # fmt: skip
    failure = Failure("requirement-failed", f"{what} is not as it is required to be", details=old, is_repeatable=True)
    raise failing.Raised(failure)


def clear_value(run: Run, walk: Walk, step: Step, kind: str) -> bool:
    walk.bind(step)
    assert step.place is not None
    entity = _name(walk.text(step.args["entity"]) if "entity" in step.args else walk.place())
    name = _name(step.place.name)
    if kind == "sensor" and name.startswith(LOCK_SENSOR):
        return _force(run, walk, step, entity, name.removeprefix(LOCK_SENSOR))
    row = run.shared.sensor(entity, kind, name)
    path = step.place.settled(walk.lookup)
    if row is None:
        return entering.done(run, walk, step)
    run.flush(walk)
    if path:
        value = remove(row.value, path)
        run.commands.append(SetSensor(walk.id, entity, kind, name, value, row.version + 1))
        run.shared.put_sensor(entity, kind, name, SensorRow(value, row.version + 1, run.now))
    else:
        run.commands.append(ClearSensor(walk.id, entity, kind, name, row.version + 1))
        run.shared.put_sensor(entity, kind, name, None)
    return entering.done(run, walk, step)


def _try_lock(run: Run, walk: Walk, step: Step, entity: str, name: str) -> bool:
    """Setting the view of a lock takes it, if nobody has it. It belongs to the execution until it is cleared."""
    row = run.shared.lock(entity, name)
    held = ABSENT if row.holder is None else row.holder.execution
    _require(walk, step, held, f"lock {name} of {entity}")
    if row.holder is not None and row.holder.execution == run.state.id:
        return entering.done(run, walk, step)
    seq, fence = ask(row, run.state.id, ROOT_LANE)
    if not fence:
        by = f"execution {row.holder.execution}" if row.holder is not None else "others who were there before"
        raise failing.Raised(Failure("requirement-failed", f"lock {name} of {entity} is held by {by}",
                                     is_repeatable=True))  # fmt: skip
    run.flush(walk)
    run.commands.append(TakeLock(ROOT_LANE, entity, name, seq, fence, (ROOT_LANE,), is_by_sensor=True))
    run.shared.happened(e.LockTaken(ROOT_LANE, entity, name, seq, fence, (ROOT_LANE,), True))
    return entering.done(run, walk, step)


def _force(run: Run, walk: Walk, step: Step, entity: str, name: str) -> bool:
    """Clearing the view of a lock takes it away from whoever has it. The history says who did."""
    row = run.shared.lock(entity, name)
    if row.holder is None:
        return entering.done(run, walk, step)
    heir, fence = force(row)
    owner, seq, named = row.holder.execution, row.holder.seq, heir_of(heir)
    run.flush(walk)
    run.commands.append(ForceLock(entity, name, owner, seq, named, fence))
    run.shared.happened(e.LockForced(entity, name, owner, seq, named, fence))
    return entering.done(run, walk, step)


# --- waiting for sensors -----------------------------------------------------------------------------
def wait(run: Run, walk: Walk, step: Step) -> bool:
    """`wait`: until the value is there."""
    walk.bind(step)
    value = awaited(run, walk, step.args["value"])
    return value is not ABSENT and entering.store(run, walk, step, run.keep(value))


def awaited(run: Run, walk: Walk, source: Value) -> Any:
    """The value, or ABSENT: then the lane waits, and every sensor that was looked at wakes it."""
    shared = run.shared
    shared.seen = {}
    value = entering.lenient(walk, source)
    if value is not ABSENT and value is not None:
        leave_sensors(run, walk)
        return value
    if not shared.seen:
        raise failing.Raised(Failure("nothing-to-wait-for", "the value is absent, and no sensor can change that"))
    known = () if walk.id in run.shared.left else run.state.awaits.get(walk.id, ())
    run.flush(walk)
    for sensor in shared.seen:
        if sensor not in known:
            run.commands.append(AwaitSensor(walk.id, *sensor))
    walk.wait = Wait.SENSOR
    return ABSENT


def moved(run: Run, walk: Walk) -> bool:
    step = walk.here()
    return run.does[step.kind](run, walk, step)


def leave_sensors(run: Run, walk: Walk) -> None:
    if walk.id in run.state.awaits:
        run.flush(walk)
        run.commands.append(LeaveSensor(walk.id))
        run.shared.left.add(walk.id)
        walk.wait = Wait.NOTHING
