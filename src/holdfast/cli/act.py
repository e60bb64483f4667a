"""Commands that change something: `signal`, `cancel`, `publish`. Each says what it did, or would do."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import msgspec

from holdfast.core.errors import BadUsage

from .connect import reach_options, reading, writing
from .inputs import load_sources, typed, with_types
from .options import id_argument, output_option
from .recap import emit
from .refusals import dumps, show_problems
from .settings import Settings
from .text import bold, dim, plural, say, status


@click.command("signal", short_help="Send a signal to an execution.")
@id_argument
@click.argument("name")
@click.argument("value", required=False)
@click.option("--json", "as_json", is_flag=True, help="VALUE is JSON.")
@click.option("--key", default="", help="Your own id of this signal: sent twice, it counts once.")
@output_option(("text", "json"), "text")
@reach_options
def signal_command(
    id: str, name: str, value: str | None, as_json: bool, key: str, output: str, server: str, token: str, store: str
) -> None:
    """Send the signal NAME, with a VALUE (a YAML scalar, or a list or map in brackets), to an execution.

    A signal that no step waits for yet is kept until one does.

    \b
      holdfast signal 9f3a approved yes
      holdfast signal 9f3a approved --json '{"by": "ada"}'
    """
    payload: Any = None
    if value is not None:
        try:
            payload = json.loads(value) if as_json else typed(value, "any")
        except ValueError as error:
            raise BadUsage(f"the value is not valid JSON: {error}") from None
    settings = Settings({"server": server, "token": token, "store": store})
    with writing(settings) as verbs:
        view = verbs.signal(id, name, payload, key)
        is_live = goes_on(verbs)
    if output == "json":
        emit(view, output)
        return
    say(f"signal {bold(name)} sent to {bold(view.id[:8])}, which is {status(view.status)}")
    if not view.is_ended and not is_live:
        say(dim("it goes on when an engine runs here: holdfast up"))


def goes_on(verbs: Any) -> bool:
    """Whether an engine remains after us: one that we started for the occasion leaves with us."""
    from .local import LocalVerbs

    return not isinstance(verbs, LocalVerbs) or verbs.service.store.is_shared


@click.command("cancel", short_help="Stop an execution in good order.")
@id_argument
@click.option("--reason", default="", help="Why; kept in the history.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option(("text", "json"), "text")
@reach_options
def cancel_command(
    id: str, reason: str, dry_run: bool, yes: bool, output: str, server: str, token: str, store: str
) -> None:
    """Stop an execution: no new steps; running jobs are told to stop and waited for.

    It ends as CANCELLED, with what was left behind, if anything.
    """
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        view = verbs.show(id)
        jobs = verbs.jobs(view.id)
    running = [job for job in jobs if job.status == "STARTED"]
    waiting = [job for job in jobs if job.status in ("SENT", "PENDING", "RESCHEDULED")]
    left = [job for job in jobs if job.effect in ("DONE", "UNKNOWN")]
    is_data = output == "json"
    if not is_data and not view.is_ended:
        say(f"{bold(view.workflow)} {view.id[:8]} is {status(view.status)}")
        for job in running:
            say(f"  job {job.job} ({job.step}) runs on {job.worker}: it is told to stop, and waited for")
        if waiting:
            say(f"  {plural(len(waiting), 'job')} not started yet: withdrawn")
        if left:
            say(f"  {plural(len(left), 'job')} took effect or may have, and nothing is undone: it would end unsafe")
        elif not running:
            say("  nothing was changed so far: it would end safe")
    if dry_run:
        if is_data:
            click.echo(
                dumps(
                    {
                        "id": view.id,
                        "status": view.status,
                        "would_cancel": not view.is_ended,
                        "running": [job.job for job in running],
                        "withdrawn": [job.job for job in waiting],
                        "effects": [job.job for job in left],
                    }
                )
            )
        elif view.is_ended:
            say(f"{view.id[:8]} has ended already: {status(view.status)}")
        return
    if (
        not yes
        and not is_data
        and not view.is_ended
        and sys.stdin.isatty()
        and not click.confirm("Cancel it?", err=True)
    ):
        say("left as it is")
        return
    with writing(settings) as verbs:
        view = verbs.cancel(view.id, reason)
        is_live = goes_on(verbs)
    if is_data:
        emit(view, output)
        return
    say(f"{view.id[:8]} is {bold(status(view.status))}")
    if not view.is_ended:
        more = f"follow it: holdfast watch {view.id[:8]}" if is_live else "it ends when an engine runs: holdfast up"
        say(dim(more))


@click.command("publish", short_help="Publish workflows under their names.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option("--name", default="", help="Publish under this name instead of the file's.")
@output_option(("text", "json"), "text")
@reach_options
def publish_command(files: tuple[str, ...], name: str, output: str, server: str, token: str, store: str) -> None:
    """Publish workflows: all of all files in one commit, or none if there is an error in one.

    A file may hold several, separated by lines with `---`; each then needs a name. A definition that is already the
    newest version of its name gets no new one.
    """
    if name and len(files) > 1:
        raise BadUsage("--name goes with one file")
    settings = Settings({"server": server, "token": token, "store": store})
    sources = with_types(settings, lambda library: load_sources(files, name, library))
    for source in sources:
        if source.warnings:
            show_problems(source.warnings)
    with writing(settings) as verbs:
        views = verbs.publish_all([source.definition for source in sources])
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(msgspec.structs.replace(view, definition=None)) for view in views]))
        return
    for view in views:
        what = "published" if view.is_new else "unchanged"
        say(f"{what}  {bold(view.name)}  version {view.version}")
    say(dim(f"run it: holdfast run {views[-1].name}"))
