"""The built-in block `shell`: one command on the worker's machine, with everything it starts.

Output goes to files, not pipes: a grandchild that keeps a pipe open would hang us. The command has its
own session, and ends with it when the attempt is cancelled, times out or its worker dies.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import subprocess
import tempfile
from typing import IO, Any, Literal

from . import trees
from .context import Context
from .declare import block
from .results import Failed, NothingDone

#: bytes a running command's output file may hold before its older part is given back to the disk
FILE_LIMIT = 10 * 1024 * 1024
#: seconds between looks at the size of the output
LOOK = 0.25

_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class CommandFailed(Failed):
    """The command ran and ended with an exit code that was not asked for."""


@block(name="shell")
async def shell(
    command: str | list[str],
    ctx: Context,
    env: dict[str, Any] | None = None,
    cwd: str | None = None,
    exit_code: int | list[int] | Literal["any"] = 0,
    output_max_size: int = 100_000,
    stdin: str | None = None,
) -> dict[str, Any]:
    """Run a command: text through `/bin/sh -c`, a list as program and arguments.

    Values in `env` are text or JSON. Output is cut to its last `output_max_size` characters (-1: all).
    """
    arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    if not arguments or not arguments[0]:
        raise NothingDone("shell: the command is empty", permanent=True)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for file in (out, err):
            # Appending, so that a file whose older part was given back goes on at its end.
            fcntl.fcntl(file.fileno(), fcntl.F_SETFL, fcntl.fcntl(file.fileno(), fcntl.F_GETFL) | os.O_APPEND)
        if stdin is not None:
            given.write(stdin.encode())
            given.seek(0)
        source = given if stdin is not None else None
        mark = trees.new_mark()
        trees.guard.watch(mark)
        try:
            process = _start(arguments, _environment(mark, env, ctx), cwd, source, out, err)
            try:
                await _wait(process, (out, err), output_max_size)
            except BaseException:
                # Shielded: a second cancel must not leave the tree half killed.
                await asyncio.shield(asyncio.ensure_future(trees.end(process, mark)))
                raise
        finally:
            trees.guard.release(mark)
        # Killed by signal n is 128 + n, as shells say it; whether sh itself or its child was hit varies.
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        result: dict[str, Any] = {
            "stdout": _tail(out, output_max_size),
            "stderr": _tail(err, output_max_size),
            "exit_code": code,
        }
    wanted = [exit_code] if isinstance(exit_code, int) else exit_code
    if wanted != "any" and code not in wanted:
        said = result["stderr"].strip()[-80:]
        shown = command if isinstance(command, str) else " ".join(command)
        shown = shown if len(shown) <= 60 else shown[:60] + "..."
        message = f"`{shown}` ended with exit code {code}"
        raise CommandFailed(f"{message}: {said}" if said else message, details=result)
    return result


def _environment(mark: str, given: dict[str, Any] | None, ctx: Context) -> dict[str, str]:
    values = trees.environment(mark)
    values.update(
        HOLDFAST_EXECUTION=ctx.execution,
        HOLDFAST_STEP=ctx.step,
        HOLDFAST_ENTITY=ctx.entity,
        HOLDFAST_ATTEMPT=str(ctx.attempt),
        HOLDFAST_IDEMPOTENCY_KEY=ctx.idempotency_key,
    )
    for name, value in (given or {}).items():
        values[name] = value if isinstance(value, str) else json.dumps(value)
    return values


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
            if keep >= 0:
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
    length = status.st_size - 4 * keep  # a character has at most four bytes
    if length <= 0:
        return
    # A hole leaves offsets alone; to truncate could lose what is written between our two system calls.
    libc = ctypes.CDLL(None, use_errno=True)
    hole = getattr(libc, "fallocate", None)
    if hole is None or hole(file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(0), ctypes.c_longlong(length)):
        os.ftruncate(file.fileno(), 0)


def _tail(file: IO[bytes], limit: int) -> str:
    size = os.fstat(file.fileno()).st_size
    start = 0 if limit < 0 else max(0, size - 4 * limit)
    text = os.pread(file.fileno(), size - start, start).decode(errors="replace")
    if limit < 0 or (start == 0 and len(text) <= limit):
        return text
    return "... " + text[len(text) - limit :] if limit else "... "
