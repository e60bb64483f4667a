"""`retention`, `purge`, `archive`: what is kept, what goes, and reading it back; and the settings for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .support import Background, holdfast, server_of

HELLO = "name: hello\nsteps: [log hello, return hi]\n"


def run(project: Path, **env: str) -> str:
    (project / "hello.yaml").write_text(HELLO)
    id: str = holdfast("run", "hello.yaml", "-o", "json", cwd=project, **env).json["id"]
    return id


def ids(project: Path) -> list[str]:
    return [view["id"] for view in holdfast("ps", "-o", "json", cwd=project).json]


def test_retention_shows_groups_rules_and_what_goes_next(project: Path) -> None:
    assert "nothing has ended yet" in holdfast("retention", cwd=project).err
    run(project)
    run(project)
    shown = holdfast("retention", "-o", "json", cwd=project).json
    assert (shown["default"], shown["is_archived"]) == ("max(3, 30d)", False)
    (group,) = shown["groups"]
    assert (group["group"], group["rule"], group["count"], group["due"]) == ("hello", "system", 2, 0)
    text = holdfast("retention", cwd=project)
    assert "hello" in text.out
    assert "when another ends" in text.out
    by_time = holdfast("retention", cwd=project, HOLDFAST_WORKFLOW_RETENTION_DEFAULT="30d")
    assert "in " in by_time.out


def test_short_runs_keep_to_the_setting(project: Path) -> None:
    (project / "holdfast.toml").write_text('[workflow.retention]\ndefault = "1"\n')
    run(project)
    assert [run(project)] == ids(project)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('[workflow.retention]\ndefault = "30 dyas"', "workflow.retention.default (holdfast.toml) is '30 dyas'"),
        ("[workflow.retention]\ndefault = 3", "must be a text"),
        ('[workflow.retention]\ndefualt = "3"', "did you mean `workflow.retention.default`?"),
        ('[retention]\narchiv = "x"', "did you mean `retention.archive`?"),
        ('"workflow.retention.default" = "max(system, 1)"', "stand for this very setting"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_at_the_start(project: Path, written: str, said: str) -> None:
    (project / "hello.yaml").write_text(HELLO)
    (project / "holdfast.toml").write_text(written + "\n")
    for command in (("run", "hello.yaml"), ("up", "--port", "0")):
        done = holdfast(*command, cwd=project)
        assert (done.code, "HF0804" in done.err) == (2, True), done
        assert said in done.err


def test_flags_of_up_are_settings_too(project: Path) -> None:
    done = holdfast("up", "--retention", "dissabled", cwd=project)
    assert (done.code, "workflow.retention.default (--retention)" in done.err) == (2, True)
    assert "did you mean `disabled`?" in done.err


def test_purge_says_first_what_would_go_and_then_does_it(project: Path) -> None:
    made = [run(project) for _ in range(3)]
    env = {"HOLDFAST_WORKFLOW_RETENTION_DEFAULT": "1"}
    would = holdfast("purge", "--dry-run", "-o", "json", cwd=project, **env).json
    assert would == {"ids": made[:2], "is_dry_run": True, "is_more": False}
    assert holdfast("purge", "--dry-run", cwd=project, **env).out.split() == made[:2]
    assert len(ids(project)) == 3
    done = holdfast("purge", "-y", cwd=project, **env)
    assert "2 executions purged" in done.err
    assert ids(project) == made[2:]
    one = holdfast("purge", "-y", made[2][:8], cwd=project)
    assert (one.code, one.out.strip()) == (0, made[2])
    assert ids(project) == []
    assert holdfast("purge", "-y", made[2][:8], "-o", "json", cwd=project).json["error"]["code"] == "HF0203"
    assert holdfast("verify", cwd=project).code == 0


def test_what_cannot_be_purged_is_refused(project: Path) -> None:
    (project / "unsafe.yaml").write_text("name: unsafe\nsteps: [shell true, fail no]\n")
    id = holdfast("run", "unsafe.yaml", "-o", "json", cwd=project).json["id"]
    dry = holdfast("purge", "--dry-run", id[:8], cwd=project)
    assert "would be refused" in dry.err
    assert not dry.out
    done = holdfast("purge", "-y", id[:8], cwd=project)
    assert (done.code, "HF0331" in done.err) == (1, True)
    assert ids(project) == [id]


def test_what_was_archived_is_read_back(project: Path) -> None:
    (project / "holdfast.toml").write_text('[retention]\narchive = "old"\n')
    gone, kept = run(project), run(project)
    events = holdfast("events", gone[:8], "-o", "json", cwd=project).json
    holdfast("purge", "-y", gone[:8], cwd=project)
    shown = holdfast("events", gone[:8], cwd=project)
    assert shown.code != 0
    assert f"holdfast archive show {gone}" in shown.err
    assert "archive" not in holdfast("events", "ffffffff", cwd=project).err.partition("help: it was")[2]
    (listed,) = holdfast("archive", "list", "-o", "json", cwd=project).json
    assert (listed["id"], listed["run"], listed["execution"]["status"]) == (gone, 1, "COMPLETED")
    assert listed["file"].startswith("old/")
    assert gone[:8] in holdfast("archive", "list", cwd=project).out
    assert holdfast("archive", "list", "-w", "other", "-o", "json", cwd=project).json == []
    assert holdfast("archive", "history", gone[:8], "-o", "json", cwd=project).json == events
    assert "ExecutionCompleted" in holdfast("archive", "history", gone[:8], cwd=project).out
    whole = holdfast("archive", "show", gone[:8], "-o", "json", cwd=project).json
    assert (whole["id"], whole["events"], whole["execution"]["output"]) == (gone, events, "hi")
    assert whole["definition"]["name"] == "hello"
    text = holdfast("archive", "show", gone[:8], cwd=project).out
    assert "COMPLETED" in text
    exported = holdfast("archive", "export", cwd=project).out.splitlines()
    assert [json.loads(line)["id"] for line in exported] == [gone]
    holdfast("archive", "export", gone[:6], "--to", "out.jsonl", cwd=project)
    assert json.loads((project / "out.jsonl").read_text()) == whole
    missing = holdfast("archive", "show", kept[:8], "-o", "json", cwd=project)
    assert missing.json["error"]["code"] == "HF0203"


def test_an_archive_that_is_not_there_is_said_to_be_missing(project: Path) -> None:
    done = holdfast("archive", "list", cwd=project)
    assert (done.code, "no archive is set up" in done.err) == (2, True)
    done = holdfast("archive", "list", "--archive", "nowhere", "-o", "json", cwd=project)
    assert done.json["error"]["code"] == "HF0511"


def test_a_server_archives_and_purges_by_itself(project: Path) -> None:
    arguments = ("up", "--no-worker", "--retention", "2", "--archive", "old")
    with Background(*arguments, cwd=project) as up:
        server_of(project)
        made = [run(project) for _ in range(4)]
        assert holdfast("retention", "-o", "json", cwd=project).json["is_archived"]
        holdfast("purge", "-y", cwd=project)
        assert ids(project) == made[:1:-1]
        assert "holdfast archive show" in holdfast("show", made[0], cwd=project).err
        up.interrupt()
        up.end()
    found = holdfast("archive", "list", "--archive", "old", "-o", "json", cwd=project).json
    assert [head["id"] for head in found] == made[:2]
    assert holdfast("verify", cwd=project).code == 0
