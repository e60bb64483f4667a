"""Turns over entity locks on a real store: one commit sees what it does itself, and what a grant costs."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from holdfast.core import events as e
from holdfast.core.codec import unpack_events
from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.errors import Conflict
from holdfast.core.folding import fold
from holdfast.core.inventory import EntityRow, Flag, Found
from holdfast.core.model import Mode, Policy, Status
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    Missing,
    RelatedKey,
    SelectKey,
    TicketKey,
    WatchersKey,
)
from holdfast.core.requests import CancelExecution, SendSignal, StartExecution, TryLocks
from holdfast.core.rows import EntityClaims, Rows
from holdfast.core.state import State, open_state
from holdfast.engine.entity_reads import EntityReads
from holdfast.engine.items import Ask, Put
from holdfast.engine.reads import TurnReads
from holdfast.store.port import Store
from holdfast.store.records import Batch
from tests.core.puppets import Puppet
from tests.engine.driver import ACTOR, Hand, execution_id

T = "default"


class OnEntities(Puppet):
    policy = Policy(works_on_entities=True)

    def wanted(self, input: Any) -> tuple[Any, ...]:
        return ()

    def acquires(self, input: Any, specs: Any) -> tuple[Any, ...]:
        return ()


class Locks(Hand):
    """A hand with executions that lock the entities they are started on, and end when they are told to."""

    def __init__(self, store: Store, *ids: str) -> None:
        super().__init__(store)
        self.puppet = OnEntities()
        self.turn([Put(Batch(entities=[(T, EntityRow(id, "device")) for id in ids]))])

    def on(self, n: int, *ids: str) -> Ask:
        request = StartExecution(execution_id(n), definition=b"p" * 16, actor=ACTOR, entities=ids)
        ask = self.ask(n, request)
        ask.definition, ask.program = b"puppet", self.puppet
        return ask

    def end(self, n: int) -> Ask:
        return self.ask(n, SendSignal("complete"))

    def state(self, n: int) -> State:
        state = open_state(execution_id(n))
        for row in self.history(n):
            fold(state, row.at, unpack_events(row.body))
        return state

    def statuses(self, *numbers: int) -> list[Status]:
        return [self.state(n).status for n in numbers]

    def claims(self, *ids: str) -> list[tuple[str, int, bool, bool]]:
        """(entity, execution, holds, watches)"""
        with self.store.reading() as q:
            found = q.shared(ContentionKey(T, ids)).claims
        return [(c.entity, int(c.execution[:20], 16), c.fence > 0, c.is_watching) for c in found]

    def agenda(self) -> list[tuple[str, Any]]:
        with self.store.reading() as queries:
            return [(row.execution, row.request) for row in queries.due(1 << 60)]

    def wake(self) -> None:
        while agenda := self.agenda():
            self.turn([Ask(id, request) for id, request in agenda])


def test_later_items_of_a_batch_see_what_earlier_ones_locked(store: Store) -> None:
    hand = Locks(store, "a", "b", "c", "d")
    hand.turn([hand.on(1, "a", "b"), hand.on(2, "b", "c"), hand.on(3, "d")])
    assert hand.statuses(1, 2, 3) == [Status.RUNNING, Status.SCHEDULED, Status.RUNNING]
    assert hand.claims("a", "b", "c", "d") == [
        ("a", 1, True, False), ("b", 1, True, False), ("b", 2, False, True), ("c", 2, False, False),
        ("d", 3, True, False),
    ]  # fmt: skip
    numbers = [hand.state(1).fence, hand.state(2).ticket, hand.state(3).fence]
    assert numbers == sorted(numbers)
    with store.reading() as q:
        assert [claim.fence for claim in q.entity_claims_of(execution_id(1))] == [numbers[0]] * 2


def test_who_ends_wakes_those_who_began_to_wait_in_the_same_batch(store: Store) -> None:
    hand = Locks(store, "a")
    hand.turn([hand.on(1, "a"), hand.on(2, "a"), hand.end(1)])
    released = [event for row in hand.history(1) for event in unpack_events(row.body)]
    assert next(event for event in released if isinstance(event, e.EntitiesReleased)).woken == (execution_id(2),)
    assert hand.agenda() == [(execution_id(2), TryLocks())]
    assert hand.claims("a") == [("a", 2, False, True)]
    hand.wake()
    assert hand.claims("a") == [("a", 2, True, False)]
    assert hand.statuses(1, 2) == [Status.COMPLETED, Status.RUNNING]


def test_who_comes_in_the_batch_of_an_end_overtakes_nobody_who_waits(store: Store) -> None:
    hand = Locks(store, "a", "b", "c")
    hand.turn([hand.on(1, "a", "b"), hand.on(2, "b", "c")])
    hand.turn([hand.end(1), hand.on(3, "b"), hand.on(4, "a")])
    assert hand.statuses(1, 2, 3, 4) == [Status.COMPLETED, Status.SCHEDULED, Status.SCHEDULED, Status.RUNNING]
    assert hand.state(4).fence > hand.state(2).ticket, "fences only grow"
    hand.wake()
    assert hand.statuses(2, 3) == [Status.RUNNING, Status.SCHEDULED]
    hand.turn([hand.end(2)])
    hand.wake()
    assert hand.statuses(3) == [Status.RUNNING]
    hand.turn([hand.end(3), hand.end(4)])
    assert hand.claims("a", "b", "c") == []


def test_a_waiter_that_leaves_wakes_who_is_behind_it(store: Store) -> None:
    hand = Locks(store, "a", "b")
    hand.turn([hand.on(1, "a"), hand.on(2, "a", "b"), hand.on(3, "b")])
    assert hand.statuses(1, 2, 3) == [Status.RUNNING, Status.SCHEDULED, Status.SCHEDULED]
    hand.turn([hand.ask(2, CancelExecution())])
    hand.wake()
    assert hand.statuses(1, 2, 3) == [Status.RUNNING, Status.CANCELLED, Status.RUNNING]
    with store.reading() as q:
        assert q.rows("SELECT count(*) FROM entity_claims WHERE is_over = 1") == [(0,)]


def test_a_commit_that_did_not_happen_is_forgotten(store: Store) -> None:
    hand = Locks(store, "a")
    hand.turn([hand.on(1, "a")], fail=Conflict())
    assert hand.claims("a") == []
    hand.turn([hand.on(2, "a")])
    assert hand.statuses(2) == [Status.RUNNING]
    hand.turn([hand.end(2), hand.on(3, "a")], fail=Conflict())
    assert hand.claims("a") == [("a", 2, True, False)]


def test_of_who_waits_for_several_each_release_is_looked_at_once(store: Store) -> None:
    hand = Locks(store, "a", "b", "c")
    hand.turn([hand.on(1, "a"), hand.on(2, "b"), hand.on(3, "a", "b", "c")])
    assert hand.claims("a", "b", "c")[-1] == ("c", 3, False, False)
    hand.turn([hand.end(1), hand.ask(3, TryLocks()), hand.end(2)])
    hand.wake()
    assert hand.statuses(3) == [Status.RUNNING]
    assert {claim[1:] for claim in hand.claims("a", "b", "c")} == {(3, True, False)}


# --- what a turn sees of itself --------------------------------------------------------------------------
ONE, TWO = execution_id(1), execution_id(2)


def reads() -> tuple[EntityReads, Rows]:
    reads, rows = EntityReads(), Rows()
    reads.begin_entities(rows, {})
    return reads, rows


def test_entities_written_in_the_turn_are_found_by_id_term_and_relation() -> None:
    seen, rows = reads()
    old = EntityRow("a", "device", labels={"site": "x"}, parent="p", groups=("g",))
    seen.rows = {
        EntityKey(T, "a"): old,
        FoundKey(T, ("a", "b")): (Found("a", "device", "p", ("g",)),),
        SelectKey(T, (("label.site", "x"),)): (Found("a", "device", "p", ("g",)),),
        SelectKey(T, (("label.site", "x"),), is_brief=False): (old,),
        RelatedKey(T, "children", ("p",)): (Found("a", "device", "p", ("g",)),),
        RelatedKey(T, "members", ("g",)): (Found("a", "device", "p", ("g",)),),
        ContentionKey(T, ("a", "b")): None,
    }
    keys = list(seen.rows)
    assert seen.entity(keys[0]) is old
    before = [seen.found(keys[1]), seen.select(keys[2]), seen.related(keys[4]), seen.related(keys[5])]
    assert before == [(Found("a", "device", "p", ("g",)),)] * 4
    new = EntityRow("b", "device", labels={"site": "x"}, parent="p", groups=("g", "h"))
    rows.entities = {(T, "a"): None, (T, "b"): new, ("other", "a"): old}
    brief = Found("b", "device", "p", ("g", "h"))
    assert seen.entity(keys[0]) is None
    after = [seen.found(keys[1]), seen.select(keys[2]), seen.related(keys[4]), seen.related(keys[5])]
    assert after == [(brief,)] * 4
    assert seen.select(keys[3]) == (new,)


def test_flags_and_wishes_of_the_turn_count() -> None:
    seen, rows = reads()
    contention = ContentionKey(T, ("a", "b"))
    old, new = Flag("a", ONE, "quarantine"), Flag("b", TWO, "suspect")
    seen.learn_contention(contention, Contention(flags=(old,)))
    seen.rows |= {ChangesKey(ONE): ("stored",), FlaggedKey(T, ONE): ()}
    rows.flags_gone[ONE] = None
    rows.flags += [(T, new), ("other", new), (T, Flag("c", TWO, "suspect"))]
    rows.changes += [(ONE, 1, "asked"), (TWO, 1, "elsewhere")]  # type: ignore[list-item]
    assert seen.contention(contention).flags == (new,)
    assert seen.changes(ChangesKey(ONE)) == ("stored", "asked")
    rows.changes_gone[ONE] = None
    assert seen.changes(ChangesKey(ONE)) == ("asked",)
    assert seen.flagged(FlaggedKey(T, ONE)) == ()
    rows.entities_queued[TWO] = EntityClaims(T, TWO, 1, 0, 0, 0, "a", ("a",), (Mode.X,))
    assert seen.flagged(FlaggedKey(T, ONE)) == (TWO,)


def test_who_was_granted_in_the_turn_is_woken_no_more() -> None:
    seen, rows = reads()
    key = WatchersKey(T, ONE)
    seen.rows[key] = (TWO,)
    assert seen.watchers(key) == (TWO,)
    rows.entities_granted[TWO] = (7, 0)
    assert seen.watchers(key) == ()


def test_numbers_are_handed_out_in_the_order_of_their_use() -> None:
    seen, _ = reads()
    seen.rows |= {TicketKey(ONE): 1, TicketKey(TWO): 2}
    assert [seen.ticket(TicketKey(TWO)), seen.ticket(TicketKey(TWO))] == [2, 2]
    with pytest.raises(Missing):
        seen.ticket(TicketKey(ONE))
    seen.rows[TicketKey(ONE)] = 3
    assert seen.ticket(TicketKey(ONE)) == 3


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_was_read_of_an_entity_before_it_was_locked_is_read_again(is_shared: bool) -> None:
    """Where others may have changed it between the two."""
    seen = TurnReads(lambda data: None, is_shared)  # type: ignore[arg-type, return-value]
    key, locking = EntityKey(T, "a"), ContentionKey(T, ("a",))
    seen.learn({key: EntityRow("a")})
    seen.learn({locking: Contention()})
    if is_shared:
        with pytest.raises(Missing):
            seen.entity(key)
        seen.learn({key: EntityRow("a", version=2), locking: Contention()})
        assert seen.entity(key) == EntityRow("a", version=2)
    else:
        assert seen.entity(key) == EntityRow("a")


def test_a_stored_claim_is_seen_as_the_turn_has_left_it() -> None:
    seen, rows = reads()
    key = ContentionKey(T, ("a", "b"))
    waiting = [EntityClaim(id, ONE, Mode.X, 1, is_watching=id == "a") for id in "ab"]
    seen.learn_contention(key, Contention(claims=tuple(waiting)))
    rows.entities_watching[ONE] = "b"
    assert [claim.is_watching for claim in seen.contention(key).claims] == [False, True]
    rows.entities_watching.clear()
    rows.entities_granted[ONE] = (9, 5)
    assert seen.contention(key).claims == tuple(EntityClaim(id, ONE, Mode.X, 1, 0, 9, 5) for id in "ab")
    rows.entities_lost[T, "a", ONE] = None
    assert [claim.entity for claim in seen.contention(key).claims] == ["b"]
    rows.entities_released[ONE] = None
    assert seen.contention(key).claims == ()


# --- what a grant costs ------------------------------------------------------------------------------------
class Meter:
    """Counts what a store does in its writing transactions: SQLite the steps of its machine, each row being some of
    them; PostgreSQL the rows it fetched."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._store: Any = store
        if store.kind == "sqlite":
            self._store._writer.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._see)
        else:
            self._begin = self._store.begin
            self._store.begin = self._watched

    def _see(self, event: Any) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def _watched(self) -> Any:
        transaction = self._begin()
        commit, before = transaction._commit, self._fetched(transaction)

        def counted() -> None:
            self.count += self._fetched(transaction) - before
            commit()

        transaction._commit = counted
        return transaction

    def _fetched(self, transaction: Any) -> int:
        """What the server has not yet added up: of this transaction, and perhaps of some before it."""
        sql = "SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)"
        return int(transaction._rows(f"{sql} FROM pg_stat_xact_user_tables", [])[0][0])


def wait_in_pairs(hand: Locks, numbers: range) -> None:
    """Pairs of executions, one of which waits for the other's entity."""
    for first in range(numbers.start, numbers.stop, 250):
        part = range(first, min(first + 250, numbers.stop))
        hand.turn([hand.on(1 + n, f"e{n:04}") for n in part])
        hand.turn([hand.on(2001 + n, f"e{n:04}") for n in part])


def cost_of_a_grant(hand: Locks, meter: Meter, *pairs: int) -> int:
    """Of the last of these pairs; with the others every statement has been prepared, and planned."""
    for n in pairs:
        meter.count = 0
        hand.turn([hand.end(1 + n)])
        hand.turn([hand.ask(2001 + n, TryLocks())])
        assert hand.statuses(1 + n, 2001 + n) == [Status.COMPLETED, Status.RUNNING]
    return meter.count


def test_what_a_grant_reads_does_not_depend_on_how_many_wait_elsewhere(store: Store) -> None:
    hand = Locks(store, *(f"e{n:04}" for n in range(1002)))
    meter = Meter(store)
    wait_in_pairs(hand, range(12))
    few = cost_of_a_grant(hand, meter, 0, 1)
    assert few > 4, "it read something"
    wait_in_pairs(hand, range(12, 1002))
    with store.reading() as q:
        assert q.rows("SELECT count(*) FROM entity_claims WHERE is_watching = 1") == [(1000,)]
    assert cost_of_a_grant(hand, meter, 500) == few
