"""The same commands on PostgreSQL: several engines, no owner."""

from __future__ import annotations

from pathlib import Path

from tests.services.postgres import Postgres

from .support import Background, holdfast, until


def address_of(dsn: str) -> str:
    """libpq's keywords as the URL that people write."""
    parts = dict(part.split("=", 1) for part in dsn.split())
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"


def test_run_look_and_verify(project: Path, pg_dsn: str) -> None:
    env = {"HOLDFAST_STORE": address_of(pg_dsn)}
    done = holdfast("run", "slow.yaml", "-o", "json", cwd=project, **env)
    assert (done.code, done.json["output"]) == (0, "done"), done
    assert "password" not in done.err
    id = done.json["id"]
    assert [view["id"] for view in holdfast("ps", "-o", "json", cwd=project, **env).json] == [id]
    assert "ExecutionCompleted" in holdfast("show", id[:8], cwd=project, **env).out
    report = holdfast("verify", "-o", "json", cwd=project, **env)
    assert (report.code, report.json["executions"]) == (0, 1)
    checks = {check["name"]: check for check in holdfast("doctor", "-o", "json", cwd=project, **env).json["checks"]}
    assert (checks["postgres fsync"]["state"], checks["store"]["state"]) == ("ok", "ok")


def test_libpq_keywords_are_an_address_everywhere(project: Path, pg_dsn: str) -> None:
    env = {"HOLDFAST_STORE": f"{pg_dsn} password=secret"}
    before = {path.name for path in project.iterdir()}
    done = holdfast("run", "slow.yaml", cwd=project, **env)
    assert (done.code, done.out) == (0, "done\n"), done
    assert "store postgresql://" in done.err
    doctor = holdfast("doctor", cwd=project, **env)
    report = holdfast("doctor", "-o", "json", cwd=project, **env)
    checks = {check["name"]: check for check in report.json["checks"]}
    assert (checks["postgres fsync"]["state"], checks["store"]["state"]) == ("ok", "ok")
    assert "file system" not in checks
    assert holdfast("verify", cwd=project, **env).code == 0
    assert "secret" not in done.err + doctor.out + doctor.err + report.out + report.err
    assert {path.name for path in project.iterdir()} - {"__pycache__"} == before
    assert (project / ".holdfast" / "key").exists()


def test_two_runs_and_a_signal_from_a_third_process(project: Path, pg_dsn: str) -> None:
    env = {"HOLDFAST_STORE": address_of(pg_dsn)}
    (project / "wait.yaml").write_text(
        "name: wait\nsteps: [{id: go, step: wait-signal go}, 'return ${steps.go.output}']"
    )
    with (
        Background("run", "wait.yaml", cwd=project, **env) as one,
        Background("run", "slow.yaml", cwd=project, **env) as two,
    ):
        ended = two.end()
        assert (ended.code, ended.out) == (0, "done\n"), ended
        id = holdfast("ps", "-s", "open", "-o", "json", cwd=project, **env).json[0]["id"]
        assert holdfast("signal", id, "go", "now", cwd=project, **env).code == 0
        done = one.end()
    assert (done.code, done.out) == (0, "now\n"), done
    assert holdfast("verify", cwd=project, **env).code == 0


def test_a_database_that_is_not_there(project: Path) -> None:
    address = "postgresql://nobody:secret@127.0.0.1:9/none"
    done = holdfast("ps", "-o", "json", cwd=project, HOLDFAST_STORE=address)
    assert (done.code, done.json["error"]["code"]) == (6, "HF0501")
    assert "secret" not in done.err + done.out
    assert holdfast("doctor", cwd=project, HOLDFAST_STORE=address).code == 1


def test_a_run_outlasts_a_database_that_is_away(project: Path, postgres: Postgres, pg_dsn: str) -> None:
    env = {"HOLDFAST_STORE": address_of(pg_dsn)}
    with Background("run", "slow.yaml", cwd=project, **env) as run:
        until(lambda: holdfast("ps", "-s", "open", "-o", "json", cwd=project, **env).json)
        postgres.stop()
        try:
            assert run.process.stderr is not None
            said = ""
            while "waiting: " not in said:
                line = run.process.stderr.readline()
                assert line, said
                said += line
        finally:
            postgres.start()
        done = run.end(60)
    assert (done.code, done.out) == (0, "done\n"), done
    assert "the store is well again" in done.err
