"""`verify`, `doctor`, `completion`, `version`, `--help`; settings and where they come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw

from .support import Background, environment, holdfast, plain, server_of


def test_help_needs_no_heavy_import(tmp_path: Path) -> None:
    script = (
        "import sys; from holdfast.cli.main import run; run(['--help']);"
        "print([m for m in ('rich', 'starlette', 'uvicorn', 'apsw', 'msgspec', 'yaml', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Exit codes:" in done.stdout
    assert "6  server or store unreachable" in done.stdout


def test_every_command_has_help(tmp_path: Path) -> None:
    from holdfast.cli.main import COMMANDS, cli

    for commands in COMMANDS.values():
        for name, entry in commands.items():
            command = cli.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            assert command.name == name
            assert command.get_short_help_str(200).rstrip(".") in entry.text
            assert command.help


def test_verify_finds_what_was_tampered_with(project: Path) -> None:
    (project / "hi.yaml").write_text("steps: [shell echo hi, return hi]")
    id = holdfast("run", "hi.yaml", "-o", "json", cwd=project).json["id"]
    clean = holdfast("verify", "-o", "json", cwd=project)
    assert (clean.code, clean.json["executions"], clean.json["findings"]) == (0, 1, [])
    with Background("up", "--no-worker", cwd=project) as up:
        server_of(project)
        assert holdfast("verify", cwd=project).code == 0
        up.interrupt()
        up.end()
    connection = apsw.Connection(str(project / ".holdfast" / "holdfast.db"))
    connection.execute("UPDATE history SET at = at + 1 WHERE seq = (SELECT min(seq) FROM history)")
    connection.close()
    broken = holdfast("verify", cwd=project)
    assert broken.code == 1
    assert id in broken.out
    assert "INVARIANT" in broken.out
    found = holdfast("verify", "-o", "json", cwd=project).json
    assert found["findings"][0]["execution"] == id
    assert holdfast("verify", "--store", "sqlite:///nope.db", cwd=project).code == 6
    (project / "junk.db").write_bytes(b"not a database, whatever it says" * 40)
    assert "HF0509" in holdfast("verify", "--store", "sqlite:///junk.db", cwd=project).err


def test_doctor_says_where_values_come_from(project: Path) -> None:
    (project / "holdfast.toml").write_text('slots = 8\nport = 4000\nstore = "data/h.db"\n')
    done = holdfast("doctor", "-o", "json", cwd=project, HOLDFAST_PORT="4001")
    settings = done.json["settings"]
    assert (settings["slots"]["value"], settings["slots"]["source"]) == (8, "holdfast.toml")
    assert (settings["port"]["value"], settings["port"]["source"]) == (4001, "HOLDFAST_PORT")
    assert settings["host"]["source"] == "default"
    names = {check["name"] for check in done.json["checks"]}
    assert {"python", "sqlite", "file system", "disk space", "fsync", "store", "server", "port"} <= names
    text = holdfast("doctor", "--store", "sqlite:///x.db", cwd=project, HOLDFAST_TOKEN="secret-abcd")
    assert "--store" in text.out
    assert "secret" not in text.out
    assert plain(text.out)
    far = holdfast("doctor", "--server", "http://127.0.0.1:9", cwd=project)
    assert (far.code, "does not answer" in far.out) == (1, True)


def test_configuration_errors_have_a_code_and_a_suggestion(project: Path) -> None:
    (project / "holdfast.toml").write_text("solts = 8\n")
    done = holdfast("ps", "-o", "json", cwd=project)
    assert (done.code, done.json["error"]["code"]) == (2, "HF0804")
    assert "unknown key `solts`; did you mean `slots`?" in done.err
    (project / "holdfast.toml").write_text('slots = "many"\n')
    assert "must be a whole number" in holdfast("ps", cwd=project).err
    (project / "holdfast.toml").write_text('token = "x"\n')
    assert "set HOLDFAST_TOKEN" in holdfast("ps", cwd=project).err
    (project / "holdfast.toml").write_text("slots = \n")
    assert "is not valid TOML" in holdfast("ps", cwd=project).err
    (project / "holdfast.toml").unlink()
    assert "must be a number" in holdfast("ps", cwd=project, HOLDFAST_PORT="abc").err


def test_project_is_found_from_below_and_with_c(project: Path, tmp_path_factory: object) -> None:
    (project / "hi.yaml").write_text("steps: [return hi]")
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert holdfast("run", "../../hi.yaml", "-q", cwd=below).out == "hi\n"
    assert not (below / ".holdfast").exists()
    assert len(holdfast("ps", "-o", "json", cwd=below).json) == 1
    assert len(holdfast("-C", str(project), "ps", "-o", "json", cwd=project.parent).json) == 1
    assert holdfast("-C", "nowhere", "ps", cwd=project).code == 2
    other = holdfast("run", "hi.yaml", "-q", "--store", "sqlite:///other/x.db", cwd=project)
    assert other.out == "hi\n"
    assert len(holdfast("ps", "-o", "json", "--store", "other/x.db", cwd=project).json) == 1


def test_completion_of_commands_ids_and_workflows(project: Path) -> None:
    assert "_HOLDFAST_COMPLETE=bash_complete" in holdfast("completion", "bash", cwd=project).out
    assert "#compdef holdfast" in holdfast("completion", "zsh", cwd=project).out
    assert holdfast("completion", "csh", cwd=project).code == 2

    def complete(line: str) -> list[str]:
        env = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        return holdfast(cwd=project, **env).out.split()

    assert [item.split(",")[1] for item in complete("holdfast wor")] == ["worker", "workflows", "workers"]
    assert complete("holdfast show ") == []
    (project / "hi.yaml").write_text("name: hi\nsteps: [return hi]")
    id = holdfast("run", "hi.yaml", "-o", "json", cwd=project).json["id"]
    holdfast("publish", "hi.yaml", cwd=project)
    assert complete("holdfast show ") == [f"plain,{id[:8]}"]
    assert "plain,hi" in complete("holdfast run h")
    assert "plain,HF0311" in complete("holdfast explain HF031")
    assert "plain,--status" in complete("holdfast ps --sta")


def test_version(tmp_path: Path) -> None:
    assert holdfast("version", cwd=tmp_path).out == holdfast("--version", cwd=tmp_path).out
    assert {"holdfast", "python", "sqlite"} == holdfast("version", "-o", "json", cwd=tmp_path).json.keys()
