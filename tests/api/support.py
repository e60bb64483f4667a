"""A whole Holdfast with a server on a free port, and a plain HTTP client that hides nothing."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.api.auth import Role
from holdfast.api.server import Server
from holdfast.client import Client
from holdfast.core.model import Actor
from holdfast.embedded import Embedded


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # whoever waits in vain is stopped by the suite's own limit
        time.sleep(0.01)


ECHO = {"name": "echo", "steps": [{"block": "test.echo", "input": {"value": "hello"}}]}
LONG = {"name": "long", "steps": [{"block": "test.sleep", "input": {"seconds": 60}}]}


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class House:
    """Engine, worker and server, and tokens for every role."""

    def __init__(self, holdfast: Embedded, server: Server) -> None:
        self.holdfast = holdfast
        self.service = holdfast.service
        self.server = server
        self.admin = server.local_token()
        self.client = Client(server.address, self.admin)
        self.tokens = {role.name.lower(): server.local_token(role.name, role.name) for role in Role if role}

    def token(self, role: str, tenant: str = "default") -> str:
        return self.server.auth.create(f"{role}-{tenant}", Role[role.upper()], tenant)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str) -> Got:
        """`token` "" for none; `body` as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.admin if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            lowered = {name.lower(): value for name, value in answer.headers.items()}
            return Got(answer.status, lowered, answer.read())
        finally:
            connection.close()

    def start(self, definition: Any = ECHO, **more: Any) -> str:
        return self.client.start(definition=definition, **more).id

    def take_lock(self, entity: str, name: str) -> str:
        """An execution that holds that lock, or waits for it."""
        return self.start({"name": "locked", "lock": {"name": name, "entity": entity}, "steps": ["wait-signal never"]})

    def take_entity(self, entity: str) -> str:
        """An execution that holds that entity, or waits for it."""
        upon = {"run-on": "server", "acquire": [{"ids": [entity]}]}
        return self.start({"name": "upon", **upon, "steps": ["wait-signal never"]})

    def leave_undecided(self, entity: str, witness: Path) -> str:
        """An execution that did something to that entity, failed, and waits for a decision."""
        self.client.put_entity(entity, type="device")
        upon = {"run-on": "device", "acquire": [{"ids": [entity]}], "config": {"rollback": "manual"}}
        did = {"block": "test.undoable", "input": {"path": str(witness), "key": entity}}
        id = self.start({"name": "undecided", **upon, "steps": [did, "fail no"]})
        until(lambda: self.client.show(id).status == "ERROR")
        return id

    def stop_server(self) -> None:
        """Stop the server, and see that everybody left when told to: nobody was cut off for taking too long."""
        inside = self.server._server
        inside.config.timeout_graceful_shutdown = 60
        self.server.stop(20)
        assert not inside.force_exit
        assert self.server._thread is not None
        assert not self.server._thread.is_alive()


@contextmanager
def house(folder: Path, *, attempts: int = 1_000_000, with_worker: bool = True, **options: Any) -> Iterator[House]:
    with Embedded(f"sqlite:///{folder}/state.db", with_worker=with_worker, processes=0, **options) as holdfast:
        holdfast.actor = Actor("test")
        server = Server(holdfast.service, port=0, attempts=attempts)
        server.start()
        made = House(holdfast, server)
        try:
            yield made
        finally:
            made.client.close()
            server.stop()
