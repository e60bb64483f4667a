"""Commands that change something, with and without a server; tokens and workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .support import Background, holdfast, server_of, until

APPROVAL = """
name: approval
steps:
  - {id: ok, step: wait-signal approved}
  - return ${steps.ok.output}
"""


@pytest.fixture
def waiting(project: Path) -> tuple[Path, str]:
    """An execution that waits for a signal, and nobody running."""
    (project / "approval.yaml").write_text(APPROVAL)
    done = holdfast("run", "approval.yaml", "--detach", cwd=project)
    return project, done.out.strip()


def test_signal_without_a_server_is_kept_and_counts(waiting: tuple[Path, str]) -> None:
    folder, id = waiting
    done = holdfast("signal", id[:8], "approved", "{by: ada, level: 3}", cwd=folder)
    assert done.code == 0, done
    assert "signal approved sent" in done.err
    shown = holdfast("show", id, "-o", "json", cwd=folder).json
    assert (shown["status"], shown["output"]) == ("COMPLETED", {"by": "ada", "level": 3})
    late = holdfast("signal", id, "approved", "-o", "json", cwd=folder)
    assert (late.code, late.json["error"]["code"]) == (1, "HF0302")
    assert holdfast("signal", id, "approved", "--json", "{", cwd=folder).code == 2


def test_cancel_says_first_what_it_would_do(waiting: tuple[Path, str]) -> None:
    folder, id = waiting
    dry = holdfast("cancel", id, "--dry-run", "-o", "json", cwd=folder)
    assert dry.json == {
        "id": id, "status": "RUNNING", "would_cancel": True, "running": [], "withdrawn": [], "effects": [],
    }  # fmt: skip
    assert "it would end safe" in holdfast("cancel", id, "--dry-run", cwd=folder).err
    done = holdfast("cancel", id[:8], "--yes", "--reason", "not needed", cwd=folder)
    assert "CANCELLED" in done.err
    assert holdfast("watch", id, cwd=folder).code == 4
    assert "not needed" in holdfast("why", id, cwd=folder).out
    again = holdfast("cancel", id, "-o", "json", cwd=folder)
    # Asked again, perhaps because the first answer was lost: the same answer.
    assert (again.json["id"], again.json["status"], again.json["error"]) == (id, "CANCELLED", None)
    (folder / "hi.yaml").write_text("steps: [return hi]")
    ended = holdfast("run", "hi.yaml", "-o", "json", cwd=folder).json["id"]
    late = holdfast("cancel", ended, "--yes", "-o", "json", cwd=folder)
    assert (late.code, late.json["error"]["code"]) == (1, "HF0301")


def test_cancel_of_a_running_job_through_the_server(project: Path) -> None:
    (project / "long.yaml").write_text("name: long\nsteps: [shell sleep 30]")
    with Background("run", "long.yaml", "-o", "json", cwd=project) as run:
        server_of(project)
        id = holdfast("ps", "-o", "json", cwd=project).json[0]["id"]
        until(lambda: holdfast("jobs", id, "-o", "json", cwd=project).json[0]["status"] == "STARTED")
        dry = holdfast("cancel", id, "--dry-run", cwd=project)
        assert "job 1 (shell sleep 30) runs on embedded: it is told to stop, and waited for" in dry.err
        assert holdfast("cancel", id, "-o", "json", cwd=project).json["status"] in ("CANCELLING", "CANCELLED")
        done = run.end()
    # A command that was stopped in the middle may have done something: that is for a person to look at.
    assert (done.code, done.json["status"], done.json["is_safe"]) == (3, "CANCELLED", False)


def test_publish_checks_all_files_first(project: Path) -> None:
    (project / "bad.yaml").write_text("name: bad\nstep: []\n")
    done = holdfast("publish", "slow.yaml", "bad.yaml", "-o", "json", cwd=project)
    assert (done.code, done.json["error"]["code"]) == (2, "HF0100")
    assert holdfast("workflows", "-o", "json", cwd=project).json == []
    done = holdfast("publish", "slow.yaml", "--name", "other", "-o", "json", cwd=project)
    assert [(view["name"], view["version"]) for view in done.json] == [("other", 1)]
    (project / "nameless.yaml").write_text("steps: [log hi]")
    assert holdfast("publish", "nameless.yaml", "-o", "json", cwd=project).json[0]["name"] == "nameless"
    assert holdfast("publish", "slow.yaml", "nameless.yaml", "--name", "x", cwd=project).code == 2


def test_publish_takes_all_workflows_of_all_files(project: Path) -> None:
    (project / "two.yaml").write_text("name: a\nsteps: [log 1]\n---\nid: b\ntype: workflow\nsteps: [log 2]\n")
    (project / "seed.yaml").write_text(
        "brooklyn.initializers:\n"
        "- {type: workflow-effector, name: c, description: the third, steps: [log 3]}\n"
        "- {type: workflow-effector, name: d, steps: [log 4]}\n"
    )
    done = holdfast("publish", "two.yaml", "seed.yaml", "-o", "json", cwd=project)
    assert [(view["name"], view["version"]) for view in done.json] == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    with (project / "two.yaml").open("a") as file:
        file.write("---\nname: c\nsteps: [log 5]\n")
    done = holdfast("publish", "two.yaml", "seed.yaml", "-o", "json", cwd=project)
    (problem,) = done.json["error"]["problems"]
    assert (problem["code"], problem["file"], problem["label"]) == ("HF0112", "seed.yaml", "the other is at two.yaml:8")
    assert {view["version"] for view in holdfast("workflows", "-o", "json", cwd=project).json} == {1}
    assert "the third" in holdfast("workflows", cwd=project).out
    assert holdfast("publish", "two.yaml", "--name", "x", cwd=project).code == 2


def test_tokens_and_a_worker_elsewhere(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "blocks.py").write_text((project / "blocks.py").read_text())
    (project / "blocks.py").unlink()
    local = holdfast("token", "create", "early", "--role", "worker", "--expires", "1d", cwd=project)
    assert local.out.startswith("hf_")
    assert local.code == 0
    with Background("up", cwd=project) as up:
        server = server_of(project)
        made = holdfast("token", "create", "w", "--role", "worker", "-o", "json", cwd=project).json
        listed = holdfast("token", "list", "-o", "json", cwd=project).json
        assert [(view["name"], view["role"]) for view in listed] == [("early", "worker"), ("w", "worker")]
        env = {"HOLDFAST_SERVER": server["address"], "HOLDFAST_TOKEN": made["token"]}
        refused = holdfast("ps", cwd=elsewhere, **env)
        assert (refused.code, "HF0602" in refused.err) == (1, True)
        with Background("worker", "-m", "blocks.py", "--name", "w1", cwd=elsewhere, **env) as worker:
            online = lambda: "w1" in {w["name"] for w in holdfast("workers", "-o", "json", cwd=project).json}  # noqa: E731
            until(online)
            done = holdfast("run", "slow.yaml", "-o", "json", cwd=project)
            assert (done.code, done.json["output"]) == (0, "done"), done
            jobs = holdfast("jobs", done.json["id"], "-o", "json", cwd=project).json
            assert {job["worker"] for job in jobs} == {"w1"}
            worker.process.send_signal(signal.SIGTERM)
            assert worker.end().code == 0
        assert "is revoked" in holdfast("token", "revoke", made["id"], cwd=project).err
        assert "revoked" in holdfast("token", "list", cwd=project).out
        assert holdfast("token", "revoke", "nope", "-o", "json", cwd=project).json["error"]["code"] == "HF0604"
        assert holdfast("worker", cwd=elsewhere, HOLDFAST_SERVER=server["address"], HOLDFAST_TOKEN="hf_a_b").code == 1
        second = holdfast("up", cwd=project)
        assert second.code == 6
        assert f"it answers at {server['address']}" in second.err
        up.process.send_signal(signal.SIGTERM)
        assert up.end().code == 0
    assert holdfast("worker", cwd=elsewhere).code == 6
