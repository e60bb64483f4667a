"""The end of a run: one line of verdict, the sentence that caused it, what to do next; and the output."""

from __future__ import annotations

import shutil
import sys

import click
import msgspec

from holdfast.core.views import ErrorView, ExecutionView

from .fleet_view import SPARE, has_lines, next_steps, tell_each
from .progress import Progress
from .refusals import CANCELLED, FAILED, OK, UNSAFE, dumps
from .text import bold, dim, is_plain, plural, say, status, style, table, took, value_lines


def exit_status(view: ExecutionView) -> int:
    """The exit code that stands for how an execution ended; 0 for one that has not."""
    match view.status.removesuffix("_ACK"):
        case "FAILED_SAFE":
            return FAILED
        case "FAILED_UNSAFE":
            return UNSAFE
        case "CANCELLED":
            return CANCELLED if view.is_safe else UNSAFE
        case _:
            return OK


def emit(view: ExecutionView, output: str, *, detached: bool = False) -> None:
    """The data: one JSON object, or what the workflow returned."""
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    elif detached:
        click.echo(view.id)
    elif view.output is not None:
        if sys.stdout.isatty():
            say()
        click.echo("\n".join(value_lines(view.output)))


def recap(view: ExecutionView, progress: Progress | None = None, *, tells_next: bool = True) -> None:
    fleet = progress.fleet if progress is not None else None
    if fleet and (is_plain() or not has_lines(fleet, shutil.get_terminal_size().lines - SPARE - 1)):
        tell_each(fleet)  # otherwise the lines that were drawn last say it
    # Of a run after the first one, the time of that run.
    began = progress.began if progress is not None and view.run > 1 else view.created_at
    parts = [took((view.ended_at or view.updated_at) - began)]
    if view.run > 1:
        parts.insert(0, f"run {view.run}")
    if view.progress.total:
        parts.append(plural(view.progress.total, "job"))
    if progress is not None and progress.retries:
        parts.append(plural(progress.retries, "retry").replace("retrys", "retries"))
    say(f"  {bold(status(view.status))}  {dim(' · '.join(parts))}")
    if view.error is not None:
        show_error(view.error)
    if view.is_safe is False:
        say(style(f"  unsafe: {plural(len(view.residue), 'effect')} not undone", fg="red"))
        if view.verdict:
            say(style(f"  {view.verdict}", fg="red"))
    elif view.status.startswith(("FAILED_SAFE", "CANCELLED")):
        say(dim("  safe: nothing was left behind"))
    is_doubtful = view.is_safe is False or bool(fleet and fleet.doubtful)
    if tells_next and (exit_status(view) != OK or is_doubtful):
        short = view.id[:8]
        steps = next_steps(view.id, fleet, is_doubtful) if fleet else []
        if steps:
            say(dim("  next:"))
            say(table((), [[command, dim(why)] for command, why in steps], indent="    "))
        else:
            say(dim(f"  next: holdfast why {short} | holdfast show {short} | holdfast resume {short} --dry-run"))


def show_error(error: ErrorView, indent: str = "  ") -> None:
    place = f"{error.step}: " if error.step else ""
    code = f" [{error.code}]" if error.code else ""
    lines = error.message.strip().split("\n")
    say(f"{indent}{style(place, bold=True)}{lines[0]}{dim(code)}")
    for line in lines[1:12]:
        say(f"{indent}  {line}")
    if isinstance(error.details, list) and error.kind == "invalid" and len(error.details) > 1:
        for problem in error.details:
            say(f"{indent}  - [{problem.get('code', '')}] {problem.get('message', '')}")
            if problem.get("help"):
                say(dim(f"{indent}    {problem['help']}"))
    elif isinstance(error.details, list) and error.kind == "invalid" and error.details and error.details[0].get("help"):
        say(dim(f"{indent}  {error.details[0]['help']}"))
    if error.traceback:
        say(dim(f"{indent}  (a traceback is kept: holdfast show --full)"))
