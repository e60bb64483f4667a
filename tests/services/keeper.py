"""Ends one PostgreSQL and removes its directory when the process that started it is gone.

Run as a program with the directory as argument. It waits until its standard input closes, which the
operating system sees to even if the test run is killed, so no server and no files outlive a run.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path


def postmaster(root: Path) -> int | None:
    """The server's process id, unless that number has meanwhile gone to somebody else."""
    try:
        pid = int((root / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and os.fsencode(root / "data") not in command.read_bytes():
            return None
    except (OSError, ValueError):
        return None
    return pid


def main() -> None:
    root = Path(sys.argv[1])
    sys.stdin.buffer.read()
    deadline = time.monotonic() + 10
    while (pid := postmaster(root)) and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGQUIT)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
