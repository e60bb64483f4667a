"""The built-in block `shell`: one command on the worker's machine, with everything it starts.

Output goes to files, not pipes: a grandchild that keeps a pipe open would hang us. The command has its
own session, and ends with it when the attempt is cancelled, times out or its worker dies.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import subprocess
import tempfile
from typing import IO, Any

from . import trees
from .commands import bytes_kept, judge, own_variables, tail, variables
from .context import Context
from .declare import block
from .results import NothingDone
from .wanted import Wanted, reader

#: bytes a running command's output file may hold before its older part is given back to the disk
FILE_LIMIT = 10 * 1024 * 1024
#: seconds between looks at the size of the output
LOOK = 0.25

_KEEP_SIZE, _PUNCH_HOLE = 1, 2


@block(name="shell")
async def shell(
    command: str | list[str],
    ctx: Context,
    env: dict[str, Any] | None = None,
    cwd: str | None = None,
    exit_code: Wanted = 0,
    output_max_size: int = 100_000,
    stdin: str | None = None,
) -> dict[str, Any]:
    """Run a command: text through `/bin/sh -c`, a list as program and arguments.

    `exit_code` is what is accepted: a number, `any`, a range `0..3`, a list of these, or tests like
    `{less-than: 4}`. Values in `env` are text or JSON; `HOLDFAST_IDEMPOTENCY_KEY` is set for the command,
    the same for every attempt of a visit. Output is cut to its last `output_max_size` characters (-1: all,
    up to the size of a result) and then begins with `... `.

    Gives `{stdout, stderr, exit_code}`; where the exit code is not accepted, as details of the failure.
    """
    accepts = reader(exit_code, "shell: exit_code")
    arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    if not command or not arguments[0].strip():
        raise NothingDone("shell: the command is empty", permanent=True)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for file in (out, err):
            # Appending, so that a file whose older part was given back goes on at its end.
            fcntl.fcntl(file.fileno(), fcntl.F_SETFL, fcntl.fcntl(file.fileno(), fcntl.F_GETFL) | os.O_APPEND)
        if stdin is not None:
            given.write(stdin.encode())
            given.seek(0)
        source = given if stdin is not None else None
        kept = bytes_kept(output_max_size)
        mark = trees.new_mark()
        trees.guard.watch(mark)
        try:
            process = _start(arguments, _environment(mark, env, ctx), cwd, source, out, err)
            try:
                await _wait(process, (out, err), kept)
            except BaseException:
                # Shielded: a second cancel must not leave the tree half killed.
                await asyncio.shield(asyncio.ensure_future(trees.end(process, mark)))
                raise
        finally:
            trees.guard.release(mark)
        # Killed by signal n is 128 + n, as shells say it; whether sh itself or its child was hit varies.
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        said, was_cut = _end(out, kept)
        complained, was_cut_too = _end(err, kept)
    result = {
        "stdout": tail(said, was_cut, output_max_size),
        "stderr": tail(complained, was_cut_too, output_max_size),
        "exit_code": code,
    }
    shown = command if isinstance(command, str) else " ".join(command)
    return judge("shell", shown, result, accepts, output_max_size < 0 and (was_cut or was_cut_too))


def _environment(mark: str, given: dict[str, Any] | None, ctx: Context) -> dict[str, str]:
    return {**trees.environment(mark), **own_variables(ctx), **variables(given)}


def _start(
    arguments: list[str],
    environment: dict[str, str],
    cwd: str | None,
    given: IO[bytes] | None,
    out: IO[bytes],
    err: IO[bytes],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            arguments,
            env=environment,
            cwd=cwd,
            stdin=given if given is not None else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # The program was never executed: whatever it would have done, it did not.
        raise NothingDone(f"shell: cannot start `{arguments[0]}`: {error}") from error


async def _wait(process: subprocess.Popen[bytes], files: tuple[IO[bytes], ...], keep: int) -> None:
    """Until the command itself has ended; what it left in the background may go on."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        watcher = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        watcher = -1
    if watcher >= 0:
        loop.add_reader(watcher, _settle, ended)
    try:
        while process.poll() is None:
            await asyncio.wait({ended}, timeout=LOOK if watcher >= 0 else 0.02)
            for file in files:
                _shorten(file, keep)
    finally:
        if watcher >= 0:
            loop.remove_reader(watcher)
            os.close(watcher)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _shorten(file: IO[bytes], keep: int) -> None:
    """Give the older part of a long output back to the disk while the command goes on writing."""
    status = os.fstat(file.fileno())
    if status.st_blocks * 512 <= FILE_LIMIT:
        return
    length = status.st_size - keep
    if length <= 0:
        return
    # A hole leaves offsets alone; to truncate could lose what is written between our two system calls.
    libc = ctypes.CDLL(None, use_errno=True)
    hole = getattr(libc, "fallocate", None)
    if hole is None or hole(file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(0), ctypes.c_longlong(length)):
        os.ftruncate(file.fileno(), 0)


def _end(file: IO[bytes], keep: int) -> tuple[bytes, bool]:
    """The last bytes of an output, and whether there were others before them."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - keep)
    return os.pread(file.fileno(), size - start, start), start > 0
