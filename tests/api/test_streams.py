"""Live feeds: no gap, no repeat, whatever happens to the connection or to the server."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.api import streams
from holdfast.api.server import Server

from .support import ECHO, LONG, House, house

MANY = {"name": "many", "steps": [{"block": "test.sleep", "input": {"seconds": 0.03}}] * 12}


class Reader:
    """Reads a stream by hand, as many messages as it likes."""

    def __init__(self, home: House, path: str, last: int | None = None, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", home.server.port, timeout=20)
        sent = {"Authorization": f"Bearer {home.admin}", **headers}
        if last is not None:
            sent["Last-Event-ID"] = str(last)
        self.connection.request("GET", path, headers=sent)
        self.answer = self.connection.getresponse()

    def messages(self) -> Iterator[dict[str, str]]:
        message: dict[str, str] = {}
        for raw in self.answer:
            line = raw.decode().rstrip("\n")
            if not line:
                if message:
                    yield message
                message = {}
                continue
            name, _, value = line.partition(": ")
            message[name] = value


@contextmanager
def reading(home: House, path: str, last: int | None = None, **headers: str) -> Iterator[Reader]:
    reader = Reader(home, path, last, **headers)
    try:
        yield reader
    finally:
        reader.connection.close()


def events(id: str) -> str:
    return f"/api/v1/executions/{id}/events/stream"


def test_a_stream_tells_everything_and_ends(home: House) -> None:
    id = home.start(MANY)
    with reading(home, events(id[:12])) as reader:
        assert reader.answer.headers["content-type"].startswith("text/event-stream")
        found = [m for m in reader.messages() if "id" in m or m.get("event") == "end"]
    assert found[-1]["event"] == "end"
    assert json.loads(found[-1]["data"]) == {"id": id, "status": "COMPLETED"}
    told = [json.loads(m["data"]) for m in found[:-1]]
    assert told == home.client.events(id)
    assert [int(m["id"]) for m in found[:-1]] == list(range(1, len(told) + 1))
    assert [m["event"] for m in found[:-1]] == [e["type"] for e in told]


def test_a_dropped_reader_goes_on_where_it_was(home: House) -> None:
    id = home.start(MANY)
    seen: list[int] = []
    last, is_over = None, False
    while not is_over:
        with reading(home, events(id), last) as reader:
            for at, message in enumerate(reader.messages()):
                if message.get("event") == "end":
                    is_over = True
                elif "id" in message:
                    last = int(message["id"])
                    seen.append(last)
                if at == 3:
                    break  # the connection is lost here
    assert seen == list(range(1, len(home.client.events(id)) + 1))


def test_accept_makes_a_page_a_stream(home: House) -> None:
    id = home.start(ECHO | {"steps": ["log one", "log two", "test.noop"]})
    home.client.wait(id, 20)
    whole = home.client.events(id)
    with reading(home, f"/api/v1/executions/{id}/events?after=2", Accept="text/event-stream") as reader:
        numbers = [int(m["id"]) for m in reader.messages() if "id" in m]
    assert numbers == [event["seq"] for event in whole[2:]]
    for path in ("logs?follow=true", "logs/stream"):
        with reading(home, f"/api/v1/executions/{id}/{path}") as reader:
            found = list(reader.messages())
        lines = [json.loads(m["data"])["message"] for m in found if m.get("event") == "log"]
        assert lines == ["one", "two"]
        assert found[-1]["event"] == "end"
    # Whoever has everything is only told the end.
    with reading(home, events(id), len(whole)) as reader:
        assert [m.get("event") for m in reader.messages()] == [None, "end"]


def test_a_wrong_cursor_is_refused(home: House) -> None:
    id = home.start()
    for wrong in ("abc", "-1", "1" * 30, "²"):
        got = home.ask("GET", events(id), Last_Event_ID=wrong.encode().decode("latin-1"))
        assert (got.status, got.code) == (422, "HF0201")


def test_silence_is_filled_with_comments(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.1)
    id = home.start(LONG)
    with reading(home, events(id)) as reader:
        for line in reader.answer:
            if line == b": still here\n":
                break
    home.ask("POST", f"/api/v1/executions/{id}/cancel", {})


def test_streams_are_counted_and_limited(home: House) -> None:
    app = home.server.app
    id = home.start(LONG)
    before, app.max_streams = app.max_streams, 1
    try:
        with reading(home, events(id)) as first:
            next(first.messages())
            assert app.streams == 1
            got = home.ask("GET", events(id))
            assert (got.status, got.code) == (429, "HF0702")
        until = time.monotonic() + 10
        while app.streams and time.monotonic() < until:
            time.sleep(0.02)
        assert app.streams == 0, "a reader that left is noticed"
        assert not home.holdfast.engine.watchers.of(id)
    finally:
        app.max_streams = before
        home.ask("POST", f"/api/v1/executions/{id}/cancel", {})


def test_a_stopping_server_ends_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 60)  # or it would look around by itself
    with house(tmp_path) as home:
        id = home.start(LONG)
        with reading(home, events(id)) as reader:
            # Past the last event there will be: what ends the stream's waiting now is the server's end.
            while next(reader.messages()).get("event") != "JobStarted":
                pass
            time.sleep(0.3)
            home.stop_server()
            for _ in reader.answer:  # raises where a stream was cut off
                pass
            assert reader.answer.isclosed()
        assert home.service.show(home.holdfast.actor, id).status == "RUNNING"
        home.service.cancel(home.holdfast.actor, id)


def test_following_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        token = home.token("viewer")
        client = type(home.client)(home.server.address, token)
        id = home.start({"name": "slow", "steps": [{"block": "test.sleep", "input": {"seconds": 0.1}}] * 15})
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.extend(event["seq"] for event in client.follow(id)))
        thread.start()
        port = home.server.port
        server = home.server
        for _ in range(2):
            time.sleep(0.3)
            server.stop()
            time.sleep(0.2)
            server = Server(home.service, port=port)
            server.start()
        thread.join(30)
        assert not thread.is_alive()
        client.close()
        events = home.service.events(home.holdfast.actor, id)
        server.stop()
        assert found == [event["seq"] for event in events]
        assert events[-1]["type"] == "ExecutionCompleted"
