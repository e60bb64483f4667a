"""`holdfast entity`: the things worked upon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.core.errors import BadUsage, UnknownEntity
from holdfast.core.inventory import EntityChange
from holdfast.core.views_shared import EntityHoldView, EntityView, SensorView

from .connect import reach_options, reading, writing
from .entity_values import values_group
from .inputs import typed
from .options import output_option
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, brief, dim, pairs, plural, say, style, table

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs


@click.group("entity", short_help="Entities, their sensors and configuration.")
def entity_command() -> None:
    """Entities: the things that workflows work upon. Every tenant has one called `default`."""


def all_entities(verbs: Verbs, where: str = "", type: str = "", limit: int = 0) -> Iterator[EntityView]:
    """Page by page, by id."""
    after, count = "", 0
    while True:
        page = verbs.entities(where=where, type=type, after=after, limit=min(1000, limit - count) if limit else 1000)
        yield from page
        count += len(page)
        if len(page) < 1000 or (limit and count >= limit):
            return
        after = page[-1].id


@entity_command.command("list", short_help="Entities, all or those a selector means.")
@click.option("--where", default="", metavar="SELECTOR", help="Only those for which this holds.")
@click.option("--type", "type_", default="", metavar="TYPE", help="Only those of this type.")
@click.option("--limit", default=0, metavar="N", type=click.IntRange(0), help="At most so many; 0 for all.")
@output_option(("table", "json"), "table")
@reach_options
def list_command(where: str, type_: str, limit: int, output: str, server: str, token: str, store: str) -> None:
    """Entities by id.

    A selector is an expression over what is known about an entity. A bare name is a label, or else a fact.

    \b
      holdfast entity list --where 'type == "device" && site == "ams1"'
      holdfast entity list --where '"core" in groups && facts.version >= "17"'
      holdfast entity list --where 'starts_with(id, "r") || stale'
    """
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = list(all_entities(verbs, where, type_, limit))
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(view) for view in views]))
        return
    if not views:
        say("no entity" + (" is like that" if where or type_ else ""))
        return
    rows = [
        [
            bold(view.id) + _marks(view),
            view.type or dim("–"),
            view.name or dim("–"),
            view.parent or dim("–"),
            ",".join(view.groups) or dim("–"),
            _labels(view) or dim("–"),
        ]
        for view in views
    ]
    click.echo(table(["ID", "TYPE", "NAME", "PART OF", "GROUPS", "LABELS"], rows))


def _marks(view: EntityView) -> str:
    stale = style(" stale", fg="yellow") if view.is_stale else ""
    return stale + "".join(style(f" {kind}", fg="red") for kind in sorted({flag.kind for flag in view.flags}))


def _labels(view: EntityView) -> str:
    return ",".join(f"{name}={value}" for name, value in view.labels.items())


@entity_command.command("show", short_help="Everything about one entity.")
@click.argument("id", metavar="ID")
@output_option(("text", "json"), "text")
@reach_options
def show_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """One entity: what is known about it, its sensors, its configuration, who holds it, and who worked on it."""
    _show(id, output, server, token, store)


@entity_command.command("get", short_help="The same as `show`.")
@click.argument("id", metavar="ID")
@output_option(("text", "json"), "text")
@reach_options
def get_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """One entity: what is known about it, its sensors, its configuration, who holds it, and who worked on it."""
    _show(id, output, server, token, store)


def _show(id: str, output: str, server: str, token: str, store: str) -> None:
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        view = verbs.entity(id)
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
        return
    head = [("Entity", bold(view.id)), ("Type", view.type or "–"), ("Name", view.name or "–")]
    more = [
        ("Part of", view.parent), ("Groups", ", ".join(view.groups)), ("Labels", _labels(view)),
        ("Parts", str(view.parts or "")), ("Members", str(view.members or "")),
        ("Source", view.source + (style(" (stale: gone there)", fg="yellow") if view.is_stale else "")),
        ("Version", str(view.version or "")),
    ]  # fmt: skip
    head += [(name, value) for name, value in more if value]
    for flag in view.flags:
        reason = f": {flag.reason}" if flag.reason else ""
        head.append((flag.kind.capitalize(), style(f"left in doubt by {flag.execution[:8]}{reason}", fg="red")))
    click.echo(pairs(head))
    if view.facts:
        rows = [[bold(name), brief(value, 80)] for name, value in sorted(view.facts.items())]
        click.echo("\n" + table(["FACT", "VALUE"], rows))
    for title, sensors in (("SENSOR", view.sensors), ("CONFIG", view.config)):
        if sensors:
            click.echo("\n" + _sensors(title, sensors))
    if view.locks:
        rows = [
            [bold(lock.name), lock.holder.execution[:8] if lock.holder else dim("–"), str(lock.waiting)]
            for lock in view.locks
        ]
        click.echo("\n" + table(["LOCK", "HELD BY", "WAITING"], rows, right=(2,)))
    for title, holds in (("HELD BY", view.held), ("AWAITED BY", view.waiting), ("HAD BY", view.past)):
        if holds:
            click.echo("\n" + _holds(title, holds))


def _holds(title: str, holds: list[EntityHoldView]) -> str:
    rows = [[bold(hold.execution[:8]), hold.mode, str(hold.fence or "–"), f"{ago(hold.since)} ago"] for hold in holds]
    return table([title, "MODE", "FENCE", "SINCE"], rows, right=(2,))


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
@click.option("--parent", default=None, metavar="ID", help="What it is a part of; empty for nothing.")
@click.option("-g", "--group", "groups", multiple=True, metavar="ID", help="A group it is in; it leaves all others.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="A label; all others are dropped.")
@click.option("-f", "--fact", "facts", multiple=True, metavar="K=V", help="A fact (K:=JSON); all others are dropped.")
@output_option(("text", "json"), "text")
@reach_options
def set_command(
    id: str,
    type_: str | None,
    name: str | None,
    parent: str | None,
    groups: tuple[str, ...],
    labels: tuple[str, ...],
    facts: tuple[str, ...],
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """Make the entity ID, or change what is known about it. What is not given stays as it is.

    \b
      holdfast entity set core --type group
      holdfast entity set r1 --type device -g core -l site=ams1 -f os=junos -f ports:=48
      holdfast entity set r1:ge-0/0/1 --type interface --parent r1
    """
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
            parent=known.parent if parent is None else parent,
            groups=groups or known.groups,
            facts=_facts(facts) if facts else known.facts,
            # Nothing that somebody else said meanwhile is lost.
            version=known.version,
        )
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    else:
        say(f"{'changed' if before else 'made'}  {bold(view.id)}")


@entity_command.command("patch", short_help="Change single labels, facts and groups.")
@click.argument("id", metavar="ID")
@click.option("--type", "type_", default=None, help="What kind of thing it is.")
@click.option("--name", default=None, help="What people call it.")
@click.option("--parent", default=None, metavar="ID", help="What it is a part of; empty for nothing.")
@click.option("--join", multiple=True, metavar="ID", help="A group it is in from now on.")
@click.option("--leave", multiple=True, metavar="ID", help="A group it is no longer in.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="A label; `K-` removes it.")
@click.option("-f", "--fact", "facts", multiple=True, metavar="K=V", help="A fact (K:=JSON); `K-` removes it.")
@click.option("--version", type=int, default=None, metavar="N", help="Only if it is in this version.")
@output_option(("text", "json"), "text")
@reach_options
def patch_command(
    id: str,
    type_: str | None,
    name: str | None,
    parent: str | None,
    join: tuple[str, ...],
    leave: tuple[str, ...],
    labels: tuple[str, ...],
    facts: tuple[str, ...],
    version: int | None,
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """Change parts of what is known about the entity ID; everything else stays.

    \b
      holdfast entity patch r1 -f os=junos -f old-fact- -l site=fra1 --join edge
    """
    kept, gone = _removals(labels)
    kept_facts, gone_facts = _removals(facts)
    settings = Settings({"server": server, "token": token, "store": store})
    with writing(settings) as verbs:
        groups = None
        if join or leave:
            before = verbs.entity(id)
            version = before.version if version is None else version
            groups = tuple(group for group in dict.fromkeys([*before.groups, *join]) if group not in leave)
        change = EntityChange(
            id, "patch", type_, name, parent, groups,
            {**_pairs(kept), **dict.fromkeys(gone)}, {**_facts(kept_facts), **dict.fromkeys(gone_facts)},
        )  # fmt: skip
        view = verbs.patch_entity(change, version=version)
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    else:
        say(f"{bold(view.id)} is in version {view.version}")


@entity_command.command("delete", short_help="Delete entities.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--recursive", is_flag=True, help="With all their parts; members of a group only leave it.")
@click.option("--version", type=int, default=None, metavar="N", help="Only if it is in this version.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option(("text", "json"), "text")
@reach_options
def delete_command(
    ids: tuple[str, ...],
    recursive: bool,
    version: int | None,
    yes: bool,
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """Delete entities with their sensors. Refused while an execution holds one or waits for it."""
    settings = Settings({"server": server, "token": token, "store": store})
    if version is not None and len(ids) > 1:
        raise BadUsage("--version is for one entity")
    if recursive and not yes and output != "json" and sys.stdin.isatty():
        question = f"Delete {plural(len(ids), 'entity').replace('entitys', 'entities')} with all parts?"
        if not click.confirm(question, err=True):
            say("left as it is")
            return
    gone: list[str] = []
    with writing(settings) as verbs:
        for id in ids:
            gone += verbs.delete_entity(id, recursive=recursive, version=version)
    if output == "json":
        click.echo(dumps(gone))
    else:
        for id in gone:
            say(f"deleted  {bold(id)}")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for label in given:
        key, is_pair, value = label.partition("=")
        if not is_pair or not key:
            raise BadUsage(f"a label is written K=V, not {label!r}")
        found[key] = value
    return found


def _facts(given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for fact in given:
        key, is_pair, value = fact.partition("=")
        if not is_pair or not key:
            raise BadUsage(f"a fact is written K=V or K:=JSON, not {fact!r}")
        if key.endswith(":"):
            try:
                found[key[:-1]] = json.loads(value)
            except ValueError as error:
                raise BadUsage(f"the fact {key[:-1]} is not valid JSON: {error}") from None
        else:
            found[key] = typed(value, "any")
    return found


def _removals(given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is set, and the names of what goes."""
    gone = tuple(word[:-1] for word in given if "=" not in word and word.endswith("-"))
    return tuple(word for word in given if "=" in word or not word.endswith("-")), gone


entity_command.add_command(values_group("sensor", "Sensors"))
entity_command.add_command(values_group("config", "Configuration"))
