"""Commands about what an execution leaves behind: `ledger`, `rollback`, `fail`, `ack`."""

from __future__ import annotations

import click
import msgspec

from holdfast.core.views import ExecutionView, LedgerLine, LedgerView

from .act import goes_on
from .connect import reach_options, reading, writing
from .options import id_argument, output_option
from .recap import emit
from .refusals import dumps
from .settings import Settings
from .text import bold, brief, dim, say, status, style, table


@click.command("ledger", short_help="What an execution changed outside, and what is left of it.")
@id_argument
@click.option("--left", is_flag=True, help="Only what is left.")
@output_option(("table", "json"), "table")
@reach_options
def ledger_command(id: str, left: bool, output: str, server: str, token: str, store: str) -> None:
    """Every job of an execution that changed something outside, or may have: on what, and what became of it.

    \b
      holdfast ledger 9f3a
      holdfast ledger 9f3a --left -o json
    """
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.ledger(id)
    if left:
        view.lines = [line for line in view.lines if line.is_left]
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    if view.lines:
        click.echo(_lines(view))
    else:
        say(dim("nothing is left" if left else "no job of it changed anything"))
    if view.verdict:
        say(style(view.verdict, fg="red") if view.doubts else view.verdict)
    if view.acked_by:
        say(dim(f"acknowledged by {view.acked_by}{f': {view.ack_note}' if view.ack_note else ''}"))
    elif view.doubts:
        say(dim(f'next: put it right, then holdfast ack {view.id[:8]} --note "what was done"'))


def _lines(view: LedgerView) -> str:
    rows = []
    for line in view.lines:
        rows.append(
            [str(line.job), line.entity or dim("–"), line.step, line.block, str(line.attempt), _effect(line),
             _undo(line), brief(line.reason, 90)]
        )  # fmt: skip
        for late in line.late:
            what = "result" if late.is_success else "failure"
            rows.append(
                ["", "", "", "", str(late.attempt), dim("late"), "", dim(f"a {what} came when it was too late")]
            )
    return table(["JOB", "ENTITY", "STEP", "BLOCK", "ATTEMPT", "EFFECT", "ROLLBACK", "WHY"], rows, right=(0, 4))


def _effect(line: LedgerLine) -> str:
    return style(line.effect, fg="red") if line.is_left and line.is_failed else line.effect


def _undo(line: LedgerLine) -> str:
    return dim("–") if line.undo == "NOT_TRIED" else line.undo


@click.command("ack", short_help="Acknowledge how an execution ended.")
@id_argument
@click.option("--note", default="", help="What was done about it; needed where something is left.")
@output_option(("text", "json"), "text")
@reach_options
def ack_command(id: str, note: str, output: str, server: str, token: str, store: str) -> None:
    """Say that you have seen how an execution ended. Entities that it left in doubt are so no longer, and it may be
    purged by retention. Where something is left, a note has to say what was done about it.

    \b
      holdfast ledger 9f3a --left
      holdfast ack 9f3a --note "sw3 replaced, change 4711"
    """
    with writing(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.ack(id, note)
    if output == "json":
        emit(view, output)
        return
    by = f" by {view.acked_by}" if view.acked_by else ""
    note = f": {view.ack_note}" if view.ack_note else ""
    say(f"{bold(view.id[:8])} is {status(view.status)}: acknowledged{by}{note}")


@click.command("rollback", short_help="Undo what an execution did that waits for a decision.")
@id_argument
@click.option("--reason", default="", help="Why; kept in the history.")
@output_option(("text", "json"), "text")
@reach_options
def rollback_command(id: str, reason: str, output: str, server: str, token: str, store: str) -> None:
    """Undo what an execution did that failed and waits in ERROR, because its workflow says `rollback: manual`."""
    with writing(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.rollback(id, reason)
        is_live = goes_on(verbs)
    _decided(view, output, "is rolled back")
    if not view.is_ended and output == "text":
        say(
            dim(
                f"follow it: holdfast watch {view.id[:8]}" if is_live else "it goes on when an engine runs: holdfast up"
            )
        )


@click.command("fail", short_help="End an execution as it is that waits for a decision.")
@id_argument
@click.option("--reason", default="", help="Why; kept in the history.")
@output_option(("text", "json"), "text")
@reach_options
def fail_command(id: str, reason: str, output: str, server: str, token: str, store: str) -> None:
    """End an execution as it is that failed and waits in ERROR, because its workflow says `rollback: manual`."""
    with writing(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.fail(id, reason)
    _decided(view, output, "has ended")


def _decided(view: ExecutionView, output: str, what: str) -> None:
    if output == "json":
        emit(view, output)
        return
    say(f"{bold(view.workflow)} {view.id[:8]} {what}: {status(view.status)}")
    if view.verdict:
        say(style(view.verdict, fg="red") if view.is_safe is False else view.verdict)
