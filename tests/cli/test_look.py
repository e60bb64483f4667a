"""Commands that look: on a project with a few executions, without an engine; all JSON is valid JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .support import Background, holdfast, plain, server_of

MIXED = """
name: mixed
steps:
  - log beginning
  - {id: first, step: shell echo one}
  - id: both
    parallel:
      - {id: left, steps: [shell echo two, sleep 50ms]}
      - {id: right, step: shell echo three}
  - {id: never, step: shell echo no, condition: "${1 == 2}"}
  - {id: flaky, step: test.flaky until=2, retry: {attempts: 3, delay: 10ms}}
  - return fine
"""


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A completed, a failed and an open execution, by workflow."""
    folder = tmp_path_factory.mktemp("looked")
    (folder / "mixed.yaml").write_text(MIXED)
    (folder / "broken.yaml").write_text("name: broken\nsteps: [shell echo x, {id: bang, step: fail message it broke}]")
    (folder / "waiting.yaml").write_text("name: waiting\nsteps: [log waiting for you, wait-signal go]")
    ids: dict[str, str] = {}
    for name in ("mixed", "broken"):
        ids[name] = holdfast("run", f"{name}.yaml", "-o", "json", cwd=folder).json["id"]
    ids["waiting"] = holdfast("run", "waiting.yaml", "--timeout", "0.1", "-o", "json", cwd=folder).json["id"]
    holdfast("publish", "mixed.yaml", "broken.yaml", cwd=folder)
    return folder, ids


def test_ps(looked: tuple[Path, dict[str, str]]) -> None:
    folder, ids = looked
    done = holdfast("ps", cwd=folder)
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [ids[n][:8] for n in ("waiting", "broken", "mixed")]
    assert "bang: it broke" in done.out
    assert plain(done.out)
    assert [view["workflow"] for view in holdfast("ps", "-o", "json", "-s", "open", cwd=folder).json] == ["waiting"]
    failed = holdfast("ps", "-s", "failed", "-w", "broken", "-o", "jsonl", cwd=folder).out.splitlines()
    assert [json.loads(line)["status"] for line in failed] == ["FAILED_UNSAFE"]
    assert len(holdfast("ps", "-n", "1", "-o", "json", cwd=folder).json) == 1
    assert len(holdfast("ps", "--all", "-o", "json", cwd=folder).json) == 3
    assert ids["mixed"] in holdfast("ps", "-o", "wide", cwd=folder).out
    bad = holdfast("ps", "-s", "completd", "-o", "json", cwd=folder)
    assert bad.code == 2
    assert "did you mean COMPLETED?" in bad.json["error"]["message"]


def test_show_ends_with_events(looked: tuple[Path, dict[str, str]]) -> None:
    folder, ids = looked
    done = holdfast("show", ids["mixed"][:7], cwd=folder)
    assert done.code == 0
    head, _, events = done.out.partition("\nEvents\n")
    assert ids["mixed"] in head
    assert "✓ first" in head
    assert "– never" in head
    assert "attempt 2" in head
    assert "  fine" in head
    assert "ExecutionCompleted" in events.splitlines()[-1]
    broken = holdfast("show", ids["broken"], cwd=folder)
    assert "unsafe: effects of job 1 remain" in broken.out
    assert "it broke" in broken.out
    assert holdfast("show", ids["mixed"], "-o", "json", cwd=folder).json["output"] == "fine"


def test_why_is_one_paragraph_and_a_command(looked: tuple[Path, dict[str, str]]) -> None:
    folder, ids = looked
    waiting = holdfast("why", ids["waiting"], cwd=folder).out
    assert "waits for the signal `go`" in " ".join(waiting.split())
    assert f"  holdfast signal {ids['waiting'][:8]} go" in waiting
    broken = " ".join(holdfast("why", ids["broken"], cwd=folder).out.split())
    assert "failed unsafe at step bang" in broken
    assert "took effect" in broken
    assert holdfast("why", ids["mixed"], "-o", "json", cwd=folder).json["status"] == "COMPLETED"


def test_logs_events_and_jobs(looked: tuple[Path, dict[str, str]]) -> None:
    folder, ids = looked
    id = ids["mixed"]
    assert "beginning" in holdfast("logs", id, cwd=folder).out
    assert [line["message"] for line in holdfast("logs", id, "-o", "json", cwd=folder).json] == ["beginning"]
    events: list[dict[str, Any]] = holdfast("events", id, "-o", "json", cwd=folder).json
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    later = holdfast("events", id, "--after", "5", "-f", "-o", "jsonl", cwd=folder).out.splitlines()
    assert [json.loads(line)["seq"] for line in later] == list(range(6, len(events) + 1))
    assert "JobRescheduled" in holdfast("events", id, cwd=folder).out
    jobs = holdfast("jobs", id, "-o", "json", cwd=folder).json
    assert [(job["step"], job["status"], job["attempt"]) for job in jobs][-1] == ("flaky", "SUCCEEDED", 2)
    assert "EFFECT" in holdfast("jobs", id, cwd=folder).out
    assert '"echo one"' in holdfast("jobs", id, "-o", "wide", cwd=folder).out


def test_watch_ends_with_the_exit_code_of_the_execution(looked: tuple[Path, dict[str, str]]) -> None:
    folder, ids = looked
    done = holdfast("watch", ids["mixed"], cwd=folder)
    assert (done.code, done.out) == (0, "fine\n")
    assert "left › shell echo two" in done.err
    assert holdfast("watch", ids["broken"], "-o", "json", cwd=folder).code == 3


def test_lists(looked: tuple[Path, dict[str, str]]) -> None:
    folder, _ = looked
    assert [view["name"] for view in holdfast("workflows", "-o", "json", cwd=folder).json] == ["broken", "mixed"]
    assert "test.flaky until=2" in holdfast("workflows", "mixed", cwd=folder).out
    assert holdfast("workflows", "nope", cwd=folder).code == 2
    assert "shell" in {view["name"] for view in holdfast("blocks", "-o", "json", cwd=folder).json}
    assert "command" in holdfast("blocks", "shell", cwd=folder).out
    assert "did you mean `shell`?" in holdfast("blocks", "shel", cwd=folder).err
    assert [view["state"] for view in holdfast("workers", "-o", "json", cwd=folder).json] == ["offline"]
    assert "embedded" in holdfast("workers", cwd=folder).out
    assert holdfast("queues", "-o", "json", cwd=folder).json == []


@pytest.mark.parametrize("command", ["show", "why", "logs", "events", "jobs", "watch"])
def test_unknown_ids_are_refused_in_words_and_in_json(looked: tuple[Path, dict[str, str]], command: str) -> None:
    folder, _ = looked
    done = holdfast(command, "0123456789", "-o", "json", cwd=folder)
    assert (done.code, done.json["error"]["code"]) == (2, "HF0203")
    assert "error[HF0203]: no execution 0123456789; `holdfast ps` lists them" in done.err


def test_the_same_through_a_server(looked: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, ids = looked
    local = {
        command: holdfast(command, ids["mixed"], "-o", "json", cwd=folder).json
        for command in ("show", "why", "logs", "events", "jobs")
    }
    with Background("up", "--no-worker", cwd=folder) as up:
        server = server_of(folder)
        # From elsewhere, with address and token in the environment.
        env = {"HOLDFAST_SERVER": server["address"], "HOLDFAST_TOKEN": server["token"]}
        for command, expected in local.items():
            assert holdfast(command, ids["mixed"], "-o", "json", cwd=tmp_path, **env).json == expected, command
        assert len(holdfast("ps", "-o", "json", cwd=tmp_path, **env).json) == 3
        wrong = holdfast("ps", "-o", "json", cwd=tmp_path, HOLDFAST_SERVER=server["address"])
        assert (wrong.code, wrong.json["error"]["code"]) == (1, "HF0601")
        up.interrupt()
        assert up.end().code == 0


def test_without_a_store_there_is_nothing(tmp_path: Path) -> None:
    done = holdfast("ps", "-o", "json", cwd=tmp_path)
    assert (done.code, done.json) == (0, [])
    assert "no store at .holdfast/holdfast.db yet" in done.err
    assert list(tmp_path.iterdir()) == []
    gone = holdfast("ps", "--server", "http://127.0.0.1:9", "-o", "json", cwd=tmp_path)
    assert (gone.code, gone.json["error"]["code"]) == (6, "HF0801")
