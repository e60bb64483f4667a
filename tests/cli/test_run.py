"""`holdfast run`: results on stdout, progress on stderr, exit codes, inputs, bad files."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.feed import Follower
from holdfast.cli.progress import Progress
from holdfast.cli.run import Asked, Run
from holdfast.cli.screens import PlainScreen
from holdfast.cli.sessions import Owner
from holdfast.cli.settings import Settings
from holdfast.core.errors import StoreUnavailable
from holdfast.core.views import ExecutionView

from .support import COMMAND, environment, holdfast, plain

HELLO = """
name: hello
inputs:
  name: {type: string, default: world}
  times: {type: integer, default: 1}
steps:
  - log greeting ${name}
  - {id: greet, step: "shell echo hello ${name}"}
  - return: {said: "${trim(steps.greet.output.stdout)}", times: "${times}"}
"""


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    (tmp_path / "hello.yaml").write_text(HELLO)
    return tmp_path


def test_result_on_stdout_progress_on_stderr(hello: Path) -> None:
    done = holdfast("run", "hello.yaml", "--input", "name=Ada", "-i", "times=3", cwd=hello)
    assert done.code == 0, done
    assert done.out == "said: hello Ada\ntimes: 3\n"
    assert "greeting Ada" in done.err
    assert "COMPLETED" in done.err
    assert plain(done.err)
    assert plain(done.out)
    assert (hello / ".holdfast" / "holdfast.db").exists()
    assert not (hello / ".holdfast" / "server.json").exists()
    assert (hello / ".holdfast").stat().st_mode & 0o777 == 0o700


def test_json_is_one_object_and_inputs_are_typed(hello: Path) -> None:
    done = holdfast("run", "hello.yaml", "-i", "name=3", "-i", "times:=4", "-o", "json", "-q", cwd=hello)
    assert done.code == 0, done
    assert done.err == ""
    assert done.json["status"] == "COMPLETED"
    assert done.json["output"] == {"said": "hello 3", "times": 4}
    assert done.json["error"] is None
    assert len(done.json["id"]) == 32
    assert done.json["progress"] == {"done": 1, "total": 1}


def test_input_file_stdin_name_and_label(hello: Path) -> None:
    (hello / "in.yaml").write_text("name: Grace\ntimes: 2\n")
    done = holdfast(
        "run", "-", "--input-file", "in.yaml", "-i", "times=9", "--name", "other", "-l", "team=net", "-o", "json",
        cwd=hello, stdin=HELLO,
    )  # fmt: skip
    assert done.json["output"] == {"said": "hello Grace", "times": 9}
    assert (done.json["workflow"], done.json["labels"]) == ("other", {"team": "net"})


def test_wrong_input_fails_safe_with_every_problem(hello: Path) -> None:
    done = holdfast("run", "hello.yaml", "-i", "times=many", "-i", "nmae=x", "-o", "json", cwd=hello)
    assert done.code == 1, done
    assert done.json["status"] == "FAILED_SAFE"
    assert {problem["code"] for problem in done.json["error"]["details"]} == {"HF0150", "HF0152"}
    assert "did you mean `name`?" in done.err


def test_invalid_file_shows_the_line_and_starts_nothing(hello: Path) -> None:
    (hello / "bad.yaml").write_text("name: bad\nsteps:\n  - step: shell true\n    condtion: x\n  - lgo hi\n")
    done = holdfast("run", "bad.yaml", cwd=hello)
    assert done.code == 2
    assert "error[HF0102]" in done.err
    assert "--> bad.yaml:4:5" in done.err
    assert "    ^^^^^^^^" in done.err
    assert "did you mean `condition`?" in done.err
    assert "2 errors in bad.yaml" in done.err
    assert not (hello / ".holdfast").exists()
    done = holdfast("run", "bad.yaml", "-o", "json", cwd=hello)
    assert done.code == 2
    assert done.json["error"]["code"] == "HF0100"
    assert [problem["line"] for problem in done.json["error"]["problems"]] == [4, 5]


def test_exit_codes_say_how_it_ended(tmp_path: Path) -> None:
    (tmp_path / "safe.yaml").write_text("steps: [log hi, fail message no luck]")
    (tmp_path / "unsafe.yaml").write_text("steps: [shell echo x, fail message no luck]")
    (tmp_path / "unknown.yaml").write_text("steps: [no.such-block a=1]")
    safe = holdfast("run", "safe.yaml", cwd=tmp_path)
    assert safe.code == 1
    assert "no luck" in safe.err
    assert "nothing was left behind" in safe.err
    unsafe = holdfast("run", "unsafe.yaml", "-o", "json", cwd=tmp_path)
    assert unsafe.code == 3
    assert (unsafe.json["status"], unsafe.json["is_safe"], unsafe.json["residue"]) == ("FAILED_UNSAFE", False, [1])
    unknown = holdfast("run", "unknown.yaml", cwd=tmp_path)
    assert unknown.code == 1
    assert "block `no.such-block` was never registered" in unknown.err
    assert "holdfast worker -m MODULE" in unknown.err


def test_timeout_only_ends_the_waiting(project: Path) -> None:
    done = holdfast("run", "slow.yaml", "--timeout", "0.3", "-o", "json", cwd=project)
    assert done.code == 5, done
    assert done.json["status"] == "RUNNING"
    assert "holdfast run --continue" in done.err
    done = holdfast("run", "--continue", done.json["id"][:8], "-m", "blocks.py", cwd=project)
    assert (done.code, done.out) == (0, "done\n")


def test_published_name_and_idempotency_key(hello: Path) -> None:
    published = holdfast("publish", "hello.yaml", cwd=hello)
    assert published.code == 0
    assert "published  hello  version 1" in published.err
    assert "unchanged" in holdfast("publish", "hello.yaml", cwd=hello).err
    first = holdfast("run", "hello", "-i", "times=2", "--key", "k1", "-o", "json", cwd=hello).json
    second = holdfast("run", "hello", "-i", "times=2", "--key", "k1", "-o", "json", cwd=hello).json
    assert first["id"] == second["id"]
    assert (first["version"], first["output"]["times"]) == (1, 2)
    other = holdfast("run", "hello", "-i", "times=3", "--key", "k1", "-o", "json", cwd=hello)
    assert (other.code, other.json["error"]["code"]) == (2, "HF0205")
    missing = holdfast("run", "helo", "-o", "json", cwd=hello)
    assert (missing.code, missing.json["error"]["code"]) == (2, "HF0202")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run"], "give a workflow file"),
        (["run", "nope.yaml"], "there is no file nope.yaml"),
        (["run", "hello.yml"], "did you mean `hello.yaml`?"),
        (["run", "hello.yaml", "-i", "name"], "is not like `name=value`"),
        (["run", "hello.yaml", "-i", "name:={"], "is not valid JSON"),
        (["run", "hello.yaml", "--inptu", "x"], "did you mean `--input`?"),
        (["run", "hello.yaml", "-m", "no_such_module"], "cannot import `no_such_module`"),
        (["run", "hello.yaml", "--store", "mysql://x"], "is no address of a store"),
        (["rnu"], "did you mean `holdfast run`?"),
        (["run", "hello.yaml", "--timeout", "soon"], "is not a valid float"),
    ],
)
def test_usage_errors(hello: Path, arguments: list[str], text: str) -> None:
    done = holdfast(*arguments, "-o", "json", cwd=hello)
    assert done.code == (1 if "store" in text else 2), done
    assert text in done.err
    assert text in done.json["error"]["message"]


def test_a_broken_module_shows_its_line(hello: Path) -> None:
    (hello / "blocks.py").write_text("import os\n\nx = 1 / 0\n")
    done = holdfast("run", "hello.yaml", cwd=hello)
    assert done.code == 2
    assert "error[HF0805]" in done.err
    assert "ZeroDivisionError" in done.err
    assert "blocks.py:3" in done.err


def test_on_a_terminal_there_is_a_live_tree(hello: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", "hello.yaml"], cwd=hello, env=environment(TERM="xterm-256color", COLUMNS="100", LINES="40"),
        stdin=slave, stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while process.poll() is None or select.select([master], [], [], 0.2)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    os.close(master)
    process.wait(10)
    text = seen.decode()
    assert process.returncode == 0, text
    assert "✓" in text
    assert "\x1b[" in text
    assert "greet" in text
    assert out == b"said: hello world\ntimes: 1\n"


def test_no_colour_and_ci_are_plain(hello: Path) -> None:
    done = holdfast("run", "hello.yaml", cwd=hello, NO_COLOR="1", TERM="xterm")
    assert plain(done.err)
    assert "  ok       greet" in done.err


def test_a_store_that_is_away_is_waited_for(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings({"store": str(hello / "h.db")}, start=hello, environment={})
    owner = Owner(settings, [])
    try:
        run = Run(Asked("hello.yaml"), settings, owner, None)
        view = owner.verbs.start(definition={"name": "x", "steps": ["return 7"]})
        follower = Follower(view.id, PlainScreen(Progress(None, view.id)))
        look, away = owner.verbs.show, iter([True, True])

        def show(id: str) -> ExecutionView:
            if next(away, False):
                raise StoreUnavailable("the database is starting up")
            return look(id)

        owner.verbs.show = show  # type: ignore[method-assign]
        assert run._follow(follower, None).output == 7
    finally:
        owner.close(0)
    assert "waiting: the database is starting up" in capsys.readouterr().err


def test_what_to_type_after_leaving_a_run_works_from_here(project: Path) -> None:
    """The project is another folder than the one people are in."""
    here = project.parent / "elsewhere"
    here.mkdir(exist_ok=True)
    left = holdfast("run", str(project / "slow.yaml"), "--timeout", "0.1", cwd=here)
    assert left.code == 5, left
    command = next(line for line in left.err.splitlines() if "go on with it" in line).split("holdfast ")[1]
    assert command.startswith("-C ")
    done = holdfast(*command.split(), cwd=here)
    assert (done.code, done.out) == (0, "done\n"), done
