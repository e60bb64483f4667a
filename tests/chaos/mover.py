"""An engine with many executions half done, made to be killed. `python -m tests.chaos.mover FOLDER STORE NAME [N]`.

Starts N executions at once, each of many short steps: jobs that may repeat, jobs that may not, timers. Says `ready`
when all are under way (or, without N, when it works).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.embedded import Embedded
from tests.acceptance.workload import ACTOR

STEPS = 60


def definition(kind: str) -> dict[str, Any]:
    if kind == "timers":
        return {"name": kind, "steps": [step for n in range(STEPS) for step in (f"let x = {n}", "sleep 300ms")]}
    return {"name": kind, "steps": [{"block": f"test.{kind}", "input": {"value": n}} for n in range(STEPS)]}


#: three in five may repeat, one may not, one waits for timers
KINDS = ("idempotent", "idempotent", "idempotent", "echo", "timers")


def main(arguments: Sequence[str]) -> None:
    folder, store, name = Path(arguments[0]), arguments[1], arguments[2]
    count = int(arguments[3]) if len(arguments) > 3 else 0
    with Embedded(
        store, folder=folder, engine_name=name, worker_name=f"{name}-worker", slots=1024, processes=0
    ) as holdfast:
        left = threading.Semaphore(0)
        definitions = {kind: definition(kind) for kind in KINDS}
        for n in range(count):
            holdfast.service.submit_start(
                ACTOR, definition=definitions[KINDS[n % len(KINDS)]], reply=lambda _, __: left.release()
            )
        for _ in range(count):
            left.acquire()
        print("ready", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1:])
