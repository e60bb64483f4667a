"""`python -m bench.victim FOLDER STORE feed|drain …`: an engine with its worker, to be killed or to take over.

It imports only what such a program needs: how soon it is there again is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from holdfast.core.model import Status
from holdfast.embedded import Embedded

from .workloads import touching

OPEN = tuple(status for status in Status if not status.is_ended)
MODULES = ("bench.blocks",)


def main() -> None:
    folder, store, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    # With the default number of slots: so many attempts may be cut off.
    with Embedded(store, folder=folder, processes=0, modules=MODULES) as holdfast:
        service, actor = holdfast.service, holdfast.actor
        if what == "feed":
            count, steps, idempotent = (int(text) for text in sys.argv[4:7])
            name = service.publish(actor, touching(steps, idempotent=bool(idempotent))).name
            replies: list[Exception | None] = []
            for _ in range(count):
                service.submit_start(
                    actor,
                    workflow=name,
                    input={"path": str(folder / "effects")},
                    reply=lambda value, error: replies.append(error),
                )
            while len(replies) < count:
                time.sleep(0.002)
            refused = [str(error) for error in replies if error is not None]
            if refused:
                raise RuntimeError(refused[0])
            print(json.dumps({"fed": count}), flush=True)
            time.sleep(600)
        while service.executions(actor, statuses=OPEN, limit=1):
            time.sleep(0.05)
        print(json.dumps(_ended(holdfast)), flush=True)


def _ended(holdfast: Embedded) -> dict[str, int]:
    counts: Counter[str] = Counter()
    before = ""
    while page := holdfast.service.executions(holdfast.actor, before=before, limit=500):
        counts.update(view.status for view in page)
        before = page[-1].id
    return dict(counts)


if __name__ == "__main__":
    main()
