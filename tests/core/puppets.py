"""Executions that take locks and set sensors when they are told to, and the tables they share."""

from __future__ import annotations

from typing import Any

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.decide import decide
from holdfast.core.inventory import EntityRow
from holdfast.core.lanes import Op
from holdfast.core.locks import WINDOW, Claim, LockRow, ask, force, release
from holdfast.core.model import Failure, Policy, Wait
from holdfast.core.reads import EntityKey, LockKey, Need, SensorKey
from holdfast.core.rows import AgendaRow, LockHead, Rows, SensorChange, item_of, transit
from holdfast.core.sensors import SensorRow
from holdfast.core.sharing import heir_of
from holdfast.core.state import State, open_state

#: Lanes 2 and 3 lie within lane 1, the root.
LANES = (2, 3)
WAKING = (r.WakeLock, r.WakeSensor, r.BreakLock, r.LoseLock)


def execution_id(n: int) -> str:
    return f"{n:032x}"


class Puppet:
    """A program that does what signals say: their value is (lane, entity, name, …)."""

    name = "puppet"
    blocks = ()
    retention = ("", "")
    cleans_up = False
    is_replayable = True
    policy = Policy()

    def __init__(self) -> None:
        #: causes it was told of
        self.told: list[p.Cause] = []

    def check_input(self, input: Any) -> tuple[Any, list[Any]]:
        return input, []

    def pin(self, blocks: Any) -> tuple[tuple[Any, ...], list[Any]]:
        return (), []

    def gates(self, input: Any, now: int) -> tuple[Any, ...]:
        return ()

    def used_at(self, block: str) -> str:
        return ""

    def label(self, step: int) -> str:
        return str(step)

    def advance(self, state: State, cause: p.Cause, now: int, reads: Any) -> list[p.Command]:
        self.told.append(cause)
        match cause:
            case p.Begun():
                spawn = tuple((Op.SPAWN, lane, lane, 0, 0, {}) for lane in LANES)
                return [p.Advance(1, (*spawn, (Op.WAIT, Wait.LANES)))]
            case p.SignalArrived(name="many", value=wishes):
                return [command for name, value in wishes for command in self.wish(state, name, value, reads)]
            case p.SignalArrived(name=name, value=value):
                return self.wish(state, name, value, reads)
            case _:
                return []

    def wish(self, state: State, wish: str, value: Any, reads: Any) -> list[p.Command]:
        if wish == "complete":
            return [p.Complete("done")]
        if wish == "fail":
            return [p.Fail(Failure("fail", "told to"))]
        lane, entity, name = value[:3]
        key = LockKey(state.tenant, entity, name)
        match wish:
            case "take":
                if state.lanes[lane].wait is Wait.LOCK or (entity, name, lane) in state.locks:
                    return []
                seq, fence = ask(reads.lock(key), state.id, lane)
                return [p.TakeLock(lane, entity, name, seq, fence, (lane, 1))]
            case "release":
                hold = state.locks.get((entity, name, lane))
                if hold is None:
                    return []
                heir, fence = release(reads.lock(key), hold.seq)
                return [p.ReleaseLock(lane, entity, name, hold.seq, heir_of(heir), fence)]
            case "force":
                row = reads.lock(key)
                if row.holder is None:
                    return []
                heir, fence = force(row)
                owner = row.holder
                return [p.ForceLock(entity, name, owner.execution, owner.seq, heir_of(heir), fence)]
            case "set":
                sensor = reads.sensor(SensorKey(state.tenant, entity, "sensor", name))
                version = sensor.version + 1 if sensor else 1
                return [p.SetSensor(lane, entity, "sensor", name, value[3], version)]
            case "clear":
                return [p.ClearSensor(lane, entity, "sensor", name)]
            case "await":
                reads.sensor(SensorKey(state.tenant, entity, "sensor", name))
                return [p.AwaitSensor(lane, entity, "sensor", name)]
            case "leave":
                return [p.LeaveSensor(lane)]
        raise AssertionError(wish)


class Shared:
    """The shared rows as a store would hold them; also `Reads`. `window` limits waiters read at first."""

    def __init__(self, window: int = WINDOW) -> None:
        self.program_: Any = Puppet()
        self.heads: dict[tuple[str, str, str], LockHead] = {}
        #: (tenant, entity, name, seq) → (claim, fence)
        self.claims: dict[tuple[str, str, str, int], tuple[Claim, int]] = {}
        self.sensors: dict[tuple[str, str, str, str], SensorChange] = {}
        self.waits: set[tuple[str, str, str, str, str, int]] = set()
        self.agenda: dict[tuple[str, str], AgendaRow] = {}
        self.entities: set[str] = {"default"}
        self.window = window
        self.asked: dict[tuple[str, str, str], int] = {}

    def write(self, rows: Rows) -> None:
        for key, head in rows.locks.items():
            known = self.heads.setdefault(key, LockHead())
            self.heads[key] = LockHead(max(known.fence, head.fence), max(known.next_seq, head.next_seq))
        for place, row in rows.claims.items():
            if row is None:
                self.claims.pop(place, None)
            else:
                assert place not in self.claims, "a place in a queue is given once"
                self.claims[place] = (row.claim, row.fence)
        for place, (fence, since) in rows.grants.items():
            claim, before = self.claims[place]
            assert not before, "nobody is granted what he has"
            self.claims[place] = (Claim(claim.seq, claim.execution, claim.lane, claim.path, since), fence)
        for sensor, change in rows.sensors.items():
            if change is None:
                self.sensors.pop(sensor, None)
            else:
                self.sensors[sensor] = change
        self.waits = {x for x in self.waits if x[4:] not in rows.sensor_waits_gone} | set(rows.sensor_waits)
        for at, due in rows.agenda.items():
            self.agenda.pop(at, None)
            if due is not None:
                self.agenda[at] = due

    def row(self, tenant: str, entity: str, name: str, window: int = 1 << 30) -> LockRow:
        head = self.heads.get((tenant, entity, name), LockHead())
        claims = sorted(
            (found for place, found in self.claims.items() if place[:3] == (tenant, entity, name)),
            key=lambda found: found[0].seq,
        )
        holders = [claim for claim, fence in claims if fence]
        assert len(holders) <= 1, "two holders"
        waiters = tuple(claim for claim, fence in claims if not fence)
        holder = holders[0] if holders else None
        return LockRow(head.fence, head.next_seq, holder, waiters[:window], len(waiters) <= window)

    # --- Reads ------------------------------------------------------------------------------------------
    def workflow(self, key: Any) -> Any:
        return None

    def program(self, digest: bytes) -> Any:
        return self.program_

    def offers(self, name: str) -> Any:
        return ()

    def load(self, execution: str, value: Any) -> Any:
        return value

    def keep(self, execution: str, value: Any) -> Any:
        return value

    def lock(self, key: LockKey) -> LockRow:
        lock = (key.tenant, key.entity, key.name)
        if key.window != WINDOW:
            self.asked[lock] = key.window
        return self.row(*lock, self.asked.get(lock, self.window))

    def sensor(self, key: SensorKey) -> SensorRow | None:
        found = self.sensors.get((key.tenant, key.entity, key.kind, key.name))
        return SensorRow(found.value, found.version, found.at) if found else None

    def waiters(self, key: SensorKey) -> tuple[tuple[str, int], ...]:
        sensor = (key.tenant, key.entity, key.kind, key.name)
        return tuple(sorted(wait[4:] for wait in self.waits if wait[:4] == sensor))

    def entity(self, key: EntityKey) -> EntityRow | None:
        return EntityRow(key.id) if key.id in self.entities else None


class World:
    """Executions and the rows they share; `when` decides, applies and writes."""

    def __init__(self, count: int = 2, window: int = WINDOW) -> None:
        self.shared = Shared(window)
        self.states: dict[str, State] = {execution_id(n): open_state(execution_id(n)) for n in range(1, count + 1)}
        self.now = 1000
        for n in range(1, count + 1):
            self.when(n, r.StartExecution(execution_id(n), definition=b"d" * 16))

    def state(self, n: int) -> State:
        return self.states[execution_id(n)]

    def when(self, n: int | str, request: r.Request) -> list[e.Event]:
        id = n if isinstance(n, str) else execution_id(n)
        state = self.states[id]
        self.now += 10
        decided = decide(state, request, self.now, self.shared)
        while isinstance(decided, Need):
            for key in decided.keys:
                assert isinstance(key, LockKey)
                self.shared.lock(key)
            decided = decide(state, request, self.now, self.shared)
        assert decide(state, request, self.now, self.shared) == decided, "deciding twice differs"
        rows = Rows()
        if isinstance(request, WAKING):
            rows.agenda[id, item_of(request)] = None
        transit(state, self.now, decided, rows)
        self.shared.write(rows)
        return decided

    def tell(self, n: int, wish: str, *value: Any) -> list[e.Event]:
        decided = self.when(n, r.SendSignal(wish, value))
        assert isinstance(decided[0], e.SignalReceived)
        return decided[1:]

    def wake(self) -> list[e.Event]:
        """Everything on the agenda, and what that puts there, until nothing is left."""
        decided: list[e.Event] = []
        while self.shared.agenda:
            (id, _), row = next(iter(self.shared.agenda.items()))
            decided += self.when(id, row.request)
        return decided

    def row(self, name: str = "a", entity: str = "default") -> LockRow:
        return self.shared.row("default", entity, name)
