"""Locks, sensors, subscriptions and entities: what is committed is what the next decision reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.inventory import EntityRow
from holdfast.core.locks import Claim, LockRow
from holdfast.core.model import DEFAULT_ENTITY
from holdfast.core.reads import EntityKey, LockKey, SensorKey
from holdfast.core.rows import ClaimRow, SensorChange
from holdfast.core.sensors import SensorRow, Watched
from holdfast.store.port import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_read import advisory_key
from holdfast.store.records import Batch
from tests.store.conftest import Backend
from tests.store.rows import an_id, header, history, put, start

T, E = "default", DEFAULT_ENTITY
A = (T, E, "a")
ONE, TWO, THREE = (an_id(n) for n in (1, 2, 3))


def read(store: Store, key: Any) -> Any:
    transaction = store.begin()
    found = transaction.read([key])[key]
    transaction.abort()
    return found


def claim(seq: int, execution: str, fence: int = 0, lane: int = 1, name: str = "a", since: int = 5) -> ClaimRow:
    return ClaimRow(T, E, name, Claim(seq, execution, lane, (lane, 1), since), fence)


def test_a_lock_nobody_took_is_an_empty_row(store: Store) -> None:
    assert read(store, LockKey(*A)) == LockRow()
    assert read(store, SensorKey(T, E, "sensor", "x")) == Watched()
    assert read(store, EntityKey(T, "web")) is None


def test_a_lock_is_read_with_its_holder_and_its_queue_in_order(store: Store) -> None:
    start(store, ONE, TWO, THREE)
    waiting = [claim(3, THREE, lane=7), claim(2, TWO)]
    put(store, Batch(locks=[(*A, 4, 4)], claims=[*waiting, claim(1, ONE, 4)]))
    put(store, Batch(locks=[(T, E, "b", 1, 2)], claims=[claim(1, TWO, 1, name="b")]))
    row = read(store, LockKey(*A))
    assert row == LockRow(
        4, 4, Claim(1, ONE, 1, (1, 1), 5), (Claim(2, TWO, 1, (1, 1), 5), Claim(3, THREE, 7, (7, 1), 5))
    )
    with store.reading() as queries:
        assert queries.shared(LockKey(*A)) == row


def test_a_queue_longer_than_the_window_says_so(store: Store) -> None:
    start(store, ONE)
    put(store, Batch(locks=[(*A, 1, 9)], claims=[claim(seq, ONE, seq == 1, lane=seq) for seq in range(1, 9)]))
    row = read(store, LockKey(*A, window=6))
    assert ([x.seq for x in row.waiters], row.is_whole) == ([2, 3, 4, 5, 6, 7], False)
    row = read(store, LockKey(*A, window=7))
    assert ([x.seq for x in row.waiters], row.is_whole) == ([2, 3, 4, 5, 6, 7, 8], True)
    put(store, Batch(claims_gone=[(*A, 1)]))
    row = read(store, LockKey(*A, window=6))
    assert (row.holder, len(row.waiters), row.is_whole) == (None, 6, False)


def test_passing_on_is_a_grant_and_numbers_never_shrink(store: Store) -> None:
    start(store, ONE, TWO)
    put(store, Batch(locks=[(*A, 4, 4)], claims=[claim(2, ONE, 4), claim(3, TWO)]))
    put(store, Batch(locks=[(*A, 5, 1)], claims_gone=[(*A, 2)], grants=[(*A, 3, 5, 77)]))
    assert read(store, LockKey(*A)) == LockRow(5, 4, Claim(3, TWO, 1, (1, 1), 77))
    put(store, Batch(locks=[(*A, 2, 2)], claims_gone=[(*A, 3)]))
    assert read(store, LockKey(*A)) == LockRow(5, 4)


def test_a_grant_to_a_claim_that_is_not_waiting_is_a_conflict_and_changes_nothing(store: Store) -> None:
    start(store, ONE)
    put(store, Batch(locks=[(*A, 4, 4)], claims=[claim(2, ONE, 4)]))
    for place in (2, 3):
        with pytest.raises(Conflict):
            put(store, Batch(claims_gone=[(*A, 9)], grants=[(*A, place, 5, 77)], meta={"x": b"y"}))
    with store.reading() as queries:
        assert queries.meta("x") is None
    assert read(store, LockKey(*A)).fence == 4


def test_the_same_place_cannot_be_given_twice(store: Store) -> None:
    start(store, ONE, TWO)
    put(store, Batch(locks=[(*A, 4, 4)], claims=[claim(2, ONE, 4)]))
    with pytest.raises(Conflict):
        put(store, Batch(locks=[(*A, 4, 4)], claims=[claim(2, TWO)]))


def test_a_sensor_keeps_its_value_whole_and_its_waiters(store: Store) -> None:
    start(store, ONE, TWO)
    value = {"text": "é" * 10_000, "list": [1, 2.5, None, True]}
    key = SensorKey(T, E, "sensor", "x")
    waits = [(T, E, "sensor", "x", TWO, 3), (T, E, "sensor", "x", ONE, 2), (T, E, "config", "x", ONE, 2)]
    put(store, Batch(sensors=[SensorChange(T, E, "sensor", "x", value, 3, 55, ONE)], sensor_waits=waits))
    assert read(store, key) == Watched(SensorRow(value, 3, 55), ((ONE, 2), (TWO, 3)))
    put(store, Batch(sensors_gone=[(T, E, "sensor", "x")], sensor_waits_gone=[(ONE, 2)]))
    assert read(store, key) == Watched(None, ((TWO, 3),))
    assert read(store, SensorKey(T, E, "config", "x")) == Watched(), "a lane leaves all it waits for"


def test_who_leaves_and_waits_again_in_one_commit_waits(store: Store) -> None:
    start(store, ONE)
    wait = (T, E, "sensor", "x", ONE, 2)
    put(store, Batch(sensor_waits=[wait]))
    put(store, Batch(sensor_waits_gone=[(ONE, 2)], sensor_waits=[wait, wait]))
    assert read(store, SensorKey(T, E, "sensor", "x")).waiters == ((ONE, 2),)


def test_an_entity_keeps_when_it_was_made(store: Store) -> None:
    put(store, Batch(entities=[(T, EntityRow("web", "device", "Web", {"role": "edge"}, 10, 10))]))
    put(store, Batch(entities=[(T, EntityRow("web", "router", "Web 1", {}, 20, 20))]))
    assert read(store, EntityKey(T, "web")) == EntityRow("web", "router", "Web 1", {}, 10, 20)
    assert read(store, EntityKey("other", "web")) is None


def test_a_header_keeps_its_entity_and_its_retention(store: Store) -> None:
    put(store, Batch(headers=[header(ONE, entity="web")], history=history(ONE, 1)))
    changed = header(ONE, 2, entity="web", retention="max(1d, 3)", retention_hash="h")
    put(store, Batch(headers=[changed], history=history(ONE, 1, 2)[1:]))
    with store.reading() as queries:
        found = queries.header(T, ONE)
    assert found is not None
    assert (found.entity, found.retention, found.retention_hash) == ("web", "max(1d, 3)", "h")


def test_odd_names_are_kept_apart_and_found_again(backend: Backend) -> None:
    store = backend.open()
    start(store, ONE)
    for n, name in enumerate(["a b", "a/b", "ä", "'; DROP TABLE locks"]):
        put(store, Batch(locks=[(T, E, name, n + 1, 2)], claims=[claim(1, ONE, n + 1, name=name)]))
        assert read(store, LockKey(T, E, name)).fence == n + 1


# --- two engines at once -------------------------------------------------------------------------------
def test_two_engines_never_grant_the_same_lock(open_pg: Callable[..., PostgresStore]) -> None:
    """Both read a lock that does not exist yet; the second sees what the first has made of it."""
    stores = [open_pg("one"), open_pg("two")]
    start(stores[0], ONE, TWO)
    taken: list[tuple[int, int]] = []
    together = threading.Barrier(2, timeout=30)

    def take(store: PostgresStore, execution: str) -> None:
        for round in range(20):
            lock = (T, E, f"lock-{round}")
            together.wait()
            transaction = store.begin()
            row = transaction.read([LockKey(*lock)])[LockKey(*lock)]
            fence = row.fence + 1 if row.holder is None else 0
            claimed = ClaimRow(*lock, Claim(row.next_seq, execution, 1, (1,), 5), fence)
            transaction.commit(Batch(locks=[(*lock, fence, row.next_seq + 1)], claims=[claimed]))
            taken.append((round, fence))

    threads = [threading.Thread(target=take, args=pair) for pair in zip(stores, (ONE, TWO), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [(round, fence) for round in range(20) for fence in (0, 1)]


def test_two_engines_count_one_sensor_without_losing_a_count(open_pg: Callable[..., PostgresStore]) -> None:
    stores = [open_pg("one"), open_pg("two")]
    key = SensorKey(T, E, "sensor", "count")

    def count(store: PostgresStore) -> None:
        for _ in range(50):
            transaction = store.begin()
            row = transaction.read([key])[key].row
            value, version = (row.value, row.version) if row else (0, 0)
            change = SensorChange(T, E, "sensor", "count", value + 1, version + 1, 5, "x")
            transaction.commit(Batch(sensors=[change]))

    threads = [threading.Thread(target=count, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(stores[0], key).row == SensorRow(100, 100, 5)


def test_rows_wanted_in_opposite_order_are_a_conflict_for_one_and_no_standstill(
    open_pg: Callable[..., PostgresStore],
) -> None:
    one, two = open_pg("one"), open_pg("two")
    first, second = sorted([LockKey(*A), LockKey(T, E, "b")], key=advisory_key)
    early, late = one.begin(), two.begin()
    early.read([first])
    late.read([second])
    with pytest.raises(Conflict):
        late.read([first])
    late.abort()
    assert early.read([second])[second] == LockRow()
    early.abort()


def test_a_header_names_what_it_retries_and_is_found_by_that(store: Store) -> None:
    put(store, Batch(headers=[header(ONE)], history=history(ONE, 1)))
    put(store, Batch(headers=[header(TWO, retry_of=ONE)], history=history(TWO, 1)))
    put(store, Batch(headers=[header(TWO, 2, retry_of=ONE)], history=history(TWO, 1, 2)[1:]))
    with store.reading() as queries:
        assert [queries.header(T, id).retry_of for id in (ONE, TWO)] == ["", ONE]  # type: ignore[union-attr]
        assert queries.retries_of(T, ONE) == [TWO]
        assert queries.retries_of(T, TWO) == queries.retries_of("other", ONE) == []


def test_retries_are_found_without_looking_at_all_executions(backend: Backend) -> None:
    sql = "SELECT id FROM executions WHERE tenant = 'default' AND retry_of = {} AND length(retry_of) > 0 ORDER BY id"
    with backend.open().reading() as queries, queries.consistent():
        if backend.kind == "sqlite":
            found = queries.rows(f"EXPLAIN QUERY PLAN {sql.format('zeroblob(16)')}")
        else:
            # A table that is nearly empty is cheaper to read from end to end.
            queries.rows("SELECT set_config('enable_seqscan', 'off', true)")
            key = "decode('00', 'hex')"
            found = queries.rows(f"EXPLAIN {sql.format(key)}")
    assert "executions_retries" in repr(found)
