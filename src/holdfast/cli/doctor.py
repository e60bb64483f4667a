"""`holdfast doctor`: is this machine fit, and where does each setting come from? It changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from holdfast.core.errors import Refused

from . import serverfile
from .connect import traceback_option
from .options import output_option
from .refusals import FAILED, OK, dumps
from .settings import KEYS, SECRETS, Settings, shown_path
from .text import bold, dim, say, style, table

#: bytes below which a disk is too full, and almost
LOW, LOWER = 1 << 30, 100 << 20
#: seconds between this clock and the store's
SKEW = 2.0


class Check(NamedTuple):
    name: str
    #: ok, warning, error
    state: str
    text: str
    help: str = ""


@click.command("doctor", short_help="Check this machine and this project.")
@click.option("--store", metavar="URL", default="", help="The store; the project's own if not given.")
@click.option("--server", metavar="URL", default="", help="A server to check too.")
@output_option(("text", "json"), "text")
@traceback_option
def doctor_command(store: str, server: str, output: str) -> int:
    """Check Python, SQLite, disk, store, clock, port and server, and show where each setting comes from.

    Exit code 1 if something is wrong.
    """
    settings = Settings({"store": store, "server": server})
    checks = [check for group in GROUPS for check in _guarded(group, settings)]
    is_bad = any(check.state == "error" for check in checks)
    if output == "json":
        values = {
            name: {"value": _public(settings, name, setting.value), "source": setting.source}
            for name, setting in settings.items()
        }
        click.echo(dumps({"is_well": not is_bad, "checks": [check._asdict() for check in checks], "settings": values}))
        return FAILED if is_bad else OK
    marks = {"ok": style("✓", fg="green"), "warning": style("!", fg="yellow"), "error": style("✗", fg="red")}
    width = max(len(check.name) for check in checks)
    for check in checks:
        click.echo(f"{marks[check.state]} {check.name.ljust(width)}  {check.text}")
        if check.help:
            click.echo(f"  {' ' * width}  {dim(check.help)}")
    click.echo(f"\n{bold('Settings')}  {dim('flag, environment, holdfast.toml, default')}")
    click.echo(_settings(settings))
    if is_bad:
        say(f"\n{style('something is wrong', fg='red')}; see above")
    return FAILED if is_bad else OK


def _public(settings: Settings, name: str, value: Any) -> Any:
    """A setting as a program may see it: no secrets, also not those inside an address."""
    if not value:
        return value
    if name == "store" and settings.store_path is None:
        return settings.shown_store
    return "…" if name in SECRETS else value


def _settings(settings: Settings) -> str:
    rows = [[dim("project"), shown_path(settings.project), dim("found from here upwards")]]
    for name, setting in settings.items():
        value = ", ".join(map(str, setting.value)) if isinstance(setting.value, list) else str(setting.value)
        if name in SECRETS and value:
            value = "…" + value[-4:]
        if name == "store":
            value = settings.shown_store
        source = setting.source if setting.source != "default" else dim("default")
        rows.append([dim(name), value or dim("–"), source])
    return table((), rows, indent="  ")


def _guarded(group: Callable[[Settings], Iterator[Check]], settings: Settings) -> list[Check]:
    checks: list[Check] = []
    try:
        checks.extend(group(settings))
    except Refused as refused:
        checks.append(Check(_NAMES[group], "error", refused.message, f"holdfast explain {refused.code}"))
    except Exception as error:
        checks.append(Check(_NAMES[group], "error", f"{type(error).__name__}: {error}"))
    return checks


def _python(settings: Settings) -> Iterator[Check]:
    from holdfast import __version__

    version = platform.python_version()
    is_fit = sys.version_info >= (3, 11)
    yield Check("holdfast", "ok", f"{__version__}, {shown_path(Path(__file__).parent.parent)}")
    yield Check("python", "ok" if is_fit else "error", f"{version}, {sys.executable}", "" if is_fit else "needs 3.11")


def _sqlite(settings: Settings) -> Iterator[Check]:
    from holdfast.store.sqlite import MIN_SQLITE, sqlite_version

    found = ".".join(map(str, sqlite_version()))
    is_fit = sqlite_version() >= MIN_SQLITE
    help = "" if is_fit else f"older than {'.'.join(map(str, MIN_SQLITE))} can corrupt a WAL; upgrade the package apsw"
    yield Check("sqlite", "ok" if is_fit else "error", f"{found}, from apsw", help)


def _disk(settings: Settings) -> Iterator[Check]:
    from holdfast.store.file_systems import file_system, is_network

    folder = settings.folder
    while not folder.exists():
        folder = folder.parent
    if settings.store_path is not None:
        kind = file_system(folder) or "unknown"
        is_far = is_network(kind)
        help = "SQLite's locks are not reliable there; use a local disk, or PostgreSQL" if is_far else ""
        yield Check("file system", "error" if is_far else "ok", f"{kind}, {shown_path(folder)}", help)
    usage = shutil.disk_usage(folder)
    state = "error" if usage.free < LOWER else "warning" if usage.free < LOW else "ok"
    yield Check("disk space", state, f"{_size(usage.free)} free of {_size(usage.total)}")
    if not os.access(folder, os.W_OK):
        yield Check("folder", "error", f"{folder} cannot be written by {os.environ.get('USER', 'this user')}")
        return
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        for _ in range(5):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    median = sorted(times)[2] * 1000
    if median < 0.02:
        yield Check("fsync", "warning", f"{median:.3f} ms: too fast for a disk", "does this file system keep promises?")
    else:
        yield Check("fsync", "warning" if median > 50 else "ok", f"{median:.2f} ms")


def _store(settings: Settings) -> Iterator[Check]:
    from holdfast.store.address import open_reading

    try:
        store = open_reading(settings.store)
    except FileNotFoundError:
        yield Check("store", "ok", f"{settings.shown_store} does not exist yet; the first run makes it")
        return
    try:
        before = time.time()
        skew = abs(store.now() / 1e6 - (before + time.time()) / 2)
        with store.reading() as queries:
            count = queries.count("executions")
            yield Check("store", "ok", f"{settings.shown_store}, {count:,} executions")
            yield Check("clock", "ok" if skew < SKEW else "warning", f"{skew * 1000:.0f} ms from the store's")
            if store.kind == "postgres":
                for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes"):
                    value = str(queries.rows(f"SHOW {name}")[0][0])
                    yield Check(f"postgres {name}", "error" if value == "off" else "ok", value)
    finally:
        store.close()


def _server(settings: Settings) -> Iterator[Check]:
    from holdfast.store.sqlite import owner_of

    found = serverfile.read(settings.folder)
    path = shown_path(settings.folder / serverfile.NAME)
    owner = owner_of(settings.store_path) if settings.store_path is not None else ""
    if found is None and owner:
        help = "it has only just started, is a program of its own, or its disk is full"
        yield Check("server", "warning", f"{owner} has the store open, but serves nobody", help)
    elif found is None:
        yield Check("server", "ok", "none is running here")
    elif not serverfile.is_process(found):
        yield Check("server", "warning", f"{path} is stale: process {found.pid} is gone", "the next run replaces it")
    elif not serverfile.answers(found.address):
        help = "it may be starting, or its process number was given to another program"
        yield Check("server", "warning", f"{found.address} (process {found.pid}) does not answer", help)
    else:
        yield Check("server", "ok", f"{found.address}, process {found.pid}")
    if address := settings["server"]:
        is_there = serverfile.answers(address)
        yield Check(
            "--server", "ok" if is_there else "error", f"{address} {'answers' if is_there else 'does not answer'}"
        )
    if found is None or not serverfile.is_process(found):
        yield _port(settings)


def _port(settings: Settings) -> Check:
    host, port = settings["host"], settings["port"]
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            help = "`holdfast up` takes the next free one" if settings.source("port") == "default" else "choose another"
            return Check("port", "warning", f"{host}:{port}: {error.strerror}", help)
    return Check("port", "ok", f"{host}:{port} is free")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


GROUPS = (_python, _sqlite, _disk, _store, _server)
_NAMES: dict[Callable[[Settings], Iterator[Check]], str] = {
    _python: "python",
    _sqlite: "sqlite",
    _disk: "disk",
    _store: "store",
    _server: "server",
}
assert set(SECRETS) <= set(KEYS)
