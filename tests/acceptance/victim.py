"""A process made to be killed: an engine under load. `python -m tests.acceptance.victim FOLDER STORE NAME`.

Says `ready` when it works. `--drain`: feeds nothing, waits until everything has ended and leaves. `--serve PORT`:
has no worker of its own and serves HTTP for those that have; `--idle`: is fed from outside.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from holdfast.api.auth import Role
from holdfast.api.server import Server
from holdfast.core.model import Status
from holdfast.embedded import Embedded
from holdfast.store.sqlite import SqliteStore
from tests.acceptance.workload import ACTOR, KINDS, Feeder

OPEN = tuple(status for status in Status if not status.is_ended)
#: what is fed unless somebody says otherwise, again and again
MIX = ("isolated", *["repeatable", "plain"] * 9, "repeatable")
SERVED = ("plain", "repeatable")
#: a file that ends the feeding
ENOUGH = "enough"


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    options.mix = options.mix or (SERVED if options.serve else MIX)
    with ExitStack() as stack:
        holdfast = stack.enter_context(
            Embedded(
                options.store,
                folder=options.folder,
                engine_name=options.name,
                worker_name=f"{options.name}-worker",
                with_worker=not options.serve,
                slots=128,
                modules=["tests.acceptance.blocks"],
                processes=2,
                lease=4.0,
                beat=1.0,
            )
        )
        if isinstance(holdfast.store, SqliteStore):
            holdfast.store.checkpoint_after = 100  # pages; a life here is too short for the usual number
        if options.serve:
            server = Server(holdfast.service, port=options.serve)
            stack.enter_context(server)
            for role in (Role.WORKER, Role.AUTHOR):
                path = options.folder / f"{role.name.lower()}.token"
                if not path.exists():
                    # Whole or not at all: we may be killed here too.
                    beside = path.with_suffix(".new")
                    beside.write_text(server.auth.create("chaos", role))
                    beside.replace(path)
        print("ready", flush=True)
        if options.drain:
            while holdfast.service.executions(ACTOR, statuses=OPEN, limit=1):
                time.sleep(0.05)
            return
        while not {KINDS[kind][0] for kind in options.mix} <= {b.name for b in holdfast.service.blocks()}:
            # A block that was never registered ends an execution at once; that is not what is tested here.
            time.sleep(0.02)
        if options.idle:
            time.sleep(600)
        _feed(Feeder(holdfast.service, options.folder, options.in_flight), options)
        if not options.leave:
            time.sleep(600)


def _feed(feeder: Feeder, options: argparse.Namespace) -> None:
    began = time.monotonic()
    for n in range(options.cap):
        if options.pace and n % options.burst == 0:
            time.sleep(max(0.0, began + n / options.pace - time.monotonic()))
            if (options.folder / ENOUGH).exists():
                return
        feeder.feed(n, options.mix[n % len(options.mix)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="victim")
    parser.add_argument("folder", type=Path)
    parser.add_argument("store")
    parser.add_argument("name")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--serve", type=int, default=0)
    parser.add_argument("--idle", action="store_true")
    # Enough is enough: everything fed is verified after every kill.
    parser.add_argument("--cap", type=int, default=1_000_000)
    parser.add_argument("--leave", action="store_true", help="in good order, when all is fed and some of it runs")
    parser.add_argument("--mix", type=lambda text: text.split(","), default=None)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--pace", type=float, default=0.0, help="starts per second, until the folder has ENOUGH")
    parser.add_argument("--burst", type=int, default=1, help="with --pace: so many at a time")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
