"""A hundred executions count up one sensor under a lock, while their engine is killed ten times; the worker is a
process of its own and lives on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Client
from holdfast.core.errors import Refused
from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.chaos.forks import Child, Forks

from .processes import free_port
from .seeds import example
from .test_walk import until

MANY = 100
KILLS = 10
#: seconds that a life may take to reach what it is armed with, or everything to end
PATIENCE = 60.0


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as made:
        yield made


def increment(kind: str) -> dict[str, Any]:
    """The example, with something between reading and writing: time, or a block as well, through which the number goes.
    It takes long enough for the last kill to find some still waiting."""
    (definition,) = example("increment-locked")
    block = ["test.idempotent value=${x}", "let x = ${output}"] if kind == "block" else []
    definition["steps"][0]["steps"][1:1] = ["sleep 35ms", *block]
    return definition


class Server:
    """The engine, in one life after the other."""

    def __init__(self, forks: Forks, folder: Path, address: str) -> None:
        self._forks, self._folder, self._address = forks, folder, address
        self.port = free_port()
        self.child = self.start()
        self.worker = forks.start("labourer", folder, [str(folder), str(self.port), "worker"])

    def start(self, failpoint: str = "") -> Child:
        arguments = [str(self._folder), self._address, "engine", "--serve", str(self.port), "--idle"]
        child = self._forks.start("victim", self._folder, arguments, failpoint)
        assert failpoint or child.until_ready(), child.errors.read_text()[-2000:]
        return child

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", (self._folder / "author.token").read_text())

    def kill(self) -> None:
        """From outside."""
        self.child.kill()
        assert self.child.wait(20) == -9
        self.child.close()

    def kill_at(self, failpoint: str) -> None:
        """A whole life that ends there."""
        self.kill()
        self.child = self.start(failpoint)
        assert self.child.wait(PATIENCE) == -9, "it never came there"
        self.child.close()


def feed(client: Client, ids: list[str]) -> None:
    """Start them all; a start that nobody answered is said again, and means the same."""
    for n in range(MANY):
        while True:
            try:
                ids.append(client.start(workflow="increment-locked", key=f"number-{n}").id)
                break
            except Refused:
                time.sleep(0.02)


def count_now(client: Client) -> int:
    try:
        value: int = client.sensor("default", "count").value
    except Refused:
        return 0  # nobody has counted yet, or nobody answers yet
    return value


@pytest.mark.parametrize("kind", ["plain", "block"])
def test_a_hundred_count_to_a_hundred(forks: Forks, tmp_path: Path, address: str, kind: str) -> None:
    chance = random.Random(kind)
    server = Server(forks, tmp_path, address)
    reached: list[int] = []
    ids: list[str] = []
    try:
        with server.client() as client, server.client() as feeder:
            client.publish(increment(kind))
            while "test.idempotent" not in {offer.name for offer in client.blocks()}:
                time.sleep(0.02)
            feeding = threading.Thread(target=feed, args=(feeder, ids))
            feeding.start()
            for number in range(KILLS):
                until(lambda: count_now(client) > max(reached, default=0), PATIENCE)
                time.sleep(chance.uniform(0.0, 0.05))
                if number % 2:
                    server.kill_at(
                        f"engine.commit.{chance.choice(['before', 'after'])}:hit={chance.randint(3, 12)}:kill"
                    )
                else:
                    server.kill()
                store = open_store(address)
                report = verify(store)
                with store.reading() as queries:
                    row = queries.sensor("default", "default", "sensor", "count")
                store.close()
                assert report.is_clean, report.findings[:5]
                reached.append(row.value if row else 0)
                server.child = server.start()
            feeding.join(PATIENCE)
            assert not feeding.is_alive()
            views = [client.wait(id, PATIENCE) for id in ids]
            count = client.sensor("default", "count")
            locks = client.locks()
    finally:
        server.worker.kill()
        server.worker.wait(20)
        server.worker.close()
    server.kill()
    store = open_store(address)
    report = verify(store)
    store.close()
    print(f"the count at each kill: {reached}")
    assert report.is_clean, report.findings[:5]
    assert len(set(ids)) == MANY
    assert {view.status for view in views} == {"COMPLETED"}
    assert count.value == MANY
    assert count.version == MANY, "each wrote once"
    assert locks == []
    assert max(reached) < MANY, "it was over before the last kill"
    assert reached == sorted(set(reached)), "nothing happened between two kills"
