"""Entities and claims to them: what is committed is what the next decision reads, on every store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.inventory import EntityChange, EntityRow, Flag, Found, terms_of
from holdfast.core.model import Mode
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    HeaderKey,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)
from holdfast.core.rows import EntityClaims
from holdfast.store.migrate import migrations
from holdfast.store.port import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.records import Batch

from .conftest import Backend
from .rows import T0, an_id, put, start

T = "default"
ONE, TWO, THREE = (an_id(n) for n in (1, 2, 3))
IS, IX, S, X = Mode


def read(store: Store, *keys: Any) -> Any:
    transaction = store.begin()
    found = transaction.read(list(keys))
    transaction.abort()
    assert set(found) == set(keys)
    with store.reading() as q:
        asked = {key: q.shared(key) for key in keys if not isinstance(key, TicketKey)}
    assert asked == {key: row for key, row in found.items() if key in asked}, "readers are told the same"
    return found[keys[0]] if len(keys) == 1 else found


def make(store: Store, *rows: EntityRow, tenant: str = T) -> None:
    put(store, Batch(entities=[(tenant, row) for row in rows]))


def claims(execution: str, ticket: int, *entities: str, mode: Mode = X, **changes: Any) -> EntityClaims:
    given = {"tenant": T, "priority": 0, "fence": 0, "since": T0, "watch": "", **changes}
    return EntityClaims(
        given["tenant"], execution, ticket, given["priority"], given["fence"], given["since"], given["watch"],
        tuple(sorted(entities)), (mode,) * len(entities),
    )  # fmt: skip


def devices(store: Store, *ids: str) -> None:
    make(store, *(EntityRow(id, "device") for id in ids))


# --- inventory -----------------------------------------------------------------------------------------
WEB = EntityRow(
    "web", "device", "Web", {"site": "ams1", "tier": "1"}, T0, T0, "rack", ("edge", "core"),
    {"os": "ios", "ports": 48, "cpu": 0.5, "up": True, "note": None, "list": [1], "long": "x" * 201},
    "csv", "web-01", 3, True,
)  # fmt: skip


def test_an_entity_comes_back_whole_and_keeps_when_it_was_made(store: Store) -> None:
    make(store, WEB)
    assert read(store, EntityKey(T, "web")) == WEB
    make(store, EntityRow("web", "router", created_at=T0 + 5, updated_at=T0 + 5, version=4))
    assert read(store, EntityKey(T, "web")) == EntityRow("web", "router", created_at=T0, updated_at=T0 + 5, version=4)
    assert read(store, EntityKey("other", "web")) is None


def test_entities_are_listed_in_pages_by_id_and_by_where_they_came_from(store: Store) -> None:
    rows = [EntityRow(f"e{n}", "device", source="csv" if n % 2 else "", external=f"x{9 - n}") for n in range(5)]
    make(store, *rows)
    with store.reading() as q:
        assert q.entities(T, limit=2) == rows[:2]
        assert q.entities(T, "e1") == rows[2:]
        assert q.entities("other") == []
        assert [row.id for row in q.entities_from(T, "csv")] == ["e3", "e1"]
        assert q.entities_by_id(T, ["e4", "e0", "never"]) == {"e0": rows[0], "e4": rows[4]}


def test_a_deleted_entity_is_gone_from_every_index(store: Store) -> None:
    make(store, WEB)
    put(store, Batch(entities_gone=[(T, "web"), (T, "never")]))
    assert read(store, EntityKey(T, "web")) is None
    assert read(store, SelectKey(T, (("type", "device"),))) == ()
    with store.reading() as q:
        assert q.count("entity_terms") == q.count("entities") == 0


def test_terms_follow_what_the_entity_says(store: Store) -> None:
    make(store, WEB)
    with store.reading() as q:
        terms = q.terms_of(T, "web")
        assert terms == sorted(terms_of(WEB))
    assert {("label.site", "ams1"), ("fact.os", "ios"), ("group", "core"), ("group", "edge"), ("parent", "rack")} < {
        *terms
    }
    changed = EntityRow("web", "device", "Web", {"site": "fra2"}, facts={"os": "ios"}, version=4)
    make(store, changed)
    with store.reading() as q:
        assert q.terms_of(T, "web") == sorted(terms_of(changed))


# --- selecting -----------------------------------------------------------------------------------------
@pytest.fixture
def park(store: Store) -> Store:
    make(
        store,
        EntityRow("edge", "group"),
        EntityRow("r1", "device", labels={"site": "ams1"}, groups=("edge",), facts={"os": "ios", "site": "hidden"}),
        EntityRow("r2", "device", labels={"site": "fra2"}, groups=("edge", "core"), facts={"os": "ios"}),
        EntityRow("r3", "device", labels={"role": ""}, facts={"site": "ams1", "role": "spine", "os": "eos"}),
        EntityRow("r1-eth0", "interface", parent="r1", labels={"site": "ams1"}),
        EntityRow("r1-eth1", "interface", parent="r1"),
        EntityRow("r2-eth0", "interface", parent="r2"),
    )
    make(store, EntityRow("r9", "device", labels={"site": "ams1"}, parent="r1", groups=("edge",)), tenant="other")
    return store


@pytest.mark.parametrize(
    ("terms", "ids"),
    [
        ((), ["edge", "r1", "r1-eth0", "r1-eth1", "r2", "r2-eth0", "r3"]),
        ((("type", "device"),), ["r1", "r2", "r3"]),
        ((("type", "device"), ("label.site", "ams1")), ["r1"]),
        ((("label.site", "ams1"), ("type", "device")), ["r1"]),
        ((("any.site", "ams1"),), ["r1", "r1-eth0", "r3"]),
        ((("any.site", "hidden"),), []),
        ((("any.role", "spine"),), []),
        ((("fact.role", "spine"),), ["r3"]),
        ((("any.os", "ios"), ("any.site", "fra2"), ("type", "device")), ["r2"]),
        ((("group", "edge"),), ["r1", "r2"]),
        ((("group", "edge"), ("group", "core")), ["r2"]),
        ((("parent", "r1"), ("type", "interface")), ["r1-eth0", "r1-eth1"]),
        ((("id", "r2"),), ["r2"]),
        ((("id", "r2"), ("type", "interface")), []),
        ((("type", "nothing"),), []),
        ((("label.x' OR 1=1 --", "y"),), []),
    ],
)  # fmt: skip
def test_a_selector_finds_exactly_the_entities_its_terms_hold_for(park: Store, terms: Any, ids: list[str]) -> None:
    found = read(park, SelectKey(T, terms))
    assert [one.id for one in found] == ids
    assert all(type(one) is Found for one in found)
    rows = read(park, SelectKey(T, terms, is_brief=False))
    assert [row.id for row in rows] == ids
    assert all(row == read(park, EntityKey(T, row.id)) for row in rows)


def test_entities_are_found_by_id_with_what_locking_them_takes(park: Store) -> None:
    found = read(park, FoundKey(T, ("r2", "never", "r1-eth0")))
    assert found == (Found("r1-eth0", "interface", "r1"), Found("r2", "device", "", ("edge", "core")))
    assert read(park, FoundKey(T, ())) == ()


def test_parts_and_members_are_found_each_once(park: Store) -> None:
    assert [one.id for one in read(park, RelatedKey(T, "children", ("r1", "r3")))] == ["r1-eth0", "r1-eth1"]
    assert [one.id for one in read(park, RelatedKey(T, "members", ("edge", "core")))] == ["r1", "r2"]
    assert read(park, RelatedKey(T, "members", ("never",))) == ()


def test_ten_thousand_entities_are_one_key(store: Store) -> None:
    ids = tuple(f"d{n:05}" for n in range(10_000))
    devices(store, *ids)
    start(store, ONE)
    put(store, Batch(entity_claims=[claims(ONE, 1, *ids, watch=ids[7])]))
    found = read(store, FoundKey(T, ids), ContentionKey(T, ids), SelectKey(T, (("type", "device"),)))
    assert [one.id for one in found[FoundKey(T, ids)]] == list(ids)
    assert len(found[ContentionKey(T, ids)].claims) == len(ids)
    assert [claim.entity for claim in found[ContentionKey(T, ids)].claims if claim.is_watching] == [ids[7]]


# --- claims --------------------------------------------------------------------------------------------
def test_what_stands_in_the_way_is_who_is_there_and_what_is_flagged(store: Store) -> None:
    devices(store, "a", "b", "c")
    start(store, ONE, TWO, THREE)
    start(store, an_id(4), tenant="other")
    flag, elsewhere = Flag("b", THREE, "quarantine", "half done", T0), Flag("b", an_id(4), "suspect")
    put(store, Batch(
        entity_claims=[claims(ONE, 1, "a", "b", fence=1), claims(TWO, 2, "b", "c", mode=S, priority=3, watch="b")],
        flags=[(T, flag), ("other", elsewhere)],
    ))  # fmt: skip
    mine = EntityClaim("b", ONE, X, 1, 0, 1, T0)
    waiting = EntityClaim("b", TWO, S, 2, 3, 0, T0, is_watching=True)
    assert read(store, ContentionKey(T, ("b", "never"))) == Contention(("never",), (mine, waiting), (flag,))
    keys = [ContentionKey(T, ("a",)), ContentionKey(T, ("c",)), ContentionKey("other", ("b",))]
    found = read(store, *keys)
    assert [(c.entity, c.execution) for key in keys for c in found[key].claims] == [("a", ONE), ("c", TWO)]
    assert found[keys[2]] == Contention(("b",), (), (elsewhere,))


def test_a_grant_makes_all_its_places_holders_and_ends_its_watch(store: Store) -> None:
    devices(store, "a", "b")
    start(store, ONE)
    put(store, Batch(entity_claims=[claims(ONE, 1, "a", "b", watch="a")]))
    put(store, Batch(entity_grants=[(ONE, 9, T0 + 5)]))
    held = [EntityClaim(id, ONE, X, 1, 0, 9, T0 + 5) for id in "ab"]
    assert list(read(store, ContentionKey(T, ("a", "b"))).claims) == held
    with store.reading() as q:
        assert q.entity_claims_of(ONE) == held


def test_one_entity_is_watched_at_a_time(store: Store) -> None:
    devices(store, "a", "b")
    start(store, ONE, TWO)
    put(store, Batch(entity_claims=[claims(ONE, 1, "a", "b", fence=1), claims(TWO, 2, "a", "b", watch="a")]))
    put(store, Batch(entity_watches=[(TWO, "b")]))
    with store.reading() as q:
        assert [claim.entity for claim in q.entity_claims_of(TWO) if claim.is_watching] == ["b"]
    assert read(store, WatchersKey(T, ONE)) == (TWO,)


def test_watchers_are_those_at_ones_own_entities_and_not_oneself(store: Store) -> None:
    devices(store, "a", "b", "c")
    start(store, ONE, TWO, THREE)
    put(store, Batch(entity_claims=[
        claims(ONE, 1, "a", "b", fence=1), claims(TWO, 2, "b", "c", watch="b"), claims(THREE, 3, "c", "a", watch="c"),
    ]))  # fmt: skip
    keys = [WatchersKey(T, id) for id in (ONE, TWO, THREE)]
    assert read(store, *keys) == dict(zip(keys, [(TWO,), (THREE,), ()], strict=True))


def test_what_is_over_stays_as_a_trace_and_is_in_nobodys_way(store: Store) -> None:
    devices(store, "a")
    start(store, ONE, TWO)
    put(store, Batch(entity_claims=[claims(ONE, 1, "a", fence=1), claims(TWO, 2, "a", watch="a")]))
    put(store, Batch(entity_claims_over=[ONE, TWO]))
    assert read(store, ContentionKey(T, ("a",))) == Contention()
    assert read(store, WatchersKey(T, ONE)) == ()
    with store.reading() as q:
        assert q.count("entity_claims") == 1, "who only waited leaves none"
        assert q.entity_claims_of(ONE) == q.entity_claims(T) == []
    put(store, Batch(entity_claims=[claims(ONE, 3, "a", fence=3)]))
    assert [claim.ticket for claim in read(store, ContentionKey(T, ("a",))).claims] == [3]


def test_a_place_that_is_lost_is_over_and_the_others_stay(store: Store) -> None:
    devices(store, "a", "b")
    start(store, ONE)
    put(store, Batch(entity_claims=[claims(ONE, 1, "a", "b", fence=1)]))
    put(store, Batch(entity_claims_lost=[(T, "a", ONE), (T, "a", ONE)]))
    with store.reading() as q:
        assert [claim.entity for claim in q.entity_claims_of(ONE)] == ["b"]


def test_what_one_commit_says_about_an_execution_is_written_in_its_order(store: Store) -> None:
    """It ends and is resumed in one commit: its old places are over, its new ones are not."""
    devices(store, "a", "b")
    start(store, ONE, TWO)
    put(store, Batch(entity_claims=[claims(ONE, 1, "a", "b", fence=1), claims(TWO, 2, "a", "b", watch="a")]))
    put(store, Batch(
        entity_claims_over=[ONE], entity_claims=[claims(ONE, 4, "a", "b", watch="a")], entity_grants=[(TWO, 3, T0 + 1)],
        entity_watches=[(ONE, "b")], entity_claims_lost=[(T, "a", TWO)],
    ))  # fmt: skip
    with store.reading() as q:
        assert [(c.entity, c.execution, c.ticket, c.fence, c.is_watching) for c in q.entity_claims(T)] == [
            ("a", ONE, 4, 0, False), ("b", TWO, 2, 3, False), ("b", ONE, 4, 0, True),
        ]  # fmt: skip
        assert q.count("entity_claims") == 6


def test_claims_are_listed_holders_first_then_by_priority_and_ticket(store: Store) -> None:
    devices(store, "a")
    start(store, ONE, TWO, THREE, an_id(4))
    put(store, Batch(entity_claims=[
        claims(ONE, 9, "a", fence=10), claims(TWO, 2, "a", watch="a"), claims(THREE, 3, "a", priority=1, watch="a"),
        claims(an_id(4), 1, "a", watch="a"),
    ]))  # fmt: skip
    with store.reading() as q:
        assert [claim.execution for claim in q.entity_claims(T, "a")] == [ONE, THREE, an_id(4), TWO]
        assert q.entity_claims(T, "b") == q.entity_claims("other") == []
        pairs = [(waiter.execution, other.execution) for waiter, other in q.entity_blocks(T)]
    assert pairs[:3] == [(an_id(4), TWO), (an_id(4), THREE), (an_id(4), ONE)]
    assert len(pairs) == 9


def test_who_had_ones_entities_since_is_told_with_its_fence(store: Store) -> None:
    four, five = an_id(4), an_id(5)
    devices(store, "a", "b", "c")
    start(store, ONE, TWO, THREE, four, five)
    put(store, Batch(entity_claims=[claims(TWO, 1, "a", fence=1)]))
    put(store, Batch(entity_claims_over=[TWO], entity_claims=[claims(ONE, 2, "a", "b", fence=2)]))
    put(store, Batch(entity_claims_over=[ONE], entity_claims=[claims(THREE, 3, "a", "c", fence=3)]))
    put(store, Batch(entity_claims_over=[THREE], entity_claims=[
        claims(four, 4, "b", mode=IX, fence=4), claims(five, 5, "a", "b", mode=S, fence=5),
    ]))  # fmt: skip
    found = read(store, TraceKey(T, ONE))
    assert [(claim.entity, claim.execution, claim.fence) for claim in found] == [("a", THREE, 3), ("b", four, 4)]
    assert read(store, TraceKey("other", ONE)) == read(store, TraceKey(T, an_id(9))) == ()
    put(store, Batch(entity_claims_over=[four, five], entity_claims=[claims(ONE, 6, "a", "b", fence=6)]))
    assert read(store, TraceKey(T, ONE)) == (), "its own last fence counts"


def test_who_watches_what_was_quarantined_is_found_by_who_did_it(store: Store) -> None:
    devices(store, "a", "b")
    start(store, ONE, TWO, THREE)
    put(store, Batch(
        flags=[(T, Flag("a", ONE, "quarantine")), (T, Flag("b", ONE, "suspect"))],
        entity_claims=[claims(TWO, 1, "a", watch="a"), claims(THREE, 2, "b", watch="b")],
    ))  # fmt: skip
    keys = [FlaggedKey(T, ONE), FlaggedKey(T, TWO)]
    assert read(store, *keys) == {keys[0]: (TWO,), keys[1]: ()}


def test_a_header_of_another_tenant_does_not_exist(store: Store) -> None:
    start(store, ONE, tenant="mine")
    keys = [HeaderKey(ONE, "mine"), HeaderKey(ONE, "other"), HeaderKey(ONE)]
    found = read(store, *keys)
    assert found[keys[0]] == found[keys[2]] is not None
    assert found[keys[1]] is None


# --- flags and wishes ----------------------------------------------------------------------------------
def test_flags_stay_until_their_execution_is_acknowledged(store: Store) -> None:
    start(store, ONE, TWO)
    flags = [Flag("a", ONE, "suspect", "left", T0), Flag("a", TWO, "quarantine", "", T0), Flag("b", ONE, "suspect")]
    put(store, Batch(flags=[(T, flag) for flag in flags]))
    put(store, Batch(flags=[(T, flags[0])]))
    with store.reading() as q:
        assert sorted(q.flags(T), key=str) == sorted(flags, key=str)
        assert q.flags(T, "b") == [flags[2]]
        assert q.flags_of(ONE) == [flags[0], flags[2]]
    put(store, Batch(flags_gone=[ONE], flags=[(T, Flag("c", ONE, "suspect"))]))
    with store.reading() as q:
        assert q.flags(T) == [flags[1], Flag("c", ONE, "suspect")]


def test_wishes_come_back_oldest_first_and_go_together(store: Store) -> None:
    start(store, ONE, TWO)
    wishes = [EntityChange(f"e{n}", "create", "device", facts={"n": [n]}, labels={"x": None}) for n in range(5)]
    put(store, Batch(changes=[(ONE, 3, wishes[0]), (TWO, 1, wishes[4]), (ONE, 2, wishes[1])]))
    put(store, Batch(changes=[(ONE, 1, wishes[2]), (ONE, 1, wishes[3])]))
    assert read(store, ChangesKey(ONE)) == tuple(wishes[:4])
    put(store, Batch(changes=[(ONE, 9, wishes[4])], changes_gone=[ONE]))
    assert read(store, ChangesKey(ONE)) == (wishes[4],), "what is gone goes first"
    put(store, Batch(changes_gone=[ONE]))
    assert read(store, ChangesKey(ONE)) == ()
    assert read(store, ChangesKey(TWO)) == (wishes[4],)


# --- tickets -------------------------------------------------------------------------------------------
def test_tickets_only_grow_and_no_two_are_alike(backend: Backend) -> None:
    store = backend.open()
    given: list[int] = []
    for round in range(3):
        transaction = store.begin()
        found = transaction.read([TicketKey(ONE), TicketKey(TWO)])
        more = transaction.read([TicketKey(ONE)])
        numbers = [found[TicketKey(ONE)], found[TicketKey(TWO)], more[TicketKey(ONE)]]
        assert numbers == sorted(set(numbers))
        assert not given or numbers[0] > max(given)
        transaction.commit(Batch(meta={"n": bytes([round])}))
        given += numbers
    backend.close()
    transaction = backend.open().begin()
    assert transaction.read([TicketKey(ONE)])[TicketKey(ONE)] > max(given)
    transaction.abort()


def test_asking_for_the_next_ticket_gives_none_away(store: Store) -> None:
    with store.reading() as q:
        assert q.shared(TicketKey(ONE)) == q.shared(TicketKey(TWO)) == 1
    transaction = store.begin()
    assert transaction.read([TicketKey(ONE)]) == {TicketKey(ONE): 1}
    transaction.commit(Batch(meta={"n": b"1"}))
    with store.reading() as q:
        assert q.shared(TicketKey(ONE)) == 2


# --- what was there before -----------------------------------------------------------------------------
def test_entities_of_an_older_store_are_in_the_index_after_it_was_migrated(backend: Backend) -> None:
    for table in ("entity_terms", "entity_claims", "entity_flags", "entity_changes"):
        assert table in migrations(backend.kind)[4].sql
    _make_older(backend)
    store = backend.open()
    assert [one.id for one in read(store, SelectKey(T, (("label.site", "ams1"), ("type", "device"))))] == ["old"]
    assert read(store, EntityKey(T, "old")) == EntityRow("old", "device", "Old", {"site": "ams1"}, 1, 2)


def _make_older(backend: Backend) -> None:
    """A store as the fourth migration left it, with an entity."""
    backend.open()
    backend.close()
    undo = "; ".join(
        [
            *(f"DROP TABLE {name}" for name in ("entity_terms", "entity_claims", "entity_flags", "entity_changes")),
            "DROP TABLE tickets" if backend.kind == "sqlite" else "DROP SEQUENCE tickets",
            "DROP INDEX entities_from",
            "DROP INDEX executions_retries",
            "ALTER TABLE executions DROP COLUMN retry_of",
            *(
                f"ALTER TABLE entities DROP COLUMN {name}"
                for name in ("parent", "groups", "facts", "source", "external", "version", "is_stale")
            ),
            "DELETE FROM migrations WHERE number >= 5",
        ]
    )
    labels = "x'81a473697465a4616d7331'" if backend.kind == "sqlite" else r"'\x81a473697465a4616d7331'"
    backend.execute(f"{undo}; INSERT INTO entities VALUES ('{T}', 'old', 'device', 'Old', {labels}, 1, 2)")


# --- two engines at once -------------------------------------------------------------------------------
def test_two_engines_never_hold_one_entity(open_pg: Callable[..., PostgresStore]) -> None:
    """Both want overlapping sets at the same time; the second sees what the first has made of it."""
    stores = [open_pg("one"), open_pg("two")]
    devices(stores[0], "a", "b", "c")
    start(stores[0], ONE, TWO)
    together = threading.Barrier(2, timeout=30)
    seen: dict[str, tuple[int, int]] = {}

    def take(store: Store, execution: str, ids: tuple[str, ...]) -> None:
        together.wait()
        transaction = store.begin()
        key, ticket = ContentionKey(T, ids), TicketKey(execution)
        found = transaction.read([ticket, key])
        fence = 0 if found[key].claims else found[ticket]
        transaction.commit(Batch(entity_claims=[claims(execution, found[ticket], *ids, fence=fence)]))
        seen[execution] = (found[ticket], fence)

    threads = [
        threading.Thread(target=take, args=(stores[0], ONE, ("a", "b"))),
        threading.Thread(target=take, args=(stores[1], TWO, ("b", "c"))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first, fence), (second, waits) = sorted(seen.values())
    assert fence == first
    assert waits == 0, "who has the greater ticket decided later, and saw the other"
    assert second > first


def test_who_gives_an_entity_back_sees_everybody_who_began_to_watch_it(open_pg: Callable[..., PostgresStore]) -> None:
    """The waiter has looked and not committed when the holder wants to know who waits: the holder is kept back."""
    one, two = open_pg("one"), open_pg("two")
    devices(one, "a")
    start(one, ONE, TWO)
    put(one, Batch(entity_claims=[claims(ONE, 1, "a", fence=1)]))
    waiting = two.begin()
    waiting.read([ContentionKey(T, ("a",))])
    woken: list[Any] = []

    def give_back() -> None:
        transaction = one.begin()
        woken.append(transaction.read([WatchersKey(T, ONE)])[WatchersKey(T, ONE)])
        transaction.abort()

    thread = threading.Thread(target=give_back)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert not woken
    waiting.commit(Batch(entity_claims=[claims(TWO, 2, "a", watch="a")]))
    thread.join(30)
    assert woken == [(TWO,)]
