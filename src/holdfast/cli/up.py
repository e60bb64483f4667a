"""`holdfast up` and `holdfast worker`: processes that stay. They log to stderr and drain on SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType

import click

from holdfast.core.errors import BadUsage, Refused, ServerUnreachable, StoreLocked

from . import serverfile
from .connect import find_server, traceback_option
from .sessions import Owner, registry_of
from .settings import Settings
from .text import bold, dim, plural, say

log = logging.getLogger("holdfast")


def log_to_stderr(verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("holdfast").setLevel(logging.DEBUG if verbose else logging.INFO)


class Stopping:
    """SIGTERM and Ctrl-C, once to drain and a second time to leave at once. So does a terminal that is closed, but
    however often that is said: the system and the shell both do."""

    def __init__(self) -> None:
        self.event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else it was started with `nohup`
            signal.signal(signal.SIGHUP, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.event.is_set() and number == signal.SIGHUP:
            return
        if self.event.is_set():
            # Jobs in hand are found out by the next engine; nothing that was acknowledged is lost.
            os._exit(130)
        self.event.set()

    def wait(self, timeout: float) -> bool:
        return self.event.wait(timeout)


@click.command("up", short_help="Serve this project: engine, worker and API.")
@click.option("--host", default="", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port to listen on.  [default: 3030]")
@click.option("--allow-remote", is_flag=True, help="Listen where other machines can reach it.")
@click.option("--tls-cert", "certificate", default="", metavar="FILE", help="Certificate, for https.")
@click.option("--tls-key", "private_key", default="", metavar="FILE", help="Its private key.")
@click.option(
    "--store", metavar="URL", default="", help="sqlite:///FILE or postgresql://…; the project's if not given."
)
@click.option("--no-worker", is_flag=True, help="Only engine and API; workers come from elsewhere.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Python module or file with blocks.")
@click.option("--slots", type=click.IntRange(1), default=None, help="Jobs at a time.  [default: 64]")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Queues to take jobs from.  [default: default]")
@click.option("--name", default="", help="Name of the worker.")
@click.option("--retention", default="", metavar="RULE", help="What is kept once it has ended.  [default: max(30d, 3)]")
@click.option("--archive", default="", metavar="DIR", help="Archive what is purged in that folder.")
@click.option(
    "--stuck-after",
    default="",
    metavar="TIME",
    help="Give up attempts without a timeout after so long without a sign of life.  [default: 12m]",
)
@click.option(
    "--unreachable-after",
    default="",
    metavar="TIME",
    help="Show a worker as unreachable after so much silence.  [default: 2m]",
)
@click.option("--offline-after", default="", metavar="TIME", help="Show it as offline after so much.  [default: 6m]")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@traceback_option
def up_command(
    host: str,
    port: int | None,
    allow_remote: bool,
    certificate: str,
    private_key: str,
    store: str,
    no_worker: bool,
    modules: tuple[str, ...],
    slots: int | None,
    queues: tuple[str, ...],
    name: str,
    retention: str,
    archive: str,
    stuck_after: str,
    unreachable_after: str,
    offline_after: str,
    verbose: bool,
) -> int:
    """Serve this project: engine, worker and API in one process, until Ctrl-C or SIGTERM.

    Prints the address and a link that logs a browser in, once. A `blocks.py` in the project is loaded.
    """
    from holdfast import __version__

    flags = {"host": host, "port": port, "store": store, "modules": modules, "slots": slots, "queues": queues}
    kept = {"workflow.retention.default": retention, "retention.archive": archive}
    borne = {"stuck-after": stuck_after, "unreachable-after": unreachable_after, "offline-after": offline_after}
    settings = Settings({**flags, **kept, **borne})
    log_to_stderr(verbose)
    stopping = Stopping()
    found = list(settings["modules"])
    if not no_worker and (settings.project / "blocks.py").is_file():
        found.append(str(settings.project / "blocks.py"))
    try:
        owner = Owner(settings, found, with_worker=not no_worker, worker_name=name)
    except StoreLocked as locked:
        other = serverfile.alive(settings.folder, settings.store_id)
        where = f"; it answers at {other.address}" if other else ""
        raise StoreLocked(f"{locked.message}{where}") from None
    try:
        owner.serve(
            host=settings["host"], fallback=settings.source("port") == "default", allow_remote=allow_remote,
            certificate=certificate, private_key=private_key,
        )  # fmt: skip
    except BaseException:
        owner.close(0)
        raise
    assert owner.server is not None
    say(f"  {bold(f'holdfast {__version__}')}")
    say(f"  {dim('address')}  {owner.address}")
    say(f"  {dim('monitor')}  {owner.server.login_link()}  {dim('(works once, for five minutes)')}")
    say(f"  {dim('store')}    {settings.shown_store}")
    worker = owner.embedded.worker
    if worker is not None:
        blocks = plural(len(worker.registry), "block")
        shown = ", ".join(worker.queues)
        say(f"  {dim('worker')}   {worker.name}, {plural(worker.slots, 'slot')}, {blocks}, queue {shown}")
    if count := owner.unfinished:
        say(f"  {dim('continuing')} {plural(count, 'unfinished execution')}")
    say(dim("  Ctrl-C stops it in good order"))
    problem = _stay(owner, stopping)
    log.info("stopping; running jobs get %g s to end", settings["grace"])
    owner.close(settings["grace"])
    log.info("stopped")
    if problem:
        raise problem
    return 0


def _stay(owner: Owner, stopping: Stopping) -> Refused | None:
    while not stopping.wait(1.0):
        if not owner.embedded.engine.is_alive:
            fatal = owner.embedded.engine.fatal
            bug = ServerUnreachable("the engine has stopped because of a bug; see the log above")
            return fatal if isinstance(fatal, Refused) else bug
        worker = owner.embedded.worker
        if worker is not None and worker.error is not None:
            return worker.error if isinstance(worker.error, Refused) else ServerUnreachable(str(worker.error))
    return None


@click.command("worker", short_help="Work for a server elsewhere.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Python module or file with blocks.")
@click.option("--server", metavar="URL", default="", help="The server; the project's own if not given.")
@click.option("--token", default="", help="API token of role worker; better in HOLDFAST_TOKEN.")
@click.option("--name", default="", help="Name of this worker.  [default: HOST-PID]")
@click.option("--slots", type=click.IntRange(1), default=None, help="Jobs at a time.  [default: 64]")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Queues to take jobs from.  [default: default]")
@click.option("--only-modules", is_flag=True, help="Offer no built-in or installed blocks.")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@traceback_option
def worker_command(
    modules: tuple[str, ...],
    server: str,
    token: str,
    name: str,
    slots: int | None,
    queues: tuple[str, ...],
    only_modules: bool,
    verbose: bool,
) -> int:
    """Take jobs from a server and run them here, until Ctrl-C or SIGTERM.

    The token comes from HOLDFAST_TOKEN, or from .holdfast/server.json if the server runs in this project.
    """
    from holdfast.transport.http import HttpLink
    from holdfast.worker import Worker

    from .links import Relay

    flags = {"server": server, "token": token, "modules": modules, "slots": slots, "queues": queues}
    settings = Settings(flags)
    log_to_stderr(verbose)
    stopping = Stopping()
    registry = registry_of(settings["modules"], built_in=not only_modules)
    if not len(registry):
        raise BadUsage("--only-modules without any -m offers no blocks at all")
    found = find_server(settings)
    if found is None:
        raise ServerUnreachable(
            "no server is known here: give --server and HOLDFAST_TOKEN, or start one in this project with `holdfast up`"
        )

    def find() -> HttpLink | None:
        # The project's server may come back at another address, with another token.
        now = find_server(settings) if not settings["server"] else None
        return HttpLink(*now) if now is not None and now != found else None

    worker = Worker(
        Relay(HttpLink(*found), find), registry, name or f"{socket.gethostname()}-{os.getpid()}", settings["slots"],
        settings["queues"],
    )  # fmt: skip
    if worker.start_in_thread(unless=stopping.event):
        size = f"{plural(len(registry), 'block')}, {plural(worker.slots, 'slot')}"
        say(f"  {bold(worker.name)} works for {found[0]}: {size}")
    while not stopping.wait(1.0):
        if worker.error is not None:
            break
    log.info("stopping; running jobs get %g s to end", settings["grace"])
    worker.stop(settings["grace"])
    if isinstance(worker.error, Exception):
        raise worker.error
    return 0
