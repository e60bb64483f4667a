"""`init`, `check`, `schema`, `explain`, `demo`, the examples: what people write, and what they are told about it."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path

import pytest

from holdfast.cli.demo import FILES

from .support import EXAMPLES, Background, holdfast, plain, server_of, until

BAD = """\
name: bad
steps:
  - step: shell echo ${nmae}
    condtion: x
  - shel uptime
"""


def test_init_then_run(tmp_path: Path) -> None:
    done = holdfast("init", "new", cwd=tmp_path)
    assert done.code == 0, done
    folder = tmp_path / "new"
    assert {path.name for path in folder.iterdir()} == {
        ".gitignore", ".holdfast", "blocks.py", "hello.yaml", "workflow.schema.json",
    }  # fmt: skip
    assert "yaml-language-server: $schema=workflow.schema.json" in (folder / "hello.yaml").read_text()
    assert json.loads((folder / "workflow.schema.json").read_text())["title"]
    checked = holdfast("check", "hello.yaml", cwd=folder)
    assert (checked.code, "ok  hello.yaml" in checked.err) == (0, True)
    run = holdfast("run", "hello.yaml", "--input", "name=Ada", "-o", "json", cwd=folder)
    assert run.json["output"]["greeting"] == "Hello, Ada!"
    assert "attempt 1 failed: nobody at the door" in run.err
    # Again: nothing is overwritten.
    (folder / "hello.yaml").write_text("steps: [return mine]")
    (folder / ".gitignore").write_text("*.tmp")
    again = holdfast("init", ".", cwd=folder)
    assert again.code == 0
    assert (folder / "hello.yaml").read_text() == "steps: [return mine]"
    assert (folder / ".gitignore").read_text().splitlines()[0] == "*.tmp"
    assert ".holdfast/" in (folder / ".gitignore").read_text()


def test_check_underlines_every_error(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "good.yaml").write_text("steps: [log hi]")
    done = holdfast("check", "bad.yaml", "good.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "ok  good.yaml" in done.err
    assert " --> bad.yaml:4:5\n   |\n 4 |     condtion: x\n   |     ^^^^^^^^ not a step key" in done.out
    assert "did you mean `condition`?" in done.out
    assert "did you mean `shell`?" in done.out
    assert plain(done.out)
    found = holdfast("check", "-o", "json", "bad.yaml", cwd=tmp_path).json
    assert found["errors"] == len(found["files"][0]["problems"]) >= 2
    github = holdfast("check", "--format", "github", "bad.yaml", cwd=tmp_path)
    assert github.out.splitlines()[0].startswith("::error file=bad.yaml,line=")
    assert github.code == 2
    missing = holdfast("check", "nope.yaml", "-o", "json", cwd=tmp_path)
    assert (missing.code, missing.json["errors"]) == (2, 1)


def test_check_reads_several_documents_files_and_stdin(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("name: a\nsteps: [log hi]\n---\nname: b\nsteps:\n- log ${nope}\n")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * 10_000_000)
    done = holdfast(
        "check", "two.yaml", "-", "latin.yaml", "huge.yaml", "-o", "json", cwd=tmp_path, stdin="- log a: b: c"
    )
    assert (done.code, done.json["errors"]) == (2, 4)
    found = {
        file["file"]: [(p["code"], p.get("line"), p.get("column")) for p in file["problems"]]
        for file in done.json["files"]
    }
    assert found["two.yaml"] == [("HF0121", 6, 9)]
    assert found["<stdin>"][0] == ("HF0101", 1, 11)
    assert found["latin.yaml"] == [("HF0119", 1, 10)]
    assert [code for code, *_ in found["huge.yaml"]] == ["HF0106"]
    assert holdfast("check", "-", cwd=tmp_path, stdin="steps: [log hi]").code == 0


def test_check_is_as_strict_as_asked(tmp_path: Path) -> None:
    (tmp_path / "odd, name.yaml").write_text("steps:\n- {block: shell, input: {command: on}}\n")
    lax = holdfast("check", "odd, name.yaml", "--format", "github", cwd=tmp_path)
    assert (lax.code, lax.out) == (
        0,
        "::warning file=odd%2C name.yaml,line=2,col=35,endColumn=37,title=HF0136::`on` is text here, not a boolean "
        "(write `true`, or 'on' in quotes if the text is meant)\n",
    )
    assert "1 warning in odd, name.yaml" in holdfast("check", "odd, name.yaml", cwd=tmp_path).out
    assert holdfast("check", "--strict", "odd, name.yaml", cwd=tmp_path).code == 2
    (tmp_path / "a.yaml").write_text("steps: [log hi]")
    (tmp_path / "b.yaml").write_text("steps: [log hi]")
    fine = holdfast("check", "--strict", "a.yaml", "b.yaml", cwd=tmp_path)
    assert (fine.code, "2 files ok" in fine.err) == (0, True)


def test_run_takes_one_of_several_workflows(tmp_path: Path) -> None:
    text = "name: a\nsteps: [return 1]\n---\nname: b\nsteps: [return 2]\n"
    (tmp_path / "two.yaml").write_text(text)
    outputs = [holdfast("run", *words, "-o", "json", cwd=tmp_path).json["output"]
               for words in (["two.yaml"], ["two.yaml#a"], ["two.yaml", "--name", "a"])]  # fmt: skip
    assert outputs == [2, 1, 1]
    wrong = holdfast("run", "two.yaml#c", "-o", "json", cwd=tmp_path)
    assert (wrong.code, "it holds `a`, `b`" in wrong.json["error"]["message"]) == (2, True)


def test_check_knows_blocks(project: Path) -> None:
    (project / "misfit.yaml").write_text("steps:\n  - {block: my.slow, input: {secnods: 3}}\n  - other.block a=1\n")
    found = holdfast("check", "misfit.yaml", "-o", "json", cwd=project)
    problems = {problem["code"]: problem for problem in found.json["files"][0]["problems"]}
    assert found.code == 2
    assert "seconds" in problems["HF0140"]["help"]
    assert problems["HF0211"]["warning"] is True


def test_check_tells_misfits_and_other_errors_together(project: Path) -> None:
    (project / "both.yaml").write_text(
        "steps:\n"
        "  - {block: my.slow, input: {secnods: 3}}\n"
        "  - log ${nothing.here}\n"
        "  - {block: my.slow, input: {seconds: [1]}}\n"
        "  - {block: my.slow, input: {seconds: '${1 +}'}}\n"
        "  - {block: http, inptu: {endpoint: x}}\n"
        "  - {block: http, condtion: x, input: {endpiont: x}}\n"
        "  - parallel: [{block: http}, {block: http, input: {endpoint: '${1 +}'}}]\n"
    )
    found = holdfast("check", "both.yaml", "-o", "json", cwd=project)
    assert found.code == 2
    told = [(problem["line"], problem["code"]) for problem in found.json["files"][0]["problems"]]
    assert told == sorted(told, key=lambda place: place[0])
    misfits = [place for place in told if place[1] in ("HF0140", "HF0141", "HF0142")]
    # Nothing of lines 5 and 6: what is missing there follows from an error that is told.
    assert misfits == [(2, "HF0140"), (4, "HF0142"), (7, "HF0140"), (8, "HF0141")]
    assert {line for line, code in told if (line, code) not in misfits} == {3, 5, 6, 7, 8}


def test_schema_is_json(tmp_path: Path) -> None:
    assert holdfast("schema", cwd=tmp_path).json["$schema"]


def test_explain(tmp_path: Path) -> None:
    shown = holdfast("explain", "HF0311", cwd=tmp_path)
    assert shown.code == 0
    assert "outcome of a job is unknown" in shown.out
    assert "what to do" in shown.out
    assert "usual cause" in shown.out
    assert "short form" in holdfast("explain", "sleep", cwd=tmp_path).out
    both = holdfast("explain", "retry", "-o", "json", cwd=tmp_path).json
    assert [topic["kind"] for topic in both] == ["step", "key", "verb"]
    assert "allows" in holdfast("explain", "failed-unsafe", cwd=tmp_path).out
    assert "`on-error`" in holdfast("explain", "lock-timeout", cwd=tmp_path).out
    assert "HF0203" in holdfast("explain", cwd=tmp_path).out
    unknown = holdfast("explain", "HF031", "-o", "json", cwd=tmp_path)
    assert unknown.json["error"]["code"] == "HF0802"
    assert unknown.code == 2


def test_demo(tmp_path: Path) -> None:
    # Of an older demo there is another blocks.py; it is not mistaken for ours.
    (tmp_path / ".holdfast-demo").mkdir()
    (tmp_path / ".holdfast-demo" / "blocks.py").write_text("syntax error")
    first = holdfast("demo", "-o", "json", cwd=tmp_path)
    assert first.code == 0, first  # although the run fails, as it is meant to
    assert first.json["verdict"] == "FAILED_UNSAFE: 1 of 12 entities in doubt: sw-08"
    # The story is the same every time.
    done = holdfast("demo", cwd=tmp_path)
    assert done.code == 0, done
    assert "8 rolled back · 1 in doubt · 3 not reached" in done.err
    assert [line for line in done.err.split("What happened")[1].splitlines() if len(line) > 80] == []
    # What it proposes works, in that order, and leads to twelve switches that are upgraded.
    proposed = done.err.split("What to do next")[1].split("Have a look")[0].splitlines()
    commands = [shlex.split(line)[1:] for line in proposed if line.startswith("    holdfast ")]
    assert [command[2] for command in commands][:3] == ["ledger", "run", "ack"]
    for command in commands:
        after = holdfast(*command, cwd=tmp_path)
        assert after.code == 0, after
    assert "12 done" in after.err
    assert (tmp_path / ".holdfast-demo" / ".gitignore").read_text() == "*\n"


# --- the examples ----------------------------------------------------------------------------------
@pytest.fixture
def examples(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def test_the_demo_is_an_example() -> None:
    samples = files("holdfast.cli.samples")
    for name in FILES:
        assert (EXAMPLES / "firmware-upgrade" / name).read_text() == samples.joinpath(name).read_text(), name


def test_examples_are_sound(examples: Path) -> None:
    names = sorted(str(path.relative_to(examples)) for path in (examples / "examples").rglob("*.yaml"))
    assert len(names) == 17
    done = holdfast("check", *names, "-o", "json", cwd=examples)
    assert (done.code, done.json["errors"]) == (0, 0), done
    # The blocks of two of them are somebody else's; that is all there is to say.
    wrong = {file["file"]: {x["code"] for x in file["problems"]} for file in done.json["files"] if file["problems"]}
    assert wrong == {f"examples/{name}-devices.yaml": {"HF0211"} for name in ("check", "refresh")}


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("hello", ["-i", "name=Ada"], "Hello, Ada!"),
        ("parallel", [], {"slow": "done after a second"}),
        ("retry", [], "it worked at attempt 3"),
    ],
)
def test_example(examples: Path, name: str, arguments: list[str], output: object) -> None:
    done = holdfast("run", f"examples/{name}.yaml", *arguments, "-o", "json", cwd=examples)
    assert done.code == 0, done
    found = done.json["output"]
    assert ({key: found[key] for key in output} if isinstance(output, dict) else found) == output


def test_example_approval(examples: Path) -> None:
    with Background("run", "examples/approval.yaml", cwd=examples) as run:
        server_of(examples)
        id = holdfast("ps", "-o", "json", cwd=examples).json[0]["id"]
        until(lambda: "signal" in holdfast("why", id, cwd=examples).out)
        assert holdfast("signal", id, "approved", "yes", cwd=examples).code == 0
        done = run.end()
    assert (done.code, done.out) == (0, "done - open port 443\n")


class _Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')

    def log_message(self, format: str, *args: object) -> None:
        """Not here."""


def test_example_http_check(examples: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Well) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        done = holdfast("run", "examples/http-check.yaml", "-i", f"url={url}", "-o", "json", cwd=examples)
        server.shutdown()
    assert done.json["output"]["status"] == 200, done
