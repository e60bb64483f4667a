"""Process trees: who belongs to one, how to end all of it, and a guard that does so if we are killed.

A tree is a process, its session and process group, and all their descendants, as far as /proc tells; a
double fork into another session escapes once its parent is gone (cgroups are a later rung). This file is
also run as a script, by the guard, so it imports the standard library only.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time

#: seconds between SIGTERM and SIGKILL
GRACE = 5.0
#: the same for trees whose worker is gone: another one may soon be given the same job
ORPHAN_GRACE = 1.0
#: seconds after which the guard leaves what cannot be killed (stuck in the kernel) to the operator
GIVE_UP = 60.0


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
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue  # gone meanwhile
        # The command stands in brackets and may itself hold blanks and brackets.
        state, parent, group, session = text[text.rindex(b")") + 2 :].split(None, 4)[:4]
        table[int(entry)] = (int(parent), int(group), int(session), state.decode())
    return table


def members(root: int) -> set[int]:
    """Living processes (no zombies) of the tree under `root`, itself included."""
    table = _table()
    found = {pid for pid, (_, group, session, _) in table.items() if pid == root or root in (group, session)}
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


def strike(root: int, number: int) -> None:
    """Signal the whole tree, descendants first.

    The root goes last: while it lives, descendants that lost their parent may still be found below it.
    """
    for pid in sorted(members(root) - {root}, reverse=True):
        send(pid, number)
    if not send(root, number, group=True):
        send(root, number)


def is_gone(root: int) -> bool:
    """Nobody of the tree is left. Zombies count as gone: they run nothing."""
    if os.path.isdir("/proc/self"):
        return not members(root)
    try:
        os.killpg(root, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


async def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the whole tree of a process we started, five seconds, SIGKILL, until nobody is left."""
    import asyncio  # not at the top: the guard does without, and starts five times as fast

    strike(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    pause = 0.005
    while True:
        process.poll()
        if is_gone(process.pid):
            process.wait()  # a zombie counts as gone; this reaps it, at once
            return
        if time.monotonic() > deadline:
            strike(process.pid, signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)


class Guard:
    """A small process that outlives a `kill -9` of ours and ends the trees we had started.

    Its standard input is a pipe from us: `+pid` and `-pid` lines, then end of file when we are gone,
    however that came about. (PR_SET_PDEATHSIG would reach one process of a tree, and fires when a mere
    thread of ours ends.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: set[int] = set()

    def watch(self, pid: int) -> None:
        # The window between the start of a process and this line is the only one in which it can be orphaned.
        with self._lock:
            self._watched.add(pid)
            self._say(f"+{pid}\n")

    def release(self, pid: int) -> None:
        with self._lock:
            self._watched.discard(pid)
            if self._process is not None:
                self._say(f"-{pid}\n")

    def start(self) -> None:
        """Start it before it is needed; otherwise the first `watch` does."""
        with self._lock:
            if self._process is None:
                self._process = self._begin()

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
                line = "".join(f"+{pid}\n" for pid in self._watched)
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
    watched: set[int] = set()
    for line in sys.stdin.buffer:
        pid = int(line[1:])
        if line[:1] == b"+":
            watched.add(pid)
        else:
            watched.discard(pid)
    for pid in watched:
        strike(pid, signal.SIGTERM)
    began = time.monotonic()
    while watched := {pid for pid in watched if not is_gone(pid)}:
        waited = time.monotonic() - began
        if waited > GIVE_UP:
            return
        if waited > ORPHAN_GRACE:
            for pid in watched:
                strike(pid, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    _stand_guard()
