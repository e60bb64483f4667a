"""A session: what `run`, `up` and `demo` work through — as the owner of the store, or as a guest of its owner.

The owner has an engine and a worker in this process and serves the API to others. A guest is a client and,
where it brings blocks of its own, a worker for those. A guest whose host leaves becomes the owner.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ServerUnreachable, ShuttingDown, StoreUnavailable, Unauthenticated
from holdfast.core.model import Status

from . import serverfile
from .connect import client, find_server, me, open_embedded, own_or_join, writable
from .serverfile import ServerFile
from .settings import FOLDER, Settings, shown_path

if TYPE_CHECKING:
    from holdfast.api.server import Server
    from holdfast.client.verbs import Verbs
    from holdfast.embedded import Embedded
    from holdfast.worker import Worker

    from .links import Relay

log = logging.getLogger("holdfast.cli")

#: a server that says one of these is leaving or gone
GONE = (ServerUnreachable, ShuttingDown, StoreUnavailable, Unauthenticated)
#: seconds before a short run troubles itself with a server for others
SERVE_AFTER = 0.4


class Owner:
    """The store is ours: engine, worker, and after a moment a server for others."""

    is_owner = True

    def __init__(
        self,
        settings: Settings,
        modules: Sequence[str],
        *,
        with_worker: bool = True,
        worker_name: str = "",
        slots: int | None = None,
    ) -> None:
        """`slots=0`: blocks are registered, so that workflows which use them are accepted, but none is run."""
        from .local import LocalVerbs

        self.settings = settings
        #: executions an earlier engine left behind
        self.unfinished = 0
        private_folder(settings)
        self.embedded: Embedded = open_embedded(
            settings, self._count, modules=modules, with_worker=with_worker, worker_name=worker_name,
            slots=settings["slots"] if slots is None else slots, queues=settings["queues"], registry=registry_of(()),
        )  # fmt: skip
        self.verbs: Verbs = LocalVerbs(self.embedded.service, me())
        self.server: Server | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._timer: threading.Timer | None = None

    @property
    def address(self) -> str:
        return self.server.address if self.server is not None else ""

    def _count(self, embedded: Embedded) -> None:
        # With several engines on one store, they may be in good hands.
        if not embedded.store.is_shared:
            open_ = tuple(status for status in Status if not status.is_ended)
            self.unfinished = len(embedded.service.executions(me(), statuses=open_, limit=1000))

    def serve_soon(self) -> None:
        self._timer = threading.Timer(SERVE_AFTER, self._serve_quietly)
        self._timer.daemon = True
        self._timer.start()

    def _serve_quietly(self) -> None:
        try:
            self.serve()
        except Exception as error:
            # Others cannot join; the run itself needs no server.
            log.warning("no server for others: %s", error)

    def serve(self, **options: Any) -> None:
        """Listen, on loopback and the next free port unless told otherwise, and say so in server.json."""
        from holdfast.api.server import Server

        with self._lock:
            if self._is_closed or self.server is not None:
                return
            host = options.pop("host", "127.0.0.1")
            server = Server(self.embedded.service, host, self.settings["port"], **{"fallback": True, **options})
            server.start()
            self.server = server
            token = server.local_token(me().name)
            said = ServerFile(server.address, token, os.getpid(), self.settings.store_id, socket.gethostname())
            with writable(f"{serverfile.NAME} cannot be written in {shown_path(self.settings.folder)}"):
                serverfile.write(self.settings.folder, said)

    def running(self) -> int:
        """Jobs that our own worker has in hand."""
        return _busy(self.verbs, self.embedded.worker)

    def close(self, grace: float = 10.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The worker first: as long as it drains, guests can bring in what they have.
        if self.embedded.worker is not None:
            self.embedded.worker.stop(grace)
        with self._lock:
            self._is_closed = True
            server, self.server = self.server, None
        serverfile.remove(self.settings.folder, os.getpid())
        if server is not None:
            server.stop()
        self.embedded.close(grace)


class Guest:
    """Somebody else owns the store; we ask, and work for our own blocks."""

    is_owner = False

    def __init__(
        self, settings: Settings, server: tuple[str, str], modules: Sequence[str], *, slots: int | None = None
    ) -> None:
        self.settings = settings
        self._slots = settings["slots"] if slots is None else slots
        self.address, self._token = server
        self.verbs: Verbs = client(*server, patience=self._patience)
        self._modules = modules
        self._worker: Worker | None = None
        self._relay: Relay | None = None
        if modules:
            self._work()

    @property
    def _patience(self) -> float:
        """A host in this project is succeeded at once; a server elsewhere may come back."""
        return 30.0 if self.settings["server"] else 0.3

    def _work(self) -> None:
        from holdfast.transport.http import HttpLink
        from holdfast.worker import Worker

        from .links import Relay

        # Only our own blocks: the built-in ones are the owner's business.
        registry = registry_of(self._modules, built_in=False)
        self._relay = Relay(HttpLink(self.address, self._token))
        self._worker = Worker(self._relay, registry, f"run-{os.getpid()}", self._slots, self.settings["queues"])
        self._worker.start_in_thread()

    def running(self) -> int:
        return _busy(self.verbs, self._worker)

    def close(self, grace: float = 10.0) -> None:
        if self._worker is not None:
            self._worker.stop(grace)

    def succeed(self) -> Owner | Guest:
        """Our host is gone: own the store, or find whoever was faster."""

        def own() -> Owner:
            return Owner(self.settings, self._modules)

        # It may still be draining.
        found = own_or_join(self.settings, own, patience=self.settings["grace"] + 30.0)
        if isinstance(found, Owner):
            self._hand_over(found)
            found.serve_soon()
            return found
        self.address, self._token = found
        self.verbs = client(*found, patience=self._patience)
        if self._relay is not None:
            from holdfast.transport.http import HttpLink

            self._relay.lay(HttpLink(*found))
        return self

    def _hand_over(self, owner: Owner) -> None:
        """Our worker brings in what it has in hand, to the engine that is now here, and leaves."""
        worker, relay = self._worker, self._relay
        self._worker = None
        if worker is None or relay is None:
            return
        from holdfast.transport.local import LocalLink

        relay.lay(LocalLink(owner.embedded.engine))
        threading.Thread(target=worker.stop, args=(self.settings["grace"],), daemon=True).start()


Session = Owner | Guest


def _busy(verbs: Verbs, worker: Worker | None) -> int:
    if worker is None:
        return 0
    try:
        return sum(view.busy for view in verbs.workers() if view.incarnation == worker.incarnation)
    except GONE:
        return 0  # only for a remark


def registry_of(modules: Sequence[str], *, built_in: bool = True) -> Any:
    """Blocks of installed packages and of these modules."""
    from holdfast.blocks import Registry

    registry = Registry(built_in=built_in)
    if built_in:
        registry.discover_installed()
    registry.discover(modules)
    return registry


def private_folder(settings: Settings) -> None:
    """The project's folder is nobody else's business: histories may hold what blocks were given."""
    if settings.folder.name == FOLDER and settings.project.is_dir():
        with writable(f"{shown_path(settings.folder)} cannot be made"):
            settings.folder.mkdir(mode=0o700, exist_ok=True)


def open_session(settings: Settings, modules: Sequence[str], *, slots: int | None = None) -> Session:
    server = find_server(settings)
    if server is None:

        def own() -> Owner:
            return Owner(settings, modules, slots=slots)

        found = own_or_join(settings, own)
        if isinstance(found, Owner):
            return found
        server = found
    return Guest(settings, server, modules, slots=slots)
