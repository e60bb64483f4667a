"""Commands that look at executions: `ps`, `show`, `why`, `jobs`. They change nothing and need no engine."""

from __future__ import annotations

import textwrap
from typing import Any

import click
import msgspec

from holdfast.core.model import DEFAULT_ENTITY, Status
from holdfast.core.views import ExecutionView, JobView, StandingView, SubjectCounts

from .connect import reach_options, reading
from .facts import event_table, with_runs
from .local import statuses_of
from .options import complete_statuses, complete_workflows, id_argument, output_option
from .progress import Progress
from .recap import next_commands, place_of
from .refusals import dumps
from .screens import still_tree
from .settings import Settings
from .text import ago, bold, brief, columns, dim, moment, pairs, say, status, style, table, took, value_lines

#: events that `show` ends with
RECENT = 12


@click.command("ps", short_help="List executions, newest first.")
@click.option("-s", "--status", "statuses", multiple=True, metavar="STATUS", shell_complete=complete_statuses,
              help="Only these; also `open`, `ended`, `failed`. Repeatable.")  # fmt: skip
@click.option(
    "-w", "--workflow", default="", metavar="NAME", help="Only of that workflow.", shell_complete=complete_workflows
)
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@click.option("-a", "--all", "everything", is_flag=True, help="All of them.")
@output_option(("table", "wide", "json", "jsonl"), "table")
@reach_options
def ps_command(
    statuses: tuple[str, ...],
    workflow: str,
    limit: int,
    everything: bool,
    output: str,
    server: str,
    token: str,
    store: str,
) -> None:
    """List executions, newest first.

    \b
      holdfast ps --status open
      holdfast ps -w upgrade -o json
    """
    chosen = statuses_of(statuses)
    settings = Settings({"server": server, "token": token, "store": store})
    views: list[ExecutionView] = []
    with reading(settings) as verbs:
        before = ""
        while everything or len(views) < limit:
            size = 200 if everything else min(200, limit - len(views))
            page = verbs.executions(statuses=chosen, workflow=workflow, before=before, limit=size)
            views += page
            if len(page) < size:
                break
            before = page[-1].id
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(view) for view in views]))
    elif output == "jsonl":
        for view in views:
            click.echo(msgspec.json.encode(view).decode())
    elif views:
        click.echo(_list(views, is_wide=output == "wide"))
        if not everything and len(views) == limit:
            say(dim(f"the newest {limit}; more with --all or --limit"))
    else:
        say(dim("no executions" + (" like that" if chosen or workflow else "")))


def _list(views: list[ExecutionView], *, is_wide: bool) -> str:
    head = ["ID", "WORKFLOW", "STATUS", "JOBS", "AGE", "TOOK"]
    rows = []
    for view in views:
        version = f":{view.version}" if view.version else ""
        row = [
            view.id[:8] if not is_wide else view.id,
            view.workflow + dim(version),
            status(view.status),
            f"{view.progress.done}/{view.progress.total}" if view.progress.total else "–",
            ago(view.created_at),
            took(view.ended_at - view.created_at) if view.ended_at else "…",
        ]
        if is_wide:
            labels = ",".join(f"{k}={v}" for k, v in view.labels.items())
            row += [view.started_by, str(view.events), labels or "–"]
        row.append(dim(_remark(view)) if view.error is None else _remark(view))
        rows.append(row)
    if is_wide:
        head += ["BY", "EVENTS", "LABELS"]
    return table([*head, ""], rows, right=(3, 4, 5))


def _remark(view: ExecutionView) -> str:
    if view.error is not None:
        place = f"{view.error.step}: " if view.error.step else ""
        return f"{_run(view)}{brief(place + view.error.message, 70)}"
    return f"{_run(view)}{'unsafe' if view.is_safe is False else ''}".rstrip()


def _run(view: ExecutionView) -> str:
    return f"run {view.run}  " if view.run > 1 else ""


@click.command("show", short_help="Everything about one execution.")
@id_argument
@click.option("--full", is_flag=True, help="All of the output, and tracebacks of blocks.")
@output_option(("text", "json"), "text")
@reach_options
def show_command(id: str, full: bool, output: str, server: str, token: str, store: str) -> None:
    """Everything about one execution, ending with its latest events."""
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        view = verbs.show(id)
        if output == "json":
            click.echo(dumps(msgspec.to_builtins(view)))
            return
        definition = verbs.definition(view.id)
        standing = verbs.standing(view.id)
        events: list[dict[str, Any]] = []
        while page := verbs.events(view.id, events[-1]["seq"] if events else 0):
            events += page
    click.echo(_head(view))
    progress = _progress(view.id, definition, events)
    if progress.rows:
        click.echo(f"\n{bold('Steps')}\n{textwrap.indent(still_tree(progress), '  ')}")
    if view.error is not None:
        click.echo(f"\n{bold('Error')}\n{_error(view, full)}")
    if view.output is not None:
        click.echo(f"\n{bold('Output')}\n{_output(view.output, full)}")
    if where := _standing(standing):
        click.echo(f"\n{bold('Stands')}\n{where}")
    if commands := next_commands(view):
        click.echo(f"\n{bold('Next')}\n" + "\n".join(f"  {text}" for text in commands))
    if view.waiting:
        click.echo(f"\n{bold('Waiting')}\n" + "\n".join(f"  {text}" for text in view.waiting))
    with_runs(events)
    click.echo(f"\n{bold('Events')}")
    if len(events) > RECENT:
        click.echo(dim(f"  … {len(events) - RECENT} before (holdfast events {view.id[:8]})"))
    click.echo(event_table(events[-RECENT:], indent="  "))


def _head(view: ExecutionView) -> str:
    rows = [
        ("Execution", bold(view.id)),
        ("Workflow", view.workflow + (f", version {view.version}" if view.version else dim(" (from a file)"))),
        ("Status", bold(status(view.status)) + _safety(view)),
        ("Jobs", f"{view.progress.done} of {view.progress.total} done"),
        ("Started", f"{moment(view.created_at)} by {view.started_by}"),
    ]
    if view.ended_at:
        rows.append(("Ended", f"{moment(view.ended_at)} ({took(view.ended_at - view.created_at)})"))
    else:
        rows.append(("Moved", f"{ago(view.updated_at)} ago"))
    if view.labels:
        rows.append(("Labels", ", ".join(f"{name}={value}" for name, value in view.labels.items())))
    if view.verdict:
        rows.append(("Verdict", style(view.verdict, fg="red") if view.is_safe is False else view.verdict))
    if view.subjects is not None:
        rows.append(("Entities", counted(view.subjects)))
    if view.retry_of:
        rows.append(("Retry of", view.retry_of))
    if view.retries:
        rows.append(("Retried by", ", ".join(view.retries)))
    if view.entity != DEFAULT_ENTITY:
        rows.append(("Entity", view.entity))
    if view.run > 1:
        rows.append(("Run", str(view.run)))
    return pairs(rows)


def counted(subjects: SubjectCounts) -> str:
    """How far the entities have come."""
    parts = [
        (subjects.done, "done"),
        (subjects.failed, "failed"),
        (subjects.reached, "begun with and not through"),
        (subjects.never_reached, "not reached"),
        (subjects.lost, "taken away"),
    ]
    said = [f"{count} {word}" for count, word in parts if count]
    return f"{subjects.total}: {', '.join(said)}"


def _standing(standing: StandingView) -> str:
    """Where it is, from where it can be replayed, and how to go on with what has ended."""
    id, rows = standing.id[:8], []
    for lane in standing.lanes[:RECENT]:
        name = "at" if len(standing.lanes) == 1 else f"lane {lane.lane}"
        state = {"stopped": "failed" if lane.error else "stopped", "nothing": ""}.get(lane.wait, f"waits: {lane.wait}")
        rows.append((name, f"{lane.step or 'its end'}  {dim(state)}".rstrip()))
    if len(standing.lanes) > RECENT:
        rows.append(("lanes", f"… and {len(standing.lanes) - RECENT} more"))
    if standing.waypoints:
        marks = [mark.start if mark.start in (mark.step, "start") else f"{mark.start} ({mark.step})"
                 for mark in standing.waypoints]  # fmt: skip
        rows.append(("waypoints", brief(", ".join(marks), 100)))
    if Status[standing.status].is_ended:
        if standing.refusal is None:
            rows.append(("resume", bold(f"holdfast resume {id}")))
        elif not standing.status.startswith("COMPLETED"):
            how = "no" if standing.is_rolled_back else "not without --force"
            rows.append(("resume", f"{how}: {standing.refusal.message}"))
        if standing.waypoints:
            rows.append(("replay", bold(f"holdfast replay {id} --from {standing.waypoints[-1].start}")))
    return pairs(rows, "  ")


def _safety(view: ExecutionView) -> str:
    if view.is_safe is None:
        return ""
    if view.is_safe:
        return dim("  nothing was left behind")
    more = len(view.residue) - RECENT
    jobs = ", ".join(map(str, view.residue[:RECENT])) + (f" and {more} more" if more > 0 else "")
    seen = dim(f"  acknowledged by {view.acked_by}") if view.acked_by else ""
    return style(f"  unsafe: effects of job{'s' if len(view.residue) > 1 else ''} {jobs} remain", fg="red") + seen


def _error(view: ExecutionView, full: bool) -> str:
    error = view.error
    assert error is not None
    rows = [("Kind", error.kind + (f" ({error.type})" if error.type else ""))]
    if error.step:
        rows.insert(0, ("Step", error.step))
    if error.code:
        rows.append(("Code", f"{error.code}  " + dim(f"holdfast explain {error.code}")))
    text = pairs(rows, "  ") + "\n" + textwrap.indent(error.message, "    ")
    if error.traceback and full:
        text += "\n\n" + textwrap.indent(error.traceback.rstrip(), "    ")
    elif error.traceback:
        text += "\n" + dim("    (--full shows where)")
    if error.kind == "invalid" and isinstance(error.details, list):
        for problem in error.details:
            text += f"\n    - [{problem.get('code', '')}] {problem.get('message', '')}{place_of(problem)}"
    return text


def _output(value: Any, full: bool) -> str:
    lines = value_lines(value)
    more = [] if full or len(lines) <= 40 else [dim(f"… {len(lines) - 40} more lines (--full)")]
    return textwrap.indent("\n".join([*(lines if not more else lines[:40]), *more]), "  ")


def _progress(id: str, definition: Any, events: list[dict[str, Any]]) -> Progress:
    from holdfast.language import compile_definition

    progress = Progress(compile_definition(definition) if definition else None, id)
    for event in events:
        progress.apply(event)
    return progress


@click.command("why", short_help="Why is it where it is, and what would move it?")
@id_argument
@output_option(("text", "json"), "text")
@reach_options
def why_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """Why an execution is where it is, and what would move it."""
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        why = verbs.why(id)
        is_alive = getattr(verbs, "is_live", True)
        owner = getattr(verbs, "owner", "")
    if output == "json":
        click.echo(dumps(msgspec.to_builtins(why)))
        return
    short = why.id[:8]
    has_ended = Status[why.status].is_ended
    commands = [reason.command for reason in why.reasons if reason.command]
    reasons = [reason.text for reason in why.reasons]
    if has_ended:
        sentences = [f"execution {short} {why.summary}", *reasons]
    else:
        sentences = [f"execution {short} is {why.status}: {(reasons or ['about to move'])[0]}", *reasons[1:]]
        if owner:
            sentences.append(f"{owner} has the store open, but serves nobody here who could ask it")
        if not is_alive:
            sentences.append("no engine is running here, so nothing moves until one does")
            commands.insert(0, "holdfast up")
    text = " ".join(_sentence(sentence) for sentence in sentences)
    click.echo(textwrap.fill(text, columns(100), break_on_hyphens=False))
    for command in dict.fromkeys(commands):
        click.echo(f"\n  {bold(command)}")
    if has_ended and why.status.startswith("FAILED"):
        click.echo(f"\n  {bold(f'holdfast show {short}')}")


def _sentence(text: str) -> str:
    whole = f"{text[:1].upper()}{text[1:].rstrip('.')}"
    return whole if whole.endswith(("?", "!")) else f"{whole}."


@click.command("jobs", short_help="Its jobs: what was done outside, by whom, with what effect.")
@id_argument
@output_option(("table", "wide", "json", "jsonl"), "table")
@reach_options
def jobs_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """The jobs of an execution: what was done outside, by which worker, with what effect."""
    settings = Settings({"server": server, "token": token, "store": store})
    with reading(settings) as verbs:
        jobs = verbs.jobs(id)
    if output == "json":
        click.echo(dumps([msgspec.to_builtins(job) for job in jobs]))
    elif output == "jsonl":
        for job in jobs:
            click.echo(msgspec.json.encode(job).decode())
    elif jobs:
        click.echo(_jobs(jobs, is_wide=output == "wide"))
    else:
        say(dim("no jobs"))


def _jobs(jobs: list[JobView], *, is_wide: bool) -> str:
    rows = []
    for job in jobs:
        step = f"{job.step} {dim(f'{job.kind.lower()} of {job.about}')}" if job.about else job.step
        step += f" {dim('on')} {job.entity}" if job.entity else ""
        row = [
            str(job.job), step, job.block, status(job.status), str(job.attempt), _effect(job.effect),
            took(job.ended_at - job.scheduled_at) if job.ended_at else "…", job.worker or "–",
        ]  # fmt: skip
        if is_wide:
            row += [brief(job.input, 40), brief(job.result, 40)]
        row.append(brief(job.error.message, 60) if job.error else "")
        rows.append(row)
    head = ["JOB", "STEP", "BLOCK", "STATUS", "ATTEMPT", "EFFECT", "TOOK", "WORKER"]
    return table([*head, *(["INPUT", "RESULT"] if is_wide else []), ""], rows, right=(0, 4, 6))


def _effect(name: str) -> str:
    return style(name, fg={"UNKNOWN": "red", "DONE": "yellow"}.get(name, "bright_black"))
