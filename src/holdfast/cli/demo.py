"""`holdfast demo`: the main job in fifteen seconds — a fleet is upgraded, fails on purpose, and is put back."""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
from importlib.resources import files
from pathlib import Path

import click

from holdfast.core.views import ExecutionView

from .connect import traceback_option, writable
from .fleet import Fleet
from .inputs import load_source, modules_of
from .recap import next_steps
from .refusals import OK
from .run import Asked, Run, log_errors
from .sessions import open_session
from .settings import FOLDER, Settings, shown_path
from .text import bold, dim, plural, say, table

NAME = ".holdfast-demo"
FILE = "firmware-upgrade.yaml"
REPAIR = "power-cycle.yaml"
INVENTORY = "devices.csv"
FILES = (FILE, REPAIR, INVENTORY, "blocks.py")
#: where the simulated switches are
SWITCHES = "switches"


@click.command("demo", short_help="See a fleet upgraded, fail on purpose, and put back.")
@click.option("--dir", "folder", default="", metavar="DIR", help=f"Where to put it.  [default: {NAME}]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
@traceback_option
def demo_command(folder: str, output: str) -> int:
    """Upgrade twelve simulated switches, with an engine and a worker in this process.

    Two of them misbehave on purpose, so the run fails; the demo itself ends with exit code 0. Everything it writes
    is in one folder, which you may delete.
    """
    with writable(f"the demo cannot be put into {folder or NAME}"):
        root = _prepare(Path(folder) if folder else None)
    path = root / FILE
    settings = Settings(start=root)
    source = load_source(str(path))
    asked = Asked(str(path), output=output)
    asked.start = {"definition": source.definition, "input": None}
    asked.tells_next = False
    log_errors()
    session = open_session(settings, modules_of((), path))
    run = Run(asked, settings, session, source.program)
    try:
        _stock(run, root / INVENTORY)
    except BaseException:
        session.close(0)
        raise
    code = run.go()
    if run.view is None or run.progress is None:
        return code
    if output == "text":
        _tell(run.view, run.progress.fleet, root)
    # It was meant to fail.
    return OK if run.view.status == "FAILED_UNSAFE" else code


def _prepare(wanted: Path | None) -> Path:
    root = wanted or Path(NAME)
    if wanted is None and not os.access(Path.cwd(), os.W_OK):
        root = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    samples = files("holdfast.cli.samples")
    # Files that somebody has edited stay; those of an older demo, which had another workflow, do not.
    is_new = not (root / FILE).exists()
    for name in FILES:
        if is_new or not (root / name).exists():
            (root / name).write_text(samples.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
    # The same story every time: the switches are as they were delivered.
    shutil.rmtree(root / SWITCHES, ignore_errors=True)
    # The folder ignores itself: a demo in a repository leaves no trace there.
    (root / ".gitignore").write_text("*\n", encoding="utf-8")
    return root


def _stock(run: Run, path: Path) -> None:
    """Take the switches into the inventory, as `holdfast inventory import` does. The second time nothing changes."""
    from holdfast.inventory import load, read

    said = read(load(path), "csv", type="device", typed=False)
    run.session.verbs.import_entities(path.stem, said.entities)
    run.session.verbs.end_import(path.stem, [row.id for row in said.entities])
    say(dim(f"  {plural(len(said.entities), 'device')} from {path.name} are in the inventory"))


def _tell(view: ExecutionView, fleet: Fleet, root: Path) -> None:
    shown, short = shown_path(root), view.id[:8]
    say()
    if view.status != "FAILED_UNSAFE":
        say(f"  {bold('This run was meant to fail, and did not.')} Somebody has edited {shown}/{FILE} or blocks.py.")
        return
    say(f"  {bold('What happened')} {dim('(all of it on purpose: the run failed, the demo did not)')}")
    for id, text in (
        ("sw-03", "lost its answer after the copy. `verify` looked, found the image, and nothing was copied twice."),
        ("sw-04", "broke off half way through the copy. One failure is allowed: it was left out, the rest went on."),
        ("sw-08", "was booted and did not come back. That was one too many: the rollout stopped, sw-10 to sw-12 were"
                  " never touched, and what had been done was undone, newest first. sw-08 does not answer, so nobody"
                  " could undo it there. Holdfast says so instead of calling it safe, and marks it as suspect."),
    ):  # fmt: skip
        lines = textwrap.wrap(text, 78 - 9)
        say(f"  {bold(id)}  {lines[0]}")
        for line in lines[1:]:
            say(f"         {line}")
    say()
    say(f"  {bold('What to do next')}")
    at = f"holdfast -C {shown}"
    rows = next_steps(view, fleet)
    rows.insert(1, (f"holdfast run {REPAIR} --on sw-08", "somebody walks to it and pulls the plug"))
    for command, why in rows:
        command = command.replace("holdfast", at, 1).replace("what was done", "power-cycled")
        say(f"    {command}{' --follow -m blocks.py' if ' retry ' in command else ''}")
        say(f"        {dim(why)}")
    say()
    say(f"  {bold('Have a look')}")
    say(
        table(
            (),
            [
                [f"{at} show {short}", dim("all about this execution")],
                [f"{shown}/{FILE}, blocks.py", dim("the workflow and its blocks")],
                [f"{shown}/{SWITCHES}/sw-04.log", dim("its own record")],
            ],
            indent="    ",
        )
    )
