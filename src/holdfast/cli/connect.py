"""How a command reaches executions: a server that was named, the project's own server, or the store itself.

Reading needs no engine: the file is read beside its owner. Writing without a server starts an engine
without a worker for as long as the command takes. What is decided where is not decided here.
"""

from __future__ import annotations

import getpass
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.core.errors import StoreLocked
from holdfast.core.model import Actor

from . import serverfile
from .settings import Settings, shown_path

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs
    from holdfast.embedded import Embedded

F = TypeVar("F", bound=Callable[..., Any])

#: seconds to wait for the owner of a store to say where it can be reached, or to leave
PATIENCE = 10.0


def me() -> Actor:
    try:
        return Actor(getpass.getuser())
    except (KeyError, OSError):
        return Actor("local")


def reach_options(command: F) -> F:
    """Options of every command that talks to a server or a store."""
    for option in (
        click.option(
            "--traceback", is_flag=True, expose_value=False, help="Show where in the code an error came from."
        ),
        click.option("--store", metavar="URL", default="", help="The store, if no server is to be asked."),
        click.option("--token", metavar="TOKEN", default="", help="API token; better in HOLDFAST_TOKEN."),
        click.option("--server", metavar="URL", default="", help="A server, e.g. http://127.0.0.1:3030."),
    ):
        command = option(command)
    return command


def traceback_option(command: F) -> F:
    return click.option(
        "--traceback", is_flag=True, expose_value=False, help="Show where in the code an error came from."
    )(command)


def find_server(settings: Settings) -> tuple[str, str] | None:
    """Address and token of the server to ask, if there is one."""
    own = serverfile.read(settings.folder)
    address = settings["server"]
    if address and settings.source("store") != "--store":
        known = own.token if own is not None and own.address.rstrip("/") == address.rstrip("/") else ""
        return address, settings["token"] or known
    found = serverfile.alive(settings.folder, settings.store_id)
    return (found.address, settings["token"] or found.token) if found else None


def client(address: str, token: str, patience: float = 30.0) -> Verbs:
    """`patience`: seconds that following survives a server that is away."""
    from holdfast.client import Client

    return Client(address, token, patience=patience)


@contextmanager
def reading(settings: Settings) -> Iterator[Verbs]:
    """The verbs, for a command that changes nothing."""
    server = find_server(settings)
    if server is not None:
        yield client(*server)
        return
    from holdfast.engine.service import Service
    from holdfast.store.address import open_reading

    from .local import LocalVerbs
    from .text import say

    with ExitStack() as stack:
        try:
            store = open_reading(settings.store)
        except FileNotFoundError:
            say(f"no store at {settings.shown_store} yet; `holdfast run FILE` makes one")
            from holdfast.store.sqlite import SqliteStore

            # An empty one answers every question as it should be answered: there is nothing.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
            store = SqliteStore(Path(folder) / "empty.db")
        stack.callback(store.close)
        yield LocalVerbs(
            Service(store, keeping=settings.keeping(), patience=settings.patience()), me(), has_engine=False
        )


@contextmanager
def writing(settings: Settings) -> Iterator[Verbs]:
    """The verbs, for a command that changes something and then leaves."""
    server = find_server(settings)
    if server is not None:
        yield client(*server)
        return
    from .local import LocalVerbs

    owned = own_or_join(settings, lambda: open_embedded(settings, with_worker=False))
    if isinstance(owned, tuple):
        yield client(*owned)
        return
    try:
        yield LocalVerbs(owned.service, me())
    finally:
        owned.close(0)


def open_embedded(settings: Settings, first: Callable[[Embedded], None] | None = None, **options: Any) -> Embedded:
    """An engine of our own, running. `StoreLocked` where somebody else has the store. `first` looks at what is
    there before anything moves."""
    from holdfast.embedded import Embedded

    kept, patience = settings.keeping(), settings.patience()
    with writable(f"the server key cannot be kept in {shown_path(settings.folder)}"):
        embedded = Embedded(
            settings.store, folder=settings.folder, engine_name=f"engine-{os.getpid()}", keeping=kept,
            patience=patience, **options,
        )  # fmt: skip
    if first is not None:
        try:
            first(embedded)
        except BaseException:
            embedded.store.close()
            raise
    try:
        embedded.open()
    except BaseException:
        embedded.close(0)
        raise
    return embedded


@contextmanager
def writable(otherwise: str) -> Iterator[None]:
    """A file that cannot be written is the disk's fault, or its owner's, and not a bug."""
    try:
        yield
    except OSError as error:
        from holdfast.store.sqlite import unwritable

        raise unwritable(otherwise, error) from error


T = TypeVar("T")


def own_or_join(settings: Settings, own: Callable[[], T], patience: float = PATIENCE) -> T | tuple[str, str]:
    """Become the owner of the store, or learn the address and token of whoever is.

    The owner writes server.json only when its server listens, and a reader may hold the lock for a moment:
    so both are tried in turn for a while.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return own()
        except StoreLocked as locked:
            found = serverfile.alive(settings.folder, settings.store_id)
            if found is not None:
                return found.address, settings["token"] or found.token
            if time.monotonic() > deadline:
                raise StoreLocked(
                    f"{locked.message} (it has said nowhere how to reach it: no {serverfile.NAME} in {settings.folder})"
                ) from None
        time.sleep(0.1)
