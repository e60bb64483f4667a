"""The small pure parts: times, tables, inputs, settings, and the fold that draws progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from holdfast.cli import serverfile
from holdfast.cli.inputs import collect, is_file, modules_of, typed
from holdfast.cli.progress import Progress
from holdfast.cli.settings import Settings, find_project, sqlite_address
from holdfast.cli.text import clip, table, took
from holdfast.core import requests as r
from holdfast.core.codec import event_json
from holdfast.core.errors import BadUsage
from holdfast.core.lanes import Op
from holdfast.language import load_workflow
from holdfast.store.address import identity, kind_of, sqlite_path, without_password
from tests.language.world import World, flaky


@pytest.mark.parametrize(
    ("us", "text"),
    [(4_000, "4ms"), (340_000, "0.3s"), (12_300_000, "12s"), (250_000_000, "4m10s"), (7_500_000_000, "2h5m"),
     (273_600_000_000, "3d4h"), (None, "–")],
)  # fmt: skip
def test_durations(us: int | None, text: str) -> None:
    assert took(us) == text


def test_tables_align_whatever_the_colours() -> None:
    red = click.style("x", fg="red")
    lines = table(("A", "B"), [[red, "1"], ["long", "22"]], right=(1,)).splitlines()
    assert [click.unstyle(line) for line in lines] == ["A      B", "x      1", "long  22"]
    assert click.unstyle(clip(f"{red}{'y' * 20}", 5)) == "xyyy…"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("3", "integer", 3), ("3", "string", "3"), ("3", "", 3), ("no", "boolean", False), ("no", "", "no"),
     ("[1, {a: b}]", "list", [1, {"a": "b"}]), ("1h", "duration", "1h"), ("many", "integer", "many"),
     ("null", "", None), ("[1", "list", "[1"), (".inf", "number", ".inf"), ("", "string", "")],
)  # fmt: skip
def test_inputs_are_read_as_declared(text: str, kind: str, value: Any) -> None:
    assert typed(text, kind) == value


def test_inputs_without_a_declaration(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"a": 1, "b": 2}')
    assert collect(["b=x=y", "c:=[1]"], str(file), None) == {"a": 1, "b": "x=y", "c": [1]}
    assert collect([], "", None) is None
    file.write_text("[1]")
    with pytest.raises(BadUsage, match="must hold a map"):
        collect([], str(file), None)


def test_files_and_names(tmp_path: Path) -> None:
    assert is_file("x.yaml")
    assert is_file("./x")
    assert not is_file("deploy")
    (tmp_path / "blocks.py").touch()
    beside = str(tmp_path / "blocks.py")
    assert modules_of(["a"], tmp_path / "x.yaml") == ["a", beside]
    assert modules_of([beside], tmp_path / "x.yaml") == [beside]


def test_settings_by_flag_environment_file_default(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('slots = 4\nport = 1\nqueues = ["q"]\n')
    inside = tmp_path / "a"
    inside.mkdir()
    settings = Settings({"port": 3}, start=inside, environment={"HOLDFAST_PORT": "2", "HOLDFAST_MODULES": "a, b"})
    assert (settings["port"], settings.source("port")) == (3, "--port")
    assert (settings["modules"], settings.source("modules")) == (["a", "b"], "HOLDFAST_MODULES")
    assert (settings["slots"], settings["queues"], settings["grace"]) == (4, ["q"], 30.0)
    assert settings.project == tmp_path == find_project(inside)
    assert settings.store == sqlite_address(tmp_path / ".holdfast" / "holdfast.db")
    odd = tmp_path / "100% odd name.db"
    assert sqlite_path(sqlite_address(odd)) == odd


@pytest.mark.parametrize(
    ("address", "kind", "path", "shown"),
    [
        ("h.db", "sqlite", "h.db", "h.db"),
        ("sqlite:////a%20b/h.db", "sqlite", "/a b/h.db", "sqlite:////a%20b/h.db"),
        ("a=b.db", "sqlite", "a=b.db", "a=b.db"),
        ("sqlite:///host=h.db", "sqlite", "host=h.db", "sqlite:///host=h.db"),
        ("sqlite://host/h.db", "sqlite", None, "sqlite://host/h.db"),
        ("Postgres://u:p@h/d", "postgres", None, "postgres://u@h/d"),
        ("host=h dbname=d user=u password=secret", "postgres", None, "postgresql://u@h/d"),
        ("sslmode=require  dbname = d host='h' port=5 password='a \\' secret'", "postgres", None, "postgresql://h:5/d"),
        ("password=p://secret host=h", "postgres", None, "postgresql://…"),
        ("service=s", "postgres", None, "postgresql://…"),
        ("mysql://u:secret@h/d", "", None, "mysql://u@h/d"),
    ],
)
def test_one_answer_to_what_an_address_is(address: str, kind: str, path: str | None, shown: str) -> None:
    assert kind_of(address) == kind
    assert sqlite_path(address) == (None if path is None else Path(path))
    assert without_password(address) == shown


def test_spellings_of_one_database_are_one_store() -> None:
    assert identity("host=h dbname=d user=u password=x port=5") == identity("postgresql://u:y@h:5/d?sslmode=require")
    assert identity("postgresql:///d?host=/run/a") != identity("postgresql:///d?host=/run/b")
    assert identity("service=a") != identity("service=b")
    assert "secret" not in identity("postgresql://u:secret@h/d?password=secret") + identity("host=h password=secret")


def test_settings_on_postgres_in_keywords(tmp_path: Path) -> None:
    for address in ("host=h dbname=d password=secret", "postgresql://:secret@h/d"):
        settings = Settings({"store": address}, start=tmp_path, environment={})
        assert settings.store_path is None
        assert settings.folder.name == ".holdfast"
        assert "secret" not in settings.shown_store + settings.store_id


def test_server_file_is_private_and_only_its_owner_removes_it(tmp_path: Path) -> None:
    folder = tmp_path / ".holdfast"
    serverfile.write(folder, serverfile.ServerFile("http://127.0.0.1:9", "t", 7))
    assert (folder / "server.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["server.json"]
    serverfile.remove(folder, 8)
    assert serverfile.read(folder) is not None
    serverfile.remove(folder, 7)
    assert serverfile.read(folder) is None
    (folder / "server.json").write_text("{")
    assert serverfile.alive(folder) is None


def test_progress_is_the_fold_of_the_events() -> None:
    source = """
steps:
  - log hi
  - {id: a, step: shell one}
  - {id: skipped, step: shell two, condition: "${1 == 2}"}
  - sleep 1s
  - {id: p, parallel: [{id: l, steps: [shell x, shell y]}, {id: r, steps: [shell z]}]}
"""
    progress = Progress(load_workflow(source)[1], "f" * 32)
    assert [(row.label, row.depth) for row in progress.rows] == [
        ("a", 0), ("skipped", 0), ("sleep 1s", 0), ("p", 0), ("l", 1), ("shell x", 2), ("shell y", 2), ("r", 1),
    ]  # fmt: skip
    numbers = iter(range(1, 100))

    def happen(type: str, at: int, **fields: Any) -> None:
        progress.apply({"seq": next(numbers), "at": at, "type": type, **fields})

    def states() -> str:
        return " ".join(row.state for row in progress.rows)

    happen("ExecutionStarted", 1)
    happen("PhasesPassed", 1, statuses=["NEW", "RUNNING"])
    happen("LaneAdvanced", 1, lane=1, ops=[[Op.MOVE, 1], [Op.WAIT, 1]])
    happen("JobScheduled", 1, job=1, lane=1, step=1, visit=1)
    happen("JobStarted", 2, job=1, attempt=1, worker="w")
    assert states() == "running pending pending pending pending pending pending pending"
    happen("JobRescheduled", 3, job=1, attempt=1, due=9, failure={"message": "no"})
    assert (states().split()[0], progress.retries) == ("retry", 1)
    happen("JobReleased", 4, job=1)
    happen("JobStarted", 4, job=1, attempt=2, worker="w")
    happen("JobSucceeded", 5, job=1, attempt=2, result=None)
    happen("LaneAdvanced", 5, lane=1, ops=[[Op.RESULT, 1, ""], [Op.MOVE, 3], [Op.WAIT, 2]])
    happen("TimerSet", 5, timer=1, lane=1, due=1_000_005)
    assert states() == "done skipped waiting pending pending pending pending pending"
    assert progress.due(progress.rows[2]) == 1_000_005
    happen("TimerFired", 6, timer=1)
    happen("LaneAdvanced", 6, lane=1, ops=[[Op.MOVE, 4], [Op.SPAWN, 2, 0, 4, 0, {}], [Op.SPAWN, 3, 1, 4, 1, {}]])
    happen("JobScheduled", 6, job=2, lane=2, step=5, visit=1)
    happen("JobScheduled", 6, job=3, lane=3, step=7, visit=1)
    happen("JobStarted", 6, job=3, attempt=1, worker="w")
    assert states() == "done skipped done running queued queued pending running"
    happen("JobFailed", 7, job=3, attempt=1, failure={"message": "bang"})
    happen("JobCancelled", 7, job=2, attempt=0)
    happen("ErrorRaised", 7, failure={"message": "bang"}, step="r")
    happen("ExecutionFailed", 8, status="FAILED_SAFE", residue=[])
    assert states() == "done skipped done cancelled cancelled cancelled pending failed"
    assert (progress.status, progress.error, progress.counts) == ("FAILED_SAFE", "bang", (3, 3))


def folded(world: World, id: str = "e1") -> Progress:
    """What a screen has folded of all that happened there."""
    progress = Progress(world.program(world.states[id].definition), id)
    seq = 0
    for at, events in world.histories[id]:
        for event in events:
            seq += 1
            progress.apply(json.loads(msgspec.json.encode(event_json(event, seq, at))))
    return progress


def tree(progress: Progress) -> list[tuple[str, int, str]]:
    return [(row.label, row.depth, row.state) for row in progress.rows]


def test_progress_of_loops_handlers_and_retries() -> None:
    world = World({"x.y": flaky(2)})
    world.start(
        """
steps:
- {id: each, step: foreach x in 1..3, steps: [{id: work, step: a.b}]}
- {id: shaky, step: x.y, on-error: [{id: look, step: c.d}, retry from shaky limit 5 backoff 10s]}
- step: if ${1 > 2}
  steps: [{id: never, step: a.b}]
- {id: gate, step: approve}
finally:
- {id: tidy, step: a.b}
"""
    )
    world.run(until=world.now + 15_000_000)
    progress = folded(world)
    assert tree(progress) == [
        ("each", 0, "done"), ("work", 1, "done"), ("shaky", 0, "retry"), ("look", 1, "done"), ("never", 0, "pending"),
        ("gate", 0, "pending"), ("tidy", 0, "pending"),
    ]  # fmt: skip
    each, work, shaky = progress.rows[:3]
    assert (each.done, each.count, len(work.jobs), shaky.visit) == (3, 3, 3, 2)
    world.run()
    assert [state for _, _, state in tree(folded(world))] == [
        "done", "done", "done", "done", "skipped", "waiting", "pending",
    ]  # fmt: skip
    world.ask("e1", r.SendSignal("approve/gate", {"approved": True}))
    world.run()
    assert {state for _, _, state in tree(folded(world))} == {"done", "skipped"}


def test_progress_of_a_replay_begins_at_its_waypoint() -> None:
    world = World({"x.y": flaky(1)})
    world.start("steps:\n- {id: a, step: a.b}\n- {id: b, step: c.d, replayable: from here}\n- {id: c, step: x.y}")
    world.run()
    assert [state for _, _, state in tree(folded(world))] == ["done", "done", "failed"]
    world.ask("e1", r.ReplayExecution("last"))
    progress = folded(world)
    assert (progress.run, progress.status) == (2, "RUNNING")
    assert [state for _, _, state in tree(progress)] == ["done", "queued", "pending"]
    world.run()
    assert [state for _, _, state in tree(folded(world))] == ["done", "done", "done"]


def test_progress_of_a_resumed_lane_forgets_that_it_had_failed() -> None:
    failing = flaky(1)
    world = World({"a.b": lambda given: failing(given) if given["x"] == 2 else given["x"]})
    world.start("steps:\n- {id: each, step: foreach x in 1..3, steps: [{id: w, step: 'a.b x=${x}', idempotent: yes}]}")
    world.run()
    world.ask("e1", r.ResumeExecution())
    world.run()
    each, work = folded(world).rows
    assert (each.state, each.done, each.failed, work.state, len(work.jobs)) == ("done", 3, 0, "done", 3)
