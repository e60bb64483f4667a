"""`holdfast inventory`: entities from the inventories of others, and out again."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.core.errors import BadUsage
from holdfast.core.inventory import Imported
from holdfast.core.views_shared import EntityView, ImportView

from .connect import reach_options, reading, writing
from .entity import all_entities
from .options import output_option
from .refusals import dumps, show_problems
from .settings import Settings
from .text import bold, clip, columns, dim, is_plain, plural, say, style

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs

#: Entities sent at once; each lot is a commit.
LOT = 500
#: From so many entities on, people want to see that something moves.
MANY = 1000
_COUNTS = ("added", "changed", "unchanged", "stale", "deleted", "skipped", "refused")
_COLOURS = dict(zip(_COUNTS, ("green", "cyan", None, "yellow", "red", "yellow", "red"), strict=True))


@click.group("inventory", short_help="Import entities from elsewhere, and export them.")
def inventory_command() -> None:
    """The inventory: all entities. They come by `import`, by `holdfast entity set`, or from blocks."""


@inventory_command.command("import", short_help="Take over entities from a file or folder.")
@click.argument("path", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option(
    "--format", "format_", type=click.Choice(["csv", "ansible", "nornir"]), default=None, help="What it is.  [guessed]"
)
@click.option("--source", default="", metavar="NAME", help="Whose entities these are.  [default: the file's name]")
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@click.option("--prune", is_flag=True, help="Delete what the source does not have any more, if nobody needs it.")
@click.option("--replace", is_flag=True, help="Drop labels and facts that the source does not mention.")
@click.option("--type", "type_", default="device", show_default=True, metavar="TYPE", help="Of those that do not say.")
@click.option("--typed", is_flag=True, help="CSV: read numbers, true, false and null as such.")
@output_option(("text", "json"), "text")
@reach_options
def import_command(
    path: Path,
    format_: str | None,
    source: str,
    dry_run: bool,
    prune: bool,
    replace: bool,
    type_: str,
    typed: bool,
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """Take over entities from a CSV file, an Ansible inventory (YAML, or `ansible-inventory --list`) or Nornir's files.

    What the source says is set, what it does not mention stays, and what it does not have any more is marked as
    stale. Entities that somebody works on are skipped: import again later. Importing twice changes nothing.

    \b
      holdfast inventory import devices.csv --dry-run
      holdfast inventory import inventory/ --format ansible --source dc1
    """
    from holdfast.inventory import load, read

    said = read(load(path), format_ or "", type=type_, typed=typed)
    source = source or (path.resolve().name if path.is_dir() else path.stem)
    if said.warnings and output != "json":
        show_problems(said.warnings)
    settings = Settings({"server": server, "token": token, "store": store})
    with (reading if dry_run else writing)(settings) as verbs:
        view = _import(verbs, source, said.entities, dry_run, prune, replace, is_silent=output == "json")
    view.warnings.extend(f"{each.file}: {each.message}" for each in said.warnings)
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    else:
        _show(view, said.format)


def _import(
    verbs: Verbs, source: str, rows: list[Imported], dry_run: bool, prune: bool, replace: bool, *, is_silent: bool
) -> ImportView:
    parts: list[ImportView] = []
    if dry_run:
        # In one go: what comes later refers to what comes first, which is not written.
        parts.append(verbs.import_entities(source, rows, dry_run=True, replace=replace))
    else:
        is_shown = len(rows) > MANY and not is_silent
        for at in range(0, len(rows), LOT):
            parts.append(verbs.import_entities(source, rows[at : at + LOT], replace=replace))
            if is_shown:
                _tell(min(at + LOT, len(rows)), len(rows))
    parts.append(verbs.end_import(source, [row.id for row in rows], dry_run=dry_run, prune=prune))
    return _sum(parts)


def _tell(done: int, total: int) -> None:
    if is_plain():
        if done == total or done % (10 * LOT) == 0:
            say(f"{done:,} of {total:,} entities")
    else:
        click.echo(f"\r{done:,} of {total:,} entities", err=True, nl=done == total)


def _sum(parts: list[ImportView]) -> ImportView:
    first = [edit for part in parts for edit in part.first][:20]
    counts = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
    return msgspec.structs.replace(parts[0], **counts, first=first, warnings=[])


def _show(view: ImportView, format: str) -> None:
    for edit in view.first:
        mark = style(edit.outcome.ljust(8), fg=_COLOURS.get(edit.outcome))
        more = edit.why or "; ".join(edit.changes)
        where = dim(f"  {edit.place}") if edit.place and edit.why else ""
        click.echo(clip(f"{mark} {bold(edit.id)}  {more}{where}".rstrip(), columns()))
    counted = view.added + view.changed + view.stale + view.deleted + view.skipped + view.refused
    if counted > len(view.first):
        click.echo(dim(f"… and {counted - len(view.first):,} more"))
    numbers = [f"{getattr(view, name):,} {name}" for name in _COUNTS if getattr(view, name) or name in _COUNTS[:3]]
    would = "would be: " if view.is_dry_run else ""
    say(f"{view.source} ({format}): {would}{', '.join(numbers)}")
    if view.skipped and not view.is_dry_run:
        say("what was skipped stays as it was; import again when it is free")
    if view.refused:
        say(f"{plural(view.refused, 'row')} cannot be taken over as they are")


@inventory_command.command("export", short_help="Print all entities, or some.")
@click.option("--where", default="", metavar="SELECTOR", help="Only those for which this holds.")
@click.option("--type", "type_", default="", metavar="TYPE", help="Only those of this type.")
@output_option(("json", "csv"), "json")
@reach_options
def export_command(where: str, type_: str, output: str, server: str, token: str, store: str) -> None:
    """Print entities as JSON, or as a table that `import` reads again. The default entity is not among them.

    \b
      holdfast inventory export -o csv --where 'type == "device"' > devices.csv
    """
    with reading(Settings({"server": server, "token": token, "store": store})) as verbs:
        views = [view for view in all_entities(verbs, where, type_) if view.version]
    if output == "json":
        click.echo(dumps([_row(view) for view in views]))
    else:
        click.echo(_table(views), nl=False)


def _row(view: EntityView) -> dict[str, object]:
    return {
        "id": view.id, "type": view.type, "name": view.name, "parent": view.parent, "groups": view.groups,
        "labels": view.labels, "facts": view.facts, "source": view.source, "version": view.version,
        "is_stale": view.is_stale,
    }  # fmt: skip


def _table(views: list[EntityView]) -> str:
    labels = sorted({name for view in views for name in view.labels})
    facts = sorted({name for view in views for name in view.facts})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["id", "type", "name", "parent", "groups", *(f"label.{name}" for name in labels)]
    writer.writerow([*head, *(f"fact.{name}" for name in facts)])
    for view in views:
        if any(";" in group for group in view.groups):
            raise BadUsage(f"the groups of {view.id} cannot be written as CSV: one has a `;` in its name; use -o json")
        own = [view.id, view.type, view.name, view.parent, ";".join(view.groups)]
        writer.writerow([
            *own,
            *(view.labels.get(name, "") for name in labels),
            *(_cell(view.facts.get(name)) for name in facts),
        ])  # fmt: skip
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
