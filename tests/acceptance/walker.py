"""A process made to be killed: one execution of the workflow of thirty steps, from its start or from wherever it stands.
`python -m tests.acceptance.walker FOLDER STORE KIND KEY`. Says `ready` at the end of it and leaves in good order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.embedded import Embedded

from . import thirty


def witness(folder: Path, key: str) -> Path:
    """Where the blocks of that execution leave their lines."""
    return folder / f"{key}.witness"


def main(arguments: Sequence[str]) -> None:
    folder, store, kind, key = Path(arguments[0]), *arguments[1:]
    with Embedded(
        store, folder=folder, modules=["tests.acceptance.thirty"], processes=0, lease=4.0, beat=1.0
    ) as holdfast:
        given = {"witness": str(witness(folder, key))}
        started = holdfast.service.start(
            holdfast.actor, definition=thirty.definition(kind), input=given, key=f"{kind}-{key}"
        )
        holdfast.service.wait(holdfast.actor, started.id, 60)
        print("ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
