"""`holdfast init`: a project to begin with. Never overwrites anything."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.core.errors import BadUsage

from .connect import traceback_option
from .refusals import dumps
from .text import bold, dim, say, style

WORKFLOW = """\
# yaml-language-server: $schema=workflow.schema.json
name: hello
description: Greets somebody, and checks on this machine meanwhile.

inputs:
  name: {type: string, default: world, description: whom to greet}

steps:
  - log looking around for ${name}

  # Branches run at the same time. Each is a durable step: after a crash, only what did not finish runs again.
  - id: look
    parallel:
      - {id: uptime, step: shell uptime}
      - {id: disk, step: shell df -h .}

  # A block of your own, in blocks.py beside this file. It fails at first; `retry` gets over it.
  - id: greet
    block: greet
    input: {name: "${name}"}
    retry: {attempts: 5, delay: 300ms}

  - return:
      greeting: ${steps.greet.output}
      uptime: ${trim(steps.look.output.uptime.stdout)}
"""

BLOCKS = '''\
"""Blocks of this project: code that does the outside work. `holdfast run` finds this file beside a workflow."""

from holdfast import Context, block


@block(idempotent=True)
async def greet(name: str, ctx: Context) -> str:
    """Greet somebody. Busy at first, to show what a retry looks like."""
    if ctx.attempt < 2:
        raise RuntimeError("nobody at the door")
    ctx.log(f"greeting {name} at attempt {ctx.attempt}")
    return f"Hello, {name}!"
'''

IGNORED = """\
# history, server key and server address of Holdfast
.holdfast/
"""


@click.command("init", short_help="Begin a project with a sample workflow.")
@click.argument("folder", required=False, default=".", metavar="[DIR]", type=click.Path(file_okay=False))
@traceback_option
def init_command(folder: str) -> None:
    """Write a sample workflow, a block of its own, the schema for your editor and a .gitignore.

    What is there already is left as it is.
    """
    from holdfast.language.schema import json_schema

    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        files = {
            "hello.yaml": WORKFLOW,
            "blocks.py": BLOCKS,
            "workflow.schema.json": dumps(json_schema()) + "\n",
        }
        for name, text in files.items():
            _put(root / name, text)
        _ignore(root / ".gitignore")
        (root / ".holdfast").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BadUsage(f"{error.filename} cannot be written: {error.strerror}") from None
    there = f"cd {folder} && " if folder != "." else ""
    say()
    say(f"  {bold(f'{there}holdfast run hello.yaml --input name=Ada')}")


def _put(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        say(f"  {dim('kept')}   {path}")
    else:
        say(f"  {style('wrote', fg='green')}  {path}")


def _ignore(path: Path) -> None:
    if not path.exists():
        _put(path, IGNORED)
        return
    lines = path.read_text(encoding="utf-8")
    if any(line.strip().rstrip("/") in (".holdfast", "/.holdfast") for line in lines.splitlines()):
        say(f"  {dim('kept')}   {path}")
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(("" if lines.endswith("\n") or not lines else "\n") + IGNORED)
    say(f"  {style('added', fg='green')}  .holdfast/ to {path}")
