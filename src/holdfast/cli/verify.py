"""`holdfast verify`: does what a store holds agree with itself? It reads only, and runs beside an engine."""

from __future__ import annotations

import sys
import time

import click

from holdfast.core.errors import StoreUnavailable

from .connect import traceback_option
from .options import output_option
from .refusals import FAILED, OK, dumps
from .settings import Settings
from .text import bold, dim, is_plain, plural, say, style, table, took


@click.command("verify", short_help="Check every invariant of a store.")
@click.option("--store", metavar="URL", default="", help="The store; the project's own if not given.")
@output_option(("text", "json"), "text")
@traceback_option
def verify_command(store: str, output: str) -> int:
    """Check every invariant of a store, on the history of every execution. Exit code 1 if one is broken.

    Histories are gapless and chained, states and snapshots are their fold, every job is in exactly one place,
    no row is without its execution. Safe while an engine is running.
    """
    from holdfast.engine.verify import verify
    from holdfast.store.address import open_reading

    settings = Settings({"store": store})
    began = time.monotonic()
    try:
        opened = open_reading(settings.store)
    except FileNotFoundError:
        raise StoreUnavailable(f"there is no store at {settings.shown_store}") from None
    try:
        report = verify(opened, _tell if not is_plain() and output == "text" else None)
    finally:
        opened.close()
    lasted = took(int((time.monotonic() - began) * 1e6))
    if output == "json":
        listed = [{"invariant": f.invariant, "execution": f.execution, "text": f.text} for f in report.findings]
        counts = {"executions": report.executions, "events": report.events}
        click.echo(dumps({"store": settings.shown_store, **counts, "is_clean": report.is_clean, "findings": listed}))
        return OK if report.is_clean else FAILED
    checked = f"{plural(report.executions, 'execution')}, {plural(report.events, 'event')} in {lasted}"
    if report.is_clean:
        say(f"{style('clean', fg='green')}  {settings.shown_store}  {dim(checked)}")
        return OK
    rows = [[bold(finding.invariant), finding.execution or "–", finding.text] for finding in report.findings]
    click.echo(table(["INVARIANT", "EXECUTION", "WHAT"], rows))
    say(f"{style('broken', fg='red')}  {plural(len(report.findings), 'finding')}  {dim(checked)}")
    return FAILED


def _tell(count: int) -> None:
    sys.stderr.write(f"\r  {count:,} executions …\r")
    sys.stderr.flush()
