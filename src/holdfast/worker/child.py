"""A child process of a worker: imports the blocks once, runs one attempt at a time, dies with its parent.

The main thread runs blocks, so that SIGTERM can interrupt them there; another reads frames and notices
when the parent is gone. It must not know the engine: all it says goes to the parent.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from holdfast.blocks import Cancelled, Context, Registry, trees
from holdfast.blocks.parameters import InvalidInput
from holdfast.blocks.routines import Routine
from holdfast.core.errors import Refused
from holdfast.core.model import LogLine
from holdfast.failpoints import failpoint
from holdfast.transport.messages import Outcome, Parcel

from . import outcomes
from .contexts import context_of
from .frames import Begun, Finished, FromChild, Ready, Said, Setup, Stop, Work, pack, receive, to_child

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Child:
    """The whole of the process."""

    def __init__(self, connection: socket.socket, parent: int) -> None:
        self._connection = connection
        self._parent = parent
        self._sending = threading.Lock()
        self._work: queue.SimpleQueue[Parcel] = queue.SimpleQueue()
        self._registry = Registry()
        self._context: Context | None = None
        #: SIGTERM may interrupt only while this is set: anywhere else it would tear a frame in two
        self._is_interruptible = False
        self._is_busy = False
        self._is_leaving = False

    def main(self) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which tells us
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._bind_to_parent()
        self._set_up()
        threading.Thread(target=self._listen, name="holdfast-child-listen", daemon=True).start()
        while not self._is_leaving:
            parcel = self._work.get()
            self._is_busy = True
            outcome = self._run(parcel)
            self._context = None
            self._flush()
            failpoint("child.end.before")
            self._send(Finished(outcome))
            failpoint("child.end.after")
            self._is_busy = False
        os._exit(0)

    def _flush(self) -> None:
        """What the block printed: before its outcome is known, and before an exit that flushes nothing."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    def _bind_to_parent(self) -> None:
        """Linux: be told when the parent dies, and keep orphaned descendants findable below us.

        SIGTERM, not SIGKILL: we are the only one who can still end what the block has started. If we are
        too stuck for that, the parent's guard does it.
        """
        if sys.platform == "linux":
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != self._parent:  # it died before we could ask to be told
            os._exit(1)

    def _set_up(self) -> None:
        body = receive(self._connection)
        if body is None:
            os._exit(1)
        setup = to_child.decode(body)
        assert isinstance(setup, Setup)
        if setup.python_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = setup.python_path
        sys.path[:] = setup.path
        try:
            self._registry.discover(setup.sources)
        except Refused as error:
            self._send(Ready(problem=error.message))
            os._exit(1)
        failpoint("child.ready.before")
        self._send(Ready())
        failpoint("child.ready.after")

    # --- one attempt ----------------------------------------------------------------------------
    def _run(self, parcel: Parcel) -> Outcome:
        block = self._registry.get(parcel.block, parcel.version)
        if block is None:
            return outcomes.unknown_block(parcel)
        routine = block.routines.get(parcel.kind)
        if routine is None:
            return outcomes.unknown_hook(parcel)
        try:
            arguments = routine.arguments(parcel.input, parcel.forward.result if parcel.forward else None)
        except InvalidInput as error:
            return outcomes.invalid_input(parcel, str(error))
        self._context = context = context_of(parcel, on_line=self._said, on_beat=self._beat)
        if routine.context_name:
            arguments[routine.context_name] = context
        failpoint("child.begin.before")
        self._send(Begun())
        failpoint("child.begin.after")
        try:
            outcome, _ = outcomes.succeeded(parcel, self._call(routine, arguments))
        except Cancelled as stop:
            outcome = outcomes.cancelled(parcel, str(stop), effect=outcomes.effect_at_stop(stop))
        except BaseException as error:
            outcome = outcomes.raised(parcel, error)
        return outcomes.with_changes(outcome, context)

    def _call(self, routine: Routine, arguments: dict[str, Any]) -> Any:
        try:
            self._is_interruptible = True
            if self._is_leaving:
                raise Cancelled("cancelled")
            if routine.is_async:
                return asyncio.run(routine.function(**arguments))
            return routine.function(**arguments)
        finally:
            self._is_interruptible = False

    def _said(self) -> None:
        if self._context is not None:
            self._send(Said(self._context.take_lines()))

    def _beat(self) -> None:
        if self._context is not None:
            lines: list[LogLine] = self._context.take_lines()
            self._send(Said(lines, is_beat=True, details=self._context.beaten))

    # --- the parent -----------------------------------------------------------------------------
    def _listen(self) -> None:
        while True:
            body = receive(self._connection)
            if body is None:
                self._die()
            match to_child.decode(body):
                case Work(parcel):
                    self._work.put(parcel)
                case Stop(reason):
                    if self._context is not None:
                        self._context.cancel(reason)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getppid() != self._parent:
            self._die()
        if self._is_leaving:
            return  # once is enough: a second one would interrupt the clean-up
        self._is_leaving = True
        if self._is_interruptible:
            raise Cancelled("cancelled")
        if not self._is_busy:
            os._exit(0)

    def _send(self, frame: FromChild) -> None:
        # Signals are held back: a Cancelled raised inside sendall would leave half a frame on the wire.
        # They reach the main thread only, so other threads of a block have nothing to hold back.
        held = self._is_interruptible and threading.current_thread() is threading.main_thread()
        if held:
            self._is_interruptible = False
        try:
            with self._sending:
                self._connection.sendall(pack(frame))
        except OSError:
            self._die()
        if held:
            self._is_interruptible = True
            if self._is_leaving:
                raise Cancelled("cancelled")

    def _die(self) -> NoReturn:
        """Nobody will hear of it any more: end what the attempt has started, then ourselves."""
        if not self._is_busy:
            os._exit(0)
        me = os.getpid()
        deadline = time.monotonic() + trees.ORPHAN_GRACE
        number = signal.SIGTERM
        while left := trees.members(me) - {me}:
            for pid in left:
                trees.send(pid, number)
            number = signal.SIGKILL
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        os._exit(1)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    Child(connection, parent=int(sys.argv[2])).main()


if __name__ == "__main__":
    main()
