"""`holdfast entity sensor` and `config`: durable values of an entity."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from holdfast.core.errors import BadUsage

from .connect import reach_options, reading, writing
from .inputs import typed
from .options import output_option
from .refusals import dumps
from .settings import Settings
from .text import bold, brief, say


def values_group(kind: str, what: str) -> click.Group:
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
