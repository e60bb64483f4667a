"""stdin, stdout and stderr of a command that may outlive whoever reads it: `… | head`, `>&-`, a closed terminal.

Progress on stderr is a courtesy: if nobody can read it any more, it stops and the work goes on. stdout is data:
a command that only looks ends with its reader (`ReaderGone`); one that does something goes on to its own exit code.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(Exception):
    """Whoever read our stdout has seen enough."""


class OutputLost(Exception):
    """stdout cannot be written, and not because its reader left."""


class _Output(io.FileIO):
    """A file that falls silent where it cannot be written."""

    is_forgiving = True

    def write(self, data: ReadableBuffer, /) -> int:
        while True:
            try:
                written: Any = super().write(data)
            except OSError as error:
                mute(self.fileno())
                self.failed(error)
                return memoryview(data).nbytes
            if written is not None:
                return int(written)
            # Somebody made it non-blocking, as programs that share a terminal or a pipe with us may.
            select.select([], [self.fileno()], [], 1.0)

    def failed(self, error: OSError) -> None:
        """Nobody can be told."""


class _Data(_Output):
    def failed(self, error: OSError) -> None:
        is_gone = isinstance(error, BrokenPipeError)
        if not self.is_forgiving:
            raise ReaderGone if is_gone else OutputLost(error.strerror)
        if not is_gone:
            sys.stderr.write(f"warning: the output cannot be written: {error.strerror}\n")


def mute(fd: int) -> None:
    """Whatever is written there from now on is gone, and no error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != fd:  # of closed ones, the system gives the lowest
        os.dup2(nowhere, fd)
        os.close(nowhere)
    else:
        os.set_inheritable(fd, True)


def install() -> None:
    """For the whole process, before anything is opened: a closed 1 must not become the number of a store's file."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            mute(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _wrapped(_Data(1, "w", closefd=False), sys.stdout)
    sys.stderr = _wrapped(_Output(2, "w", closefd=False), sys.stderr, errors="backslashreplace")


def _wrapped(raw: _Output, before: TextIO | None, errors: str = "strict") -> TextIO:
    if isinstance(before, io.TextIOWrapper):
        before.flush()
        return io.TextIOWrapper(
            io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=before.line_buffering,
            write_through=before.write_through,
        )  # fmt: skip
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, line_buffering=True)


def end_with_reader() -> None:
    """This command only looks: it ends when its reader does."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Data):
        raw.is_forgiving = False
