"""Entity locks, whatever the order of things: random executions over overlapping entities, with crashes, cancels,
force and priorities."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.entity_locks import EntityClaim, goes_with
from holdfast.core.errors import Refused
from holdfast.core.inventory import Flag
from holdfast.core.model import Status
from holdfast.core.rows import AgendaRow
from tests.core.fleet import BOUND, Crew, Fleet, execution_id

#: Two groups, four devices in them, and parts of two of those.
DEVICES = ("a", "b", "c", "d")
PARTS = ("a/1", "a/2", "b/1")
GROUPS = ("east", "west")
ANYTHING = (*DEVICES, *PARTS, *GROUPS)


def fleet_of_all() -> Fleet:
    fleet = Fleet()
    for group in GROUPS:
        fleet.tables.add(group, "group")
    for device, groups in zip(DEVICES, (("east",), ("east", "west"), ("west",), ()), strict=True):
        fleet.tables.add(device, "device", "", *groups)
    for part in PARTS:
        fleet.tables.add(part, "interface", part[0])
    return fleet


class EntityLocks(RuleBasedStateMachine):
    """Nobody follows up by itself: wake-ups are on the agenda until a rule delivers one."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = fleet_of_all()
        self.count = 0
        self.fences: dict[str, int] = {}
        self.granted: dict[str, int] = {}

    # --- what happens ----------------------------------------------------------------------------------------
    @initialize(entities=st.lists(st.sampled_from(ANYTHING), min_size=1, max_size=3, unique=True))
    def first(self, entities: list[str]) -> None:
        self.begin(entities, False, 0, False, 0)

    @rule(
        entities=st.lists(st.sampled_from(ANYTHING), min_size=1, max_size=4, unique=True),
        is_shared=st.booleans(),
        priority=st.sampled_from((0, 0, 0, 1, 2)),
        is_asking=st.booleans(),
        timeout=st.sampled_from((0, 0, 50)),
    )
    def begin(self, entities: list[str], is_shared: bool, priority: int, is_asking: bool, timeout: int) -> None:
        self.count += 1
        policy = msgspec.structs.replace(BOUND, is_shared=is_shared, lock_timeout=timeout)
        crew = Crew(policy, asks=int(is_asking))
        self.note(self.count, self.fleet.start(self.count, *entities, crew=crew, priority=priority))

    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        n = self.one(data, Status.RESOURCE_DISCOVERY)
        if n:
            self.fleet.claim(n, 1)
            self.note(n, self.fleet.finish(n, 1, data.draw(st.lists(st.sampled_from(DEVICES), max_size=2))))

    @rule(data=st.data())
    def wake_up(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.integers(0, 1 << 20)))

    def deliver(self, pick: int) -> None:
        due = self.fleet.due()
        if due:
            id, row = due[pick % len(due)]
            self.note(int(id, 16), self.fleet.when(id, row.request))

    @rule(data=st.data(), word=st.sampled_from(("done", "done", "fail")))
    def end(self, data: st.DataObject, word: str) -> None:
        n = self.one(data, Status.RUNNING)
        if n:
            self.note(n, self.fleet.tell(n, word))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        n = self.one(data, Status.SCHEDULED, Status.RESOURCE_DISCOVERY, Status.RUNNING)
        if n:
            self.note(n, self.fleet.when(n, r.CancelExecution()))

    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        held = self.fleet.tables.holders()
        if held:
            claim = data.draw(st.sampled_from(sorted(held, key=lambda x: (x.entity, x.execution))))
            n = int(claim.execution, 16)
            self.note(n, self.fleet.when(n, r.FreeEntity(claim.entity, claim.fence, "ann")))

    @rule(data=st.data(), accepts=st.booleans())
    def resume(self, data: st.DataObject, accepts: bool) -> None:
        n = self.one(data, Status.FAILED_SAFE, Status.CANCELLED)
        if not n:
            return
        had = self.fleet.tables.last
        try:
            self.note(n, self.fleet.when(n, r.ResumeExecution(accepts_changes=accepts)))
        except Refused:
            assert self.fleet.tables.last == had

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.fleet.rebuild(data.draw(st.integers(1, self.count)))

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.fleet.now += seconds * 20

    @rule(data=st.data(), entity=st.sampled_from(DEVICES))
    def quarantine(self, data: st.DataObject, entity: str) -> None:
        if not self.fleet.tables.flags:
            self.fleet.tables.flags.append(Flag(entity, execution_id(999_999), "quarantine"))

    @rule()
    def acknowledge(self) -> None:
        shut = {flag.entity for flag in self.fleet.tables.flags}
        self.fleet.tables.flags.clear()
        for claim in self.fleet.tables.live():
            if claim.is_watching and claim.entity in shut:
                row = AgendaRow(claim.execution, "locks", self.fleet.now, r.TryLocks())
                self.fleet.tables.agenda[claim.execution, "locks"] = row

    def one(self, data: st.DataObject, *statuses: Status) -> int:
        found = [n for n in range(1, self.count + 1) if self.fleet.state(n).status in statuses]
        return data.draw(st.sampled_from(found)) if found else 0

    def note(self, n: int, events: list[e.Event]) -> None:
        """Checked when it happens: a grant under a fence greater than all before, past nobody who was before."""
        id = execution_id(n)
        for event in events:
            if isinstance(event, e.EntitiesLocked):
                assert event.fence > max(self.granted.values(), default=0), "fences only grow"
                self.granted[id] = event.fence
                self._nobody_overtaken(id)

    def _nobody_overtaken(self, id: str) -> None:
        own = {claim.entity: claim for claim in self.fleet.tables.live() if claim.execution == id}
        for other in self.fleet.tables.live():
            mine = own.get(other.entity)
            if mine is None or other.execution == id or other.fence or goes_with(other.mode, mine.mode):
                continue
            assert (-other.priority, other.ticket) > (-mine.priority, mine.ticket), "overtaken"

    # --- what is always so -----------------------------------------------------------------------------------
    @invariant()
    def no_two_incompatible_holders(self) -> None:
        by_entity: dict[str, list[EntityClaim]] = {}
        for claim in self.fleet.tables.holders():
            by_entity.setdefault(claim.entity, []).append(claim)
        for held in by_entity.values():
            for one in held:
                assert all(goes_with(one.mode, other.mode) for other in held if other is not one), held

    @invariant()
    def every_claim_has_a_live_owner_that_knows_of_it(self) -> None:
        for claim in self.fleet.tables.live():
            state = self.fleet.states[claim.execution]
            assert not state.status.is_ended, claim
            assert (state.ticket, state.fence) == (claim.ticket, claim.fence)
            assert claim.is_watching == (claim.entity == state.watch)

    @invariant()
    def all_or_nothing(self) -> None:
        for id, state in self.fleet.states.items():
            own = {claim.entity for claim in self.fleet.tables.live() if claim.execution == id}
            if state.ticket:
                wanted = {subject.id for subject in state.subjects.values()} | {*state.around}
                assert own == wanted - {*state.lost}
            else:
                assert not own

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """Whoever waits watches something that is in its way, or is about to look again."""
        tables = self.fleet.tables
        for id, state in self.fleet.states.items():
            if state.status is not Status.SCHEDULED or (id, "locks") in tables.agenda:
                continue
            mine = next(c for c in tables.live() if c.execution == id and c.entity == state.watch)
            others = [c for c in tables.live() if c.execution != id and c.entity == state.watch]
            before = [c for c in others if c.fence or (-c.priority, c.ticket) < (-mine.priority, mine.ticket)]
            is_shut = any(flag.entity == state.watch for flag in tables.flags)
            assert is_shut or any(not goes_with(c.mode, mine.mode) for c in before), "a wake-up was lost"

    def teardown(self) -> None:
        """Everybody ends when those who hold end."""
        self.acknowledge()
        for _ in range(50 * self.count + 50):
            for n in range(1, self.count + 1):
                self.fleet.rebuild(n)
            while self.fleet.due():
                self.deliver(0)
                self.no_two_incompatible_holders()
            open_ = [n for n in range(1, self.count + 1) if not self.fleet.state(n).status.is_ended]
            asking = [n for n in open_ if self.fleet.state(n).status is Status.RESOURCE_DISCOVERY]
            running = [n for n in open_ if self.fleet.state(n).status is Status.RUNNING]
            if not open_:
                break
            if asking:
                self.fleet.claim(asking[0], 1)
                self.note(asking[0], self.fleet.finish(asking[0], 1, []))
            else:
                assert running, f"{len(open_)} wait, and nobody runs"
                self.note(running[0], self.fleet.tell(running[0], "done"))
        assert all(state.status.is_ended for state in self.fleet.states.values())
        assert not self.fleet.tables.live()
        assert not self.fleet.tables.agenda


TestEntityLocks: Any = EntityLocks.TestCase
TestEntityLocks.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
