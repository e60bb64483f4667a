"""How Holdfast is put together for a measurement.

embedded-*   engine, worker and client in this process
http-*       `holdfast up --no-worker` in a process of its own; worker and client here, both over HTTP
inside-*     the client in the engine's process, the worker in a process of its own over HTTP
two-engines  two processes like embedded-postgres on one database, each with half of the load
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from holdfast.api.server import Server
from holdfast.cli import serverfile
from holdfast.embedded import Embedded
from holdfast.transport.http import HttpLink
from holdfast.worker import Worker

from .clients import Inside, Thin, Threads
from .measure import data_folder
from .victim import MODULES

ROOT = Path(__file__).parents[1]
SLOTS = 256
TOPOLOGIES = (
    "embedded-sqlite",
    "embedded-postgres",
    "http-sqlite",
    "http-postgres",
    "inside-sqlite",
    "inside-postgres",
)


class Subject:
    """One Holdfast that can be loaded."""

    def __init__(self, peer: str, client: Inside | Threads, pids: list[int], store: str) -> None:
        self.peer = peer
        self.client = client
        #: whose CPU and memory count
        self.pids = pids
        self.store = store
        #: what to say in every row of it
        self.notes: dict[str, Any] = {}
        self.holdfast: Embedded | None = None


@contextmanager
def opened(topology: str, postgres: str = "", client: str = "thin") -> Iterator[Subject]:
    """`postgres`: address of an empty database, where the topology has one."""
    kind, _, store_kind = topology.partition("-")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute())))
        if store_kind == "postgres" and not postgres:
            raise SystemExit(f"{topology} needs --postgres URL")
        store = f"sqlite:///{folder}/bench.db" if store_kind == "sqlite" else postgres
        make: dict[str, Callable[..., Subject]] = {"embedded": _embedded, "http": _http, "inside": _inside}
        yield make[kind](stack, f"holdfast-{topology}", folder, store, client)


def server_pids() -> list[int]:
    """The database's, where there is one: it works for us."""
    return [int(pid) for pid in os.environ.get("BENCH_SERVER_PIDS", "").split(",") if pid]


def _embedded(stack: ExitStack, peer: str, folder: Path, store: str, client: str) -> Subject:
    holdfast = stack.enter_context(Embedded(store, folder=folder, slots=SLOTS, processes=0, modules=MODULES))
    subject = Subject(peer, Inside(holdfast), [os.getpid(), *server_pids()], store)
    subject.holdfast = holdfast
    return subject


def _http(stack: ExitStack, peer: str, folder: Path, store: str, client: str) -> Subject:
    server = stack.enter_context(serving(folder, store, "--no-worker"))
    found = serverfile.read(folder)
    assert found is not None
    worker = Worker(HttpLink(found.address, found.token), slots=SLOTS, modules=MODULES, processes=0)
    worker.start_in_thread()
    stack.callback(worker.stop)
    asking = (Thin if client == "thin" else Threads)(found.address, found.token)
    if client == "threads":
        peer += "-threads"
    subject = Subject(peer, asking, [os.getpid(), server.pid, *server_pids()], store)
    subject.notes = {"client": "raw HTTP on one loop" if client == "thin" else "holdfast.Client on threads"}
    return subject


def _inside(stack: ExitStack, peer: str, folder: Path, store: str, client: str) -> Subject:
    holdfast = stack.enter_context(Embedded(store, folder=folder, with_worker=False))
    server = Server(holdfast.service, port=0)
    stack.enter_context(server)
    worker = start_worker(folder, server.address, server.local_token("worker", "worker"), "--slots", str(SLOTS))
    stack.callback(end, worker)
    until(lambda: any(b.name == "bench.count" for b in holdfast.service.blocks()), "the worker does not come")
    subject = Subject(peer, Inside(holdfast), [os.getpid(), worker.pid, *server_pids()], store)
    subject.notes = {"client": "in the engine's process"}
    return subject


@contextmanager
def serving(folder: Path, store: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """`holdfast up`, and how to reach it in `folder`."""
    process = start_server(folder, store, *more)
    try:
        yield process
    finally:
        end(process)


def start_server(folder: Path, store: str, *more: str) -> subprocess.Popen[bytes]:
    """`holdfast up`, answering; its server.json is in `folder`."""
    # On PostgreSQL the key and server.json lie in the project's folder `.holdfast`.
    (folder / "holdfast.toml").touch()
    where = folder if store.startswith("sqlite") else folder / ".holdfast"
    process = _command(folder, "-C", str(folder), "up", "--port", "0", "--store", store, *more)

    def is_up() -> bool:
        found = serverfile.read(where)
        return (found is not None and found.pid == process.pid) or process.poll() is not None

    try:
        until(is_up, "the server does not come up")
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {(folder / 'log').read_text()[-2000:]}")
        if where != folder and not (folder / serverfile.NAME).exists():
            (folder / serverfile.NAME).symlink_to(where / serverfile.NAME)
    except BaseException:
        end(process)
        raise
    return process


def start_worker(folder: Path, address: str, token: str, *more: str) -> subprocess.Popen[bytes]:
    """`holdfast worker` with the benches' blocks."""
    modules = [part for module in MODULES for part in ("-m", module)]
    return _command(folder, "worker", "--server", address, *modules, *more, HOLDFAST_TOKEN=token)


def _command(folder: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], otherwise: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.02)
