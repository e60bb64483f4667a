"""Retention as a user meets it: what is left, what the archive holds, and that a kill in between loses nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.core.errors import UnknownExecution, UnsafeUnseen, WrongStatus
from holdfast.embedded import Embedded
from holdfast.engine import archive, forgetting
from holdfast.engine.retention import keeping
from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance.processes import ENVIRONMENT, ROOT
from tests.acceptance.test_walk import until

Open = Callable[..., Embedded]
QUICK = {"name": "quick", "steps": ["log ${'hello'}"], "output": "${'done'}"}


def test_of_a_thousand_executions_with_the_rule_three_three_are_left(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast(keeping=keeping("3", tmp_path / "archive"), purge_pause=0.05, with_worker=False)
    started = [holdfast.service.start(holdfast.actor, definition=QUICK).id for _ in range(1000)]
    until(lambda: holdfast.engine.committer.counters.executions_purged == 997, 60)
    assert verify(holdfast.store).findings == [], "beside the engine"
    left = {view.id for view in holdfast.service.executions(holdfast.actor, limit=500)}
    assert left == set(started[-3:])
    archived = {head.id for head, _ in archive.heads(tmp_path / "archive")}
    assert archived == set(started[:-3])
    assert holdfast.engine.committer.counters.executions_archived >= 997
    view = forgetting.groups(holdfast.service, holdfast.actor)
    assert [(g.group, g.rule, g.meaning, g.count, g.due) for g in view.groups] == [("quick", "system", "3", 3, 0)]
    with pytest.raises(UnknownExecution, match=f"holdfast archive show {started[0]}"):
        holdfast.service.show(holdfast.actor, started[0])


def test_what_is_archived_is_what_the_api_showed(open_holdfast: Open, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    holdfast = open_holdfast(keeping=keeping("", folder))
    long = "y" * 5000
    view = holdfast.run(
        {"name": "long", "steps": [{"id": "say", "block": "test.echo", "input": {"value": long}}, "log said"],
         "output": "${steps.say.output}"},
    )  # fmt: skip
    service, actor = holdfast.service, holdfast.actor
    events, logs = service.events(actor, view.id), service.logs(actor, view.id)
    definition = service.definition(actor, view.id)
    assert forgetting.purge(service, actor, view.id[:12]).id == view.id
    (line,) = archive.lines(folder, archive.heads(folder))
    assert line.execution == view
    assert line.logs == logs
    assert line.definition == definition
    assert [(e["seq"], e["at"], e["type"]) for e in line.events] == [(e["seq"], e["at"], e["type"]) for e in events]
    short = [e for e in events if "$blob" not in repr(e)]
    assert [e for e in line.events if e["seq"] in {s["seq"] for s in short}] == short
    assert "$blob" in repr(events)
    assert "$blob" not in repr(line.events), "long values stand in their place"
    assert long in repr(line.events)
    assert line.blobs == {}
    with pytest.raises(UnknownExecution):
        forgetting.purge(service, actor, view.id)


def test_what_runs_and_what_is_unsafe_is_refused(open_holdfast: Open) -> None:
    holdfast = open_holdfast(keeping=keeping("0"), purge_pause=0.05)
    service, actor = holdfast.service, holdfast.actor
    running = service.start(actor, definition={"name": "waits", "steps": ["wait-signal go"]})
    with pytest.raises(WrongStatus, match="only what has ended"):
        forgetting.purge(service, actor, running.id)
    unsafe = holdfast.run({"name": "unsafe", "steps": ["test.noop", "fail no"]})
    assert unsafe.status == "FAILED_UNSAFE"
    with pytest.raises(UnsafeUnseen) as caught:
        forgetting.purge(service, actor, unsafe.id)
    assert (caught.value.code, caught.value.status) == ("HF0331", 409)
    quick = holdfast.run(QUICK)
    until(lambda: not [v for v in service.executions(actor) if v.id == quick.id])
    assert {view.id for view in service.executions(actor)} == {running.id, unsafe.id}
    service.cancel(actor, running.id)
    until(lambda: {view.id for view in service.executions(actor)} == {unsafe.id})


def test_retention_now_says_first_what_would_go(open_holdfast: Open) -> None:
    first = open_holdfast(purge_pause=3600, with_worker=False)
    ids = [first.run(QUICK).id for _ in range(5)]
    first.close()
    holdfast = open_holdfast(keeping=keeping("2"), purge_pause=3600, with_worker=False)
    service, actor = holdfast.service, holdfast.actor
    assert forgetting.apply(service, actor, dry_run=True).ids == ids[:3]
    assert len(service.executions(actor)) == 5
    view = forgetting.apply(service, actor)
    assert (view.ids, view.is_dry_run, view.is_more) == (ids[:3], False, False)
    assert {v.id for v in service.executions(actor)} == set(ids[3:])


def test_a_short_life_forgets_too(open_holdfast: Open) -> None:
    for _ in range(3):
        holdfast = open_holdfast(keeping=keeping("1"), with_worker=False)
        holdfast.run(QUICK)
        holdfast.close()
    assert len(open_holdfast(with_worker=False).service.executions(holdfast.actor)) == 1


def test_a_key_whose_execution_was_purged_starts_nothing_twice(open_holdfast: Open) -> None:
    holdfast = open_holdfast(keeping=keeping("forever"), with_worker=False)
    view = holdfast.service.start(holdfast.actor, definition=QUICK, key="once")
    forgetting.purge(holdfast.service, holdfast.actor, view.id)
    with pytest.raises(UnknownExecution, match=view.id):
        holdfast.service.start(holdfast.actor, definition=QUICK, key="once")
    assert holdfast.service.executions(holdfast.actor) == []


# --- killed in between ----------------------------------------------------------------------------------
KILLS = [
    "archive.before:hit=1", "archive.before:hit=2", "archive.written:hit=1", "archive.written:hit=2",
    "archive.after:hit=1", "archive.after:hit=2", "sqlite.commit.before:hit=25", "sqlite.commit.after:hit=31",
]  # fmt: skip


@pytest.mark.parametrize("spec", KILLS)
def test_killed_while_purging_everything_is_in_the_store_or_in_the_archive(tmp_path: Path, spec: str) -> None:
    store = f"sqlite:///{tmp_path}/holdfast.db"
    command = [sys.executable, "-m", "tests.acceptance.keeper", str(tmp_path), store]

    def live(name: str, count: int, **more: str) -> int:
        environment = {**ENVIRONMENT, **more}
        with (tmp_path / f"{name}.err").open("w") as errors:
            done = subprocess.run(
                [*command, name, str(count), "2"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors,
                timeout=120, check=False,
            )  # fmt: skip
        return done.returncode

    def stored() -> set[str]:
        opened = open_store(store)
        try:
            assert verify(opened).findings == []
            with opened.reading() as queries:
                return {header.id for header in queries.headers("default", limit=500)}
        finally:
            opened.close()

    def archived() -> set[str]:
        folder = tmp_path / "archive"
        return {line.id for line in archive.lines(folder, archive.heads(folder))} if folder.exists() else set()

    assert live("first", 40, **{failpoints.VARIABLE: f"{spec}:kill"}) == -9, "it was to be killed"
    before, safe = stored(), archived()
    known = set((tmp_path / "first.ids").read_text().split())
    assert known, "something was acknowledged before the kill"
    assert known <= before | safe, "whatever was acknowledged"
    twice = before & safe
    assert live("second", 5) == 0
    after = stored()
    assert len(after) == 2
    assert known | before <= after | archived(), "nothing is in neither"
    assert safe <= archived(), "what was archived stays so"
    assert not after & (archived() - twice), "nothing is archived and kept, but for what a kill came between"


def test_two_engines_that_purge_the_same_agree_and_verify_is_clean_meanwhile(pg_dsn: str, tmp_path: Path) -> None:
    options = {"folder": tmp_path, "keeping": keeping("3", tmp_path / "archive"), "purge_pause": 0.02, "processes": 1}
    with Embedded(pg_dsn, **options) as first, Embedded(pg_dsn, **options) as second:  # type: ignore[arg-type]
        both = (first, second)
        started = [both[n % 2].service.start(first.actor, definition=QUICK).id for n in range(150)]
        running = first.service.start(first.actor, definition={"name": "quick", "steps": ["wait-signal go"]}).id
        for _ in range(5):
            assert verify(first.store).findings == []
        for holdfast in both:
            # What one of them has ended while the other was looking is found by a full look.
            holdfast.purger._next_scan = 0
        until(lambda: len(first.service.executions(first.actor, limit=500)) == 4, 60)
        counts = [holdfast.engine.committer.counters.executions_purged for holdfast in both]
        assert sum(counts) == 147, "each is purged by one of them"
        second.service.signal(second.actor, running, "go")
        assert second.service.wait(second.actor, running, 20).status == "COMPLETED"
        assert verify(second.store).findings == []
    left = set(started) - {head.id for head, _ in archive.heads(tmp_path / "archive")}
    assert len(left) <= 3
