"""`resume`, `replay`, `approve` as an operator uses them; also when the engine is killed meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .support import Background, holdfast, server_of, until
from .test_postgres import address_of

DEPLOY = """
name: deploy
steps:
  - let release = 42
  - {id: fetch, step: 'shell echo fetched >> log'}
  - {id: install, step: 'shell echo installed >> log', replayable: from here}
  - {id: check, step: 'shell test -f ok', idempotent: true}
  - {id: nap, step: sleep 8s}
  - {id: report, step: 'shell echo reported >> log'}
  - return released ${release}
"""
GATED = """
name: gated
steps:
  - {id: go-live, step: approve, message: 'release ${40 + 2}?'}
  - return ${output.note}
"""


def did(project: Path) -> list[str]:
    return (project / "log").read_text().split()


def failed(project: Path, **env: str) -> str:
    (project / "deploy.yaml").write_text(DEPLOY)
    done = holdfast("run", "deploy.yaml", "-o", "json", cwd=project, **env)
    assert done.code == 3, done
    assert f"holdfast resume {done.json['id'][:8]} --dry-run" in done.err
    return str(done.json["id"])


def test_a_dry_run_says_what_then_happens(project: Path) -> None:
    id = failed(project)
    why = holdfast("why", id, cwd=project)
    assert f"holdfast resume {id[:8]}" in why.out
    show = holdfast("show", id, cwd=project).out
    assert f"resume:    holdfast resume {id[:8]}" in show
    assert f"replay:    holdfast replay {id[:8]} --from install" in show
    assert "waypoints: install" in show
    dry = holdfast("resume", id, "--dry-run", cwd=project)
    assert dry.code == 0
    assert "Goes on at: check" in dry.out
    assert "Keeps:      let release = 42, fetch, install" in dry.out
    plan = holdfast("replay", id, "--from", "report", "--dry-run", "-o", "json", cwd=project)
    assert (plan.code, plan.json["refusal"]["code"]) == (1, "HF0304")
    plan = holdfast("replay", id, "--from", "check", "--dry-run", "-o", "json", cwd=project)
    assert plan.json["step"] == "install"
    assert [job["step"] for job in plan.json["jobs"]] == ["install", "check"]
    assert plan.json["variables"] == {"release": 42}
    assert did(project) == ["fetched", "installed"], "a dry run does nothing"
    refused = holdfast("replay", id, "--from", "fetch", cwd=project)
    assert refused.code == 1
    assert "HF0304" in refused.err
    (project / "ok").touch()
    done = holdfast("resume", id, "--reason", "made it", "--follow", cwd=project)
    assert (done.code, done.out) == (0, "released 42\n"), done
    assert "resumed  by" in done.err
    assert "fetch" not in done.err, "what was shown in the first run is not shown again"
    assert did(project) == ["fetched", "installed", "reported"]
    done = holdfast("replay", id, "--from", "last", "--follow", "-o", "json", cwd=project)
    assert (done.json["run"], done.json["output"]) == (3, "released 42")
    assert did(project)[3:] == ["installed", "reported"]
    assert "run 3" in holdfast("ps", cwd=project).out
    events = holdfast("events", id, cwd=project).out
    assert "ExecutionReplayed" in events
    assert "run 3 · by" in events
    assert holdfast("verify", cwd=project).code == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_engine_that_is_killed_after_resume_changes_nothing(
    kind: str, project: Path, request: pytest.FixtureRequest
) -> None:
    env = {"HOLDFAST_STORE": address_of(request.getfixturevalue("pg_dsn"))} if kind == "postgres" else {}
    id = failed(project, **env)
    (project / "ok").touch()
    with Background("up", cwd=project, **env) as up:
        server_of(project)
        resumed = holdfast("resume", id, cwd=project, **env)
        assert resumed.code == 0, resumed
        assert "run 2, RUNNING" in resumed.err
        asleep = until(lambda: holdfast("show", id, "-o", "json", cwd=project, **env).json["waiting"])
        assert asleep
        up.process.send_signal(signal.SIGKILL)
        up.end()
    with Background("up", cwd=project, **env) as up:
        until(lambda: server_of(project)["pid"] == up.process.pid)
        done = holdfast("watch", id, cwd=project, **env)
        assert (done.code, done.out) == (0, "released 42\n"), done
    assert did(project) == ["fetched", "installed", "reported"]
    assert holdfast("verify", cwd=project, **env).code == 0


def test_approve_reject_and_what_waits(project: Path) -> None:
    (project / "gated.yaml").write_text(GATED)
    with Background("up", cwd=project):
        server_of(project)
        ids = [holdfast("run", "gated.yaml", "--detach", cwd=project).out.strip() for _ in range(2)]
        asked = until(lambda: found if len(found := holdfast("approvals", "-o", "json", cwd=project).json) == 2 else [])
        assert {(each["execution"], each["step"], each["message"]) for each in asked} == {
            (id, "go-live", "release 42?") for id in ids
        }
        assert "release 42?" in holdfast("approvals", cwd=project).out
        why = holdfast("why", ids[0], cwd=project).out
        assert "release 42?" in " ".join(why.split())
        assert f"holdfast approve {ids[0][:8]} go-live" in why
        assert holdfast("approve", ids[0], "--note", "change 4711", cwd=project).code == 0
        assert holdfast("watch", ids[0], cwd=project).out == "change 4711\n"
        again = holdfast("approve", ids[0], cwd=project)
        assert (again.code, "HF0306" in again.err) == (1, True)
        assert holdfast("reject", ids[1], "go-live", cwd=project).code == 2, "a rejection needs a note"
        assert holdfast("reject", ids[1], "go-live", "--note", "not today", cwd=project).code == 0
        rejected = holdfast("watch", ids[1], cwd=project)
        assert rejected.code == 1
        assert ": not today" in rejected.err
        # Nothing has happened but a no: it may be asked again.
        assert holdfast("resume", ids[1], cwd=project).code == 0
        assert holdfast("approve", ids[1], "--note", "well then", cwd=project).code == 0
        assert holdfast("watch", ids[1], cwd=project).out == "well then\n"
        assert "nothing waits" in holdfast("approvals", cwd=project).err
    assert holdfast("verify", cwd=project).code == 0
