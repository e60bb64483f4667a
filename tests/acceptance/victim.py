"""A process made to be killed: an embedded engine under load. `python -m tests.acceptance.victim FOLDER STORE`.

Says `ready` when it works; with `--drain` it feeds nothing, waits until everything has ended and leaves.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.core.model import Status
from holdfast.embedded import Embedded
from tests.acceptance.workload import ACTOR, Feeder

OPEN = tuple(status for status in Status if not status.is_ended)


def main() -> None:
    folder, store, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    with Embedded(
        store, folder=folder, engine_name=name, worker_name=f"{name}-worker", slots=128, processes=0
    ) as holdfast:
        print("ready", flush=True)
        if "--drain" in sys.argv:
            while holdfast.service.executions(ACTOR, statuses=OPEN, limit=1):
                time.sleep(0.05)
            return
        feeder = Feeder(holdfast.service, folder)
        n = 0
        while True:
            feeder.feed(n, "repeatable" if n % 2 else "plain")
            n += 1


if __name__ == "__main__":
    main()
