"""An SSH server on this machine: real key exchange, real processes, a private port, and nobody's account.

It behaves as sshd does: the exit code is sent when the command ends, the channel stays open until nobody holds its
output any more, signals go to the process group. It can be told to hang up at the worst moment. On its PATH are a
`sudo` that just runs things and an `apt-get` that bears witness. Run as a program (`python -m tests.services.ssh`)
it prints where it is and serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import asyncssh
from asyncssh.packet import UInt32

_SUDO = '#!/bin/sh\nexec "$@"\n'
_APT_GET = """#!/bin/sh
[ "$1" = install ] || { echo "E: this apt-get only installs" >&2; exit 100; }
shift
for word; do case "$word" in -*) ;; *) packages="${packages:+$packages,}$word" ;; esac; done
echo "start $packages $$" >> "$APT_WITNESS"
sleep "$APT_SECONDS"
echo "end $packages $$" >> "$APT_WITNESS"
echo "Setting up $packages ..."
"""

#: when to cut the connection: when a channel is asked for, when a command is, or when that has ended
Moment = Literal["channel", "command", "end"]


@dataclass(slots=True, frozen=True)
class Install:
    """One run of apt-get: positions of its lines in the witness file, of which the last may be missing."""

    packages: str
    pid: int
    start: int
    end: int | None


class SshServer:
    """Use it as a context manager, or call `close()`. Its loop runs in a thread of its own."""

    user = "operator"
    host = "127.0.0.1"

    def __init__(self, *, password: str = "", apt_seconds: float = 0.2) -> None:
        self.password = password
        #: every command that was asked for, whether it was run or not
        self.commands: list[str] = []
        #: process ids of the commands that were run
        self.pids: list[int] = []
        #: hang up at this moment, every time
        self.drop_at: Moment | None = None
        self.refuses_commands = False
        self.ignores_signals = False
        #: close the channel without an exit code, as some network devices do
        self.says_no_code = False
        self.root = Path(tempfile.mkdtemp(prefix="hfssh-"))
        self.key = self.root / "key"
        self.known_hosts = self.root / "known_hosts"
        self.witness = self.root / "witness"
        self._environment = self._install(apt_seconds)
        self._processes: list[asyncio.subprocess.Process] = []
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._client_key = asyncssh.generate_private_key("ssh-ed25519")
        self._client_key.write_private_key(self.key)
        self.key.chmod(0o600)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self._call(self._listen())
        public = self._host_key.export_public_key("openssh").decode()
        self.known_hosts.write_text(f"[{self.host}]:{self.port} {public}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the block `ssh` needs to get in."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "key": str(self.key),
            "known_hosts_file": str(self.known_hosts),
        }

    def drop_connections(self) -> None:
        """Cut every connection without a word, as a dying network does. What runs goes on."""
        self._call(self._drop())

    def close(self) -> None:
        for pid in self.pids:
            _signal_group(pid, signal.SIGKILL)
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- apt-get ------------------------------------------------------------------------------------

    def installs(self) -> list[Install]:
        """Runs of apt-get in the order in which they began."""
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        begun: dict[int, Install] = {}
        for index, line in enumerate(lines):
            what, packages, pid = line.split()
            start = index if what == "start" else begun[int(pid)].start
            begun[int(pid)] = Install(packages, int(pid), start, index if what == "end" else None)
        return sorted(begun.values(), key=lambda one: one.start)

    def overlaps(self) -> list[tuple[str, str]]:
        """Packages of runs that were under way at the same time; empty if each waited for the one before."""
        runs = self.installs()
        return [
            (first.packages, second.packages)
            for first, second in itertools.pairwise(runs)
            if first.end is None or first.end > second.start
        ]

    # -- inside -------------------------------------------------------------------------------------

    def _install(self, apt_seconds: float) -> dict[str, str]:
        programs = self.root / "bin"
        programs.mkdir()
        for name, text in (("sudo", _SUDO), ("apt-get", _APT_GET)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return {
            "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.root),
            "APT_WITNESS": str(self.witness),
            "APT_SECONDS": str(apt_seconds),
        }

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _listen(self) -> int:
        keys = asyncssh.import_authorized_keys(self._client_key.export_public_key("openssh").decode())
        self._acceptor = await asyncssh.create_server(
            lambda: _Server(self),
            self.host,
            0,
            server_host_keys=[self._host_key],
            authorized_client_keys=keys,
            encoding=None,
        )
        return self._acceptor.get_port()

    async def _drop(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    async def _shut(self) -> None:
        await self._drop()
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        # They were killed; a loop that closes before it has heard of it leaves them to the garbage collector.
        while any(process.returncode is None for process in self._processes):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for process in self._processes:
            # What a killed command left behind may hold its pipes; our ends of them are closed all the same.
            process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
        await self._loop.shutdown_default_executor()


class _Server(asyncssh.SSHServer):
    def __init__(self, service: SshServer) -> None:
        self._service = service
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._service._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._service._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return bool(self._service.password)

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (self._service.user, self._service.password)

    def session_requested(self) -> Any:
        assert self._connection is not None
        if self._service.drop_at == "channel":
            self._connection.abort()
            return False
        return _Session(self._service, self._connection.abort)


class _Session(asyncssh.SSHServerSession[bytes]):
    def __init__(self, service: SshServer, hang_up: Callable[[], None]) -> None:
        self._service = service
        self._hang_up = hang_up
        self._channel: asyncssh.SSHServerChannel[bytes]
        self._command = ""
        self._process: asyncio.subprocess.Process | None = None
        self._given = bytearray()
        self._is_given = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        self._service.commands.append(command)
        self._command = command
        if self._service.drop_at == "command":
            self._hang_up()
            return False
        return not self._service.refuses_commands

    def session_started(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._given += data
        self._pass_on()

    def eof_received(self) -> bool:
        self._is_given = True
        self._pass_on()
        return True

    def signal_received(self, signal: str) -> None:
        import signal as signals

        if self._process is not None and not self._service.ignores_signals:
            _signal_group(self._process.pid, signals.Signals[f"SIG{signal}"])

    def _pass_on(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.write(bytes(self._given))
        self._given.clear()
        if self._is_given:
            self._process.stdin.close()

    async def _run(self) -> None:
        offered = {str(name): str(value) for name, value in self._channel.get_environment().items()}
        self._process = process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", self._command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**offered, **self._service._environment}, cwd=self._service.root, start_new_session=True,
        )  # fmt: skip
        self._service.pids.append(process.pid)
        self._service._processes.append(process)
        self._pass_on()
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = [
            asyncio.ensure_future(_pump(process.stdout, self._channel.write)),
            asyncio.ensure_future(_pump(process.stderr, self._channel.write_stderr)),
        ]
        # `wait()` would wait for the pipes too, which a grandchild may hold open.
        while process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self._service.drop_at == "end":
            self._hang_up()
        code = process.returncode
        # There is no public call that says the exit code and leaves the channel open, as sshd does.
        if self._service.says_no_code:
            await asyncio.wait(pumps)
            self._channel.close()
        elif code >= 0:
            self._channel._send_request(b"exit-status", UInt32(code))
            await asyncio.wait(pumps)
            self._channel.close()
        else:
            self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            await asyncio.wait(pumps)


async def _pump(source: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
    while data := await source.read(65536):
        try:
            write(data)
        except OSError:
            return  # the client is gone; the command goes on


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def main() -> None:
    with SshServer() as server:
        print(json.dumps({**server.parameters, "witness": str(server.witness)}), flush=True)
        try:
            sys.stdin.buffer.read()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
