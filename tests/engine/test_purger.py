"""The purger on both stores: rows with chosen times, a clock that is held, and the real engine that purges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.codec import pack
from holdfast.core.errors import BadArchive, StoreUnavailable
from holdfast.core.ids import to_key
from holdfast.core.model import Status
from holdfast.core.retention import keep
from holdfast.core.views import Summary
from holdfast.engine import archive, purger
from holdfast.engine.engine import Engine
from holdfast.engine.items import Put, future_reply
from holdfast.engine.purger import Purger
from holdfast.engine.retention import is_forgettable, keeping, rule_of
from holdfast.language import program_from_bytes
from holdfast.store.keeping import KEY_KEPT, group_of
from holdfast.store.port import Store
from holdfast.store.records import Batch, Header, StartRow
from holdfast.store.sqlite import SqliteStore
from tests.store.rows import T0, an_id, header, history, put

MINUTE = 60 * 1_000_000
NOW = T0 + 60 * MINUTE
SAFE, LEFT = pack(Summary()), pack(Summary(residue=(1,)))


@pytest.fixture
def engine(store: Store) -> Iterator[Engine]:
    """Starts with what it is given first: only its thread may write."""
    engine = Engine(store, program_from_bytes, key=b"k" * 32)
    yield engine
    if engine.is_alive:
        engine.stop()


def ended(n: int, at: int, **changes: Any) -> Header:
    """The n-th, which ended so many minutes after T0."""
    fields = {"status": Status.COMPLETED, "ended_at": T0 + at * MINUTE, "summary": SAFE, "workflow": "w"}
    return header(an_id(n), **{**fields, **changes})


def fill(engine: Engine, headers: Sequence[Header]) -> None:
    write(engine, Batch(headers=list(headers), history=[row for h in headers for row in history(h.id, 1)]))


def write(engine: Engine, batch: Batch) -> None:
    if not engine.is_alive:
        engine.start()
    future, reply = future_reply()
    engine._enqueue(Put(batch, reply))
    future.result(30)


def left(store: Store) -> set[int]:
    numbers = {an_id(n): n for n in range(2000)}
    with store.reading() as q:
        return {numbers[h.id] for h in q.headers("default", limit=5000)} | {
            numbers[h.id] for h in q.headers("other", limit=5000)
        }


def purge_all(purger: Purger, now: int = NOW) -> int:
    """Until nothing more goes."""
    gone = 0
    while (more := purger.round(now)) or purger._dirty:
        gone += more
    return gone


# --- rules ----------------------------------------------------------------------------------------------
def test_of_a_thousand_with_the_rule_three_the_newest_three_are_left(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, 0, ended_at=T0 + n) for n in range(1000)])
    assert purge_all(Purger(store, engine, keeping("3"))) == 997
    assert left(store) == {997, 998, 999}
    assert engine.committer.counters.executions_purged == 997
    with store.reading() as q:
        assert q.orphans() == []
        assert q.count("history") == 3


def test_what_a_kept_one_does_again_is_kept_with_it(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, n) for n in (1, 2, 3)] + [ended(9, 40, workflow="other", retry_of=an_id(1))])
    assert purge_all(Purger(store, engine, keeping("1"))) == 1
    assert left(store) == {1, 3, 9}
    fill(engine, [ended(10, 50, workflow="other")])
    while purge_all(Purger(store, engine, keeping("1"))):
        pass  # first the retry, which a newer one has pushed out; then nobody needs what it did again
    assert left(store) == {3, 10}


def test_time_brings_it_about_without_anything_ending(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, 10 * n) for n in range(5)])  # at 0, 10, 20, 30, 40 minutes
    purger = Purger(store, engine, keeping("max(30m, 1)"))
    assert purge_all(purger) == 4  # at 60: those of 30 minutes ago and before
    assert left(store) == {4}
    assert purge_all(purger, NOW + 600 * MINUTE) == 0, "one is kept for ever"


def test_a_group_is_looked_at_again_when_its_next_member_is_over(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine, [ended(n, 10 * n) for n in range(5)])
    purger = Purger(store, engine, keeping("45m"))
    assert purge_all(purger) == 2
    looked: list[object] = []
    plain = Purger._choose
    monkeypatch.setattr(Purger, "_choose", lambda self, *rest: looked.append(rest) or plain(self, *rest))
    for minutes in range(4):
        assert purger.round(NOW + minutes * MINUTE) == 0
    assert looked == [], "nothing ended, nothing is due: nobody looks"
    assert purger.round(NOW + 5 * MINUTE) == 1
    assert left(store) == {3, 4}
    assert len(looked) == 1


def test_the_rule_of_a_group_is_that_of_the_member_that_ended_last(store: Store, engine: Engine) -> None:
    fill(engine, [ended(1, 1, retention="forever"), ended(2, 2, retention="forever"), ended(3, 3, retention="1")])
    fill(engine, [ended(11, 1, retention="1", workflow="v"), ended(12, 2, retention="forever", workflow="v")])
    assert purge_all(Purger(store, engine, keeping())) == 2
    assert left(store) == {3, 11, 12}


def test_groups_are_apart(store: Store, engine: Engine) -> None:
    members = [
        {}, {}, {"workflow": "v"}, {"entity": "r1"}, {"entity": "r1"}, {"tenant": "other"},
        {"retention_hash": "h"}, {"retention_hash": "h", "workflow": "v"}, {"retention_hash": "w"},
    ]  # fmt: skip
    fill(engine, [ended(n, n, **changes) for n, changes in enumerate(members)])
    purge_all(Purger(store, engine, keeping("1")))
    # 0, 1 and 8 are one: the hash of the last is the name of their workflow.
    assert left(store) == {2, 4, 5, 7, 8}


def test_disabled_goes_at_once_whatever_its_group_keeps(store: Store, engine: Engine) -> None:
    fill(engine, [ended(1, 1, retention="forever"), ended(2, 60, retention="disabled")])
    fill(engine, [ended(3, 60, retention="disabled", status=Status.RUNNING, ended_at=0)])
    fill(engine, [ended(4, 60, retention="disabled", status=Status.FAILED_UNSAFE)])
    assert purge_all(Purger(store, engine, keeping("0"))) == 1
    assert left(store) == {1, 3, 4}, "and its rule is not that of the others"


def test_unsafe_and_unseen_stays_and_takes_no_place(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, n, status=Status.FAILED_UNSAFE) for n in range(3)])
    fill(engine, [ended(10 + n, 10 + n) for n in range(3)])
    fill(engine, [ended(20 + n, n, status=Status.FAILED_UNSAFE_ACK) for n in range(3)])
    assert purge_all(Purger(store, engine, keeping("2"))) == 4
    assert left(store) == {0, 1, 2, 11, 12}


def test_many_that_are_held_do_not_keep_others_from_going(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, 0, status=Status.CANCELLED, summary=LEFT) for n in range(12)])
    fill(engine, [ended(20 + n, 1) for n in range(6)])
    assert purge_all(Purger(store, engine, keeping("0"), batch=4)) == 6
    assert left(store) == set(range(12))


STATUSES = [Status.RUNNING, Status.COMPLETED, Status.FAILED_SAFE, Status.FAILED_UNSAFE, Status.CANCELLED]
STATUSES += [Status.COMPLETED_ACK, Status.FAILED_UNSAFE_ACK, Status.KILLING]
RULES = ["", "0", "1", "3", "20m", "max(2, 15m)", "min(4, 30m)", "forever", "system", "min(2, system)"]
member = st.tuples(
    st.sampled_from(STATUSES), st.integers(0, 60), st.sampled_from(RULES), st.sampled_from(["", "a"]),
    st.sampled_from(["w", "v"]), st.sampled_from(["", "r"]),
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Engine]]:
    store = SqliteStore(tmp_path_factory.mktemp("keeping") / "h.db")
    engine = Engine(store, program_from_bytes, key=b"k" * 32).start()
    yield store, engine
    engine.stop()
    store.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(member, max_size=14), st.sampled_from(RULES[1:8]), st.integers(1, 5))
def test_exactly_what_the_rules_do_not_keep_goes(
    shared: tuple[Store, Engine], members: list[tuple[Status, int, str, str, str, str]], system: str, batch: int
) -> None:
    store, engine = shared
    headers = [
        ended(n, at, status=status, ended_at=T0 + at * MINUTE if status.is_ended else 0, retention=rule,
              retention_hash=hash, workflow=workflow, entity=entity)
        for n, (status, at, rule, hash, workflow, entity) in enumerate(members)
    ]  # fmt: skip
    fill(engine, headers)
    kept = keeping(system)
    groups: dict[object, list[Header]] = {}
    for one in headers:
        if is_forgettable(one):
            groups.setdefault(group_of(one), []).append(one)
    going = set()
    for group in groups.values():
        group.sort(key=lambda one: (one.ended_at, to_key(one.id)), reverse=True)
        kept_ones = keep(rule_of(group[0].retention, kept.system), [one.ended_at for one in group], NOW)
        going |= {one.id for one, is_kept in zip(group, kept_ones, strict=True) if not is_kept}
    try:
        purge_all(Purger(store, engine, kept, batch=batch))
        with store.reading() as q:
            assert {one.id for one in headers} - q.headers_of([one.id for one in headers]).keys() == going
            assert q.orphans() == []
    finally:
        with store.reading() as q:
            rest = [(one.id, one.version) for one in q.headers_of([one.id for one in headers]).values()]
        write(engine, Batch(purged=rest))


# --- what happens meanwhile -----------------------------------------------------------------------------
def test_who_moved_since_it_was_chosen_stays(store: Store, engine: Engine) -> None:
    put(store, Batch(headers=[ended(n, n) for n in range(4)]))
    moved = header(an_id(1), 2, status=Status.RUNNING)
    put(store, Batch(headers=[moved], history=history(an_id(1), 1, 2)[1:]), {an_id(1): 1})
    put(store, Batch(headers=[ended(2, 2, logs=1, is_new=False)]), {an_id(2): 1})
    engine.start()
    future, reply = future_reply()
    engine.purge({an_id(n): (1, 0) for n in range(4)} | {an_id(9): (1, 0)}, reply)
    assert sorted(future.result(30)) == sorted([an_id(0), an_id(3)])
    assert left(store) == {1, 2}, "resumed, and with a new line in its log"


def test_what_has_not_ended_is_not_purged_even_if_somebody_asks(store: Store, engine: Engine) -> None:
    fill(engine, [ended(1, 1, status=Status.RUNNING), ended(2, 1, status=Status.FAILED_UNSAFE), ended(3, 1)])
    future, reply = future_reply()
    engine.purge({an_id(n): (1, 0) for n in (1, 2, 3)}, reply)
    assert future.result(30) == [an_id(3)]
    assert left(store) == {1, 2}


def test_two_who_purge_the_same_do_no_harm(store: Store, engine: Engine) -> None:
    fill(engine, [ended(n, n) for n in range(50)])
    wanted = {an_id(n): (1, 0) for n in range(50)}
    answers = []
    for _ in range(2):
        future, reply = future_reply()
        engine.purge(dict(wanted), reply)
        answers.append(future)
    gone = [answer.result(30) for answer in answers]
    assert sorted(len(one) for one in gone) == [0, 50]
    assert left(store) == set()


def test_a_round_that_fails_is_made_up_for(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine, [ended(1, 1), ended(2, 2, retention="disabled")])
    purger_ = Purger(store, engine, keeping("0"))

    def away(*_: object) -> list[str]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(purger, "forget", away)
        with pytest.raises(StoreUnavailable):
            purger_.round(NOW)
    assert purge_all(purger_) == 2


def test_what_ends_later_is_heard_of(store: Store, engine: Engine) -> None:
    purger = Purger(store, engine, keeping("1"))
    assert purger.round(NOW) == 0
    fill(engine, [ended(1, 1), ended(2, 2)])
    assert purger.round(NOW) == 0, "nobody has said anything"
    purger.hear([ended(2, 2)])
    assert purger.round(NOW) == 1
    fill(engine, [ended(3, 3)])
    assert purger.round(NOW + 3600 * 1_000_000) == 1, "the next full look finds what nobody has told"
    assert left(store) == {3}


def test_a_full_look_takes_its_time(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purger, "GROUPS", 4)
    fill(engine, [ended(n, n % 2, workflow=f"w{n // 2}") for n in range(24)])
    purger_ = Purger(store, engine, keeping("1"))
    rounds = [purger_.round(NOW) for _ in range(5)]
    assert rounds[:3] == [4, 4, 4]
    assert sum(rounds) == 12
    assert left(store) == set(range(1, 24, 2))


def test_keys_of_starts_are_kept_for_a_day(store: Store, engine: Engine) -> None:
    day = KEY_KEPT
    fill(engine, [ended(1, 1), ended(2, 1)])
    starts = [("old", 1, T0), ("young", 1, T0 + day), ("of one that is kept", 2, T0)]
    write(engine, Batch(starts=[StartRow("default", key, an_id(n), b"c", at) for key, n, at in starts]))
    write(engine, Batch(purged=[(an_id(1), 1)]))
    Purger(store, engine, keeping("forever")).round(T0 + day + 1)
    future, reply = future_reply()
    engine.forget_starts([], reply)
    future.result(30)
    with store.reading() as q:
        assert [q.start("default", key) is not None for key, _, _ in starts] == [False, True, True]


def test_what_is_heard_takes_no_more_memory_than_there_are_groups(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    purger_ = Purger(store, engine, keeping("0"))
    purger_.hear([ended(n, n) for n in range(1000)])
    assert len(purger_._heard) == 1
    monkeypatch.setattr(purger, "REMEMBERED", 2)
    fill(engine, [ended(n, n, workflow=f"w{n}") for n in range(5)])
    assert purger_.round(NOW) == 5
    fill(engine, [ended(n, n, workflow=f"w{n}") for n in range(5)])
    purger_.hear([ended(n, n, workflow=f"w{n}") for n in range(5)])
    assert purge_all(purger_, NOW) == 5, "what is not remembered is found by a full look"


# --- the archive ----------------------------------------------------------------------------------------
def test_nothing_is_purged_that_could_not_be_archived(store: Store, engine: Engine, tmp_path: Path) -> None:
    fill(engine, [ended(1, 1)])
    (tmp_path / "file").write_text("in the way")
    purger = Purger(store, engine, keeping("0", tmp_path / "file"))
    with pytest.raises(BadArchive):
        purger.round(NOW)
    assert left(store) == {1}


def test_one_that_cannot_be_archived_keeps_nobody_else(store: Store, engine: Engine, tmp_path: Path) -> None:
    # Those that `fill` makes have bytes in their histories that nobody can read.
    fill(engine, [ended(1, 1), ended(2, 2)])
    write(engine, Batch(headers=[ended(3, 3)]))
    purger = Purger(store, engine, keeping("0", tmp_path / "archive"))
    assert purger.round(NOW) == 1
    assert left(store) == {1, 2}
    assert [head.id for head, _ in archive.heads(tmp_path / "archive")] == [an_id(3)]


def test_drafts_of_the_dead_are_tidied_up(tmp_path: Path) -> None:
    import os

    day = tmp_path / "2026-01-01"
    day.mkdir()
    for name, age in (("a.jsonl.gz.part", 7200), ("b.jsonl.gz.part", 0), ("c.jsonl.gz", 7200)):
        (day / name).touch()
        now = (day / name).stat().st_mtime
        os.utime(day / name, (now - age, now - age))
    archive.tidy(tmp_path)
    assert sorted(path.name for path in day.iterdir()) == ["b.jsonl.gz.part", "c.jsonl.gz"]
