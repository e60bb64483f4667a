"""Screens: how progress is shown on stderr — a live tree on a terminal, one line per fact elsewhere.

A screen hears events and log lines in order and may be asked to tick; it decides nothing. rich is imported
only by the screen that draws with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.core.lanes import APPROVAL, HANDLER, WAITING, Op
from holdfast.core.state import FAR
from holdfast.core.views import LogView

from . import fleet_view
from .progress import GROUPS, OVER, WAITS, Progress, Row
from .text import MARKS, clip, columns, dim, is_plain, plural, say, style, took

_LEVELS = {"WARNING": "yellow", "ERROR": "red"}
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
#: seconds after which a line says that a job is still running
STILL = 3.0


def now_us() -> int:
    return time.time_ns() // 1000


class Screen(Protocol):
    progress: Progress

    def open(self) -> None: ...

    def event(self, event: dict[str, Any]) -> None: ...

    def log(self, line: LogView) -> None: ...

    def tick(self) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def screen_for(progress: Progress, *, quiet: bool = False) -> Screen:
    if quiet:
        return SilentScreen(progress)
    return PlainScreen(progress) if is_plain() else LiveScreen(progress)


class SilentScreen:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def open(self) -> None:
        """Nothing to show."""

    def event(self, event: dict[str, Any]) -> None:
        self.progress.apply(event)

    def log(self, line: LogView) -> None:
        """Nothing to show."""

    def tick(self) -> None:
        """Nothing to show."""

    def note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """Nothing to show."""


class PlainScreen:
    """One line per thing that happened, with the time since the start."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        #: jobs already spoken of as running
        self._told: set[int] = set()
        #: a pause that was set, until it is known where
        self._pause: dict[str, Any] | None = None
        #: after an error somebody has to say whether it is undone
        self._is_manual = False

    def open(self) -> None:
        """The first line comes with the first event."""

    def close(self) -> None:
        """Every line is out already."""

    def note(self, text: str) -> None:
        say(text)

    def event(self, event: dict[str, Any]) -> None:
        progress, at = self.progress, event["at"]
        if self._pause is not None and (event["type"] != "LaneAdvanced" or event["lane"] != self._pause["lane"]):
            self._pausing()
        row = progress.apply(event)
        if self._pause is not None:
            self._pausing()
        match event["type"]:
            case "JobSucceeded" if row is not None:
                work = progress.work(event["job"])
                tries = f", attempt {work.attempt}" if work.attempt > 1 else ""
                word = {"ROLLBACK": "undone", "VERIFY": ""}.get(progress.fleet.of(event["job"])[1], "ok")
                if word:  # what a look has found is said by the event that follows
                    self._line(at, word, self._title(row, event), f"({took(at - work.since)}{tries})")
            case "JobFailed" if row is not None:
                is_undoing = progress.fleet.of(event["job"])[1] == "ROLLBACK"
                what = "kept" if is_undoing else "failed"
                message = event["failure"]["message"]
                if event["failure"]["kind"] == "outcome-unknown" and (seen := progress.fleet.reason(event["job"])):
                    message = f"{seen}; outcome unknown, so it is not repeated"
                self._line(at, what, self._title(row, event), f"not undone: {message}" if is_undoing else message)
            case "JobRescheduled" if row is not None:
                failure = event.get("failure")
                why = f"attempt {event['attempt']} failed: {failure['message']}; " if failure else ""
                then = "verify looks what came of it" if event["due"] >= FAR else f"again in {took(event['due'] - at)}"
                self._line(at, "unknown" if event["due"] >= FAR else "retry", self._title(row, event), why + then)
            case "JobCancelled" if row is not None:
                self._line(at, "stopped", self._title(row, event))
            case "EffectVerified" if row is not None:
                found = {"DONE": "it took effect", "NONE": "nothing was changed"}
                self._line(at, "looked", self._title(row, event), found.get(event["effect"], "still unknown"))
            case "EntitiesFound" if progress.fleet:
                self._line(at, "found", plural(len(progress.fleet), "entity").replace("entitys", "entities"))
            case "EntitiesQueued" | "EntitiesWatched":
                self._line(at, "waits", f"for {event['watch']}, which somebody else holds")
            case "EntitiesLocked" if progress.fleet:
                self._line(at, "locked", "all of them")
            case "GatesSet" if open_gates := [gate["kind"] for gate in event["gates"] if not gate["is_met"]]:
                self._line(at, "waits", f"for its gates: {', '.join(open_gates)}", f"(holdfast why {progress.id[:8]})")
            case "PolicySet":
                self._is_manual = event["policy"].get("rollback") == "manual"
            case "ErrorRaised" if self._is_manual:
                id = progress.id[:8]
                how = f"(holdfast rollback {id} | holdfast fail {id})"
                self._line(at, "waits", "if anything is left, for somebody to undo it or to leave it", how)
            case "RollbackPlanned":
                self._line(at, "rollback", plural(len(event["jobs"]), "effect"), "to undo, newest first")
            case "EntrySettled" if row is not None and event["outcome"] == "SKIPPED_BELOW_FAILURE":
                self._line(at, "kept", self._title(row, event), "not undone: what came after it is still there")
            case "TimerSet" if event.get("depth", WAITING) == WAITING:
                self._pause = event
            case "SignalReceived":
                self._line(at, "signal", event["name"], f"by {event['actor']['name']}")
            case "ExecutionResumed" | "ExecutionReplayed":
                verb = "resumed" if event["type"] == "ExecutionResumed" else "replayed"
                self._line(at, verb, f"by {event['actor']['name']}, run {progress.run}", event.get("reason", ""))
            case "LockQueued":
                self._line(at, "waits", f"for lock {event['name']} on {event['entity']}")
            case "LockGranted":
                self._line(at, "lock", f"{event['name']} on {event['entity']}")
            case "SensorAwaited":
                self._line(at, "waits", f"for {event['kind']} {event['name']} on {event['entity']}")
            case "CancelRequested":
                self._line(at, "cancel", f"asked for by {event['actor']['name']}", event.get("reason", ""))
            case "LaneAdvanced":
                self._listening(event, at)

    def _title(self, row: Row, event: dict[str, Any]) -> str:
        entity, _ = self.progress.fleet.of(event["job"])
        return f"{entity} › {row.title}" if entity else row.title

    def _listening(self, event: dict[str, Any], at: int) -> None:
        short = self.progress.id[:8]
        for op in event["ops"]:
            if op[0] == Op.LISTEN and op[1].startswith(APPROVAL):
                step = op[1].removeprefix(APPROVAL)
                self._line(at, "waits", f"for approval of {step}", f"(holdfast approve {short} {step})")
            elif op[0] == Op.LISTEN:
                self._line(at, "waits", f"for signal `{op[1]}`", f"(holdfast signal {short} {op[1]})")
            elif op[0] == Op.HANDLE and op[2] == HANDLER:
                program = self.progress.program
                self._line(at, "handles", program.label(op[1]) if program is not None and op[1] >= 0 else "the error")

    def _pausing(self) -> None:
        """Where a lane rests is said after how long, or before."""
        event, self._pause = self._pause, None
        row = self.progress.row_of(event["lane"]) if event is not None else None
        if event is not None and row is not None:
            word = "sleeps" if row.kind == "sleep" else "pauses"
            self._line(event["at"], word, row.title, f"({took(event['due'] - event['at'])})")

    def log(self, line: LogView) -> None:
        where = f"{line.step}: " if line.job and line.step else ""
        word = "log" if line.level in ("INFO", "DEBUG") else line.level.lower()
        self._line(line.at, word, f"{where}{line.message}")

    def tick(self) -> None:
        self._pausing()
        for row in self.progress.rows:
            for job, work in row.jobs.items():
                if work.state not in OVER and job not in self._told and now_us() - work.since > STILL * 1e6:
                    self._told.add(job)
                    what = {"queued": "waiting for a worker", "retry": "in back-off"}.get(work.state, "running")
                    self._line(now_us(), "…", row.title, f"still {what}")

    def _line(self, at: int, word: str, *parts: str) -> None:
        elapsed = took(at - self.progress.began) if self.progress.began else ""
        say(f"  {elapsed:>6}  {word:<8} {'  '.join(part for part in parts if part)}".rstrip())


class LiveScreen:
    """The tree of steps, redrawn in place; log lines scroll by above it."""

    def __init__(self, progress: Progress) -> None:
        from rich.console import Console
        from rich.live import Live

        self.progress = progress
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=10, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._is_open = False

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._live.start()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._live.refresh()
            self._live.stop()

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)

    def event(self, event: dict[str, Any]) -> None:
        self.progress.apply(event)

    def log(self, line: LogView) -> None:
        from rich.text import Text

        text = Text("  │ ", style="dim")
        if line.job and line.step:
            text.append(f"{line.step}  ", style="dim")
        text.append(line.message, style=_LEVELS.get(line.level, "dim" if line.level == "DEBUG" else "not dim"))
        self._console.print(text, soft_wrap=True)

    def tick(self) -> None:
        """rich redraws by itself."""

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = now_us()
        fleet = self.progress.fleet
        rows = self._window()
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(20, self._console.width // 2))
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for row in rows:
            if isinstance(row, str):
                grid.add_row(Text(f"    {row}", style="dim"), "", "")
                continue
            mark, colour, time_text, note = describe(row, self.progress, now)
            faint = row.state in ("pending", "skipped")
            label = Text("  " + "  " * row.depth)
            label.append(mark, style=colour)
            label.append(f" {row.label}", style="dim" if faint else "bold" if row.state == "failed" else "")
            grid.add_row(label, Text(time_text, style="dim"), Text(note, style=_note_style(row)))
        if not fleet:
            return grid
        room = self._console.height - fleet_view.SPARE - len(rows)
        parts = fleet_view.drawn(fleet, now, self._console.width, room)
        return Group(grid, *parts) if rows else Group(*parts)

    def _window(self) -> list[Row | str]:
        """All rows, or as many as fit: what is over goes first, then what is far ahead."""
        rows, limit = self.progress.rows, max(6, self._console.height - 8)
        if fleet := self.progress.fleet:
            # What is done for each entity is seen there; here is what is done once, as soon as it is.
            rows = [
                r for r in rows if r.step not in fleet.steps and (r.kind in WAITS or r.jobs) and r.lanes | r.jobs.keys()
            ]
            limit = max(3, limit - len(fleet))
        if len(rows) <= limit:
            return [*rows]
        active = [i for i, row in enumerate(rows) if row.state not in OVER and row.state != "pending"]
        first = active[0] if active else len(rows)
        start = max(0, min(first - 2, len(rows) - (limit - 2)))
        shown = rows[start : start + limit - 2]
        above, below = start, len(rows) - start - len(shown)
        return [
            *([f"… {above} more above"] if above else []),
            *shown,
            *([f"… {below} more to come"] if below else []),
        ]


def _note_style(row: Row) -> str:
    return {"failed": "red", "retry": "yellow"}.get(row.state, "dim")


def describe(row: Row, progress: Progress, now: int) -> tuple[str, str, str, str]:
    """Mark, its colour, time and remark of a row."""
    state = row.state
    began, ended = row.times()
    time_text = took((ended or now) - began) if began and state not in ("pending", "skipped") else ""
    spin = _SPIN[now // 100_000 % len(_SPIN)]
    mark, colour = {
        "done": (MARKS["done"], "green"),
        "failed": (MARKS["failed"], "red"),
        "handled": (MARKS["done"], "yellow"),
        "cancelled": (MARKS["failed"], "magenta"),
        "running": (spin, "cyan"),
        "queued": (MARKS["waiting"], "cyan"),
        "waiting": (MARKS["waiting"], "cyan"),
        "retry": (MARKS["retry"], "yellow"),
        "skipped": (MARKS["skipped"], "dim"),
        "pending": (MARKS["pending"], "dim"),
    }[state]
    return mark, colour, time_text, _remark(row, progress, now, began)


def _remark(row: Row, progress: Progress, now: int, began: int) -> str:
    parts: list[str] = []
    if row.count:
        failed = f", {row.failed} failed" if row.failed else ""
        parts.append(f"{row.done}/{row.count} lanes{failed}")
    if row.visit > 1 and row.jobs:
        parts.append(f"visit {row.visit}")
    if len(row.jobs) > 1:
        parts.append(f"{sum(work.state in OVER for work in row.jobs.values())}/{len(row.jobs)}")
    work = row.work
    match row.state:
        case "waiting" if row.kind == "sleep":
            if due := progress.due(row):
                parts.append(f"{took(due - now)} left")
        case "waiting" if row.kind == "wait":
            parts.append("for a sensor")
        case "waiting" if row.signal.startswith(APPROVAL):
            parts.append(f"holdfast approve {progress.id[:8]} {row.signal.removeprefix(APPROVAL)}")
        case "waiting":
            parts.append(f"holdfast signal {progress.id[:8]} {row.signal}".rstrip())
        case "retry" if row.is_caught and work is not None:
            parts.append(f"failed, again in {took(max(0, row.due - now))}: {work.note}")
        case "handled" if work is not None:
            parts.append(f"failed, handled: {work.note}")
        case "retry" if work is not None:
            pause = f"again in {took(work.due - now)}" if work.due > now else "again now"
            parts.append(f"attempt {work.attempt} failed, {pause}: {work.note}" if work.note else pause)
        case "running" if work is not None and work.attempt > 1:
            parts.append(f"attempt {work.attempt}" + (f", after: {work.note}" if work.note else ""))
        case "done" if work is not None and work.attempt > 1:
            parts.append(f"attempt {work.attempt}")
        case "queued" if now - began > 1_000_000:
            parts.append("waiting for a worker")
        case "failed" if work is not None:
            parts.append(work.note)
        case "cancelled" if row.kind not in GROUPS:
            parts.append("stopped")
    return " ".join(" · ".join(parts).split())


def still_tree(progress: Progress, paint: Callable[[str], str] = dim) -> str:
    """The tree as text, for `holdfast show`."""
    now = progress.ended or now_us()
    lines = []
    colours = {"dim": "bright_black"}
    size = max((2 * row.depth + len(row.label) for row in progress.rows), default=0)
    for row in progress.rows:
        mark, colour, time_text, note = describe(row, progress, now)
        mark = MARKS["running"] if row.state == "running" else mark
        label = row.label.ljust(min(60, size) - 2 * row.depth)
        tail = f"  {time_text:>6}  {note}".rstrip()
        lead = f"{'  ' * row.depth}{style(mark, fg=colours.get(colour, colour))} "
        line = f"{lead}{label}{paint(tail)}" if tail else f"{lead}{paint(label.rstrip())}"
        lines.append(clip(line, columns() - 2))
    return "\n".join(lines)
