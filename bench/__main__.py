"""`python -m bench [--store URL] [--n N]`: W1, W2, W3 and W4 on the embedded engine, one JSON line each.

Rows may be compared only within one run; machines are noisy. The peers' scripts print the same fields.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from holdfast.embedded import Embedded

from .workloads import latency, sequence, throughput, wide


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--store", default="", help="where to measure; a fresh SQLite file by default")
    parser.add_argument("--n", type=int, default=1000, help="executions per round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        store = options.store or f"sqlite:///{folder}/bench.db"
        with Embedded(store, folder=Path(folder), slots=256, processes=0) as holdfast:
            kind = f"holdfast-{holdfast.store.kind}"
            n = options.n

            def emit(workload: str, row: dict[str, object]) -> None:
                print(json.dumps({"peer": kind, "workload": workload, **row}), flush=True)

            emit("W1", throughput(holdfast, sequence(1), n * 2, 1))
            emit("W2", throughput(holdfast, sequence(10), n, 10))
            emit("W3", throughput(holdfast, wide(1000), 1, 1000))
            emit("W4", latency(holdfast, 200))


if __name__ == "__main__":
    main()
