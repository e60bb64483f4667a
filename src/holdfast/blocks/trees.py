"""Process trees: who belongs to one, how to end all of it, and a guard that does so if we are killed.

A tree is a process, its session and process group, everything that inherited its mark in the environment,
and all their descendants, as far as /proc tells (cgroups are a later rung). This file is also run as a
script, by the guard, so it imports the standard library only.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time

#: environment variable that marks what we start; it survives a double fork into another session
MARK = "HOLDFAST_TREE"
#: seconds between SIGTERM and SIGKILL
GRACE = 5.0
#: the same for trees whose worker is gone: another one may soon be given the same job
ORPHAN_GRACE = 1.0
#: seconds after which the guard leaves what cannot be killed (stuck in the kernel) to the operator
GIVE_UP = 60.0


def new_mark() -> str:
    return os.urandom(8).hex()


def environment(mark: str) -> dict[str, str]:
    """What a process we start inherits: all but our own credentials, and its mark."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("HOLDFAST_") and name.endswith(("KEY", "TOKEN")))
    }
    return {**inherited, MARK: mark}


def _table() -> dict[int, tuple[int, int, int, str]]:
    """pid → (parent, group, session, state) of every process; empty where there is no /proc."""
    table: dict[int, tuple[int, int, int, str]] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return table
    for entry in entries:
        if not entry.isdigit():
            continue
        text = _read(f"/proc/{entry}/stat")
        if not text:
            continue  # gone meanwhile
        # The command stands in brackets and may itself hold blanks and brackets.
        state, parent, group, session = text[text.rindex(b")") + 2 :].split(None, 4)[:4]
        table[int(entry)] = (int(parent), int(group), int(session), state.decode())
    return table


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def members(root: int, mark: str = "") -> set[int]:
    """Living processes (no zombies) of the tree under `root`, itself included; 0 if only the mark is known."""
    table = _table()
    sought = f"{MARK}={mark}".encode()
    found = {
        pid
        for pid, (_, group, session, _) in table.items()
        if (root and root in (pid, group, session)) or (mark and sought in _read(f"/proc/{pid}/environ"))
    }
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    todo = list(found)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return {pid for pid in found if table[pid][3] not in "ZX"}


def send(pid: int, number: int, *, group: bool = False) -> bool:
    """Signal one process, or its group; False if it is not there or not ours."""
    try:
        (os.killpg if group else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def strike(root: int, mark: str, number: int) -> None:
    """Signal the whole tree, descendants first.

    The root goes last: while it lives, descendants that lost their parent may still be found below it.
    """
    for pid in sorted(members(root, mark) - {root}, reverse=True):
        send(pid, number)
    if root and not send(root, number, group=True):
        send(root, number)


def is_gone(root: int, mark: str) -> bool:
    """Nobody of the tree is left. Zombies count as gone: they run nothing."""
    if os.path.isdir("/proc/self"):
        return not members(root, mark)
    return not root or not send(root, 0, group=True)


async def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """SIGTERM to the whole tree of a process we started, five seconds, SIGKILL, until nobody is left."""
    import asyncio  # not at the top: the guard does without, and starts five times as fast

    strike(process.pid, mark, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    pause = 0.005
    while True:
        process.poll()
        if is_gone(process.pid, mark):
            process.wait()  # a zombie counts as gone; this reaps it, at once
            return
        if time.monotonic() > deadline:
            strike(process.pid, mark, signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)


class Guard:
    """A small process that outlives a `kill -9` of ours and ends the trees we had started.

    Its standard input is a pipe from us: `+mark` and `-mark` lines, then end of file when we are gone,
    however that came about. (PR_SET_PDEATHSIG would reach one process of a tree, and fires when a mere
    thread of ours ends.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: set[str] = set()

    def watch(self, mark: str) -> None:
        """Call it before the process is started: then there is no moment in which it could be orphaned.

        (A child that has not yet come to its exec holds our end of the pipe open, so the end of file comes
        only when the mark can be seen.)
        """
        with self._lock:
            self._watched.add(mark)
            self._say(f"+{mark}\n")

    def release(self, mark: str) -> None:
        with self._lock:
            self._watched.discard(mark)
            if self._process is not None:
                self._say(f"-{mark}\n")

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()

    def _say(self, line: str) -> None:
        for _ in range(2):
            if self._process is None:
                self._process = self._begin()
                line = "".join(f"+{mark}\n" for mark in self._watched)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(line.encode())
                return
            except BrokenPipeError:  # somebody ended the guard: have another, and tell it everything
                self._process.wait()
                self._process = None

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )


guard = Guard()
atexit.register(guard.close)


def _stand_guard() -> None:
    """What the guard process does."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: set[str] = set()
    for line in sys.stdin:
        mark = line[1:].strip()
        if line[0] == "+":
            watched.add(mark)
        else:
            watched.discard(mark)
    for mark in watched:
        strike(0, mark, signal.SIGTERM)
    began = time.monotonic()
    while watched := {mark for mark in watched if not is_gone(0, mark)}:
        waited = time.monotonic() - began
        if waited > GIVE_UP:
            return
        if waited > ORPHAN_GRACE:
            for mark in watched:
                strike(0, mark, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    _stand_guard()
