"""How long silence is borne: of a worker before people are told, of an attempt before it is given up.

A worker's claims end with its lease, long before any of this; what is said here about workers is for people to see. It
knows rows, not where they are kept.
"""

from __future__ import annotations

import msgspec

from holdfast.store.records import WorkerRow

#: Grace on top of a block's own timeout before the engine gives an attempt up.
TIMEOUT_GRACE = 15_000_000

#: What a worker's row says when its lease ran out: its claims are given up, and it may come back.
SILENT = "silent"
OFFLINE = "offline"


class Patience(msgspec.Struct, frozen=True):
    """All in µs."""

    #: a worker not heard of for this long is shown as unreachable
    unreachable: int = 120_000_000
    #: and after this as offline
    offline: int = 360_000_000
    #: an attempt without a timeout of its own is given up after this long without a sign of life
    stuck: int = 720_000_000

    def deadline(self, since: int, timeout: int) -> int:
        """When nobody believes in an answer any more."""
        return since + (timeout + TIMEOUT_GRACE if timeout else self.stuck)


PATIENCE = Patience()


def worker_state(worker: WorkerRow, now: int, patience: Patience = PATIENCE) -> str:
    """As people are shown it: `online`, `draining`, `unreachable` or `offline`."""
    silence = now - worker.seen_at
    if worker.state == OFFLINE or silence >= patience.offline:
        return OFFLINE
    if silence >= patience.unreachable:
        return "unreachable"
    return "online" if worker.state == SILENT else worker.state


def is_taking(worker: WorkerRow, now: int) -> bool:
    """Whether it is given jobs: it was heard of within its lease, and is not about to leave."""
    return worker.state == "online" and worker.seen_at + worker.lease >= now


def state_to_keep(worker: WorkerRow, now: int, is_certain: bool, patience: Patience) -> str:
    """What the row of a worker that was given up says from now on."""
    if is_certain or worker.state == OFFLINE or now - worker.seen_at >= patience.offline:
        return OFFLINE
    return SILENT
