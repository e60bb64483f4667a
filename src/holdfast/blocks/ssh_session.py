"""One command over SSH, with asyncssh: connect, send it, gather what it says, stop it when told to.

It answers one question above all: was the command sent? Before that a failure has done nothing; after that only an
exit code makes the outcome known.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from holdfast.core.model import Effect

from . import trees
from .context import Context
from .results import Cancelled, NothingDone
from .ssh import Target

#: seconds without a word after which what the command left in the background is not waited for
LINGER = 2.0
#: seconds for the other side to confirm a SIGKILL
CONFIRM = 2.0
#: a machine that lost power says nothing: after four unanswered questions the connection is taken for lost
KEEPALIVE, UNANSWERED = 15, 4

# At INFO it writes out every command, and with it whatever `env` holds.
logging.getLogger("asyncssh").setLevel(logging.WARNING)


@dataclass(slots=True, frozen=True)
class Ended:
    #: the end of what was said, and whether there was more before it
    stdout: tuple[bytes, bool]
    stderr: tuple[bytes, bool]
    #: none where the other side did not say one
    exit_code: int | None
    #: why the outcome is unknown; empty where it is not
    why_lost: str


async def run(
    target: Target,
    command: str,
    environment: Mapping[str | bytes, str | bytes],
    stdin: str | None,
    keep: int,
    ctx: Context,
) -> Ended:
    """Raises NothingDone, or Cancelled without effect, as long as the command was not sent."""
    client = _Client(target)
    try:
        connection = await _connect(target, client)
    except asyncio.CancelledError:
        raise Cancelled("stopped before the command was sent", effect=Effect.NONE) from None
    session = _Session(keep)
    try:
        if client.learned is not None:
            _remember(target, client.learned, ctx)
        await _begin(connection, session, command, environment, stdin, target)
        await session.finish()
        # Before we hang up ourselves.
        why_lost = _why_lost(session, client)
    except asyncio.CancelledError:
        if session.channel is None:
            raise Cancelled("stopped before the command was sent", effect=Effect.NONE) from None
        if session.exit_code is None:
            # Shielded: a second cancel must not leave the command half stopped.
            await asyncio.shield(asyncio.ensure_future(_stop(session, session.channel, target, ctx)))
            raise
        why_lost = ""  # it had ended by itself: what became of it is worth more than that it was to be stopped
    finally:
        connection.close()
        with suppress(asyncio.CancelledError, TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(CONFIRM):
                await connection.wait_closed()
        connection.abort()
    return Ended(session.said[0].end(), session.said[1].end(), session.exit_code, why_lost)


class _Tail:
    """The last bytes of an output that may be without end."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._held = bytearray()
        self._was_cut = False

    def add(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > 2 * self._keep + 65536:
            self._cut()

    def end(self) -> tuple[bytes, bool]:
        self._cut()
        return bytes(self._held), self._was_cut

    def _cut(self) -> None:
        surplus = len(self._held) - self._keep
        if surplus > 0:
            del self._held[:surplus]
            self._was_cut = True


class _Session(asyncssh.SSHClientSession[bytes]):
    def __init__(self, keep: int) -> None:
        self.said = _Tail(keep), _Tail(keep)
        self.received = 0
        self.exit_code: int | None = None
        #: set with the channel: from then on the command may be on its way
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        self.failure: Exception | None = None
        self.has_exited = asyncio.Event()
        self.is_closed = asyncio.Event()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self.received += 1
        self.said[1 if datatype == asyncssh.EXTENDED_DATA_STDERR else 0].add(data)

    def exit_status_received(self, status: int) -> None:
        self.exit_code = status
        self.has_exited.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.exit_code = _code_of_signal(signal)
        self.has_exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.failure = exc
        self.has_exited.set()
        self.is_closed.set()

    async def finish(self) -> None:
        await self.has_exited.wait()
        # Output may come after the exit code. But what the command left in the background may hold the
        # channel open for ever, and is its own business.
        while not self.is_closed.is_set():
            before = self.received
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    await self.is_closed.wait()
            if self.received == before:
                return


class _Client(asyncssh.SSHClient):
    """Decides about hosts that `known_hosts_file` does not settle."""

    def __init__(self, target: Target) -> None:
        self._accepts_new = target.known_hosts == "accept-new"
        self.hosts: asyncssh.SSHKnownHosts | None = None
        #: the host key is another than the one that is known
        self.is_other = False
        self.learned: tuple[str, int, asyncssh.SSHKey] | None = None
        self.is_lost = False

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        if self.hosts is None:
            return True
        keys, authorities, *_ = self.hosts.match(host, addr, port if port != asyncssh.DEFAULT_PORT else None)
        self.is_other = bool(keys or authorities)
        if self.is_other or not self._accepts_new:
            return False
        self.learned = host, port, key
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def _connect(target: Target, client: _Client) -> asyncssh.SSHClientConnection:
    options: dict[str, Any] = {"keepalive_interval": KEEPALIVE, "keepalive_count_max": UNANSWERED}
    if target.port is not None:
        options["port"] = target.port
    if target.user is not None:
        options["username"] = target.user
    if target.password is not None:
        options.update(password=target.password, client_keys=None, agent_path=None)
    if target.key is not None:
        options.update(client_keys=[_key_file(target.key)], agent_path=None)
    if target.known_hosts != "none":
        client.hosts = _known_hosts(target)
    where = f"ssh: cannot connect to {target.shown}"
    try:
        async with asyncio.timeout(target.connect_timeout):
            connection, _ = await asyncssh.create_connection(
                lambda: client, target.host, known_hosts=client.hosts, **options
            )
            return connection
    except TimeoutError:
        raise NothingDone(f"{where} within {target.connect_timeout:g} s") from None
    except asyncssh.HostKeyNotVerifiable as error:
        raise NothingDone(_not_believed(target, client, error), permanent=True) from None
    except asyncssh.PermissionDenied as error:
        # For good: knocking again with the same key or password gets accounts locked.
        raise NothingDone(f"{where}: {error.reason}", permanent=True) from None
    except asyncssh.KeyExchangeFailed as error:
        raise NothingDone(f"{where}: {error.reason}", permanent=True) from None
    except asyncssh.DisconnectError as error:
        raise NothingDone(f"{where}: {error.reason}") from None
    except (OSError, asyncssh.Error) as error:
        raise NothingDone(f"{where}: {error}") from None
    except ValueError as error:  # keys and configuration that cannot be read
        raise NothingDone(f"{where}: {error}", permanent=True) from None


def _key_file(path: str) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(os.path.expanduser(path))
    except OSError as error:
        raise NothingDone(f"ssh: key `{path}` cannot be read: {error.strerror}", permanent=True) from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        message = f"ssh: key `{path}` cannot be used: {error}; one with a passphrase belongs into the account's agent"
        raise NothingDone(message, permanent=True) from None


def _known_hosts(target: Target) -> asyncssh.SSHKnownHosts:
    try:
        text = Path(target.known_hosts_file).expanduser().read_text(errors="replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        message = f"ssh: known_hosts_file `{target.known_hosts_file}` cannot be read: {error.strerror}"
        raise NothingDone(message, permanent=True) from None
    try:
        return asyncssh.import_known_hosts(text)
    except ValueError as error:
        message = f"ssh: known_hosts_file `{target.known_hosts_file}`: {error}"
        raise NothingDone(message, permanent=True) from None


def _not_believed(target: Target, client: _Client, error: asyncssh.HostKeyNotVerifiable) -> str:
    file = target.known_hosts_file
    if client.is_other:
        return (
            f"ssh: {target.shown} shows another host key than the one in {file}: the machine was made anew, or somebody"
            " stands in between; if it is the former, remove the old line (`ssh-keygen -R`)"
        )
    return (
        f"ssh: the host key of {target.shown} is not in {file} ({error.reason}); add it (`ssh-keyscan`), or say"
        " `known_hosts: accept-new`"
    )


def _remember(target: Target, learned: tuple[str, int, asyncssh.SSHKey], ctx: Context) -> None:
    host, port, key = learned
    name = host if port == asyncssh.DEFAULT_PORT else f"[{host}]:{port}"
    path = Path(target.known_hosts_file).expanduser()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write: lines of others that append at the same time never mix.
            os.write(file, b"%s %s" % (name.encode(), key.export_public_key("openssh").strip() + b"\n"))
        finally:
            os.close(file)
    except OSError as error:
        message = f"ssh: the new host key of {name} cannot be written to {path}: {error.strerror}"
        raise NothingDone(message, permanent=True) from None
    ctx.info(f"{name} was never seen before; its host key {key.get_fingerprint()} is now in {path}")


async def _begin(
    connection: asyncssh.SSHClientConnection,
    session: _Session,
    command: str,
    environment: Mapping[str | bytes, str | bytes],
    stdin: str | None,
    target: Target,
) -> None:
    try:
        channel, _ = await connection.create_session(
            lambda: session, command, env=environment, encoding=None, request_pty=False
        )
    except asyncssh.ChannelOpenError as error:
        # "No" to the request looks the same as a connection that closed before there was an answer. Only
        # the channel knows the difference: it is still there, or was.
        if session.channel is not None and session.is_closed.is_set():
            return
        raise NothingDone(f"ssh: {target.shown} does not run commands: {error.reason}", permanent=True) from None
    except (OSError, asyncssh.Error) as error:
        if session.channel is not None:
            session.connection_lost(error)
            return
        raise NothingDone(f"ssh: {target.shown}: {error}") from None
    # A command that has ended already, or does not read, is no reason to fail.
    with suppress(OSError):
        if stdin is not None:
            channel.write(stdin.encode())
        channel.write_eof()


async def _stop(session: _Session, channel: asyncssh.SSHClientChannel[bytes], target: Target, ctx: Context) -> None:
    for name, patience in (("TERM", trees.GRACE), ("KILL", CONFIRM)):
        with suppress(OSError):
            channel.send_signal(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await session.has_exited.wait()
        if session.has_exited.is_set():
            break
    if session.exit_code is None:
        ctx.warning(f"{target.shown} did not confirm that the command ended; it may still be running there")
    channel.abort()


def _why_lost(session: _Session, client: _Client) -> str:
    if session.exit_code is not None or not (client.is_lost or session.failure is not None):
        return ""
    return f"the connection was lost while it ran ({session.failure or 'closed by the other side'})"


def _code_of_signal(name: str) -> int:
    """Killed by signal n is 128 + n, as shells say it."""
    number = getattr(signal, f"SIG{name}", None)
    return 128 + int(number) if isinstance(number, signal.Signals) else 255
