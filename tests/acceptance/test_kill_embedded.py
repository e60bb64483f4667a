"""kill -9 of an embedded engine and its worker under load, again and again, on SQLite."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance.processes import spawn
from tests.acceptance.workload import judge


def test_nothing_acknowledged_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/holdfast.db"
    chance = random.Random(20)
    for _ in range(25):
        child = spawn(tmp_path, address, "victim")
        time.sleep(chance.uniform(0.05, 0.4))
        child.send_signal(signal.SIGKILL)
        child.wait()
        store = open_store(address)
        report = verify(store)
        store.close()
        assert report.is_clean, report.findings[:5]
    assert spawn(tmp_path, address, "victim", "--drain").wait(60) == 0
    store = open_store(address)
    report = verify(store)
    seen = judge(store, tmp_path)
    store.close()
    assert report.is_clean, report.findings[:5]
    print(seen)
    assert seen["acknowledged"] > 1000
    assert seen["plain COMPLETED"] > 100
    assert seen.get("plain FAILED_UNSAFE", 0) > 0, "no crash caught a job half way: the test tests nothing"
