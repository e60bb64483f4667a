"""Commands that let an execution go on after its end: `resume`, `replay`. Each can say first what it would do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.core.views import ExecutionView, PlanStep, PlanView

from .act import goes_on
from .connect import reach_options, reading, writing
from .options import id_argument, output_option
from .recap import emit
from .refusals import FAILED, dumps
from .run import Asked, Run, log_errors
from .settings import Settings
from .text import bold, brief, dim, moment, pairs, plural, say, status, style

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs

    from .progress import Progress

#: what a dry run lists of each kind before it only counts
LISTED = 12


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--reason", default="", help="Why; kept in the history."),
            click.option("--dry-run", is_flag=True, help="Only say what would run again and what is kept."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask."),
            click.option("--follow", "--wait", "follow", is_flag=True, help="Follow it to its end, as `run` does."),
            click.option("--timeout", type=float, default=None, metavar="S", help="Stop following after S seconds."),
            click.option("-m", "--module", "modules", multiple=True, metavar="MODULE",
                         help="With --follow: Python module or file with blocks."),
            output_option(("text", "json"), "text"),
            reach_options,
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("resume", short_help="Carry on where an execution failed or was stopped.")
@id_argument
@click.option("--force", is_flag=True, help="Also where something may have happened that may not happen twice.")
@click.option("--accept-changes", is_flag=True, help="Also where other executions have had its entities since.")
@_options
def resume_command(id: str, force: bool, accept_changes: bool, **options: Any) -> int:
    """Carry on where an execution failed or was cancelled: what went well is kept, what failed is entered again.

    Where a step may have happened and may not happen twice, it goes back to the last waypoint before it; if there is
    none, it is refused. `--force` enters the step all the same; at a server it needs a token with the role admin.

    \b
      holdfast resume 9f3a --dry-run
      holdfast resume 9f3a --reason "disk replaced" --follow
    """
    return _Again(id, "", force, accept_changes, **options).go()


@click.command("replay", short_help="Do again what follows a step.")
@id_argument
@click.option("--from", "start", required=True, metavar="STEP",
              help="A step's id or its number from 0; or `start`, `last` (waypoint) or `end` (resume).")  # fmt: skip
@click.option("--force", is_flag=True, help="Also from a step that is no waypoint.")
@_options
def replay_command(id: str, start: str, force: bool, **options: Any) -> int:
    """Do again what follows a waypoint, with all variables as they were there.

    A step that is no waypoint is replayed from the last one before it; `--force` begins at any step that was
    entered, whatever it did. At a server that needs a token with the role admin.

    \b
      holdfast replay 9f3a --from deploy --dry-run
      holdfast replay 9f3a --from last --follow
    """
    return _Again(id, start, force, **options).go()


class _Again:
    """One `resume` (no start) or `replay`."""

    def __init__(
        self, id: str, start: str, force: bool, accept_changes: bool = False, *,
        reason: str, dry_run: bool, yes: bool, follow: bool,
        timeout: float | None, modules: tuple[str, ...], output: str, server: str, token: str, store: str,
    ) -> None:  # fmt: skip
        self.id, self.start, self.force, self.reason = id, start, force, reason
        self.accept_changes = accept_changes
        self.dry_run, self.yes, self.is_following, self.timeout, self.output = dry_run, yes, follow, timeout, output
        self.settings = Settings({"server": server, "token": token, "store": store, "modules": modules})

    def ask(self, verbs: Verbs, id: str, *, dry_run: bool = False) -> ExecutionView:
        if self.start:
            return verbs.replay(id, self.start, force=self.force, reason=self.reason, dry_run=dry_run)
        return verbs.resume(
            id, force=self.force, reason=self.reason, dry_run=dry_run, accept_changes=self.accept_changes
        )

    def go(self) -> int:
        asks = self.force and not self.yes and self.output == "text" and sys.stdin.isatty()
        if self.dry_run or asks:
            with reading(self.settings) as verbs:
                view = self.ask(verbs, self.id, dry_run=True)
            assert view.plan is not None
            if self.dry_run:
                if self.output == "json":
                    click.echo(dumps(msgspec.to_builtins(view.plan)))
                else:
                    click.echo(plan_text(view, view.plan))
                    say(dim("nothing was done"))
                return FAILED if view.plan.refusal is not None else 0
            if view.plan.refusal is None:
                say(plan_text(view, view.plan))
                if not click.confirm("Go ahead?", err=True):
                    say("left as it is")
                    return 0
        if self.is_following:
            return self._follow()
        with writing(self.settings) as verbs:
            view = self.ask(verbs, self.id)
            is_live = goes_on(verbs)
        if self.output == "json":
            emit(view, self.output)
            return 0
        short = view.id[:8]
        verb = "replayed" if self.start not in ("", "end") else "resumed"
        say(f"{bold(view.workflow)} {short} is {verb}: run {view.run}, {status(view.status)}")
        if not view.is_ended:
            say(dim(f"follow it: holdfast watch {short}" if is_live else "it goes on when an engine runs: holdfast up"))
        return 0

    def _follow(self) -> int:
        from .inputs import modules_of
        from .sessions import open_session

        log_errors()
        session = open_session(self.settings, modules_of(self.settings["modules"], None))
        asked = Asked("", timeout=self.timeout, resume=self.id, output=self.output)
        return _Revived(asked, self.settings, session, None, self).go()


class _Revived(Run):
    """A run that begins where another one ended."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:-1])
        self._again: _Again = given[-1]
        self._before: list[dict[str, Any]] = []

    def _start(self) -> ExecutionView:
        verbs = self.session.verbs
        view = verbs.show(self._again.id)
        while page := verbs.events(view.id, self._before[-1]["seq"] if self._before else 0):
            self._before += page
        while lines := verbs.logs(view.id, self.logs):
            self.logs = lines[-1].number
        # What runs already needs no warning.
        return msgspec.structs.replace(self._again.ask(verbs, view.id), waiting=[])

    def _progress(self) -> Progress:
        progress = super()._progress()
        for event in self._before:
            progress.apply(event)
        return progress


# --- the dry run, for people -------------------------------------------------------------------------
def plan_text(view: ExecutionView, plan: PlanView) -> str:
    short = view.id[:8]
    start = f" from {plan.asked}" if plan.verb == "replay" else ""
    force = " --force" if plan.is_forced else ""
    head = f"{plan.verb}{start}{force} of {bold(view.workflow)} {short}, which is {status(plan.status)}"
    if plan.refusal is not None:
        code = dim(f"[{plan.refusal.code}]")
        return f"{head}\n  {style('would be refused', fg='red')}: {plan.refusal.message} {code}"
    rows = [("Run", str(plan.run))]
    if any(lane.is_back for lane in plan.lanes):
        target = "" if plan.step == plan.asked or plan.is_forced else dim("  (the waypoint before it)")
        if plan.verb == "resume":
            target = dim("  (the last waypoint: what failed may not run twice)")
        rows.append(("Begins at", f"{plan.step}{target}"))
    else:
        stands = _listed([lane.step or "its end" for lane in plan.lanes])
        count = dim(f"  ({plural(len(plan.lanes), 'lane')})") if len(plan.lanes) > 1 else ""
        rows.append(("Goes on at", stands + count))
    rows.append(("Runs again", _steps(plan.again) or "nothing"))
    rows.append(("Keeps", _steps(plan.kept) or "nothing"))
    if plan.variables:
        listed = [f"{name} = {brief(value, 40)}" for name, value in plan.variables.items()]
        rows.append(("Variables", _listed(listed)))
    for job in plan.jobs[:LISTED]:
        what = "took effect" if job.is_sure else "may have taken effect"
        danger = "" if job.may_repeat else style("; its block is not meant to run twice", fg="red")
        rows.append(("Effect", f"job {job.job} ({job.step}, block {job.block}) {what} and would happen again{danger}"))
    if len(plan.jobs) > LISTED:
        rows.append(("Effect", f"… and {plural(len(plan.jobs) - LISTED, 'job')} more"))
    if not plan.jobs:
        rows.append(("Effects", "nothing that took effect would happen again"))
    for lock in plan.locks:
        now = "free" if not lock.holder else f"held by {lock.holder[:8]} since {moment(lock.since)}"
        queue = f", {lock.waiting} waiting" if lock.waiting else ""
        rows.append(("Lock", f"{lock.name} on {lock.entity}: {now}{queue}"))
    return f"{head}\n{pairs(rows, '  ')}"


def _steps(steps: list[PlanStep]) -> str:
    return _listed([each.step + (f" ×{each.times}" if each.times > 1 else "") for each in steps])


def _listed(texts: list[str]) -> str:
    more = len(texts) - LISTED
    return ", ".join(texts[:LISTED]) + (f", … and {more} more" if more > 0 else "")
