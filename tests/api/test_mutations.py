"""Ten thousand mutated requests with a valid token, straight into the application: none may break it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.api.app import App
from holdfast.api.auth import Auth
from holdfast.api.openapi import document
from holdfast.api.routes import Route, Router
from holdfast.api.routing import make_router
from holdfast.core.errors import MethodNotAllowed, NoSuchRoute

from .mutate import Mutator, Request
from .support import ECHO, LONG, House, house

COUNT = 12_000
AT_ONCE = 24
WAITS = {"name": "waits", "steps": [{"wait-for-signal": "go"}]}
ANYWHERE = {NoSuchRoute.code, MethodNotAllowed.code}


class Tally:
    def __init__(self) -> None:
        self.reached = 0
        self.statuses: Counter[int] = Counter()
        self.operations: Counter[str] = Counter()
        self.good: Counter[str] = Counter()
        self.broken: list[str] = []


def counting(route: Route, tally: Tally) -> Route:
    """The same route, that counts how often its handler is reached."""
    handler = route.handler

    def reached(call: Any) -> Any:
        tally.reached += 1
        return handler(call)

    reached.__name__, reached.__doc__ = handler.__name__, handler.__doc__
    if not route.is_async:
        return replace(route, handler=reached)

    async def reached_too(call: Any) -> Any:
        tally.reached += 1
        return await handler(call)

    reached_too.__name__, reached_too.__doc__ = handler.__name__, handler.__doc__
    return replace(route, handler=reached_too)


def furnish(home: House, witness: Path) -> dict[str, list[str]]:
    """Things that exist, so that many requests find something."""
    home.client.publish(ECHO)
    home.client.publish(ECHO | {"name": "second"})
    ids = [home.start() for _ in range(3)]
    # It ends unsafe: nobody can purge it meanwhile.
    big = [{"block": "test.echo", "input": {"value": "x" * 2000}}, {"block": "test.noop"}, "fail no"]
    ids += [home.start({"name": "big", "steps": big})]
    for id in ids:
        home.client.wait(id, 20)
    digest = next(e["result"]["$blob"] for e in home.client.events(ids[3]) if e["type"] == "JobSucceeded")
    ids += [home.start(LONG) for _ in range(12)]
    ids += [home.start({"name": "asks", "steps": [{"id": "gate", "step": "approve go on?"}]}) for _ in range(16)]
    ids += [home.leave_undecided(f"undecided-{n}", witness) for n in range(24)]
    tokens = [home.client.create_token(f"t{n}", "viewer")["id"] for n in range(3)]
    home.client.put_entity("web", type="server")
    home.client.put_entity("held", type="server")
    for _ in range(20):
        home.take_entity("held")
    for name in ("echo", "second"):
        for _ in range(20):
            home.take_lock("web", name)
        home.client.set_sensor("web", name, 1)
        home.client.set_sensor("web", name, 1, "config")
    definitions = [ECHO, {"name": "logs", "steps": ["log hi", {"let": "x = 1"}]}, LONG]
    sources = ["name: y\nsteps: [test.noop]\n", "steps:\n  - log hello\n  - test.echo value=${input.x}\n", "steps: []"]
    whole = json.dumps(definitions[0])
    return {
        # The one with a long value often, or nobody would ever ask for that.
        "id": [*ids, *(id[:8] for id in ids), *[ids[3]] * 60],
        "name": ["echo", "second", "x.y"],
        "workflow": ["echo", "second:1", "nowhere"],
        "version": ["1", "2", "0"],
        "state": ["RUNNING", "completed", "nowhere"],
        "package": ["fb.example.io"],
        "block": ["ping", "x"],
        "digest": [digest, "0" * 32],
        "token": tokens,
        "definition": [whole, *(json.dumps(d) for d in definitions)],
        "source": sources,
        "incarnation": ["life-1", "life-2", "life-3"],
        "execution": ids,
        "status": ["RUNNING", "completed", "FAILED_SAFE"],
        "before": ids,
        "role": ["viewer", "worker"],
        "mode": ["cancel"],
        "entity": ["web", "held", "default", "nobody"],
        "step": ["gate", "-", "0"],
        "from": ["start", "last", "end", "0"],
        "action": ["cancel", "resume", "replay"],
    }


async def ask(app: App, request: Request, tally: Tally, declared: dict[str, set[str]]) -> None:
    path, _, query = request.path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": request.method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query.encode("ascii", "replace"), "headers": request.headers, "client": ("127.0.0.1", 1),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    pending = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status = sent[0]["status"]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    tally.statuses[status] += 1
    tally.operations[request.operation] += 1
    tally.good[request.operation] += status < 300
    problem = ""
    if status in (500, 502, 504):
        problem = "broke"
    elif status >= 400:
        error = msgspec.json.decode(body)["error"]
        if not error["message"] or error["status"] != status:
            problem = "is misshapen"
        elif error["code"] not in ANYWHERE and str(status) not in declared.get(request.operation, {str(status)}):
            problem = "is not declared"
    elif str(status) not in declared.get(request.operation, {str(status)}):
        problem = "is not declared"
    if problem:
        tally.broken.append(f"{status} {problem}: {request} → {body[:300]!r}")


@pytest.mark.parametrize("seed", [20261115])
def test_mutated_requests_break_nothing(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tally = Tally()
    openapi = document(make_router())
    declared = {
        operation["operationId"]: set(operation["responses"])
        for methods in openapi["paths"].values()
        for operation in methods.values()
    }

    async def storm(app: App, mutator: Mutator) -> None:
        left = COUNT

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await ask(app, mutator.request(), tally, declared)

        async def close_at_last(callers: list[asyncio.Task[None]]) -> None:
            # Whoever still waits for a job in a long poll is let go, as when the server stops.
            while left > 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await asyncio.wait(callers, timeout=3)
            app.close()

        callers = [asyncio.create_task(caller()) for _ in range(AT_ONCE)]
        await asyncio.gather(close_at_last(callers), *callers)

    with house(tmp_path) as home:
        auth = Auth(home.service)
        app = App(home.service, auth, Router(counting(route, tally) for route in make_router()))
        pool = furnish(home, tmp_path / "witness")
        mutator = Mutator(openapi, pool, auth.local_token(), seed)
        asyncio.run(storm(app, mutator))
        app.end()

        assert not tally.broken, "\n".join(tally.broken[:5])
        assert sum(tally.statuses.values()) >= 10_000
        assert tally.reached >= COUNT / 3, tally.statuses
        assert set(tally.operations) - {""} == set(declared)
        # Every operation also worked at least once, so the mutations did not stay at the door.
        assert not [name for name in declared if not tally.good[name]]
        assert "incident" not in caplog.text
        # And the engine is none the worse for it.
        assert home.holdfast.engine.is_alive
        assert home.client.health().status == "ok"
        view = home.client.start(definition=ECHO)
        assert home.client.wait(view.id, 20).status == "COMPLETED"
        for view in home.client.executions(statuses=("RUNNING",), limit=2000):
            home.client.cancel(view.id)
        print(f"{tally.reached} of {COUNT} reached a handler; {dict(tally.statuses)}")
