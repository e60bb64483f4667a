"""A process with everything imported, which forks engines and workers: a restart costs a few milliseconds.

`Forks` is its other end. A child is a real process: it has its own store, threads and death. The server itself has
one thread and opens nothing, so that a fork inherits nothing that could be shared by accident.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast import failpoints
from tests.acceptance import labourer, victim, walker
from tests.acceptance.processes import ENVIRONMENT, ROOT

from . import planted

PROGRAMS = {
    "victim": victim.main,
    "labourer": labourer.main,
    "walker": walker.main,
    "hasty": planted.hasty,
    "eager": planted.eager,
}


class Child:
    """One process that was forked."""

    def __init__(self, forks: Forks, pid: int, said: int, errors: Path, start: int) -> None:
        self.pid = pid
        self.errors = errors
        self._forks = forks
        self._said = said
        self._start = start
        self.is_ready = False

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    @property
    def returncode(self) -> int | None:
        """As `subprocess` has it: negative for a signal."""
        return self._forks.poll(self.pid)

    def wait(self, seconds: float) -> int | None:
        """Its return code; None if it lives longer than that."""
        deadline = time.monotonic() + seconds
        while (code := self._forks.poll(self.pid, max(0.0, deadline - time.monotonic()))) is None:
            if time.monotonic() >= deadline:
                return None
        return code

    def until_ready(self, seconds: float = 60.0) -> bool:
        """Whether it said so before it died."""
        deadline = time.monotonic() + seconds
        while not self.is_ready and time.monotonic() < deadline:
            if select.select([self._said], [], [], 0.05)[0]:
                data = os.read(self._said, 100)
                if not data:
                    return False
                self.is_ready = b"ready" in data
        return self.is_ready

    def close(self) -> None:
        if self._said >= 0:
            os.close(self._said)
            self._said = -1

    def failpoints(self) -> list[str]:
        """Names of failpoints that acted in it or in a child of its own."""
        with self.errors.open("rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").splitlines()
        return [line.split()[1] for line in lines if line.startswith("failpoint ")]


class Forks:
    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.forks", str(theirs.fileno())],
            cwd=ROOT,
            env=ENVIRONMENT,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self._ended: dict[int, int] = {}
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            child.wait(10)
            child.close()
        self._line.close()
        self._server.wait(10)

    def start(self, program: str, folder: Path, arguments: Sequence[str], failpoint: str = "") -> Child:
        errors = folder / f"{program}.err"
        ours, said = os.pipe()
        log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        before = os.fstat(log).st_size
        message = json.dumps({"program": program, "arguments": list(arguments), "failpoint": failpoint})
        socket.send_fds(self._line, [message.encode()], [said, log])
        os.close(said)
        os.close(log)
        while (pid := self._hear(60.0)) is None:
            pass
        child = Child(self, pid, ours, errors, before)
        self._children = [other for other in self._children if other.returncode is None] + [child]
        return child

    def poll(self, pid: int, seconds: float = 0.0) -> int | None:
        """How that child ended, if it did within so many seconds."""
        if pid not in self._ended:
            self._hear(seconds)
        return self._ended.get(pid)

    def _hear(self, seconds: float) -> int | None:
        """Take in what the server says; the process id if that is what it said."""
        if not select.select([self._line], [], [], seconds)[0]:
            return None
        data = self._line.recv(1000)
        assert data, "the fork server is gone"
        message = json.loads(data)
        if "status" in message:
            self._ended[message["ended"]] = os.waitstatus_to_exitcode(message["status"])
            return None
        pid: int = message["begun"]
        return pid


def serve(line: socket.socket) -> None:
    """Fork what is asked for and say how each ends, until nobody is at the other end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        ready = select.select([line, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 1000)
            _reap(line)
        if line in ready:
            data, fds, _, _ = socket.recv_fds(line, 100_000, 2)
            if not data:
                return
            pid = os.fork()
            if not pid:
                _become(json.loads(data), fds, [line.fileno(), woken, wake])
            for fd in fds:
                os.close(fd)
            line.send(json.dumps({"begun": pid}).encode())


def _reap(line: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        line.send(json.dumps({"ended": pid, "status": status}).encode())


def _become(message: dict[str, object], fds: list[int], inherited: list[int]) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        for fd in (*fds, *inherited):
            os.close(fd)
        spec = str(message["failpoint"])
        os.environ[failpoints.VARIABLE] = spec  # for the children it will have
        failpoints.arm(spec)
        PROGRAMS[str(message["program"])]([str(word) for word in message["arguments"]])  # type: ignore[attr-defined]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    # What is imported late would be imported anew in every child.

    import holdfast.store.postgres
    import holdfast.store.sqlite  # noqa: F401

    serve(socket.socket(fileno=int(sys.argv[1])))
