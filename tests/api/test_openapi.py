"""The document is generated; this holds it against real answers of every route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.openapi import document
from holdfast.api.routes import Route
from holdfast.api.routing import make_router
from holdfast.core.errors import Refused
from holdfast.transport.refusals import refusal

from .schemas import problems
from .support import ECHO, LONG, House, house

DOCUMENT = document(make_router())
ROUTES = [route for route in make_router() if route.path.startswith("/api/") or route.tag == "compat"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("openapi")) as made:
        made.client.publish(ECHO)
        yield made


class Sample:
    """Something of everything to ask about."""

    def __init__(self, home: House) -> None:
        long = {"name": "long-value", "steps": [{"block": "test.echo", "input": {"value": "x" * 3000}}, "log hello"]}
        self.ended = home.start(long)
        home.client.wait(self.ended, 20)
        self.failed = home.start({"name": "bad", "steps": [{"block": "test.fail", "input": {"permanent": True}}]})
        home.client.wait(self.failed, 20)
        self.running = home.start(LONG)
        events = home.client.events(self.ended)
        self.digest = next(e["result"]["$blob"] for e in events if e["type"] == "JobSucceeded")
        self.token = home.client.create_token("sample", "viewer")["id"]
        home.ask("POST", "/api/v1/worker/hello", {"name": "w", "incarnation": "sample"})
        home.client.put_entity("web", type="server", labels={"role": "edge"})
        home.take_lock("web", "echo")
        self.asking = home.start({"name": "asking", "steps": [{"id": "gate", "step": "approve"}]})
        for kind in ("sensor", "config"):
            home.client.set_sensor("web", "echo", {"a": [1]}, kind)


def calls(route: Route, sample: Sample) -> list[tuple[str, Any]]:
    """Good calls of that route: addresses and bodies."""
    path = route.path.replace("{name}", "echo").replace("{version}", "1").replace("{state}", "Running")
    path = path.replace("{entity}", "web").replace("{step}", "-").replace("{package}/{block}", "fb.example.io/ping")
    bodies: dict[str, list[Any]] = {
        "workflows_publish": [{"definition": ECHO}, {"definition": ECHO, "name": "other"}],
        "executions_start": [{"workflow": "echo"}, {"definition": ECHO, "labels": {"a": "b"}, "input": {}}],
        "executions_signal": [{"name": "go", "value": {"a": 1}}],
        "executions_cancel": [{"reason": "enough"}],
        "system_apply_retention": [{}, {"dry_run": True}],
        "planning_plan": [{"workflow": "echo"}, {"definition": ECHO, "input": {}}],
        "planning_retry": [{}, {"force": True}],
        "reviving_resume": [{"dry_run": True}, {"force": True, "reason": "looked"}],
        "reviving_replay": [{"from": "0", "force": True, "dry_run": True}, {"from": "start", "force": True}],
        "reviving_act": [{"action": "resume", "dry_run": True}, {"action": "replay", "from": "start", "force": True}],
        "reviving_approve": [{"approved": True, "note": "fine"}],
        "system_create_token": [{"name": "t", "role": "worker", "lifetime": 60}],
        "entities_put_entity": [{}, {"type": "server", "name": "Web", "labels": {"a": "b"}, "facts": {"n": [1]}}],
        "entities_patch_entity": [{}, {"facts": {"n": None, "os": "17"}, "labels": {"a": None}}],
        "entities_import_entities": [
            {"source": "s", "text": "id,groups,os\nr1,core,17\n", "dry_run": True},
            {"source": "s", "rows": [{"id": "r1", "facts": {"os": "17"}}], "partial": True},
            {"source": "s", "present": []},
        ],
        "sharing_set_sensor": [{"value": 1}, {"value": None}],
        "sharing_set_config": [{"value": {"a": [1, "x"]}}],
        "worker_hello": [{"name": "w", "incarnation": "sample", "blocks": [{"name": "x"}]}],
        "worker_exchange": [{"incarnation": "sample", "number": 1}],
        "worker_goodbye": [{"incarnation": "sample"}],
        "compat_execute": [{"workflow": "echo"}, {"workflow": "echo", "parameters": {}, "executeOnParameters": {}}],
        "compat_publish": [{"workflow": ECHO}],
        "compat_ack": [{"by": "ann", "note": "seen"}],
    }
    if "{digest}" in path:
        return [(path.format(id=sample.ended, digest=sample.digest), None)]
    if path.startswith("/api/v1/tokens/"):
        return [(path.format(id=sample.token), None)]
    ids = [sample.ended, sample.failed, sample.running]
    if route.name == "reviving_approve":
        ids = [sample.asking]
    elif route.tag == "reviving" and route.method == "POST":
        ids = [sample.failed]
    elif route.name in ("executions_purge", "compat_ack", "verdicts_ack", "planning_retry"):
        ids = [sample.ended]
    elif route.method != "GET":
        ids = [sample.running]
    elif "/stream" in path:
        ids = ids[:2]
    addresses = [path.format(id=id) for id in ids] if "{id}" in path else [path]
    return [(address, body) for address in addresses for body in bodies.get(route.name, [None])]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_good_answers_are_as_declared(home: House, route: Route, tmp_path: Path) -> None:
    sample = Sample(home)
    if route.name == "sharing_free":  # it fails the execution, which lets go of the entity
        home.take_entity("web")
    elif route.name in ("verdicts_rollback", "verdicts_fail"):
        sample.running = home.leave_undecided(route.name, tmp_path / "witness")
    declared = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    for address, body in calls(route, sample):
        got = home.ask(route.method, address, body)
        assert got.status < 300, got
        content = declared[str(got.status)]["content"]
        media = got.headers["content-type"]
        plain = next(kind for kind in content if media.partition(";")[0] == kind.partition(";")[0])
        if plain == "application/json":
            assert not problems(got.json, content[plain]["schema"], DOCUMENT["components"]["schemas"])
    if sample.running:
        home.ask("POST", f"/api/v1/executions/{sample.running}/cancel", {})


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_bad_answers_are_as_declared(home: House, route: Route) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    declared = operation["responses"]
    assert any(status.startswith("4") for status in declared)
    path = route.path.format(id="f" * 32, name="nobody", version="9", digest="0" * 32, entity="nobody", step="x",
                             state="NOWHERE", package="fb.example.io", block="ping")  # fmt: skip
    bad = [
        home.ask(route.method, path, token="hf_nobody_x"),
        home.ask(route.method, path + "?unknown=1"),
        home.ask(route.method, path + "?%ff"),
        home.ask(route.method, path, b"{"),
        home.ask(route.method, path, {"unknown": 1}),
        home.ask(route.method, path),
    ]
    for got in bad:
        if got.status < 400:
            continue
        assert str(got.status) in declared, got
        response = declared[str(got.status)]
        schema = response["content"]["application/json"]["schema"]
        assert not problems(got.json, schema, DOCUMENT["components"]["schemas"])
        assert got.code in response["x-codes"], got


def test_the_document_is_whole() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    names = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            assert operation["summary"].endswith(".")
            assert operation["x-role"]
    for name in _references(DOCUMENT):
        assert name in DOCUMENT["components"]["schemas"]
    assert "tenant" not in str(DOCUMENT["components"]["schemas"]["StartBody"])


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_it_is_served(home: House) -> None:
    assert home.ask("GET", "/api/v1/openapi.json").json == DOCUMENT


def test_every_refusal_comes_back_as_its_class() -> None:
    def classes(base: type[Refused]) -> Iterator[type[Refused]]:
        for child in base.__subclasses__():
            if child.__module__.startswith("holdfast."):
                yield child
                yield from classes(child)

    from holdfast.api.app import refusal_response

    seen = set()
    for kind in classes(Refused):
        response = refusal_response(kind("because"))
        back = refusal(response.status_code, bytes(response.body), response.headers.get("retry-after"))
        assert type(back) is kind
        assert (back.message, back.retry_after) == ("because", kind.retry_after)
        seen.add(kind.code)
    assert len(seen) > 30
    odd = refusal(418, b'{"error": {"code": "HF9999", "message": "tea", "status": 418}}')
    assert (type(odd), odd.code, odd.status) == (Refused, "HF9999", 418)
    assert refusal(502, b"<html>Bad Gateway</html>").code == "HF0801"
