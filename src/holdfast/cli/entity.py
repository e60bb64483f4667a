"""`holdfast entity`: the things worked upon, their sensors and their configuration."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from holdfast.core.errors import BadUsage
from holdfast.core.views import EntityView, SensorView

from .connect import reach_options, reading, writing
from .inputs import typed
from .options import output_option
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, brief, dim, pairs, say, table


@click.group("entity", short_help="Entities, their sensors and configuration.")
def entity_command() -> None:
    """Entities: the things that workflows work upon. Every tenant has one called `default`."""


@entity_command.command("list", short_help="All entities.")
@output_option(("table", "json"), "table")
@reach_options
def list_command(output: str, server: str, token: str, store: str) -> None:
    """All entities, by id."""
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = verbs.entities()
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(view) for view in views]))
        return
    rows = [[bold(view.id), view.type or dim("–"), view.name or dim("–"), _labels(view) or dim("–")] for view in views]
    click.echo(table(["ID", "TYPE", "NAME", "LABELS"], rows))


def _labels(view: EntityView) -> str:
    return ",".join(f"{name}={value}" for name, value in view.labels.items())


@entity_command.command("show", short_help="One entity with its sensors, configuration and locks.")
@click.argument("id", metavar="ID")
@output_option(("text", "json"), "text")
@reach_options
def show_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """One entity: what is known about it, its sensors, its configuration, and its locks."""
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.entity(id)
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    head = [("Entity", bold(view.id)), ("Type", view.type or "–"), ("Name", view.name or "–")]
    if view.labels:
        head.append(("Labels", _labels(view)))
    click.echo(pairs(head))
    for title, sensors in (("SENSOR", view.sensors), ("CONFIG", view.config)):
        if sensors:
            click.echo("\n" + _sensors(title, sensors))
    if view.locks:
        rows = [
            [bold(lock.name), lock.holder.execution[:8] if lock.holder else dim("–"), str(lock.waiting)]
            for lock in view.locks
        ]
        click.echo("\n" + table(["LOCK", "HELD BY", "WAITING"], rows, right=(2,)))


def _sensors(title: str, views: list[SensorView]) -> str:
    rows = [
        [bold(view.name), brief(view.value, 60), str(view.version), f"{ago(view.at)} ago", _by(view)] for view in views
    ]
    return table([title, "VALUE", "VERSION", "SET", "BY"], rows, right=(2,))


def _by(view: SensorView) -> str:
    """Executions by the beginning of their ids, people by their names."""
    is_id = len(view.by) == 32 and all(c in "0123456789abcdef" for c in view.by)
    return view.by[:8] if is_id else view.by


@entity_command.command("set", short_help="Make an entity, or change what is known about it.")
@click.argument("id", metavar="ID")
@click.option("--type", "type_", default=None, help="What kind of thing it is.")
@click.option("--name", default=None, help="What people call it.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="A label; all others are dropped.")
@output_option(("text", "json"), "text")
@reach_options
def set_command(
    id: str,
    type_: str | None,
    name: str | None,
    labels: tuple[str, ...],
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """Make the entity ID, or change its type, name or labels. What is not given stays as it is.

    \b
      holdfast entity set web-1 --type server -l role=edge
    """
    from holdfast.core.errors import UnknownEntity

    settings = Settings({"server": server, "token": token, "store": store})
    with writing(settings) as verbs:
        try:
            before: EntityView | None = verbs.entity(id)
        except UnknownEntity:
            before = None
        known = before or EntityView(id, "", "", {}, None, None)
        view = verbs.put_entity(
            id,
            type=known.type if type_ is None else type_,
            name=known.name if name is None else name,
            labels=_pairs(labels) if labels else known.labels,
        )
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    else:
        say(f"{'changed' if before else 'made'}  {bold(view.id)}")


def _pairs(labels: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for label in labels:
        key, is_pair, value = label.partition("=")
        if not is_pair or not key:
            raise BadUsage(f"a label is written K=V, not {label!r}")
        found[key] = value
    return found


def _values(kind: str, what: str) -> click.Group:
    """The commands of sensors and of configuration: they differ in a word."""

    @click.group(kind, short_help=f"{what} of an entity.")
    def group() -> None:
        pass

    group.help = f"{what} of an entity: durable values that workflows read, set and wait for."

    @group.command(
        "get", short_help="Print a value.", help=f"Print the value of the {kind} NAME of the entity ID, as JSON."
    )
    @click.argument("id", metavar="ID")
    @click.argument("name")
    @reach_options
    def get_command(id: str, name: str, server: str, token: str, store: str) -> None:
        with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
            click.echo(dumps(verbs.sensor(id, name, kind).value))

    @group.command(
        "set",
        short_help="Set a value.",
        help=f"Set the {kind} NAME of the entity ID to VALUE (a YAML scalar, or a list or map in brackets). Whoever"
        " waits for it is woken.",
    )
    @click.argument("id", metavar="ID")
    @click.argument("name")
    @click.argument("value")
    @click.option("--json", "as_json", is_flag=True, help="VALUE is JSON.")
    @output_option(("text", "json"), "text")
    @reach_options
    def set_value_command(
        id: str, name: str, value: str, as_json: bool, output: str, server: str, token: str, store: str
    ) -> None:
        payload: Any
        try:
            payload = json.loads(value) if as_json else typed(value, "any")
        except ValueError as error:
            raise BadUsage(f"the value is not valid JSON: {error}") from None
        with writing(Settings({"server": server, "token": token, "store": store})) as verbs:
            view = verbs.set_sensor(id, name, payload, kind)
        if output == "json":
            click.echo(dumps(msgspec.to_builtins(view)))
        else:
            say(f"{kind} {bold(name)} of {id} is {brief(view.value, 60)}, version {view.version}")

    @group.command(
        "clear",
        short_help="Remove a value.",
        help=f"Clear the {kind} NAME of the entity ID. Whoever waits for it is woken.",
    )
    @click.argument("id", metavar="ID")
    @click.argument("name")
    @reach_options
    def clear_command(id: str, name: str, server: str, token: str, store: str) -> None:
        with writing(Settings({"server": server, "token": token, "store": store})) as verbs:
            verbs.clear_sensor(id, name, kind)
        say(f"{kind} {bold(name)} of {id} is gone")

    return group


entity_command.add_command(_values("sensor", "Sensors"))
entity_command.add_command(_values("config", "Configuration"))
