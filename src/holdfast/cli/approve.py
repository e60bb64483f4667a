"""Commands for people who are asked: `approve`, `reject`, `approvals`."""

from __future__ import annotations

import click
import msgspec

from .act import goes_on
from .connect import reach_options, reading, writing
from .options import id_argument, output_option
from .recap import emit
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, brief, dim, say, status, table


@click.command("approve", short_help="Approve a step that waits for it.")
@id_argument
@click.argument("step", required=False, default="")
@click.option("--note", default="", help="Kept in the history.")
@output_option(("text", "json"), "text")
@reach_options
def approve_command(id: str, step: str, note: str, output: str, server: str, token: str, store: str) -> None:
    """Approve STEP of an execution, an `approve` step that waits; without STEP the one that waits. Of an execution
    that has not begun, STEP is the number of a gate, or what it asks.

    \b
      holdfast approvals
      holdfast approve 9f3a
      holdfast approve 9f3a go-live --note "change 4711"
    """
    _answer(id, step, True, note, output, Settings({"server": server, "token": token, "store": store}))


@click.command("reject", short_help="Reject a step that waits for approval.")
@id_argument
@click.argument("step", required=False, default="")
@click.option("--note", required=True, help="Why; it becomes the error of the step.")
@output_option(("text", "json"), "text")
@reach_options
def reject_command(id: str, step: str, note: str, output: str, server: str, token: str, store: str) -> None:
    """Reject STEP of an execution: it fails with the kind `rejected`, which its `on-error` may handle. Of an
    execution that has not begun, STEP is a gate, and it fails safe."""
    _answer(id, step, False, note, output, Settings({"server": server, "token": token, "store": store}))


def _answer(id: str, step: str, approved: bool, note: str, output: str, settings: Settings) -> None:
    with writing(settings) as verbs:
        view = verbs.approve(id, step, approved=approved, note=note)
        is_live = goes_on(verbs)
    if output == "json":
        emit(view, output)
        return
    word = "approved" if approved else "rejected"
    say(f"{word}{f' {bold(step)} of' if step else ''} {bold(view.id[:8])}, which is {status(view.status)}")
    if not view.is_ended and not is_live:
        say(dim("it goes on when an engine runs here: holdfast up"))


@click.command("approvals", short_help="What waits for somebody's approval.")
@output_option(("table", "json"), "table")
@reach_options
def approvals_command(output: str, server: str, token: str, store: str) -> None:
    """Steps and gates that wait for somebody's approval, in executions that have not ended."""
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        found = verbs.approvals()
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(each) for each in found]))
    elif found:
        rows = [
            [
                each.execution[:8], each.workflow, f"gate {each.step}" if each.is_gate else each.step,
                ago(each.since), brief(each.message, 80),
            ]
            for each in found
        ]  # fmt: skip
        click.echo(table(["ID", "WORKFLOW", "STEP", "FOR", "ASKS"], rows, right=(3,)))
        say(dim(f"answer: holdfast approve {found[0].execution[:8]} {found[0].step} | holdfast reject … --note WHY"))
    else:
        say(dim("nothing waits for approval"))
