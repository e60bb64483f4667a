"""A process made to be killed: one execution of the workflow of thirty steps, from its start or wherever it stands.

`python -m tests.acceptance.walker FOLDER STORE KIND KEY [PORT]`. Leaves in good order when it has ended. With a port it
has no worker of its own and serves HTTP for one that has.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from holdfast.api.auth import Role
from holdfast.api.server import Server
from holdfast.embedded import Embedded

from . import thirty


def witness(folder: Path, key: str) -> Path:
    """Where the blocks of that execution leave their lines."""
    return folder / f"{key}.witness"


def main(arguments: Sequence[str]) -> None:
    folder, store, kind, key, *port = arguments
    with ExitStack() as stack:
        holdfast = stack.enter_context(
            Embedded(
                store,
                folder=Path(folder),
                modules=["tests.acceptance.thirty"],
                with_worker=not port,
                processes=0,
                lease=4.0,
                beat=1.0,
            )
        )
        if port:
            server = stack.enter_context(Server(holdfast.service, port=int(port[0])))
            token = Path(folder) / "worker.token"
            if not token.exists():
                beside = token.with_suffix(".new")
                beside.write_text(server.auth.create("chaos", Role.WORKER))
                beside.replace(token)
        print("ready", flush=True)
        while thirty.KINDS[kind] not in {offer.name for offer in holdfast.service.blocks()}:
            time.sleep(0.01)
        given = {"witness": str(witness(Path(folder), key))}
        started = holdfast.service.start(
            holdfast.actor, definition=thirty.definition(kind), input=given, key=f"{kind}-{key}"
        )
        holdfast.service.wait(holdfast.actor, started.id, 60)


if __name__ == "__main__":
    main(sys.argv[1:])
