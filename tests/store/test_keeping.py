"""Forgetting, as every store does it: what a purge deletes, what it refuses, and the questions of the purger."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.ids import to_key
from holdfast.core.inventory import EntityChange, Flag
from holdfast.core.model import LogLine, Mode, Status
from holdfast.core.reads import HeaderKey
from holdfast.core.requests import FireTimer
from holdfast.core.rows import AgendaRow, EntityClaims, JobRow, LogRow
from holdfast.store import keeping as kept
from holdfast.store.keeping import Group
from holdfast.store.port import Store
from holdfast.store.queries import OWNED
from holdfast.store.records import Batch, StartRow

from .rows import T0, an_id, header, history, put

A, B, C = an_id(1), an_id(2), an_id(3)
WHOLE = Group("default", "", "deploy")


def whole(id: str) -> Batch:
    """An execution with a row in every table."""
    return Batch(
        headers=[header(id, status=Status.COMPLETED, ended_at=T0 + 9)],
        history=history(id, 1),
        jobs=[JobRow(id, 1, "default", "shell", T0, 2, "w-1", 5)],
        agenda=[AgendaRow(id, "timer/1", T0 + 5, FireTimer(1))],
        logs=[LogRow(id, 1, T0, LogLine("hello"))],
        blobs=[(id, b"\x01" * 16, b"blob")],
        parts=[(id, "head", b"head")],
        beats=[(id, 1, 2, b"\x01")],
        starts=[StartRow("default", f"key of {id}", id, b"content", T0)],
        entity_claims=[EntityClaims("default", id, 1, 0, 2, T0, "", ("web",), (Mode.X,))],
        entity_claims_over=[id],
        flags=[("default", Flag("web", id, "suspect"))],
        changes=[(id, 1, EntityChange("web"))],
    )


def ended(n: int, at: int, **changes: Any) -> Batch:
    return Batch(headers=[header(an_id(n), **{"status": Status.COMPLETED, "ended_at": T0 + at, **changes})])


def counts(store: Store) -> dict[str, int]:
    with store.reading() as q:
        return {table: q.count(table) for table in ("executions", *OWNED)}


# --- purging --------------------------------------------------------------------------------------------
def test_a_purge_takes_everything_of_an_execution_but_the_key_it_was_started_with(store: Store) -> None:
    put(store, whole(A))
    put(store, whole(B))
    assert set(counts(store).values()) == {2}
    put(store, Batch(purged=[(A, 1)]), {A: 1})
    assert set(counts(store).values()) == {1}
    with store.reading() as q:
        assert q.header("default", A) is None
        assert q.header("default", B) is not None
        assert q.history(B) == history(B, 1)
        assert q.start("default", f"key of {A}") is not None
        assert q.orphans() == []


@pytest.mark.parametrize("version", [1, 3])
def test_who_has_moved_is_not_purged_and_nothing_else_of_that_batch_happens(store: Store, version: int) -> None:
    put(store, whole(A))
    put(store, whole(B))
    put(store, Batch(headers=[header(A, 2, status=Status.RUNNING)], history=history(A, 1, 2)[1:]), {A: 1})
    with pytest.raises(Conflict):
        put(store, Batch(purged=[(A, version), (B, 1)], meta={"x": b"1"}), {A: 2, B: 1})
    with store.reading() as q:
        assert q.count("executions") == 2
        assert q.meta("x") is None
        assert q.history(A) == history(A, 1, 2)


def test_what_is_gone_already_cannot_be_purged_again(store: Store) -> None:
    put(store, whole(A))
    put(store, Batch(purged=[(A, 1)]), {A: 1})
    with pytest.raises(Conflict):
        put(store, Batch(purged=[(A, 1)]), {})


def test_the_same_id_may_be_used_anew(store: Store) -> None:
    put(store, whole(A))
    put(store, Batch(purged=[(A, 1)], starts_gone=[("default", f"key of {A}")]), {A: 1})
    put(store, whole(A))
    assert set(counts(store).values()) == {1}


def test_a_heartbeat_that_comes_after_the_purge_is_nobodys(store: Store) -> None:
    put(store, whole(A))
    put(store, Batch(purged=[(A, 1)]), {A: 1})
    put(store, Batch(beats=[(A, 1, 3, b"\x01")]))
    assert counts(store)["beats"] == 0


def test_headers_are_read_in_the_transaction(store: Store) -> None:
    put(store, whole(A))
    transaction = store.begin()
    found = transaction.read([HeaderKey(A), HeaderKey(B)])
    transaction.abort()
    assert found == {
        HeaderKey(A): header(A, status=Status.COMPLETED, ended_at=T0 + 9, is_new=False),
        HeaderKey(B): None,
    }


# --- questions ------------------------------------------------------------------------------------------
def test_groups_are_those_of_what_may_be_forgotten_one_day(store: Store) -> None:
    for n, changes in enumerate(
        [
            {"workflow": "b"}, {"workflow": "a"}, {"workflow": "a", "entity": "router"},
            {"workflow": "a", "retention_hash": "h"}, {"workflow": "z", "retention_hash": "a"},
            {"workflow": "a", "tenant": "other"}, {"workflow": "quick", "retention": "disabled"},
            {"workflow": "unsafe", "status": Status.FAILED_UNSAFE},
            {"workflow": "seen", "status": Status.FAILED_UNSAFE_ACK}, {"workflow": "runs", "status": Status.RUNNING},
        ]
    ):  # fmt: skip
        put(store, ended(n, n, **changes))
    own = [("default", "", "a"), ("default", "", "b"), ("default", "", "h"), ("default", "", "seen")]
    own.append(("default", "router", "a"))
    with store.reading() as q:
        assert kept.groups(q) == [*own, ("other", "", "a")]
        assert kept.groups(q, tenant="default") == own
        assert kept.groups(q, tenant="other") == [("other", "", "a")]
        assert kept.groups(q, tenant="nobody") == []
        assert kept.groups(q, limit=2) == own[:2]
        assert kept.groups(q, Group(*own[1]), limit=2) == own[2:4]
        assert kept.count(q, Group("default", "", "a")) == 2, "a hash and a name that are the same are one group"
        assert [h.workflow for h in kept.unkept(q)] == ["quick"]


def test_places_in_a_group_are_in_the_order_of_ends(store: Store) -> None:
    for n, at in enumerate([50, 10, 30, 30, 20]):
        put(store, ended(n, at, retention="" if n else "7d"))
    order = [an_id(n) for n in (1, 4, 2, 3, 0)]
    with store.reading() as q:
        newest = [kept.nth_newest(q, WHOLE, n) for n in range(1, 7)]
        places = [found[0] for found in newest if found]
        assert list(reversed(places)) == sorted(places)
        assert [place[1] for place in reversed(places)] == [to_key(id) for id in order]
        assert newest[0] is not None
        assert newest[0][1] == "7d"
        assert newest[5] is None
        cut = places[1]  # the second newest
        assert [h.id for h in kept.beyond(q, WHOLE, cut)] == order[:3]
        assert [h.id for h in kept.beyond(q, WHOLE, cut, limit=2)] == order[:2]
        assert [h.id for h in kept.beyond(q, WHOLE, cut, places[4])] == order[1:3]
        assert kept.first_kept(q, WHOLE, cut) == cut
        assert kept.first_kept(q, WHOLE, (T0 + 40, b"")) == places[0]
        assert kept.first_kept(q, WHOLE, (T0 + 51, b"")) is None


def test_a_rule_may_change_while_an_execution_runs(store: Store) -> None:
    put(store, Batch(headers=[header(A, retention="3")], history=history(A, 1)))
    changed = header(A, 2, retention="forever", retention_hash="x", status=Status.COMPLETED, ended_at=T0 + 5)
    put(store, Batch(headers=[changed], history=history(A, 1, 2)[1:]), {A: 1})
    with store.reading() as q:
        found = q.header("default", A)
        assert found is not None
        assert (found.retention, found.retention_hash) == ("forever", "x")
        assert kept.groups(q) == [("default", "", "x")]


def test_keys_of_starts_are_walked_by_age(store: Store) -> None:
    for n in range(4):
        put(store, Batch(starts=[StartRow("default", f"k{n}", an_id(n), b"c", T0 + n // 2)]))
    put(store, ended(1, 1))
    with store.reading() as q:
        walked = kept.starts_between(q, (0, "", ""), T0 + 10)
        assert [(place[2], is_gone) for place, is_gone in walked] == [
            ("k0", True), ("k1", False), ("k2", True), ("k3", True)
        ]  # fmt: skip
        assert kept.starts_between(q, walked[1][0], T0 + 10, 1) == walked[2:3]
        assert [place[2] for place, _ in kept.starts_between(q, (0, "", ""), T0 + 1)] == ["k0", "k1"]
        assert kept.lost_starts(q, T0 + 1) == [("k0", an_id(0))]
    put(store, Batch(starts_gone=[("default", "k0"), ("default", "k2")]))
    with store.reading() as q:
        assert q.count("starts") == 2


def test_the_loop_finds_its_way_by_an_index(store: Store) -> None:
    """Whatever the number of executions, a question touches only what it returns."""
    said: list[str] = []
    with store.reading() as q:
        plain = q.rows

        def spy(sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
            if store.kind == "sqlite":
                said.extend(str(row[3]) for row in plain(f"EXPLAIN QUERY PLAN {sql}", params))
            else:
                plain("SELECT set_config('enable_seqscan', 'off', false)")
                said.extend(str(row[0]) for row in plain(f"EXPLAIN {sql}", params))
            return plain(sql, params)

        q.rows = spy  # type: ignore[method-assign]
        try:
            kept.groups(q, Group("a", "b", "c"))
            kept.nth_newest(q, WHOLE, 3)
            kept.beyond(q, WHOLE, (1, b""))
            kept.first_kept(q, WHOLE, (1, b""))
            kept.unkept(q)
        finally:
            del q.rows
    looks = [line for line in said if "executions" in line]
    assert looks
    for line in looks:
        assert "executions_kept" in line or "executions_unkept" in line, line
        assert "SCAN executions" not in line, line
