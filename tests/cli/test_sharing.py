"""One store, several processes: joining, taking over, being interrupted, going on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from .support import SLOW, Background, holdfast, server_of, until


def ids(folder: Path, status: str = "") -> list[str]:
    arguments = ["ps", "-o", "json", "--all", *(["--status", status] if status else [])]
    return [view["id"] for view in holdfast(*arguments, cwd=folder).json]


GATED = """
name: gated
steps:
  - {id: one, block: my.slow, input: {seconds: 0.1}}
  - wait-signal go
  - {id: two, block: my.slow, input: {seconds: 0.1}}
  - return done
"""


def arrive(folder: Path, count: int) -> list[str]:
    """Ids of so many executions, newest first, once each of them waits at its gate."""

    def waiting() -> list[str]:
        views = holdfast("ps", "-o", "json", "-s", "open", cwd=folder).json
        return [view["id"] for view in views if view["progress"] == {"done": 1, "total": 1}]

    found: list[str] = until(lambda: ids_ if len(ids_ := waiting()) == count else [], timeout=30)
    return found


def test_a_second_run_joins_and_takes_over_when_the_owner_leaves(project: Path) -> None:
    (project / "gated.yaml").write_text(GATED)
    with Background("run", "gated.yaml", "-o", "json", cwd=project) as owner:
        server = server_of(project)
        assert (project / ".holdfast" / "server.json").stat().st_mode & 0o777 == 0o600
        assert server["pid"] == owner.process.pid
        with Background("run", "gated.yaml", "-o", "json", cwd=project) as guest:
            second, first = arrive(project, 2)
            jobs = holdfast("jobs", second, "-o", "json", cwd=project).json
            assert jobs[0]["worker"] in ("embedded", f"run-{guest.process.pid}")
            assert holdfast("signal", first, "go", cwd=project).code == 0
            ended = owner.end()
            assert (ended.code, ended.json["output"]) == (0, "done"), ended
            until(lambda: server_of(project)["pid"] == guest.process.pid)
            assert holdfast("signal", second, "go", cwd=project).code == 0
            joined = guest.end()
    assert (joined.code, joined.json["output"]) == (0, "done"), joined
    assert f"joined {server['address']}" in joined.err
    assert "taking over" in joined.err
    assert not (project / ".holdfast" / "server.json").exists()
    assert holdfast("verify", cwd=project).code == 0


def test_a_guest_takes_over_when_the_owner_is_killed(project: Path) -> None:
    (project / "gated.yaml").write_text(GATED)
    with Background("run", "gated.yaml", cwd=project) as owner:
        server_of(project)
        with Background("run", "gated.yaml", cwd=project) as guest:
            second, first = arrive(project, 2)
            owner.process.send_signal(signal.SIGKILL)
            owner.end()
            until(lambda: server_of(project)["pid"] == guest.process.pid)
            # What the killed one was doing is not lost: the guest's engine goes on with it.
            assert holdfast("signal", first, "go", cwd=project).code == 0
            assert holdfast("watch", first, cwd=project).out == "done\n"
            assert holdfast("signal", second, "go", cwd=project).code == 0
            done = guest.end()
    assert (done.code, done.out) == (0, "done\n"), done
    assert "taking over" in done.err
    assert holdfast("verify", cwd=project).code == 0


def test_two_at_the_same_moment(project: Path) -> None:
    with Background("run", "slow.yaml", cwd=project) as one, Background("run", "slow.yaml", cwd=project) as other:
        results = [one.end(), other.end()]
    assert [(done.code, done.out) for done in results] == [(0, "done\n")] * 2, results


def test_ctrl_c_leaves_a_durable_run_and_says_how_to_go_on(project: Path) -> None:
    # Long enough to be seen and interrupted on a machine that is busy with something else.
    (project / "slow.yaml").write_text(SLOW.replace("seconds: 1.2", "seconds: 5"))
    with Background("run", "slow.yaml", "-o", "json", cwd=project) as run:
        until(lambda: ids(project, "open"))
        run.interrupt()
        done = run.end()
    assert done.code == 130, done
    assert "durable" in done.err
    id = done.json["id"]
    assert f"holdfast run --continue {id[:8]} -m blocks.py" in done.err
    assert ids(project, "open") == [id]
    why = holdfast("why", id[:6], cwd=project)
    assert "no engine is running here" in " ".join(why.out.split()).lower()
    assert "holdfast up" in why.out
    watched = holdfast("watch", id[:8], cwd=project)
    assert watched.code == 5
    assert "nothing moves" in watched.err
    # The next engine goes on with what was left, whatever it was started for.
    (project / "wait.yaml").write_text("steps: [sleep 1500ms]")
    done = holdfast("run", "wait.yaml", "-m", "blocks.py", cwd=project)
    assert "continuing 1 unfinished execution" in done.err
    assert holdfast("show", id, "-o", "json", cwd=project).json["output"] == "done"


def test_interrupted_as_a_guest_it_goes_on_at_the_owner(project: Path) -> None:
    with Background("up", cwd=project) as up:
        server_of(project)
        with Background("run", "slow.yaml", cwd=project) as run:
            until(lambda: ids(project, "open"))
            run.interrupt()
            done = run.end()
        assert done.code == 130
        assert "it goes on at http://127.0.0.1" in done.err
        id = ids(project)[0]
        watched = holdfast("watch", id[:8], cwd=project)
        assert (watched.code, watched.out) == (0, "done\n")
        up.process.send_signal(signal.SIGTERM)
        assert up.end().code == 0


def test_a_stale_server_file_is_found_out(project: Path) -> None:
    stale = {"address": "http://127.0.0.1:9", "token": "hf_x_y", "pid": 2**22 + 1}
    (project / ".holdfast" / "server.json").write_text(json.dumps(stale))
    assert "is stale" in holdfast("doctor", cwd=project).out
    assert holdfast("ps", cwd=project).code == 0
    # A process number that was given to another program is not enough.
    stale["pid"] = os.getpid()
    (project / ".holdfast" / "server.json").write_text(json.dumps(stale))
    (project / "hi.yaml").write_text("steps: [return hi]")
    done = holdfast("run", "hi.yaml", cwd=project)
    assert (done.code, done.out) == (0, "hi\n")


def test_detached_runs_go_on_with_up(project: Path) -> None:
    done = holdfast("run", "slow.yaml", "--detach", cwd=project)
    assert done.code == 0
    id = done.out.strip()
    assert len(id) == 32
    assert holdfast("show", id, "-o", "json", cwd=project).json["status"] == "RUNNING"
    with Background("up", cwd=project) as up:
        server_of(project)
        assert holdfast("watch", id[:8], "-o", "json", cwd=project).json["output"] == "done"
        up.process.send_signal(signal.SIGTERM)
        ended = up.end()
    assert ended.code == 0
    assert "continuing 1 unfinished execution" in ended.err
    assert "/login?code=" in ended.err
