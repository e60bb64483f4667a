"""Commands that follow an execution: `watch`, `logs`, `events`. Where nothing moves, they say so and end."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from holdfast.core.views import LogView

from .connect import reach_options, reading
from .facts import event_table, event_text, with_runs
from .feed import Follower
from .options import id_argument, output_option
from .progress import Progress
from .recap import emit, exit_status, recap
from .refusals import TIMED_OUT, dumps
from .screens import screen_for
from .settings import Settings
from .text import bold, clock, dim, say, style

#: seconds between looks for new log lines
LOOK = 0.5


def _warn_if_still(verbs: Any, is_ended: bool) -> bool:
    """Whether anything can happen while we look."""
    if is_ended:
        return False
    if getattr(verbs, "is_live", True):
        return True
    say(dim("no engine is running here, so nothing moves; start one with `holdfast up`"))
    return False


@click.command("watch", short_help="Follow an execution as it moves.")
@id_argument
@click.option("--timeout", type=float, default=None, metavar="S", help="Stop watching after S seconds.")
@output_option(("text", "json"), "text")
@reach_options
def watch_command(id: str, timeout: float | None, output: str, server: str, token: str, store: str) -> int:
    """Follow an execution until it has ended; ends with its exit code. Ctrl-C only stops watching."""
    from holdfast.core.errors import TimedOut
    from holdfast.language import compile_definition

    settings = Settings({"server": server, "token": token, "store": store})
    deadline = None if timeout is None else time.monotonic() + timeout
    with reading(settings) as verbs:
        view = verbs.show(id)
        definition = verbs.definition(view.id)
        say(f"  {bold(view.workflow)}  {view.id[:8]}")
        screen = screen_for(Progress(compile_definition(definition) if definition else None, view.id))
        is_moving = _warn_if_still(verbs, view.is_ended)
        screen.open()
        try:
            view = Follower(view.id, screen).until_ended(verbs, deadline)
        except TimedOut:
            screen.close()
            view = verbs.show(view.id)
            say(f"  still {view.status}; it goes on")
            emit(view, output)
            return TIMED_OUT
        except KeyboardInterrupt:
            screen.close()
            say(f"\n  stopped watching; {view.id[:8]} goes on")
            return 130
        finally:
            screen.close()
    if view.is_ended:
        recap(view, screen.progress)
    elif not is_moving:
        say(f"  {view.status}")
    emit(view, output)
    return exit_status(view) if view.is_ended else TIMED_OUT


@click.command("logs", short_help="What its steps and blocks said.")
@id_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the execution has ended.")
@output_option(("text", "json", "jsonl"), "text")
@reach_options
def logs_command(id: str, follow: bool, output: str, server: str, token: str, store: str) -> None:
    """What the steps and blocks of an execution said."""
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        id = verbs.show(id).id
        after = 0
        lines: list[LogView] = []
        while True:
            # Asked before the lines: those of an execution seen as ended here are then complete.
            is_ended = verbs.show(id).is_ended if follow else True
            while page := verbs.logs(id, after):
                after = page[-1].number
                if output == "json":
                    lines += page
                else:
                    _print_logs(page, output)
            if is_ended or not _warn_if_still(verbs, False):
                break
            time.sleep(LOOK)
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(line) for line in lines]))


def _print_logs(lines: list[LogView], output: str) -> None:
    colours = {"WARNING": "yellow", "ERROR": "red", "DEBUG": "bright_black"}
    for line in lines:
        if output == "jsonl":
            click.echo(msgspec.json.encode(line).decode())
            continue
        level = style(f"{line.level.lower():<7}", fg=colours.get(line.level))
        where = f"{dim(line.step)}  " if line.step and line.job else ""
        click.echo(f"{dim(clock(line.at))}  {level}  {where}{line.message}")


@click.command("events", short_help="Its history, fact by fact.")
@id_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the execution has ended.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Only events after number N.")
@output_option(("text", "json", "jsonl"), "text")
@reach_options
def events_command(id: str, follow: bool, after: int, output: str, server: str, token: str, store: str) -> None:
    """The history of an execution: everything that ever happened to it, in order."""
    settings = Settings({"server": server, "token": token, "store": store})
    found: list[dict[str, Any]] = []
    with reading(settings) as verbs:
        view = verbs.show(id)
        if follow and _warn_if_still(verbs, view.is_ended):
            run = 1
            for event in verbs.follow(view.id, after):
                if output == "text" and not after:
                    run = with_runs([event], run)
                if output == "json":
                    found.append(event)
                else:
                    _print_event(event, output)
        else:
            while page := verbs.events(view.id, after):
                after = page[-1]["seq"]
                found += page
            if output == "text" and found and found[0]["seq"] == 1:
                with_runs(found)
            if output != "json":
                _print_events(found, output)
    if output == "json":
        click.echo(dumps(found))


def _print_events(events: list[dict[str, Any]], output: str) -> None:
    if output == "jsonl":
        for event in events:
            click.echo(msgspec.json.encode(event).decode())
    elif events:
        click.echo(event_table(events))


def _print_event(event: dict[str, Any], output: str) -> None:
    if output == "jsonl":
        click.echo(msgspec.json.encode(event).decode())
    else:
        text = dim(event_text(event))
        click.echo(
            f"{dim(str(event['seq']).rjust(4))}  {dim(clock(event['at']))}  {event['type']:<18}  {text}".rstrip()
        )
