"""The examples of locks, replay, retention and provisioning, with all that may happen to them: real engine, real
worker, real services, real kills."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Client
from holdfast.core.errors import CannotReplay, CannotResume
from holdfast.embedded import Embedded
from holdfast.engine import forgetting
from holdfast.language import Text, examine
from tests.chaos.forks import Forks
from tests.services.ssh import SshServer
from tests.services.web import Approvals, Cloud, WebService

from .processes import ROOT, free_port, spawn, spawn_worker, verify_beside
from .seeds import begin, end, events, example, is_failed, publish, replay, resume, retention, sensor
from .test_walk import Open, until

on_sqlite = pytest.mark.parametrize("address", ["sqlite"], indirect=True)
#: at the pace of a test
FAST = {"backoff 10s": "backoff 20ms"}


def why(holdfast: Embedded, id: str) -> str:
    return " / ".join(reason.text for reason in holdfast.service.why(holdfast.actor, id).reasons)


def said(holdfast: Embedded, id: str) -> list[str]:
    return [line.message for line in holdfast.service.logs(holdfast.actor, id)]


# --- two effectors, one lock -------------------------------------------------------------------------
def test_start_and_stop_take_turns_in_the_order_of_asking(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    assert publish(holdfast, example("start-stop")) == ["start", "stop"]
    # Another one of the same entity, which has it for as long as it takes to look around.
    holder = begin(holdfast, {"name": "maintain", "lock": "start-stop", "steps": ["wait-signal go"]})
    ids = [begin(holdfast, name, takes="50ms") for name in ("start", "stop", "start", "stop")]
    for position, id in enumerate(ids, 1):
        assert f"lock start-stop on default: held by execution {holder[:8]}" in why(holdfast, id)
        assert f"position {position} of 4" in why(holdfast, id)
    (lock,) = holdfast.service.locks(holdfast.actor)
    assert lock.holder is not None
    assert (lock.holder.execution, [claim.execution for claim in lock.waiters]) == (holder, ids)
    holdfast.service.signal(holdfast.actor, holder, "go")
    assert [end(holdfast, id).output for id in ids] == ["running", "stopped"] * 2
    taken = [events(holdfast, id, "LockTaken", "LockGranted")[0] for id in (holder, *ids)]
    left = [events(holdfast, id, "LockReleased")[0] for id in (holder, *ids)]
    assert [event["fence"] for event in taken] == [1, 2, 3, 4, 5]
    for before, after in zip(left, taken[1:], strict=False):
        assert before["at"] <= after["at"], "the next one was inside before this one had left"
    assert holdfast.service.locks(holdfast.actor) == []


def test_stop_gets_the_lock_when_start_is_cancelled(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    publish(holdfast, example("start-stop"))
    first = begin(holdfast, "start", takes="1h")
    second = begin(holdfast, "stop", takes="1ms")
    assert "held by" in why(holdfast, second)
    holdfast.service.cancel(holdfast.actor, first, "it takes too long")
    assert end(holdfast, second).output == "stopped"
    assert end(holdfast, first).status == "CANCELLED"


@pytest.mark.parametrize("says", ["automatically from start", "from start"])
def test_a_lock_is_kept_through_a_kill_and_the_replay_after_it(tmp_path: Path, says: str) -> None:
    """Engine and worker are killed in the middle of something that may not run twice. With `automatically` it begins
    again with its lock, and whoever waits goes on waiting; without, it stops and the next one has the lock."""
    address, port = f"sqlite:///{tmp_path}/holdfast.db", free_port()
    serve = ("--serve", str(port), "--idle")
    engine = spawn(tmp_path, address, "engine", *serve)
    worker = spawn_worker(tmp_path, port, "worker")
    command = f"echo begun >> {tmp_path}/ran; [ -e {tmp_path}/go ] || exec sleep 10"
    first = {"name": "first", "lock": "L", "replayable": says, "steps": [{"shell": command}, "return done"]}
    second = {"name": "second", "lock": "L", "steps": ["return had it"]}
    with Client(f"http://127.0.0.1:{port}", (tmp_path / "author.token").read_text()) as client:
        until(lambda: "shell" in {offer.name for offer in client.blocks()})
        ids = [client.start(definition=definition).id for definition in (first, second)]
        until((tmp_path / "ran").exists)
        (tmp_path / "go").touch()
        for process in (engine, worker):
            process.send_signal(signal.SIGKILL)
            process.wait()
        verify_beside(address)
        spawn(tmp_path, address, "engine", *serve)
        assert client.lock("default", "L").holder.execution == ids[0]  # type: ignore[union-attr]
        # Under the same name: it says by that that the one before is gone.
        spawn_worker(tmp_path, port, "worker")
        views = [client.wait(id, 60) for id in ids]
        facts = [client.events(id) for id in ids]
    verify_beside(address)
    ran = (tmp_path / "ran").read_text().split()
    released = [event for event in facts[0] if event["type"] == "LockReleased"]
    granted = [event for event in facts[1] if event["type"] == "LockGranted"]
    assert (len(released), len(granted)) == (1, 1), "the lock changed hands once"
    assert facts[0][-1]["at"] <= granted[0]["at"], "the first one had ended by then"
    assert views[1].output == "had it"
    if "automatically" in says:
        assert (views[0].output, ran) == ("done", ["begun"] * 2)
    else:
        assert views[0].error is not None
        assert (views[0].status, views[0].error.code, ran) == ("FAILED_UNSAFE", "HF0311", ["begun"])


# --- a lock tried for a while ------------------------------------------------------------------------
def lock_checking() -> dict[str, Any]:
    (definition,) = example("lock-checking", {"timeout 1m": "timeout 300ms"})
    return definition


def test_a_lock_that_is_free_is_had_at_once(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    id = begin(holdfast, lock_checking())
    assert end(holdfast, id).status == "COMPLETED"
    assert said(holdfast, id) == ["we got the lock"]
    (taken,) = events(holdfast, id, "LockTaken")
    assert taken["is_by_sensor"]
    assert holdfast.service.locks(holdfast.actor) == []


def test_a_lock_that_is_held_is_taken_away_in_the_end(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    held = {"name": "holder", "lock": "checking-first-example", "steps": ["wait-signal go", "return done"]}
    holder = begin(holdfast, held)
    assert sensor(holdfast, "lock-checking-first-example") == holder
    id = begin(holdfast, lock_checking())
    assert end(holdfast, id).status == "COMPLETED"
    first, taken, last = said(holdfast, id)
    assert first == "Lock not available after one minute, force-clearing it and continuing"
    assert taken == f"took lock checking-first-example of default away from execution {holder}"
    assert last == "we got the lock"
    until(lambda: bool(events(holdfast, holder, "LockForced")))
    (forced,) = events(holdfast, holder, "LockForced")
    assert id in forced["by"]
    holdfast.service.signal(holdfast.actor, holder, "go")
    assert end(holdfast, holder).output == "done"
    assert holdfast.service.locks(holdfast.actor) == []


@on_sqlite
def test_a_lock_that_becomes_free_in_time_is_had_without_force(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    held = {"name": "holder", "lock": "checking-first-example", "steps": ["wait-signal go"]}
    holder = begin(holdfast, held)
    (definition,) = example("lock-checking")
    id = begin(holdfast, definition)
    until(lambda: len(events(holdfast, id, "TimerFired")) > 2)
    holdfast.service.signal(holdfast.actor, holder, "go")
    assert end(holdfast, id).status == "COMPLETED"
    assert said(holdfast, id) == ["we got the lock"]
    assert events(holdfast, holder, "LockForced") == []


# --- a step type of one's own ------------------------------------------------------------------------
def test_apt_get_never_runs_beside_itself(open_holdfast: Open, ssh_server: SshServer) -> None:
    holdfast = open_holdfast()
    for name, value in {
        "machine": ssh_server.endpoint, "key": str(ssh_server.key), "known_hosts": str(ssh_server.known_hosts),
    }.items():  # fmt: skip
        holdfast.service.set_sensor(holdfast.actor, "default", name, value, "config")
    publish(holdfast, example("apt-get"))
    first = begin(holdfast, "install-ping")
    second = begin(holdfast, "apt-get", package="curl git")
    third = begin(holdfast, "install-ping")
    assert end(holdfast, first).output == "Setting up iputils-ping ..."
    assert end(holdfast, second).status == "COMPLETED"
    assert end(holdfast, third).output == "Setting up iputils-ping ..."
    assert [install.packages for install in ssh_server.installs()] == ["iputils-ping", "curl,git", "iputils-ping"]
    assert ssh_server.overlaps() == []
    assert [len(events(holdfast, id, "LockQueued")) for id in (first, second, third)] == [0, 1, 1], "nobody had to wait"


# --- increments --------------------------------------------------------------------------------------
def test_the_simple_increment_counts_once_however_often_it_is_replayed(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    holdfast.service.set_sensor(holdfast.actor, "default", "count", 5)
    id = begin(holdfast, example("increment-simple")[0])
    assert end(holdfast, id).status == "COMPLETED"
    assert sensor(holdfast, "count") == 6
    for start in ("start", "0"):
        with pytest.raises(CannotReplay):
            replay(holdfast, id, start)
    for start in ("last", "1", "2"):
        replay(holdfast, id, start)
        assert end(holdfast, id).status == "COMPLETED"
        assert sensor(holdfast, "count") == 6
    # What the waypoint saves it from:
    replay(holdfast, id, "start", is_forced=True)
    end(holdfast, id)
    assert sensor(holdfast, "count") == 7


def increment_that_fails(position: int) -> dict[str, Any]:
    """The locked one with `various steps` of which one fails, at that place."""
    (definition,) = example("increment-locked")
    definition["steps"][0]["steps"].insert(position, {"block": "test.fail", "input": {"message": "no network"}})
    return definition


@pytest.mark.parametrize("position", [3, 4], ids=["after writing", "after the last waypoint"])
def test_the_locked_increment_counts_once_also_where_it_is_retried(open_holdfast: Open, position: int) -> None:
    """It fails behind the write, replays twice by itself, and then at the request of an operator."""
    holdfast = open_holdfast()
    holdfast.service.set_sensor(holdfast.actor, "default", "count", 41)
    id = begin(holdfast, increment_that_fails(position))
    view = end(holdfast, id)
    assert is_failed(view)
    assert view.error is not None
    assert "2 retries" in view.error.message
    assert "no network" in view.error.message
    assert sensor(holdfast, "count") == 42
    assert len(events(holdfast, id, "JobFailed")) == 3
    assert holdfast.service.locks(holdfast.actor) == []
    resume(holdfast, id)
    assert is_failed(end(holdfast, id))
    assert len(events(holdfast, id, "JobFailed")) > 3
    assert sensor(holdfast, "count") == 42


@on_sqlite
def test_the_locked_increment_begins_with_nothing(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    ids = [begin(holdfast, example("increment-locked")[0]) for _ in range(5)]
    assert {end(holdfast, id).status for id in ids} == {"COMPLETED"}
    assert sensor(holdfast, "count") == 5
    with pytest.raises(CannotReplay):
        replay(holdfast, ids[0], "start")


# --- retention ---------------------------------------------------------------------------------------
def test_the_last_five_and_those_of_the_day_are_kept(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    (definition,) = example("retention")
    publish(holdfast, [definition])
    ids = [end(holdfast, begin(holdfast, "nightly-check")).id for _ in range(7)]
    assert retention(holdfast, ids[0]) == "max(5, 1d)"
    assert forgetting.apply(holdfast.service, holdfast.actor).ids == []
    # A day that is over: the last one says how they are kept.
    (brief,) = example("retention", {"max(24h,5)": "max(50ms,5)"})
    publish(holdfast, [brief])
    ids.append(end(holdfast, begin(holdfast, "nightly-check")).id)
    time.sleep(0.1)
    assert sorted(forgetting.apply(holdfast.service, holdfast.actor).ids) == sorted(ids[:3])
    kept = [view.id for view in holdfast.service.executions(holdfast.actor, workflow="nightly-check")]
    assert kept == ids[:2:-1]
    resumable = begin(holdfast, "nightly-check")
    assert end(holdfast, resumable).status == "COMPLETED"


# --- provisioning ------------------------------------------------------------------------------------
@pytest.fixture
def services(approvals: Approvals, cloud: Cloud) -> dict[str, str]:
    return {"approvals": approvals.url, "cloud": cloud.url}


def provisioning() -> dict[str, Any]:
    (definition,) = example("provisioning", FAST)
    return definition


def paths(service: WebService) -> list[str]:
    return [seen.path for seen in service.requests]


REQUEST, PROVISION = "/request/infrastructure/vm", "/provision/vm"


def test_the_text_as_printed_has_two_mistakes_and_no_other() -> None:
    printed = ROOT / "tests" / "language" / "data" / "provisioning-as-printed.yaml"
    ((_, _, problems),) = examine([Text(printed.read_text(), printed.name)])
    assert [(problem.code, problem.line) for problem in problems] == [("HF0101", 6), ("HF0101", 18)]


def test_an_approved_machine_is_provisioned_and_remembered(
    open_holdfast: Open, services: dict[str, str], approvals: Approvals, cloud: Cloud
) -> None:
    holdfast = open_holdfast()
    approvals.polls = cloud.polls = 4
    id = begin(holdfast, provisioning(), **services, size="large")
    view = end(holdfast, id)
    assert view.status == "COMPLETED", view.error
    assert (sensor(holdfast, "vm_id"), sensor(holdfast, "ip_address")) == ("vm-1", "10.0.0.1")
    assert paths(approvals) == [REQUEST, *["/check"] * 5]
    assert paths(cloud) == [PROVISION, *["/check"] * 5]
    assert cloud.requests[0].query == {"size": "large"}
    pauses = [event["due"] - event["at"] for event in events(holdfast, id, "TimerSet")]
    assert pauses == [20_000, 40_000, 80_000, 160_000] * 2, "each pause is twice the one before"
    rules = [event["rule"] for event in events(holdfast, id, "RetentionSet")]
    assert rules == ["max(6h, system)", "forever", "system"]
    # Its last waypoint is behind the provisioning: to replay it asks again where the machine is, and no more.
    with pytest.raises(CannotReplay):
        replay(holdfast, id, "start")
    replay(holdfast, id, "last")
    assert end(holdfast, id).status == "COMPLETED"
    assert (cloud.provisions, paths(cloud).count(PROVISION)) == (1, 1)


def test_a_denied_request_fails_hard_and_leaves_nothing_to_replay(
    open_holdfast: Open, services: dict[str, str], approvals: Approvals, cloud: Cloud
) -> None:
    holdfast = open_holdfast()
    approvals.denies, approvals.details = True, "no budget"
    view = end(holdfast, begin(holdfast, provisioning(), **services))
    assert is_failed(view)
    assert view.error is not None
    assert "Provisioning request denied by approvals system: no budget" in view.error.message
    assert paths(approvals).count(REQUEST) == 1, "a denial is no reason to ask again"
    assert cloud.requests == []
    for start in ("start", "last", "wait_for_approval"):
        with pytest.raises(CannotReplay):
            replay(holdfast, view.id, start)
    with pytest.raises(CannotResume, match="meant to fail"):
        resume(holdfast, view.id)


@pytest.mark.parametrize("how", ["refused", "dropped", "dropped after the work"])
@pytest.mark.parametrize("path", [REQUEST, "/check"])
def test_trouble_before_the_provisioning_is_gone_through_again(
    open_holdfast: Open, services: dict[str, str], approvals: Approvals, cloud: Cloud, how: str, path: str
) -> None:
    holdfast = open_holdfast()
    if how == "refused":
        approvals.fail_next(2, status=500, path=path)
    else:
        approvals.drop_next(2, works="after" in how, path=path)
    view = end(holdfast, begin(holdfast, provisioning(), **services))
    assert view.status == "COMPLETED", view.error
    assert paths(approvals).count(REQUEST) == 3, "from the start each time"
    assert cloud.provisions == 1


@on_sqlite
def test_eleven_troubles_are_one_too_many(
    open_holdfast: Open, services: dict[str, str], approvals: Approvals, cloud: Cloud
) -> None:
    holdfast = open_holdfast()
    approvals.fail_next(11, path=REQUEST)
    view = end(holdfast, begin(holdfast, provisioning(), **services))
    assert is_failed(view)
    assert view.error is not None
    assert "10 retries" in view.error.message
    assert "500" in view.error.message
    assert len(approvals.requests) == 11
    # Still before the provisioning: an operator may go on when the service is well.
    replay(holdfast, view.id, "start")
    assert end(holdfast, view.id).status == "COMPLETED"
    assert cloud.provisions == 1


@pytest.mark.parametrize("works", [True, False], ids=["after the work", "before the work"])
def test_a_provisioning_without_an_answer_waits_for_a_person(
    open_holdfast: Open, services: dict[str, str], cloud: Cloud, works: bool
) -> None:
    holdfast = open_holdfast()
    cloud.drop_next(1, works=works, path="/provision")
    view = end(holdfast, begin(holdfast, provisioning(), **services))
    assert view.status == "FAILED_UNSAFE"
    assert view.error is not None
    assert "cannot retry" in view.error.message
    assert retention(holdfast, view.id) == "forever"
    assert (paths(cloud), cloud.provisions) == ([PROVISION], int(works))
    jobs = {job.job: job for job in holdfast.service.jobs(holdfast.actor, view.id)}
    last = jobs[max(jobs)]
    assert (last.effect, last.job in view.residue) == ("UNKNOWN", True)
    for start in ("start", "last"):
        with pytest.raises(CannotReplay):
            replay(holdfast, view.id, start)
    with pytest.raises(CannotResume, match="may have happened"):
        resume(holdfast, view.id)
    assert len(cloud.requests) == 1
    if not works:
        # The person has looked, and there is no machine.
        resume(holdfast, view.id, is_forced=True)
        assert end(holdfast, view.id).status == "COMPLETED"
        assert (sensor(holdfast, "vm_id"), cloud.provisions) == ("vm-1", 1)


def test_trouble_after_the_provisioning_asks_again_and_provisions_once(
    open_holdfast: Open, services: dict[str, str], cloud: Cloud
) -> None:
    holdfast = open_holdfast()
    cloud.drop_next(2, path="/check")
    cloud.fail_next(2, path="/check")
    view = end(holdfast, begin(holdfast, provisioning(), **services))
    assert view.status == "COMPLETED", view.error
    assert (paths(cloud).count(PROVISION), cloud.provisions) == (1, 1)


def killed(folder: Path, port: int, definition: dict[str, Any], given: dict[str, str], now: Callable[[], bool]) -> str:
    """Run it on an engine in a process of its own, which is killed as soon as `now`, and once more; returns its id
    when it has ended."""
    address = f"sqlite:///{folder}/holdfast.db"
    serve = ("--serve", str(port), "--idle")
    engine = spawn(folder, address, "engine", *serve)
    spawn_worker(folder, port, "worker")
    with Client(f"http://127.0.0.1:{port}", (folder / "author.token").read_text()) as client:
        until(lambda: "http" in {offer.name for offer in client.blocks()})
        id = client.start(definition=definition, input=given).id
        until(now)
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        verify_beside(address)
        spawn(folder, address, "engine", *serve)
        until(lambda: client.show(id).is_ended, 60)
    return id


@pytest.mark.parametrize("where", ["approval", "provisioning"])
def test_an_engine_killed_while_polling_goes_on_polling(
    tmp_path: Path, services: dict[str, str], approvals: Approvals, cloud: Cloud, where: str
) -> None:
    approvals.polls = cloud.polls = 5
    polled = approvals if where == "approval" else cloud
    port = free_port()
    id = killed(tmp_path, port, provisioning(), services, lambda: paths(polled).count("/check") >= 3)
    with Client(f"http://127.0.0.1:{port}", (tmp_path / "author.token").read_text()) as client:
        view = client.show(id)
        assert view.status == "COMPLETED", view.error
        assert client.sensor("default", "vm_id").value == "vm-1"
    assert paths(approvals).count(REQUEST) == 1
    assert (paths(cloud).count(PROVISION), cloud.provisions) == (1, 1)
    # The worker lives on, so that every poll it was told to make is made once and heard.
    assert paths(approvals).count("/check") == paths(cloud).count("/check") == 6


def test_a_worker_killed_behind_the_provisioning_leaves_it_to_a_person(
    tmp_path: Path, services: dict[str, str], approvals: Approvals, cloud: Cloud
) -> None:
    """The worst moment: the machine is there, and the only process that knows of it dies."""
    port = free_port()
    approvals.polls = 1
    with Forks() as forks:
        arguments = [str(tmp_path), f"sqlite:///{tmp_path}/holdfast.db", "engine", "--serve", str(port), "--idle"]
        engine = forks.start("victim", tmp_path, arguments)
        assert engine.until_ready()
        # The request, two checks, the provisioning: it dies behind the fourth.
        labour = [str(tmp_path), str(port), "worker"]
        worker = forks.start("labourer", tmp_path, labour, "worker.thread.after:hit=4:kill")
        with Client(f"http://127.0.0.1:{port}", (tmp_path / "author.token").read_text()) as client:
            until(lambda: "http" in {offer.name for offer in client.blocks()})
            id = client.start(definition=provisioning(), input=services).id
            assert worker.wait(60) == -9
            assert paths(cloud) == [PROVISION]
            forks.start("labourer", tmp_path, labour)
            view = client.wait(id, 60)
            job = client.jobs(id)[-1]
    assert view.status == "FAILED_UNSAFE"
    assert view.error is not None
    assert view.error.code == "HF0311"
    assert f"job {job.job} " in view.error.message
    assert (job.effect, job.job in view.residue) == ("UNKNOWN", True)
    assert (paths(cloud), cloud.provisions) == ([PROVISION], 1)
    verify_beside(f"sqlite:///{tmp_path}/holdfast.db")
