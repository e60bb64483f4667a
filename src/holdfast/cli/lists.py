"""Commands that list what there is to work with: `workflows`, `blocks`, `workers`, `queues`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from holdfast.core import versions
from holdfast.core.views import BlockView, QueueView, WorkerView, WorkflowView

from .connect import reach_options, reading
from .options import complete_workflows, output_option
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, brief, dim, pairs, say, status, style, table, took, value_lines

_FORMS = ("table", "json", "jsonl")


def _list(items: Sequence[Any], output: str, draw: Callable[[Any], str], none: str) -> None:
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(item) for item in items]))
    elif output == "jsonl":
        for item in items:
            click.echo(msgspec.json.encode(item).decode())
    elif items:
        click.echo(draw(items))
    else:
        say(dim(none))


@click.command("workflows", short_help="Published workflows.")
@click.argument("name", required=False, default="", shell_complete=complete_workflows)
@output_option(_FORMS, "table")
@reach_options
def workflows_command(name: str, output: str, server: str, token: str, store: str) -> None:
    """Published workflows, the newest version of each, with the short form of those that are used as steps; with NAME,
    all versions of one, how it is called and its definition."""
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.workflows(name)
        newest = verbs.workflow(name) if name and output == "table" else None
    _list(views, output, _workflows, "no workflow is published; `holdfast publish FILE` publishes one")
    if newest is not None:
        called = [("Takes", ", ".join(newest.parameters or ())), ("Short form", _short_form(newest))]
        told = [(word, text) for word, text in called if text]
        if told:
            click.echo("\n" + pairs(told))
        click.echo("\n" + "\n".join(value_lines(newest.definition)))


def _short_form(view: WorkflowView) -> str:
    return f"{view.name} {view.shorthand}" if view.shorthand else ""


def _workflows(views: list[WorkflowView]) -> str:
    rows = [
        [
            view.name, str(view.version), f"{ago(view.published_at)} ago", view.published_by, dim(view.digest[:12]),
            dim(brief(_short_form(view) or view.description.partition("\n")[0], 60)),
        ]
        for view in views
    ]  # fmt: skip
    return table(["NAME", "VERSION", "PUBLISHED", "BY", "DIGEST", ""], rows, right=(1, 2))


@click.command("blocks", short_help="Registered blocks, and who offers them.")
@click.argument("name", required=False, default="")
@output_option(_FORMS, "table")
@reach_options
def blocks_command(name: str, output: str, server: str, token: str, store: str) -> None:
    """Blocks that were ever registered, and the workers online that offer them; with NAME, one in full.

    NAME may have a version behind it, whole or partial: `ping:1` is the newest 1.y.z.
    """
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.blocks()
    if name:
        views = _named(name, views)
    if name and output == "table":
        click.echo("\n\n".join([_block(views[0]), *([_blocks(views)] if len(views) > 1 else [])]))
        return
    _list(views, output, _blocks, "no block is registered yet; a worker registers its blocks when it starts")


def _named(reference: str, views: list[BlockView]) -> list[BlockView]:
    """The version a step would get that is written so, then the others of that block that fit."""
    name, wanted = versions.split(reference)
    known = [view for view in views if view.name == name]
    found = [view for view in known if versions.fits(view.version, wanted)] or ([] if wanted else known)
    if found:
        return sorted(found, key=lambda view: versions.order(view.version), reverse=True)
    from holdfast.core.errors import BadUsage

    if known:
        listed = ", ".join(view.version for view in known)
        raise BadUsage(f"block `{name}` has no version {wanted}; there is {listed}")
    from .refusals import close_to

    close = close_to(name, [view.name for view in views])
    raise BadUsage(f"block `{name}` was never registered" + (f"; did you mean `{close}`?" if close else ""))


def _blocks(views: list[BlockView]) -> str:
    rows = [
        [
            view.name, view.version, _kind(view), view.isolation, ", ".join(view.workers) or dim("–"),
            dim(brief(view.description.partition("\n")[0], 60)),
        ]
        for view in views
    ]  # fmt: skip
    return table(["NAME", "VERSION", "MAY REPEAT", "RUNS IN", "WORKERS", ""], rows)


def _kind(view: BlockView) -> str:
    if view.pure:
        return style("pure", fg="green")
    return "idempotent" if view.idempotent else dim("no")


def _hooks(view: BlockView) -> str:
    if view.is_pivot:
        return ", ".join([*view.hooks, "never undone (pivot)"])
    said = {"rollback": "rollback (also of what is unknown)"} if view.accepts_unknown else {}
    return ", ".join(said.get(hook, hook) for hook in view.hooks) or "–"


def _type(schema: dict[str, Any]) -> str:
    """A JSON Schema in a word or two."""
    if "enum" in schema or "const" in schema:
        return " | ".join(str(value) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"] if part.get("type") != "null"))
    return str(schema.get("type", "any"))


def _block(view: BlockView) -> str:
    required = set(view.parameters.get("required", ()))
    rows = [
        [
            name + ("" if name in required else dim("?")),
            _type(schema),
            dim(brief(schema["default"], 40)) if "default" in schema else "",
            dim(schema.get("description", "")),
        ]
        for name, schema in view.parameters.get("properties", {}).items()
    ]
    head = pairs(
        [
            ("Block", f"{bold(view.name)} {view.version}"),
            ("May repeat", _kind(view)),
            ("Runs on", view.run_on or "–"),
            ("Hooks", _hooks(view)),
            ("Runs in", view.isolation),
            ("Timeout", took(int(view.timeout * 1e6)) if view.timeout else "–"),
            ("Workers", ", ".join(view.workers) or "none online"),
        ]
    )
    parts = [head, view.description, table(["INPUT", "TYPE", "DEFAULT", ""], rows)]
    return "\n\n".join(part for part in parts if part)


@click.command("workers", short_help="Workers, and what they are doing.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those that left more than an hour ago.")
@output_option(_FORMS, "table")
@reach_options
def workers_command(everything: bool, output: str, server: str, token: str, store: str) -> None:
    """Workers that have registered, whether they are there, and how busy they are."""
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.workers()
    since = time.time_ns() // 1000 - 3600 * 1_000_000
    views = [view for view in views if everything or view.state != "offline" or view.seen_at > since]
    _list(views, output, _workers, "no worker has registered yet; start one with `holdfast up` or `holdfast worker`")


def _workers(views: list[WorkerView]) -> str:
    rows = [
        [
            view.name, status(view.state), f"{view.busy}/{view.slots}", ",".join(view.queues), str(len(view.blocks)),
            f"{view.host}:{view.pid}", f"{ago(view.seen_at)} ago", dim("embedded") if view.is_embedded else "",
        ]
        for view in views
    ]  # fmt: skip
    return table(["NAME", "STATE", "BUSY", "QUEUES", "BLOCKS", "PROCESS", "SEEN", ""], rows, right=(2, 4, 6))


@click.command("queues", short_help="Queues, and how long jobs wait in them.")
@output_option(_FORMS, "table")
@reach_options
def queues_command(output: str, server: str, token: str, store: str) -> None:
    """Jobs that wait or are being worked on, by queue and block, and who could take them."""
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.queues()
    _list(views, output, _queues, "every queue is empty")


def _queues(views: list[QueueView]) -> str:
    rows = [
        [
            view.queue, view.block, str(view.waiting), str(view.claimed),
            took(int(view.oldest * 1e6)) if view.waiting else "–",
            ", ".join(view.workers) or style("no worker online", fg="red"),
        ]
        for view in views
    ]  # fmt: skip
    return table(["QUEUE", "BLOCK", "WAITING", "RUNNING", "OLDEST", "WORKERS"], rows, right=(2, 3, 4))
