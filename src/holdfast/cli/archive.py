"""`holdfast archive`: reads back what was purged, from the folder it was archived in. It needs no store, no server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from holdfast.core.errors import AmbiguousId, BadUsage, UnknownExecution

from .connect import traceback_option, writable
from .options import output_option
from .refusals import dumps
from .settings import Settings, shown_path
from .text import ago, bold, brief, dim, moment, pairs, plural, say, status, table, took, value_lines

if TYPE_CHECKING:
    from holdfast.engine.archive import Head, Line

Found = tuple["Head", Path]


def _folder(given: str) -> Path:
    folder = Settings({"retention.archive": given}).archive
    if folder is None:
        raise BadUsage("no archive is set up: give --archive DIR, or set `retention.archive`")
    return folder


def _one(folder: Path, id: str) -> Line:
    from holdfast.engine.archive import find, lines

    found = find(folder, id)
    if not found:
        raise UnknownExecution(f"no execution {id} in {shown_path(folder)}; `holdfast archive list` lists them")
    if len(found) > 1:
        shown = ", ".join(head.id[: len(id) + 4] for head, _ in found[:5])
        raise AmbiguousId(f"{id} could be {shown}; give more characters")
    return next(iter(lines(folder, found)))


def where(words: Sequence[str]) -> str:
    """A command that shows the first of these executions that is in the archive of this project; or nothing."""
    from holdfast.engine.archive import find

    folder = Settings().archive
    ids = [word.lower() for word in words if 4 <= len(word) <= 32 and set(word.lower()) <= set("0123456789abcdef")]
    for id in ids if folder is not None and folder.is_dir() else ():
        if found := find(folder, id):  # type: ignore[arg-type]
            return f"holdfast archive show {found[0][0].id}"
    return ""


archive_option = click.option(
    "--archive", "folder", default="", metavar="DIR", help="The folder; as set up if not given."
)


@click.group("archive", short_help="Read back what was purged.")
def archive_command() -> None:
    """Executions that were archived before they were purged; `retention.archive` says where.

    An archive is a folder per day with files of compressed lines of JSON, one execution to a line.
    """


@archive_command.command("list", short_help="Executions in the archive.")
@click.option("-w", "--workflow", default="", metavar="NAME", help="Only of that workflow.")
@archive_option
@output_option(("table", "json", "jsonl"), "table")
@traceback_option
def list_command(workflow: str, folder: str, output: str) -> None:
    """Executions in the archive, in the order in which they ended."""
    from holdfast.engine.archive import heads

    found = [pair for pair in heads(_folder(folder)) if workflow in ("", pair[0].execution.workflow)]
    if output == "json":
        click.echo(dumps([_head_object(head, path) for head, path in found]))
    elif output == "jsonl":
        for head, path in found:
            click.echo(msgspec.json.encode(_head_object(head, path)).decode())
    elif found:
        head_row = ["ID", "WORKFLOW", "STATUS", "RUN", "ENDED", "ARCHIVED", "FILE"]
        click.echo(table(head_row, [_row(head, path) for head, path in found], right=(3,)))
        say(dim(plural(len(found), "execution")))
    else:
        say(dim("nothing is archived" + (" of that workflow" if workflow else "")))


def _head_object(head: Head, path: Path) -> dict[str, Any]:
    return {**msgspec.to_builtins(head), "file": shown_path(path)}


def _row(head: Head, path: Path) -> list[str]:
    view = head.execution
    ended = moment(view.ended_at) if view.ended_at else "–"
    place = dim(f"{path.parent.name}/{path.name}")
    return [
        head.id[:8],
        view.workflow,
        status(view.status),
        str(head.run),
        ended,
        f"{ago(head.archived_at)} ago",
        place,
    ]


@archive_command.command("show", short_help="One execution of the archive.")
@click.argument("id", metavar="ID")
@archive_option
@output_option(("text", "json"), "text")
@traceback_option
def show_command(id: str, folder: str, output: str) -> None:
    """One archived execution; as JSON with its definition, events and log."""
    line = _one(_folder(folder), id)
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(line)))
        return
    view = line.execution
    rows = [
        ("Execution", bold(line.id)),
        ("Workflow", view.workflow + (f", version {view.version}" if view.version else "")),
        ("Status", bold(status(view.status))),
        ("Started", f"{moment(view.created_at)} by {view.started_by}"),
        ("Ended", f"{moment(view.ended_at or 0)} ({took((view.ended_at or 0) - view.created_at)})"),
        ("Kept by", line.retention or "system"),
        ("Archived", moment(line.archived_at)),
        ("Events", f"{len(line.events)}  " + dim(f"holdfast archive history {line.id[:8]}")),
    ]
    if line.run > 1:
        rows.append(("Run", str(line.run)))
    click.echo(pairs(rows))
    if view.error is not None:
        place = f"{view.error.step}: " if view.error.step else ""
        click.echo(f"\n{bold('Error')}\n  {brief(place + view.error.message, 500)}")
    if view.output is not None:
        click.echo(f"\n{bold('Output')}\n" + "\n".join(f"  {text}" for text in value_lines(view.output)))


@archive_command.command("history", short_help="The events of an archived execution.")
@click.argument("id", metavar="ID")
@archive_option
@output_option(("table", "json", "jsonl"), "table")
@traceback_option
def history_command(id: str, folder: str, output: str) -> None:
    """The history of an archived execution, fact by fact."""
    from .facts import event_table

    line = _one(_folder(folder), id)
    if output == "json":
        click.echo(dumps(line.events))
    elif output == "jsonl":
        for event in line.events:
            click.echo(msgspec.json.encode(event).decode())
    else:
        click.echo(event_table(line.events))


@archive_command.command("export", short_help="Archived executions as lines of JSON.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--to", "target", default="-", metavar="FILE", help="Where to write them.  [default: stdout]")
@archive_option
@traceback_option
def export_command(ids: tuple[str, ...], target: str, folder: str) -> None:
    """These executions, or all of them, each once and whole on a line of JSON."""
    from holdfast.engine.archive import heads, lines

    place = _folder(folder)
    found = heads(place)
    for id in ids:
        if not any(head.id.startswith(id.lower()) for head, _ in found):
            raise UnknownExecution(f"no execution {id} in {shown_path(place)}; `holdfast archive list` lists them")
    if ids:
        found = [pair for pair in found if any(pair[0].id.startswith(id.lower()) for id in ids)]

    def write(file: BinaryIO) -> None:
        for line in lines(place, found):
            file.write(msgspec.json.encode(line) + b"\n")

    if target == "-":
        write(sys.stdout.buffer)
        return
    with writable(f"{target} cannot be written"), open(target, "wb") as file:
        write(file)
    say(f"{plural(len(found), 'execution')} written to {target}")
