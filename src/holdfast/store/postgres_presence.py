"""What an engine shows of itself between commits: that it is alive, and hints that there is something to do.

One connection and one thread for both. The connection holds an advisory lock, which the server drops the
moment the process dies; it also sends and hears NOTIFY. Nothing here carries state: losing every hint
costs latency only, and NOTIFY stays out of state transactions, where it would serialise their commits.
"""

from __future__ import annotations

import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

import psycopg

from holdfast.core.errors import Refused

from .postgres_connect import LOCK_SPACE, PRESENCE, Connection, Connector, discard, is_lost, translated
from .queries import Queries, storable

#: Seconds between two hints: those in between become one.
EVERY = 0.02
_CHANNEL = "holdfast"
_log = logging.getLogger("holdfast.store")


def lock_number(engine_id: str) -> int:
    """The second half of an engine's lock. Two ids that share it could hide each other's death, not life:
    the lock is taken shared."""
    number = int.from_bytes(blake2b(storable(engine_id).encode(), digest_size=4).digest(), "big", signed=True)
    return number or 1  # 0 is for migrations


def living(q: Queries) -> list[str]:
    """Ids in the table of engines whose lock is held by somebody right now."""
    # In this order: an engine takes its lock before it writes its row, so a row seen here had its lock.
    engines = q.engines()
    held = {
        number - (1 << 32) if number >= 1 << 31 else number
        for (number,) in q.rows(
            "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
            " AND classid = ?::bigint::oid"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (LOCK_SPACE,),
        )
    }
    return [engine.id for engine in engines if lock_number(engine.id) in held]


class Presence:
    def __init__(self, connector: Connector, engine_id: str) -> None:
        self._connector = connector
        self._engine_id = engine_id
        self._callback: Callable[[], None] | None = None
        self._connection: Connection | None = None
        self._is_closing = False
        self._is_hinted = False
        self._is_heard = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        if engine_id:
            try:
                # Before anything is claimed in its name, so that no other engine takes it for dead.
                self._connection = self._open()
            except BaseException:
                self._woken.close()
                self._wake.close()
                raise
            self._start()

    def hint(self) -> None:
        if not self._is_hinted:
            self._is_hinted = True
            self._start()
            self._nudge()

    def on_hint(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._start()

    def close(self) -> None:
        with self._starting:
            self._is_closing = True
        if self._thread is not None:
            self._nudge()
            if self._thread is not threading.current_thread():
                self._thread.join()
        discard(self._connection)
        self._woken.close()
        self._wake.close()

    # --- inside -------------------------------------------------------------------------------------
    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="holdfast-presence", daemon=True)
                self._thread.start()

    def _nudge(self) -> None:
        with suppress(OSError):  # full: it is awake; closed: so are we
            self._wake.send(b"\0")

    def _open(self) -> Connection:
        connection = self._connector.open(PRESENCE, patience=0)
        try:
            with translated(self._connector.address):
                connection.add_notify_handler(self._hear)
                connection.execute(f"LISTEN {_CHANNEL}")
                if self._engine_id:
                    # Shared: the server may not yet have noticed that our connection before this one is dead.
                    connection.execute(
                        "SELECT pg_advisory_lock_shared($1::int, $2::int)",
                        [LOCK_SPACE, lock_number(self._engine_id)],
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    def _hear(self, notify: psycopg.Notify) -> None:
        connection = self._connection
        if connection is None or notify.pid != connection.info.backend_pid:
            self._is_heard = True

    def _run(self) -> None:
        pause = 0.05
        next_hint = 0.0
        while not self._is_closing:
            try:
                if self._connection is None:
                    self._connection = self._open()
                    self._is_heard = True  # who knows what was said meanwhile
                    pause = 0.05
                else:
                    next_hint = self._turn(self._connection, next_hint)
            except (psycopg.Error, Refused, OSError) as error:
                if self._connection is None or is_lost(self._connection):
                    discard(self._connection)
                    self._connection = None
                _log.debug("presence: %s", error)
                self._wait(None, pause * random.uniform(0.5, 1.5))  # noqa: S311
                pause = min(pause * 2, 1.0)
            if self._is_heard:
                self._is_heard = False
                self._call_back()

    def _turn(self, connection: Connection, next_hint: float) -> float:
        """Wait for something to say or to hear; return when the next hint may go out."""
        rest = next_hint - time.monotonic()
        if self._is_hinted and rest <= 0:
            # Cleared first: a hint that comes while this one is on its way is sent again.
            self._is_hinted = False
            connection.execute(f"NOTIFY {_CHANNEL}")
            return time.monotonic() + EVERY
        if self._wait(connection, max(rest, 0) if self._is_hinted else None):
            connection.execute("SELECT 1")  # takes in what has arrived, or finds the connection dead
        return next_hint

    def _wait(self, connection: Connection | None, seconds: float | None) -> bool:
        """Until nudged, or the time is over, or the server has sent something (True)."""
        sources = select.poll()
        sources.register(self._woken, select.POLLIN)
        if connection is not None:
            sources.register(connection.fileno(), select.POLLIN)
        ready = {fd for fd, _ in sources.poll(None if seconds is None else max(1, int(seconds * 1000)))}
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        return connection is not None and connection.fileno() in ready

    def _call_back(self) -> None:
        if self._callback is not None and not self._is_closing:
            try:
                self._callback()
            except Exception:
                _log.exception("a hint could not be passed on")
