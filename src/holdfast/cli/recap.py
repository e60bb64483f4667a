"""The end of a run: one line of verdict, the sentence that caused it, what to do next; and the output."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click
import msgspec

from holdfast.core.views import ErrorView, ExecutionView

from .fleet import Fleet
from .fleet_view import SPARE, has_lines, tell_each
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
        undone = view.verdict.partition(": ")[2] if "undone" in view.verdict else ""
        say(dim(f"  safe: {undone or 'nothing was left behind'}"))
    if tells_next and fleet and (steps := next_steps(view, fleet)):
        say(dim("  next:"))
        say(table((), [[command, dim(why)] for command, why in steps], indent="    "))
    elif tells_next and exit_status(view) != OK:
        short = view.id[:8]
        commands = [f"holdfast why {short}", f"holdfast show {short}", f"holdfast resume {short} --dry-run"]
        say(dim(f"  next: {' | '.join([*commands, *next_commands(view)])}"))


def next_commands(view: ExecutionView) -> list[str]:
    """What one may do about what an execution that has ended left undone, as commands."""
    if not view.is_ended:
        return []
    short, name = view.id[:8], view.status.removesuffix("_ACK")
    found = []
    if view.is_safe is False or (view.verdict and name == "COMPLETED"):
        found.append(f"holdfast ledger {short} --left")
        if name == view.status:
            found.append(f'holdfast ack {short} --note "what was done"')
    is_whole = view.subjects is None
    if name != "COMPLETED" or (view.subjects is not None and view.subjects.done < view.subjects.total):
        found.append(f"holdfast retry {short}{'' if is_whole else ' --failed'}")
    return found


def next_steps(view: ExecutionView, fleet: Fleet) -> list[tuple[str, str]]:
    """The same for a run on entities, and what each is good for."""
    doubtful = fleet.doubtful
    names = ", ".join(member.id for member in doubtful[:3]) + (
        f" and {len(doubtful) - 3} more" if len(doubtful) > 3 else ""
    )
    why = {
        "ledger": "what is left, and why",
        "ack": f"once {names} {'is' if len(doubtful) == 1 else 'are'} right" if names else "once it is put right",
        "retry": "again, for those it did not get through",
    }
    return [(command, why.get(command.split()[1], "")) for command in next_commands(view)]


def show_error(error: ErrorView, indent: str = "  ") -> None:
    place = f"{error.step}: " if error.step else ""
    code = f" [{error.code}]" if error.code else ""
    lines = error.message.strip().split("\n")
    say(f"{indent}{style(place, bold=True)}{lines[0]}{dim(code)}")
    for line in lines[1:12]:
        say(f"{indent}  {line}")
    if isinstance(error.details, list) and error.kind == "invalid" and len(error.details) > 1:
        for problem in error.details:
            say(f"{indent}  - [{problem.get('code', '')}] {problem.get('message', '')}{place_of(problem)}")
            if problem.get("help"):
                say(dim(f"{indent}    {problem['help']}"))
    elif isinstance(error.details, list) and error.kind == "invalid" and error.details:
        if place := place_of(error.details[0]):
            say(dim(f"{indent} {place}"))
        if error.details[0].get("help"):
            say(dim(f"{indent}  {error.details[0]['help']}"))
    if error.traceback:
        say(dim(f"{indent}  (a traceback is kept: holdfast show --full)"))


def place_of(problem: Any) -> str:
    """Where in the workflow: an input has said its name already."""
    path = str(problem.get("path", ""))
    return f" (at {path})" if path and not path.startswith("$.input.") else ""
