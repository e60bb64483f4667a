"""The client has the engine's verbs, raises the engine's refusals, and outlives a broken line."""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.server import Server
from holdfast.client import Client
from holdfast.client.verbs import Verbs
from holdfast.core.errors import (
    BadConfiguration,
    Forbidden,
    InvalidDefinition,
    KeyReused,
    PayloadTooLarge,
    Refused,
    ServerUnreachable,
    TimedOut,
    Unauthenticated,
    UnknownExecution,
    UnknownWorkflow,
)
from tests.api.support import ECHO, LONG, House, house


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("client")) as made:
        yield made


def test_it_has_every_verb(home: House) -> None:
    verbs: Verbs = home.client
    for name, verb in inspect.getmembers(Verbs, inspect.isfunction):
        if name.startswith("_"):
            continue
        wanted = inspect.signature(verb).parameters
        offered = inspect.signature(getattr(Client, name)).parameters
        assert list(wanted) == [p for p in offered if p in wanted], name
        for parameter in wanted.values():
            assert offered[parameter.name].default == parameter.default
            assert offered[parameter.name].kind == parameter.kind
    assert verbs is home.client


def test_a_whole_life(home: House) -> None:
    client = home.client
    published = client.publish(ECHO | {"name": "life"})
    assert (published.name, published.version, published.is_new) == ("life", 1, True)
    assert not client.publish(ECHO | {"name": "life"}).is_new
    assert client.publish_yaml("name: life\nsteps: [log hello, test.echo value=2]\n").version == 2
    assert [view.version for view in client.workflows("life")] == [2, 1]
    assert "life" in {view.name for view in client.workflows()}
    assert client.workflow("life", 1).definition == ECHO | {"name": "life"}
    assert client.workflow("life").version == 2

    started = client.start(workflow="life", key="life-1", labels={"a": "b"})
    assert client.start(workflow="life", key="life-1", labels={"a": "b"}).id == started.id
    ended = client.wait(started.id[:10], 20)
    assert (ended.status, ended.output, ended.labels, ended.started_by) == ("COMPLETED", 2, {"a": "b"}, "local")
    assert client.show(started.id) == ended
    assert started.id in {view.id for view in client.executions(statuses=("COMPLETED",), workflow="life")}
    assert [job.status for job in client.jobs(started.id)] == ["SUCCEEDED"]
    assert [line.message for line in client.logs(started.id)] == ["hello"]
    assert [line.message for line in client.follow_logs(started.id)] == ["hello"]
    assert list(client.follow(started.id)) == client.events(started.id)
    assert client.events(started.id, after=2, limit=1)[0]["seq"] == 3
    assert client.why(started.id).summary.startswith("completed")
    assert client.definition(started.id)["name"] == "life"
    assert {"shell", "http"} <= {block.name for block in client.blocks()}
    assert [worker.state for worker in client.workers()] == ["online"]
    assert isinstance(client.queues(), list)
    assert client.health().status == "ok"
    assert client.version()["role"] == "admin"
    assert "holdfast_commits_total" in client.metrics()


def test_run_is_start_and_wait(home: House) -> None:
    view = home.client.run(definition=ECHO, labels={"a": "b"})
    assert (view.status, view.output, view.labels) == ("COMPLETED", "hello", {"a": "b"})
    with pytest.raises(TimedOut):
        home.client.run(definition=LONG, timeout=0.2)
    for left in home.client.executions(statuses=("RUNNING",)):
        home.client.cancel(left.id)


def test_long_lists_are_read_in_pages(home: House) -> None:
    many = {home.start({"name": "listed", "steps": ["log x"]}) for _ in range(30)}
    found = home.client.executions(workflow="listed", limit=25)
    assert len(found) == 25
    assert len(home.client.executions(workflow="listed", limit=1000)) == 30
    assert {view.id for view in found} <= many


def test_cancel_and_signal(home: House) -> None:
    id = home.start(LONG)
    home.client.signal(id, "anything", {"a": 1}, key="once")
    assert home.client.cancel(id, "enough").status in ("CANCELLING", "CANCELLED")
    assert home.client.wait(id, 20).status == "CANCELLED"


def test_refusals_come_back_as_what_they_are(home: House) -> None:
    client = home.client
    with pytest.raises(UnknownExecution):
        client.show("f" * 32)
    with pytest.raises(UnknownExecution):
        client.show("")
    with pytest.raises(UnknownExecution):
        next(client.follow("f" * 32))
    with pytest.raises(UnknownWorkflow):
        client.start(workflow="nowhere")
    with pytest.raises(InvalidDefinition) as raised:
        client.start(definition={"steps": [{"nonsense": 1}, {"more": 2}]})
    assert len(raised.value.problems) == 2
    with pytest.raises(InvalidDefinition) as raised:
        client.publish_yaml("steps:\n  - nonsense: 1\n")
    assert raised.value.problems[0].line == 2
    client.start(definition=ECHO, key="taken")
    with pytest.raises(KeyReused):
        client.start(definition=ECHO, key="taken", input={"x": 1})
    with pytest.raises(PayloadTooLarge):
        client.start(definition=ECHO, input={"x": "y" * 5_000_000})
    with pytest.raises(PayloadTooLarge):
        client.start(definition=ECHO, input={"x": "y" * 100_000_000})
    with pytest.raises(Unauthenticated):
        Client(client.address).executions()
    with pytest.raises(Unauthenticated):
        Client(client.address, "hf_a_b").executions()
    with pytest.raises(Forbidden):
        Client(client.address, home.tokens["viewer"]).cancel("f" * 32)


def test_waiting_ends_with_its_time(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    id = home.start(LONG)
    asked: list[float] = []
    get = home.client._get

    def spy(path: str, type: Any, query: dict[str, str]) -> Any:
        asked.append(float(query["wait"]))
        return get(path, type, query)

    monkeypatch.setattr(home.client, "_get", spy)
    with pytest.raises(TimedOut):
        home.client.wait(id, 0.3)
    assert 0 < max(asked) <= 0.3, "no question may be held back for longer than is left"
    monkeypatch.undo()
    assert not home.client.show(id).is_ended
    home.client.cancel(id)


def test_nobody_there_is_said(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    client = Client(address, "x", patience=0.3)
    for verb in (lambda: client.health(), lambda: client.start(definition=ECHO), lambda: next(client.follow("a"))):
        with pytest.raises(ServerUnreachable, match="no server answers at"):
            verb()
    with pytest.raises(ServerUnreachable):
        client.wait("a", 10)
    for wrong in ("ftp://x", "http://"):
        with pytest.raises(BadConfiguration):
            Client(wrong)


def test_a_server_that_came_back_is_used_again(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        client = Client(home.server.address, home.token("admin"))
        id = client.start(definition=ECHO).id
        home.server.stop()
        with pytest.raises(ServerUnreachable):
            client.show(id)
        with Server(home.service, port=home.server.port):
            assert client.show(id).id == id
            assert client.start(definition=ECHO).workflow == "echo"
            client.close()


def one_message(sock: socket.socket) -> bytes:
    """A whole request or answer; nothing when the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int((head.lower().partition(b"content-length:")[2].split() or [b"0"])[0])
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def test_a_start_whose_answer_was_lost_starts_once(home: House) -> None:
    """Between client and server stands somebody who swallows the first answer."""
    swallowed = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def carry() -> None:
            for _ in range(4):
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                with near, socket.create_connection(("127.0.0.1", home.server.port)) as far:
                    near.settimeout(5)
                    while request := one_message(near):
                        far.sendall(request)
                        answer = one_message(far)
                        if not swallowed.is_set() and answer.startswith(b"HTTP/1.1 201"):
                            swallowed.set()
                            break  # and close: the client never learns of it
                        near.sendall(answer)

        thread = threading.Thread(target=carry, daemon=True)
        thread.start()
        client = Client(f"127.0.0.1:{listener.getsockname()[1]}", home.admin)
        view = client.start(definition=ECHO | {"name": "lost"})
        assert swallowed.is_set()
        client.close()
    assert [found.id for found in home.client.executions(workflow="lost")] == [view.id]


def test_threads_have_their_own_connections(home: House) -> None:
    found: list[str] = []

    def work() -> None:
        for _ in range(5):
            found.append(home.client.health().status)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == ["ok"] * 40


def test_answers_of_something_else_are_not_believed() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def speak() -> None:
            for body in (b"<html>", b'{"status": 1}', b"[]"):
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                with near:
                    near.recv(65536)
                    near.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
                    )

        threading.Thread(target=speak, daemon=True).start()
        client = Client(f"127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(3):
            with pytest.raises(Refused, match="cannot be read"):
                client.health()
        client.close()
