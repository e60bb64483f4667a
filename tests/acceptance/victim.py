"""A process made to be killed: an engine under load. `python -m tests.acceptance.victim FOLDER STORE NAME`.

Says `ready` when it works. `--drain`: feeds nothing, waits until everything has ended and leaves. `--serve PORT`:
has no worker of its own and serves HTTP for those that have.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from holdfast.api.auth import Role
from holdfast.api.server import Server
from holdfast.core.model import Status
from holdfast.embedded import Embedded
from tests.acceptance.workload import ACTOR, Feeder

OPEN = tuple(status for status in Status if not status.is_ended)


def main() -> None:
    folder, store, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    serves = "--serve" in sys.argv
    with ExitStack() as stack:
        holdfast = stack.enter_context(
            Embedded(
                store,
                folder=folder,
                engine_name=name,
                worker_name=f"{name}-worker",
                with_worker=not serves,
                slots=128,
                modules=["tests.acceptance.sync_blocks"],
                processes=2,
                lease=4.0,
                beat=1.0,
            )
        )
        if serves:
            server = Server(holdfast.service, port=int(sys.argv[sys.argv.index("--serve") + 1]))
            stack.enter_context(server)
            if not (folder / "token").exists():
                (folder / "token").write_text(server.auth.create("workers", Role.WORKER))
        print("ready", flush=True)
        if "--drain" in sys.argv:
            while holdfast.service.executions(ACTOR, statuses=OPEN, limit=1):
                time.sleep(0.05)
            return
        while not holdfast.service.blocks():
            # A block that was never registered ends an execution at once; that is not what is tested here.
            time.sleep(0.02)
        feeder = Feeder(holdfast.service, folder)
        n = 0
        # Enough is enough: everything fed is verified after every kill.
        cap = int(sys.argv[sys.argv.index("--cap") + 1]) if "--cap" in sys.argv else 1_000_000
        while True:
            if n == cap:
                time.sleep(600)
            feeder.feed(n, "isolated" if n % 20 == 0 and not serves else "repeatable" if n % 2 else "plain")
            n += 1


if __name__ == "__main__":
    main()
