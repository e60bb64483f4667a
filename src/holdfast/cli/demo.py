"""`holdfast demo`: the main job in ten seconds — steps at the same time, a retry that recovers, a durable sleep."""

from __future__ import annotations

import os
import tempfile
from importlib.resources import files
from pathlib import Path

import click

from .connect import traceback_option, writable
from .inputs import load_source, modules_of
from .run import Asked, Run, log_errors
from .sessions import open_session
from .settings import FOLDER, Settings, shown_path
from .text import bold, dim, plural, say, table

NAME = ".holdfast-demo"
FILE = "fleet.yaml"


@click.command("demo", short_help="See a workflow run, fail a little, and recover.")
@click.option("--dir", "folder", default="", metavar="DIR", help=f"Where to put it.  [default: {NAME}]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
@traceback_option
def demo_command(folder: str, output: str) -> int:
    """Upgrade three simulated switches, with an engine and a worker in this process.

    Everything it writes is in one folder, which you may delete.
    """
    with writable(f"the demo cannot be put into {folder or NAME}"):
        root = _prepare(Path(folder) if folder else None)
    path = root / FILE
    settings = Settings(start=root)
    source = load_source(str(path))
    asked = Asked(str(path), output=output)
    asked.start = {"definition": source.definition, "input": None}
    log_errors()
    run = Run(asked, settings, open_session(settings, modules_of((), path)), source.program)
    code = run.go()
    if run.view is not None and output == "text":
        _tell(run.view.id, run.view.events, root)
    return code


def _prepare(wanted: Path | None) -> Path:
    root = wanted or Path(NAME)
    if wanted is None and not os.access(Path.cwd(), os.W_OK):
        root = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    samples = files("holdfast.cli.samples")
    for name in (FILE, "blocks.py"):
        if not (root / name).exists():
            (root / name).write_text(samples.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
    # The folder ignores itself: a demo in a repository leaves no trace there.
    (root / ".gitignore").write_text("*\n", encoding="utf-8")
    return root


def _tell(id: str, events: int, root: Path) -> None:
    shown = shown_path(root)
    counted = f"({plural(events, 'event')})"
    say()
    say(f"  {bold('What happened')}")
    say("  Three switches were upgraded at the same time. edge-2 lost its connection twice, was tried again and")
    say("  recovered. Each step was on disk before the next began: kill it at any moment, and it goes on from there.")
    say()
    say(f"  {dim('history')}   {shown}/{FOLDER}/holdfast.db  {dim(counted)}")
    say(f"  {dim('workflow')}  {shown}/{FILE}, blocks.py  {dim('(short; have a look)')}")
    say()
    say(f"  {bold('Try')}")
    at = f"holdfast -C {shown}"
    say(
        table(
            (),
            [
                [f"{at} show {id[:8]}", dim("all about this execution")],
                [f"{at} run {FILE}", dim("again; press Ctrl-C in the middle, and follow what it says")],
                ["holdfast init my-project", dim("begin one of your own")],
            ],
            indent="    ",
        )
    )
