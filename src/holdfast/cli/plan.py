"""`holdfast plan`: what a run would do, and the worst that can come of it, before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.core.errors import InvalidDefinition, Refused
from holdfast.core.model import Problem
from holdfast.core.views_plan import PlannedEntity, PlannedStep, StartPlan

from .connect import reach_options, reading
from .inputs import collect, is_file, load_source, modules_of, published, split_name, with_types
from .options import complete_files, output_option
from .refusals import OK, USAGE, dumps, show_problems
from .settings import Settings
from .text import bold, dim, moment, pairs, plural, say, style, table
from .upon import upon, upon_options

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs

#: entities, locks and executions that are named before they are only counted
SHOWN = 10
_COLOURS = {"SAFE": "green", "ROLLED_BACK": "green", "IF_VERIFIED": "yellow", "WAITS": "yellow", "UNSAFE": "red"}


@click.command("plan", short_help="What a run would do, and the worst that can come of it.")
@click.argument("file", metavar="FILE|NAME", shell_complete=complete_files)
@click.option("-i", "--input", "inputs", multiple=True, metavar="K=V", help="An input; `K:=JSON` for JSON. Repeatable.")
@click.option("--input-file", default="", metavar="FILE", help="Inputs from a YAML or JSON file; `-` for stdin.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Python module or file with blocks.")
@click.option("--name", default="", help="Which workflow of a file that holds several.")
@upon_options
@click.option("--entity", default="", metavar="ID", help="Where sensors of a workflow live that works on no entities.")
@output_option(("text", "json"), "text")
@reach_options
def plan_command(
    file: str, inputs: tuple[str, ...], input_file: str, modules: tuple[str, ...], name: str, on: tuple[str, ...],
    entities_from: str, not_before: str, after: tuple[str, ...], priority: int | None, entity: str, output: str,
    server: str, token: str, store: str,
) -> int:  # fmt: skip
    """Say what `holdfast run` with the same words would do, and do nothing: blocks, entities, locks and who holds them
    now, jobs, and the worst case of each step. Exit code 2 if it could not even begin.

    \b
      holdfast plan upgrade.yaml --on "site == 'ams1'"
      holdfast plan upgrade -i version=4.2 -o json
    """
    from_file = is_file(file)
    name_of_file = split_name(file)[0]
    path = Path(name_of_file) if from_file and name_of_file != "-" else None
    flags = {"server": server, "token": token, "store": store, "modules": modules}
    settings = Settings(flags, start=path.parent if path else None)
    warnings: list[Problem] = []
    try:
        with reading(settings) as verbs:
            start: dict[str, Any]
            if from_file:
                source = with_types(settings, lambda library: load_source(file, name, library))
                warnings = list(source.warnings)
                start = {"definition": source.definition, "input": collect(inputs, input_file, source.program)}
            else:
                start = {"workflow": file, "input": collect(inputs, input_file, published(verbs, file))}
            aim = upon(on, entities_from, not_before, after, priority)
            offers = _offers(verbs, modules_of(settings["modules"], path))
            view = verbs.plan(**start, **aim, entity=entity, offers=offers)
    except InvalidDefinition as invalid:
        if not invalid.problems:
            raise
        view = StartPlan(file, 0, [*invalid.problems])
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(view)))
    else:
        if warnings or view.problems:
            show_problems([*warnings, *view.problems], is_error=False)
        if not view.problems:
            click.echo(plan_text(view))
        say(dim("nothing was done"))
    return USAGE if view.problems or view.refusal is not None else OK


def _offers(verbs: Verbs, modules: Sequence[str]) -> list[Any]:
    """Blocks that `run` would bring along; a server knows its own."""
    from .local import LocalVerbs
    from .sessions import registry_of

    if not isinstance(verbs, LocalVerbs):
        return []
    try:
        return list(registry_of(modules).offers())
    except Refused as refused:
        problems = refused.problems or (Problem(refused.code, refused.message),)
        raise InvalidDefinition(refused.message, problems) from None


# --- for people ----------------------------------------------------------------------------------------
def plan_text(view: StartPlan) -> str:
    head = f"plan of {bold(view.workflow)}" + (f", version {view.version}" if view.version else "")
    rows: list[tuple[str, str]] = []
    if view.refusal is not None:
        code = dim(f" [{view.refusal.code}]") if view.refusal.code else ""
        rows.append(("Ends", style("before its first step", fg="red") + f": {view.refusal.message}{code}"))
    rows += [("Block", _block(block)) for block in view.blocks]
    rows += [("Gate", _gate(gate)) for gate in view.gates]
    if view.works_on_entities:
        rows += _entities(view)
    jobs = "as many as a loop decides" if view.jobs is None else f"{'at most ' * _may_be_less(view)}{view.jobs}"
    rows.append(("Jobs", jobs + (" so far" if view.asks else "")))
    rows.append(("Rollback", view.rollback))
    text = f"{head}\n{pairs(rows, '  ')}"
    if view.steps and (view.refusal is None or view.entities):
        lines = [[_cut(step.step), step.block, step.run_on or dim("once"), _jobs(step), _worst(step)]
                 for step in view.steps]  # fmt: skip
        text += "\n\n" + table(["STEP", "BLOCK", "RUNS ON", "JOBS", "WORST CASE"], lines)
        text += f"\n\n{bold('If something goes wrong')}"
        for step in view.steps:
            text += f"\n  {step.fails}\n  {dim(step.lost)}"
    if view.is_more:
        text += "\n" + dim("there are more steps than these")
    return text


def _may_be_less(view: StartPlan) -> bool:
    return any(step.is_at_most for step in view.steps)


def _block(block: Any) -> str:
    is_what = [word for word, is_so in (("pure", block.pure), ("idempotent", block.idempotent)) if is_so]
    is_what += ["point of no return"] if block.is_pivot else []
    is_what += block.hooks
    return f"{block.block}:{block.version}  {dim(', '.join(is_what) or 'neither pure nor idempotent, no hooks')}"


def _gate(gate: Any) -> str:
    state = style("met", fg="green") if gate.is_met else style("open", fg="yellow")
    due = f", at {moment(gate.due)}" if gate.due and not gate.is_met else ""
    until = f", given up at {moment(gate.deadline)}" if gate.deadline else ""
    return f"{gate.kind} {gate.what}".rstrip() + f": {state}{due}{until}"


def _entities(view: StartPlan) -> list[tuple[str, str]]:
    subjects = [entity for entity in view.entities if entity.is_subject]
    counts = ", ".join(f"{count} of type {type}" for type, count in view.counts.items()) or "none"
    rows = [("Entities", counts)]
    if subjects:
        rows.append(("Upon", _some([entity.id for entity in subjects])))
    rows += [("Unknown", f"more when `{step}` has said what it needs") for step in view.asks]
    modes: dict[str, int] = {}
    for entity in view.entities:
        modes[entity.mode] = modes.get(entity.mode, 0) + 1
    if modes:
        rows.append(("Locks", ", ".join(f"{count} {_MODES[mode]}" for mode, count in sorted(modes.items()))))
    contended = [entity for entity in view.entities if entity.blocked_by]
    rows += [("Held", style(_contended(entity), fg="yellow")) for entity in contended[:SHOWN]]
    if len(contended) > SHOWN:
        rows.append(("Held", f"… and {len(contended) - SHOWN} more that others have"))
    flagged = [(entity, flag) for entity in view.entities for flag in entity.flags]
    for entity, flag in flagged[:SHOWN]:
        what = f"{entity.id} is {_FLAGS.get(flag.kind, flag.kind)} since execution {flag.execution[:8]}"
        rows.append(("Doubt", style(what, fg="red")))
    if len(flagged) > SHOWN:
        rows.append(("Doubt", f"… and {len(flagged) - SHOWN} more"))
    if view.entities and not contended:
        rows.append(("Held", "nobody else has any of them now"))
    elif view.is_blocked:
        rows.append(("Waits", "it would wait for all of them"))
    return rows


_MODES = {"X": "exclusive", "S": "shared", "IX": "around an exclusive one", "IS": "around a shared one"}
_FLAGS = {"suspect": "suspect", "quarantine": "quarantined"}


def _contended(entity: PlannedEntity) -> str:
    first = entity.blocked_by[0]
    verb = "is held" if first.is_holding else "is waited for"
    more = f" and {plural(len(entity.blocked_by) - 1, 'other')}" if len(entity.blocked_by) > 1 else ""
    return f"{entity.id} {verb} by execution {first.execution[:8]} since {moment(first.since)}{more}"


def _jobs(step: PlannedStep) -> str:
    if step.jobs is None:
        count = "?"
    else:
        count = f"{'≤ ' if step.is_at_most else ''}{step.jobs}{'+' if step.is_open else ''}"
    if len(step.batches) > 1:
        shown = [*map(str, step.batches[:5]), *(["…"] if len(step.batches) > 5 else [])]
        count += f" in batches of {', '.join(shown)}"
    return count + (dim(f" ({step.why})") if step.why else "")


def _worst(step: PlannedStep) -> str:
    return style(step.worst.replace("_", " ").lower(), fg=_COLOURS.get(step.worst))


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
