"""`holdfast locks`: who holds a lock, who waits for it, and taking one away from its holder."""

from __future__ import annotations

import sys

import click
import msgspec

from holdfast.core.model import DEFAULT_ENTITY
from holdfast.core.views import LockView

from .connect import reach_options, reading, writing
from .options import output_option
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, dim, plural, say, style, table

#: Waiters of a lock that a table names.
SHOWN = 3


@click.group("locks", invoke_without_command=True, short_help="Locks: who holds them, who waits, and taking one away.")
@click.option("--entity", default="", metavar="ID", help="Only those of this entity.")
@output_option(("table", "json"), "table")
@reach_options
@click.pass_context
def locks_command(ctx: click.Context, entity: str, output: str, server: str, token: str, store: str) -> None:
    """Locks that are held now: by whom, since when, and who waits for them, first come first."""
    if ctx.invoked_subcommand is not None:
        return
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.locks(entity)
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(view) for view in views]))
    elif views:
        click.echo(_table(views))
    else:
        say(dim("no lock is held"))


def _table(views: list[LockView]) -> str:
    rows = []
    for view in views:
        held = [style("nobody", fg="red"), ""]
        if view.holder is not None:
            held = [view.holder.execution[:8], ago(view.holder.since)]
        waiting = ", ".join(claim.execution[:8] for claim in view.waiters[:SHOWN])
        more = f" and {view.waiting - SHOWN} more" if view.waiting > SHOWN else ""
        rows.append([view.entity, bold(view.name), *held, str(view.fence), waiting + more or dim("–")])
    return table(["ENTITY", "LOCK", "HELD BY", "FOR", "FENCE", "WAITING"], rows, right=(3, 4))


@locks_command.command("release", short_help="Take a lock away from its holder.")
@click.argument("name")
@click.option("--entity", default="", metavar="ID", help="Whose lock it is.  [default: default]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option(("text", "json"), "text")
@reach_options
@click.pass_context
def release_command(
    ctx: click.Context, name: str, entity: str, yes: bool, output: str, server: str, token: str, store: str
) -> None:
    """Take the lock NAME from the execution that holds it. Whoever waits longest gets it at once.

    The former holder is not stopped: it goes on without the lock, and its history says who took it. Where that
    is not what you want, cancel the execution instead; its locks are given back when it has ended.
    """
    # `holdfast locks --entity web release apt` means web's lock too.
    assert ctx.parent is not None
    before_it = ctx.parent.params
    entity = entity or before_it["entity"] or DEFAULT_ENTITY
    flags = {"server": server, "token": token, "store": store}
    settings = Settings({key: value or before_it[key] for key, value in flags.items()})
    with reading(settings) as verbs:
        before = verbs.lock(entity, name)
    holder = before.holder.execution[:8] if before.holder is not None else "nobody"
    is_data = output == "json"
    if not is_data:
        say(f"lock {bold(name)} of {entity} is held by {holder}; {plural(before.waiting, 'lane')} waiting")
    if not yes and not is_data and sys.stdin.isatty() and not click.confirm("Take it away?", err=True):
        say("left as it is")
        return
    with writing(settings) as verbs:
        view = verbs.release_lock(entity, name)
    if is_data:
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    now = f"held by {view.holder.execution[:8]}" if view.holder is not None else "free"
    say(f"taken from {holder}; it is {now}, fence {view.fence}")
