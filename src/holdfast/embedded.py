"""Everything in one process: store, engine and a worker, opened and closed as one.

`holdfast run`, `up` and `demo` are this with a face; tests and programs use it directly. The owner of a
project's store keeps its server key beside it (0600); keys never enter the store, only a fingerprint.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.blocks import Registry
from holdfast.core.errors import BadConfiguration, KeyMismatch, ServerUnreachable
from holdfast.core.model import Actor
from holdfast.core.views import ExecutionView
from holdfast.engine.engine import Engine
from holdfast.engine.patience import PATIENCE, Patience
from holdfast.engine.purger import Purger
from holdfast.engine.retention import Keeping
from holdfast.engine.service import Service
from holdfast.failpoints import failpoint
from holdfast.language import program_from_bytes
from holdfast.store.address import open_store, sync_folder
from holdfast.store.port import Store
from holdfast.store.records import Batch
from holdfast.transport.local import LocalLink
from holdfast.worker import Worker

FINGERPRINT = "server-key"


def server_key(folder: Path | None, environment: Mapping[str, str] = os.environ) -> bytes:
    """From HOLDFAST_KEY, or from the file `key` in the project's folder, made on first use."""
    text = environment.get("HOLDFAST_KEY", "")
    if text:
        if len(text) < 32:
            raise BadConfiguration("HOLDFAST_KEY needs at least 32 characters of chance, e.g. `openssl rand -hex 32`")
        return blake2b(text.encode(), digest_size=32).digest()
    if folder is None:
        raise BadConfiguration("no server key: set HOLDFAST_KEY, the same for every engine of one store")
    path = folder / "key"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _make_key(path)
    text = path.read_text().strip()
    if len(text) < 32:
        raise BadConfiguration(f"{path} holds no key; restore it from a backup, or remove it if the store is new")
    return blake2b(text.encode(), digest_size=32).digest()


def _make_key(path: Path) -> None:
    """Whole or not there at all: a full disk or a power cut must not leave a file that is empty, and so a key that
    everybody knows; nor a store whose key is gone."""
    failpoint("key.before")
    draft = path.with_name(f"key-{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        failpoint("key.written")
        try:
            # Unlike renaming, this never replaces the key of somebody who was faster.
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:
            draft.rename(path)  # a file system without links
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    failpoint("key.after")


def check_fingerprint(store: Store, key: bytes) -> None:
    """All engines of one store must share the key, or they would refuse each other's attempts."""
    print_ = blake2b(key, digest_size=8, person=b"fingerprint").digest()
    with store.reading() as queries:
        known = queries.meta(FINGERPRINT)
    if known is None:
        failpoint("fingerprint.before")
        transaction = store.begin()
        transaction.commit(Batch(meta={FINGERPRINT: print_}))
        failpoint("fingerprint.after")
    elif known != print_:
        raise KeyMismatch(
            f"{store.address} was set up with another server key; use the same HOLDFAST_KEY (or key file) as"
            " the engine that made it"
        )


class Embedded:
    """A whole Holdfast in this process.

    with Embedded("sqlite:///state.db") as holdfast:
        print(holdfast.run({"name": "hello", "steps": ["shell echo hello"]}).output)
    """

    def __init__(
        self,
        store: str,
        *,
        folder: Path | None = None,
        modules: Iterable[str] = (),
        registry: Registry | None = None,
        worker_name: str = "",
        engine_name: str = "",
        slots: int = 64,
        queues: Iterable[str] = ("default",),
        with_worker: bool = True,
        lease: float = 30.0,
        beat: float = 10.0,
        patience: Patience = PATIENCE,
        key: bytes | None = None,
        processes: int | None = None,
        keeping: Keeping | None = None,
        purge_pause: float | None = None,
    ) -> None:
        """`keeping`: which ended executions are kept, and where others are archived, as `holdfast.engine.retention`
        says it. `purge_pause`: seconds between looks at what may go."""
        engine_id = secrets.token_hex(6)
        self.actor = Actor(os.environ.get("USER", "") or "local")
        registry = registry if registry is not None else Registry()
        # Before the store opens: a module that cannot be imported must not cost a lock or a lease.
        registry.discover(modules)
        self.store = open_store(store, engine_id=engine_id)
        try:
            if key is None:
                path = getattr(self.store, "path", None)
                key = server_key(folder or (Path(path).parent if path is not None else None))
            check_fingerprint(self.store, key)
            self.engine = Engine(
                self.store, program_from_bytes, key=key, id=engine_id, name=engine_name, lease=lease, beat=beat,
                patience=patience,
            )  # fmt: skip
        except BaseException:
            self.store.close()
            raise
        self.service = Service(self.store, self.engine, keeping, patience)
        self.purger = Purger(self.store, self.engine, self.service.keeping, pause=purge_pause)
        self.worker: Worker | None = None
        if with_worker:
            # On a store of our own the name may be the same in every life: a new one replaces the old. On a
            # shared one it must be ours alone, or two engines would take turns in declaring each other's dead.
            name = worker_name or "embedded"
            if self.store.is_shared and not worker_name:
                name = f"embedded-{socket.gethostname()}-{engine_id[:6]}"
            self.worker = Worker(LocalLink(self.engine), registry, name, slots, queues, processes=processes)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        self.store.on_hint(self.engine.hinted)
        self.engine.start()
        self.purger.start()
        if self.worker is not None:
            try:
                self.worker.start_in_thread()
            except ServerUnreachable:
                # The engine did not answer because it stopped: that is what has to be said.
                raise self.engine.fatal or ServerUnreachable("the engine in this process does not answer") from None

    def close(self, grace: float = 10.0) -> None:
        """Drain the worker, commit what it brings, end the engine, close the store."""
        if self.worker is not None:
            self.worker.stop(grace)
        self.purger.stop()
        self.engine.stop()
        self.store.close()

    def run(
        self,
        definition: Mapping[str, Any] | None = None,
        *,
        workflow: str = "",
        input: Any = None,
        timeout: float | None = None,
    ) -> ExecutionView:
        """Start and wait until it has ended."""
        started = self.service.start(self.actor, workflow=workflow, definition=definition, input=input)
        return started if started.is_ended else self.service.wait(self.actor, started.id, timeout)
