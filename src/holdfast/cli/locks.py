"""`holdfast locks`: who holds a lock or an entity, who waits for it, who waits for whom, and taking one away."""

from __future__ import annotations

import sys

import click
import msgspec

from holdfast.core.model import DEFAULT_ENTITY
from holdfast.core.views_shared import EntityLockView, GraphEdge, GraphView, LockView

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
    """Locks that are held now, and entities that executions work upon: by whom, since when, and who waits for them, in
    the order of the queue."""
    if ctx.invoked_subcommand is not None:
        return
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views, entities = verbs.locks(entity), verbs.entity_locks(entity)
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(view) for view in (*views, *entities)]))
        return
    tables = [_table(views)] if views else []
    tables += [_entity_table(entities)] if entities else []
    if tables:
        click.echo("\n\n".join(tables))
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


def _entity_table(views: list[EntityLockView]) -> str:
    rows = []
    for view in views:
        held = [dim("nobody"), "", "", ""]
        if view.holders:
            first = view.holders[0]
            more = f" and {len(view.holders) - 1} more" if len(view.holders) > 1 else ""
            held = [first.execution[:8] + more, first.mode, ago(first.since), str(first.fence)]
        waiting = ", ".join(
            claim.execution[:8] + (f" (priority {claim.priority})" if claim.priority else "")
            for claim in view.waiters[:SHOWN]
        )
        more = f" and {view.waiting - SHOWN} more" if view.waiting > SHOWN else ""
        flags = ", ".join(sorted({style(flag.kind, fg="red") for flag in view.flags}))
        rows.append([bold(view.entity), *held, waiting + more or dim("–"), flags])
    return table(["ENTITY", "HELD BY", "MODE", "FOR", "FENCE", "WAITING", ""], rows, right=(3, 4))


@locks_command.command("graph", short_help="Who waits for whom.")
@output_option(("text", "json"), "text")
@reach_options
@click.pass_context
def graph_command(ctx: click.Context, output: str, server: str, token: str, store: str) -> None:
    """Executions that wait, below those they wait for; with what they wait for, a named lock or an entity."""
    with reading(_settings(ctx, server, token, store)) as verbs:
        view = verbs.lock_graph()
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    elif view.edges:
        click.echo("\n".join(_tree(view)))
        for cycle in view.cycles:
            around = ", ".join(id[:8] for id in cycle)
            say(style(f"they wait for each other: {around}; the youngest of them will give way", fg="red"))
    else:
        say(dim("nobody waits"))


def _tree(view: GraphView) -> list[str]:
    """From those who wait for nobody to those who wait for them. Who waits for several stands below each, in full below
    the first."""
    nodes = {node.execution: node for node in view.nodes}
    below: dict[str, list[GraphEdge]] = {}
    for edge in view.edges:
        below.setdefault(edge.holder, []).append(edge)
    waiters = {edge.waiter for edge in view.edges}
    lines: list[str] = []
    shown: set[str] = set()
    # In a circle everybody waits: whoever is left then is a beginning.
    for root in [*(id for id in nodes if id not in waiters), *(id for id in nodes if id in waiters)]:
        if root in shown:
            continue
        todo: list[tuple[int, str, str]] = [(0, root, "")]
        while todo:
            depth, id, why = todo.pop()
            node = nodes[id]
            again = id in shown
            shown.add(id)
            about = f"{node.workflow} {node.status}".strip()
            lines.append(f"{'  ' * depth}{bold(id[:8])} {about}{why}{dim(' …') if again and below.get(id) else ''}")
            if not again:
                todo += [(depth + 1, edge.waiter, f"  {dim(_reason(edge))}") for edge in reversed(below.get(id, []))]
    return lines


def _reason(edge: GraphEdge) -> str:
    what = f"lock {edge.lock} of {edge.entity}" if edge.lock else f"{edge.entity} ({edge.mode})"
    behind = ", behind it in the queue" if edge.kind == "waiter" else ""
    return f"waits for {what} for {ago(edge.since)}{behind}"


@locks_command.command("free", short_help="Take an entity away from the executions that hold it.")
@click.argument("entity")
@click.option("--execution", default="", metavar="ID", help="Only from this one.  [default: all that hold it]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option(("text", "json"), "text")
@reach_options
@click.pass_context
def free_command(
    ctx: click.Context, entity: str, execution: str, yes: bool, output: str, server: str, token: str, store: str
) -> None:
    """Take ENTITY from the executions that hold it. Whoever waits for it may have it then.

    The former holder fails: jobs that run there are given up with an unknown effect, and what they still answer does
    not count. Its history says who did it. Where there is time, cancel the execution instead: it gives everything
    back when it has ended.
    """
    settings = _settings(ctx, server, token, store)
    with reading(settings) as verbs:
        before = verbs.entity_lock(entity)
    holders = ", ".join(f"{claim.execution[:8]} ({claim.mode})" for claim in before.holders) or "nobody"
    is_data = output == "json"
    if not is_data:
        say(f"entity {bold(entity)} is held by {holders}; {plural(before.waiting, 'execution')} waiting")
    is_asked = before.holders and not yes and not is_data and sys.stdin.isatty()
    if is_asked and not click.confirm("Take it away? What runs there is given up.", err=True):
        say("left as it is")
        return
    with writing(settings) as verbs:
        view = verbs.free_entity(entity, execution)
    if is_data:
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    now = ", ".join(f"{claim.execution[:8]}, fence {claim.fence}" for claim in view.holders)
    say(f"taken; it is {f'held by {now}' if now else 'free'}")


def _settings(ctx: click.Context, server: str, token: str, store: str) -> Settings:
    """Also from what stands before the subcommand."""
    assert ctx.parent is not None
    flags = {"server": server, "token": token, "store": store}
    return Settings({key: value or ctx.parent.params[key] for key, value in flags.items()})


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
    entity = entity or ctx.parent.params["entity"] or DEFAULT_ENTITY
    settings = _settings(ctx, server, token, store)
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
