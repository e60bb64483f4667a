"""`holdfast retention` and `holdfast purge`: what is kept, and forgetting what need not be."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.core.views import GroupView, PurgeView

from .connect import reach_options, reading, writing
from .options import complete_ids, output_option
from .refusals import dumps
from .settings import Settings
from .text import bold, dim, plural, say, status, table, took

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs


@click.command("retention", short_help="Which ended executions are kept, and what goes next.")
@output_option(("table", "json"), "table")
@reach_options
def retention_command(output: str, server: str, token: str, store: str) -> None:
    """Ended executions, group by group: the rule each group is kept by, how many there are, and what goes next.

    A group has the executions of one workflow, or of one `hash`, on one entity. Its rule is that of the execution
    which ended last. Nothing that runs, and nothing unsafe that nobody has acknowledged, is ever purged.
    """
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.retention()
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    if view.groups:
        head = ["GROUP", "ENTITY", "RULE", "COUNT", "MAY GO", "NEXT"]
        click.echo(table(head, [_row(group) for group in view.groups], right=(3, 4)))
    else:
        say(dim("nothing has ended yet that could be purged"))
    if view.is_more:
        say(dim(f"the first {len(view.groups)} groups"))
    how = "archived, then purged" if view.is_archived else "purged"
    say(dim(f"system: {view.default}; what may go is {how}"))


def _row(group: GroupView) -> list[str]:
    meaning = "" if group.rule == group.meaning else dim(f" = {group.meaning}")
    if group.next_at is not None:
        left = group.next_at - time.time_ns() // 1000
        following = f"in {took(left)}" if left > 0 else "now"
    else:
        following = "now" if group.due else dim("when another ends")
    if group.meaning == "forever":
        following = dim("never")
    entity = group.entity or "–"
    return [bold(group.group), entity, group.rule + meaning, str(group.count), str(group.due), following]


@click.command("purge", short_help="Forget executions that have ended.")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_ids)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option(("text", "json"), "text")
@reach_options
def purge_command(
    ids: tuple[str, ...], dry_run: bool, yes: bool, output: str, server: str, token: str, store: str
) -> None:
    """Forget these executions, or without ID all that retention allows to go now.

    Their history, jobs, log and values are deleted, and archived before if `retention.archive` is set. An engine does
    the same by itself; this does it at once. What has not ended, and what ended unsafe and was not acknowledged, is
    refused.
    """
    settings = Settings({"server": server, "token": token, "store": store})
    is_data = output == "json"
    if dry_run:
        with reading(settings) as verbs:
            view = _would(verbs, ids)
    else:
        if not yes and not is_data and sys.stdin.isatty() and not _confirmed(settings, ids):
            say("left as it is")
            return
        with writing(settings) as verbs:
            view = _purge(verbs, ids)
    if is_data:
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    for id in view.ids if dry_run or ids else ():
        click.echo(id)
    what = "would be purged" if dry_run else "purged"
    more = " at least" if view.is_more else ""
    say(f"{plural(len(view.ids), 'execution')}{more} {what}")


def _would(verbs: Verbs, ids: tuple[str, ...]) -> PurgeView:
    if not ids:
        return verbs.apply_retention(dry_run=True)
    views = [verbs.show(id) for id in ids]
    for view in views:
        if not view.is_ended:
            say(f"{view.id[:8]} is {status(view.status)}: it would be refused")
        elif view.is_safe is False and not view.status.endswith("_ACK"):
            say(f"{view.id[:8]} ended unsafe and was not acknowledged: it would be refused")
    going = [v.id for v in views if v.is_ended and (v.is_safe is not False or v.status.endswith("_ACK"))]
    return PurgeView(going, is_dry_run=True)


def _confirmed(settings: Settings, ids: tuple[str, ...]) -> bool:
    with reading(settings) as verbs:
        view = _would(verbs, ids)
    if not view.ids:
        return True  # what there is to refuse or to say is said by whoever tries
    more = " or more" if view.is_more else ""
    return click.confirm(f"Purge {plural(len(view.ids), 'execution')}{more}?", err=True)


def _purge(verbs: Verbs, ids: tuple[str, ...]) -> PurgeView:
    if ids:
        return PurgeView([verbs.purge(id).id for id in ids], is_dry_run=False)
    gone: list[str] = []
    while True:
        view = verbs.apply_retention()
        gone += view.ids
        if not view.is_more:
            return PurgeView(gone, is_dry_run=False)
