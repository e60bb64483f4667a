"""A process made to be killed while it purges: `python -m tests.acceptance.keeper FOLDER STORE NAME COUNT RULE`.

Runs COUNT executions, one after the other, notes those that it was told have ended in FOLDER/NAME.ids, keeps what RULE
says and archives the rest in FOLDER/archive.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.embedded import Embedded
from holdfast.engine.retention import keeping


def main(folder: Path, store: str, name: str, count: int, rule: str) -> None:
    settings = keeping(rule, folder / "archive")
    with (
        (folder / f"{name}.ids").open("w") as known,
        Embedded(store, folder=folder, engine_name=name, with_worker=False, keeping=settings, purge_pause=0.05) as own,
    ):
        for n in range(count):
            view = own.run({"name": "kept", "steps": [f"log line {n}"], "output": "x" * 3000})
            print(view.id, file=known, flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
