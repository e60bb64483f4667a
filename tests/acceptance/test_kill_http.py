"""Engine and workers in processes of their own over HTTP; now the one is killed, now the other."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance.processes import free_port, spawn, spawn_worker, verify_beside
from tests.acceptance.workload import judge


def test_engine_and_workers_are_killed_in_turn(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/holdfast.db"
    port = free_port()
    chance = random.Random(11)
    serve = ("--serve", str(port))
    engine = spawn(tmp_path, address, "engine", *serve)
    workers = {name: spawn_worker(tmp_path, port, name) for name in ("one", "two")}
    for n in range(15):
        time.sleep(chance.uniform(0.2, 0.6))
        if n % 3 == 0:
            engine.send_signal(signal.SIGKILL)
            engine.wait()
            store = open_store(address)
            report = verify(store)
            store.close()
            assert report.is_clean, report.findings[:5]
            engine = spawn(tmp_path, address, "engine", *serve)
        else:
            name = chance.choice(sorted(workers))
            workers[name].send_signal(signal.SIGKILL)
            workers[name].wait()
            verify_beside(address)
            # Every other time under a new name: then only the lease tells that the old one is gone.
            fresh = name if n % 2 else f"{name}-{n}"
            del workers[name]
            workers[fresh] = spawn_worker(tmp_path, port, fresh)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert spawn(tmp_path, address, "engine", "--drain", *serve).wait(60) == 0
    store = open_store(address)
    report = verify(store)
    seen = judge(store, tmp_path)
    store.close()
    print(seen)
    assert report.is_clean, report.findings[:5]
    assert seen["acknowledged"] > 1000
    assert seen["plain COMPLETED"] > 200
    assert seen.get("plain FAILED_UNSAFE", 0) > 0, "no crash caught a job half way: the test tests nothing"
