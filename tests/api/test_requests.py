"""What the API does with good and bad requests. Every refusal has a code, a status and a way out."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from holdfast.api.app import App
from holdfast.api.routes import BODY_LIMIT
from holdfast.core.errors import StoreFull
from holdfast.core.ids import make_id

from .support import ECHO, LONG, Got, House, house

X = "/api/v1/executions"
W = "/api/v1/workflows"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("requests")) as made:
        made.client.publish(ECHO)
        yield made


# --- starting --------------------------------------------------------------------------------------
def test_start_by_name_answers_with_the_execution_and_its_place(home: House) -> None:
    got = home.ask("POST", X, {"workflow": "echo", "labels": {"team": "net"}})
    assert got.status == 201
    assert got.headers["location"] == f"{X}/{got.json['id']}"
    assert (got.json["workflow"], got.json["version"], got.json["labels"]) == ("echo", 1, {"team": "net"})
    assert home.ask("GET", got.headers["location"] + "?wait=10").json["status"] == "COMPLETED"


def test_start_with_an_inline_definition_or_its_source(home: House) -> None:
    source = "name: inline\nsteps:\n  - test.echo value=7\n"
    for body in ({"definition": ECHO}, {"source": source}):
        got = home.ask("POST", X, body)
        assert got.status == 201, got
        assert home.client.wait(got.json["id"], 20).status == "COMPLETED"


def test_starting_may_wait_for_the_end(home: House) -> None:
    got = home.ask("POST", f"{X}?wait=20", {"workflow": "echo"}, Idempotency_Key="awaited")
    assert (got.status, got.json["status"], got.json["output"]) == (201, "COMPLETED", "hello")
    assert got.headers["location"] == f"{X}/{got.json['id']}"
    again = home.ask("POST", f"{X}?wait=20", {"workflow": "echo"}, Idempotency_Key="awaited")
    assert (again.status, again.json) == (200, got.json)
    inline = home.ask("POST", f"{X}?wait=20", {"definition": {"name": "none", "steps": ["return ${2 + 2}"]}})
    assert (inline.status, inline.json["output"]) == (201, 4)
    big = {"name": "big", "steps": [{"block": "test.echo", "input": {"value": "x" * 3000}}]}
    long = home.ask("POST", f"{X}?wait=20", {"definition": big})
    assert (long.status, long.json["output"]) == (201, "x" * 3000), "from a blob"


def test_waiting_ends_with_its_time_and_shows_what_it_waits_for(home: House) -> None:
    definition = {"name": "late", "steps": ["test.noop", LONG["steps"][0]]}
    got = home.ask("POST", f"{X}?wait=0.5", {"definition": definition})
    assert (got.status, got.json["status"]) == (201, "RUNNING")
    assert got.json["progress"] == {"done": 1, "total": 2}, "as it is, not as it was when it began"
    assert got.json["waiting"]
    seen = home.ask("GET", f"{X}/{got.json['id'][:8]}?wait=0.2").json
    assert seen["status"] == "RUNNING"
    assert seen["waiting"]
    assert home.ask("GET", f"{X}/{'f' * 32}?wait=1").code == "HF0203"
    other = home.token("viewer", "elsewhere")
    assert home.ask("GET", f"{X}/{got.json['id']}?wait=1", token=other).code == "HF0203"
    home.client.cancel(got.json["id"])


def test_many_wait_at_once(home: House) -> None:
    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda _: home.ask("POST", X, {"workflow": "echo"}).json["id"], range(32)))
        views = list(pool.map(lambda id: home.ask("GET", f"{X}/{id}?wait=20").json, ids))
    assert [view["id"] for view in views] == ids
    assert {view["status"] for view in views} == {"COMPLETED"}


def test_the_same_key_starts_once(home: House) -> None:
    body = {"workflow": "echo"}
    first = home.ask("POST", X, body, Idempotency_Key="order-1")
    again = home.ask("POST", X, body, Idempotency_Key="order-1")
    in_body = home.ask("POST", X, body | {"key": "order-1"})
    assert (first.status, again.status, in_body.status) == (201, 200, 200)
    assert first.json["id"] == again.json["id"] == in_body.json["id"]
    other = home.ask("POST", X, body | {"labels": {"a": "b"}}, Idempotency_Key="order-1")
    assert (other.status, other.code) == (409, "HF0205")
    both = home.ask("POST", X, body | {"key": "x"}, Idempotency_Key="y")
    assert (both.status, both.code) == (422, "HF0201")


def test_an_id_is_taken_once(home: House) -> None:
    id = make_id(1_700_000_000_000, bytes(range(10)))
    assert home.ask("POST", X, {"workflow": "echo", "id": id}).json["id"] == id
    got = home.ask("POST", X, {"workflow": "echo", "id": id})
    assert (got.status, got.code) == (409, "HF0206")


def test_an_unoffered_block_waits_and_the_answer_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    with house(tmp_path_factory.mktemp("idle"), with_worker=False) as home:
        got = home.ask("POST", X, {"definition": ECHO})
        # Never registered: nothing to wait for.
        assert (got.status, got.json["status"], got.json["error"]["code"]) == (201, "FAILED_SAFE", "HF0211")
        hello = {"name": "w", "incarnation": "i", "blocks": [{"name": "test.echo"}]}
        assert home.ask("POST", "/api/v1/worker/hello", hello).json["lease"] > 0
        assert home.ask("POST", "/api/v1/worker/goodbye", {"incarnation": "i"}).json == {}
        got = home.ask("POST", X, {"definition": ECHO})
        assert (got.status, got.json["status"]) == (201, "RUNNING")
        assert "no worker online offers `test.echo`" in got.json["waiting"][0]
        why = home.ask("GET", f"{X}/{got.json['id']}/why").json
        assert "no worker online offers `test.echo`" in why["summary"]


# --- refusals --------------------------------------------------------------------------------------
BAD: dict[str, tuple[str, str, Any, int, str]] = {
    "not JSON": ("POST", X, b"{", 400, "HF0200"),
    "not an object": ("POST", X, [], 422, "HF0201"),
    "just text": ("POST", X, b'"x"', 422, "HF0201"),
    "not UTF-8": ("POST", X, b'{"workflow": "\xff"}', 400, "HF0200"),
    "a byte order mark": ("POST", X, b"\xef\xbb\xbf{}", 400, "HF0200"),
    "NaN": ("POST", X, b'{"workflow": "echo", "input": NaN}', 400, "HF0200"),
    "Infinity": ("POST", X, b'{"workflow": "echo", "input": [-Infinity]}', 400, "HF0200"),
    "a number like infinity": ("POST", X, b'{"workflow": "echo", "input": 1e999}', 400, "HF0200"),
    "a long number": ("POST", X, b'{"workflow": "echo", "input": 9223372036854775808}', 400, "HF0200"),
    "a very long number": ("POST", X, b'{"workflow": "echo", "input": %s}' % (b"9" * 100_000), 400, "HF0200"),
    "a doubled key": ("POST", X, b'{"workflow": "echo", "workflow": "other"}', 400, "HF0200"),
    "a doubled key inside": ("POST", X, b'{"workflow": "echo", "input": {"a": {"b": 1, "b": 2}}}', 400, "HF0200"),
    "half a surrogate pair": ("POST", X, b'{"workflow": "echo", "input": "\\ud800"}', 400, "HF0200"),
    "U+0000": ("POST", X, b'{"workflow": "echo", "input": {"\\u0000": 1}}', 400, "HF0200"),
    "deep lists": ("POST", X, b'{"workflow": "echo", "input": %s%s}' % (b"[" * 65, b"]" * 65), 400, "HF0200"),
    "very deep lists": ("POST", X, b'{"input": %s%s}' % (b"[" * 100_000, b"]" * 100_000), 400, "HF0200"),
    "deep objects": ("POST", X, b'{"input": %s1%s}' % (b'{"a":' * 5000, b"}" * 5000), 400, "HF0200"),
    "too large": ("POST", X, b'{"input": "%s"}' % (b"x" * BODY_LIMIT), 413, "HF0701"),
    "a value too large": ("POST", X, {"workflow": "echo", "input": {"a": "é" * 1_048_576}}, 413, "HF0701"),
    "an unknown field": ("POST", X, {"workflow": "echo", "inputs": {}}, 422, "HF0201"),
    "a wrong type": ("POST", X, {"workflow": 7}, 422, "HF0201"),
    "wrong labels": ("POST", X, {"workflow": "echo", "labels": {"a": 1}}, 422, "HF0201"),
    "nothing to start": ("POST", X, {}, 422, "HF0201"),
    "too much to start": ("POST", X, {"workflow": "echo", "definition": ECHO}, 422, "HF0201"),
    "a long key": ("POST", X, {"workflow": "echo", "key": "k" * 256}, 422, "HF0201"),
    "a wrong id": ("POST", X, {"workflow": "echo", "id": "zz"}, 422, "HF0201"),
    "an unknown workflow": ("POST", X, {"workflow": "nowhere"}, 404, "HF0202"),
    "an unknown version": ("POST", X, {"workflow": "echo:99"}, 404, "HF0202"),
    "a wrong definition": ("POST", X, {"definition": {"steps": [{"nonsense": 1}]}}, 422, "HF0100"),
    "no steps": ("POST", X, {"definition": {}}, 422, "HF0100"),
    "wrong YAML": ("POST", X, {"source": "steps: [}"}, 422, "HF0100"),
    "a definition to publish that is wrong": ("POST", W, {"definition": {"name": "x", "steps": 1}}, 422, "HF0100"),
    "nothing to publish": ("POST", W, {}, 422, "HF0201"),
    "no name to publish under": ("POST", W, {"definition": ECHO, "name": "a/b"}, 422, "HF0201"),
    "an unknown id": ("GET", f"{X}/{'0' * 32}", None, 404, "HF0203"),
    "no id at all": ("GET", f"{X}/hello", None, 404, "HF0203"),
    "a very long id": ("GET", f"{X}/{'0' * 1000}", None, 404, "HF0203"),
    "an address that is not UTF-8": ("GET", f"{X}/%ff%fe", None, 400, "HF0200"),
    "an unknown blob": ("GET", f"{X}/ID/blobs/{'0' * 32}", None, 404, "HF0209"),
    "a wrong blob": ("GET", f"{X}/ID/blobs/zz", None, 404, "HF0209"),
    "an unknown workflow's page": ("GET", f"{W}/nowhere", None, 404, "HF0202"),
    "version zero": ("GET", f"{W}/echo/versions/0", None, 404, "HF0202"),
    "a version that is none": ("GET", f"{W}/echo/versions/%C2%B2", None, 404, "HF0202"),
    "a limit too small": ("GET", f"{X}?limit=0", None, 422, "HF0201"),
    "a limit too large": ("GET", f"{X}?limit=501", None, 422, "HF0201"),
    "a limit that is none": ("GET", f"{X}?limit=many", None, 422, "HF0201"),
    "a huge limit": ("GET", f"{X}?limit={'9' * 5000}", None, 422, "HF0201"),
    "a doubled limit": ("GET", f"{X}?limit=1&limit=2", None, 422, "HF0201"),
    "an unknown parameter": ("GET", f"{X}?order=up", None, 422, "HF0201"),
    "a wrong cursor": ("GET", f"{X}?before=abc", None, 422, "HF0201"),
    "a wrong status": ("GET", f"{X}?status=BROKEN", None, 422, "HF0201"),
    "a query that is not UTF-8": ("GET", f"{X}?workflow=%ff", None, 400, "HF0200"),
    "a query with U+0000": ("GET", f"{X}?workflow=%00", None, 400, "HF0200"),
    "a negative cursor": ("GET", f"{X}/ID/events?after=-1", None, 422, "HF0201"),
    "a long wait at the start": ("POST", f"{X}?wait=31", {"workflow": "echo"}, 422, "HF0201"),
    "a long wait": ("GET", f"{X}/ID?wait=31", None, 422, "HF0201"),
    "a wait for ever": ("GET", f"{X}/ID?wait=nan", None, 422, "HF0201"),
    "a signal without a name": ("POST", f"{X}/ID/signal", {}, 422, "HF0201"),
    "a signal too late": ("POST", f"{X}/ID/signal", {"name": "go"}, 409, "HF0302"),
    "kill, for now": ("POST", f"{X}/ID/cancel", {"mode": "kill"}, 422, "HF0201"),
    "a wrong role": ("POST", "/api/v1/tokens", {"name": "x", "role": "root"}, 422, "HF0201"),
    "an unknown token": ("DELETE", "/api/v1/tokens/nobody", None, 404, "HF0604"),
    "nothing there": ("GET", "/api/v1/nothing", None, 404, "HF0207"),
    "nothing at all there": ("GET", "/favicon.ico", None, 404, "HF0207"),
    "a wrong method": ("PATCH", f"{X}/ID", None, 405, "HF0208"),
    "an invented method": ("PROPFIND", "/api/v1/health", None, 405, "HF0208"),
    "an unknown worker": ("POST", "/api/v1/worker/exchange", {"incarnation": "x", "number": 1}, 404, "HF0403"),
    "a hello without blocks' names":
        ("POST", "/api/v1/worker/hello", {"name": "w", "incarnation": "i", "blocks": [{}]}, 422, "HF0201"),
    "a worker with a line break": ("POST", "/api/v1/worker/hello", {"name": "w\nx", "incarnation": "i"}, 422, "HF0201"),
    "a worker with many hands":
        ("POST", "/api/v1/worker/hello", {"name": "w", "incarnation": "i", "slots": 10**9}, 422, "HF0201"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_requests_are_refused_with_a_code(home: House, kind: str) -> None:
    method, path, body, status, code = BAD[kind]
    if "/ID" in path:
        id = home.start()
        home.client.wait(id, 20)
        path = path.replace("/ID", f"/{id}")
    got = home.ask(method, path, body)
    assert (got.status, got.code) == (status, code), got.data[:400]
    error = got.json["error"]
    assert error["message"]
    assert error["status"] == status
    assert isinstance(error["problems"], list)
    assert error["help"] == f"holdfast explain {code}"
    if code == "HF0208":
        assert got.headers["allow"]
    assert home.holdfast.engine.is_alive


def test_problems_say_where(home: House) -> None:
    got = home.ask("POST", X, {"workflow": "echo", "labels": {"a": 1}})
    [problem] = got.json["error"]["problems"]
    assert problem["path"].startswith("$.labels")
    broken = home.ask("POST", X, b'{"workflow":\n oops}').json["error"]["problems"][0]
    assert (broken["line"], broken["column"]) == (2, 2)
    yaml = b"name: x\nsteps:\n  - test.echo\n  - nonsense: [1\n"
    got = home.ask("POST", W, yaml, Content_Type="application/yaml")
    assert (got.status, got.code) == (422, "HF0100")
    assert got.json["error"]["problems"][0]["line"] >= 4


def test_wrong_parameters_fail_safe_and_say_why(home: House) -> None:
    definition = {"name": "typed", "inputs": {"count": {"type": "integer"}}, "steps": ["test.noop"]}
    view = home.client.start(definition=definition, input={"count": "many"})
    assert (view.status, view.is_safe) == ("FAILED_SAFE", True)
    assert view.error is not None
    assert "count" in view.error.message


def test_an_ambiguous_beginning_is_refused(home: House) -> None:
    for n in (1, 2):
        home.client.start(workflow="echo", id=make_id(1_700_000_000_000 + n, b"\xaa\xbb\xcc" + bytes([n] * 7)))
    got = home.ask("GET", f"{X}/aabbcc")
    assert (got.status, got.code) == (409, "HF0204")
    assert home.ask("GET", f"{X}/aabbcc01").status == 200
    assert home.ask("GET", f"{X}/AABBCC01").status == 200


def test_bodies_are_measured_while_they_arrive(home: House) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", home.server.port, timeout=30)
    headers = {"Authorization": f"Bearer {home.admin}", "Transfer-Encoding": "chunked"}
    chunks = (b"x" * 65536 for _ in range(40))
    try:
        connection.request("POST", X, chunks, headers, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 413
    except ConnectionError:
        pass  # it hung up on us in the middle: also right
    finally:
        connection.close()
    got = home.ask("POST", X, b"x", Content_Length=str(10**12))
    assert (got.status, got.code) == (413, "HF0701")


def test_content_types_and_encodings_are_looked_at(home: House) -> None:
    for headers in ({"Content_Type": "text/xml"}, {"Content_Encoding": "gzip"}, {"Content_Type": "application/yaml"}):
        got = home.ask("POST", X, {"workflow": "echo"}, **headers)
        assert (got.status, got.code) == (400, "HF0200")
    assert home.ask("POST", X, {"workflow": "echo"}, Content_Type="application/json; charset=utf-8").status == 201


# --- the other routes ------------------------------------------------------------------------------
def test_publishing_several_documents_at_once(home: House) -> None:
    text = b"name: first\ninputs: {a: string}\nsteps: [log 1]\n---\nid: second\nsteps: [log 2]\n"
    got = home.ask("POST", W, text, Content_Type="application/yaml")
    assert (got.status, got.headers["location"]) == (201, f"{W}/second/versions/1")
    assert (got.json["name"], [view["name"] for view in got.json["also"]]) == ("second", ["first"])
    again = home.ask("POST", W, text, Content_Type="application/yaml")
    assert (again.status, again.json["is_new"], again.json["also"][0]["is_new"]) == (200, False, False)
    shown = home.ask("GET", f"{W}/first").json
    assert (shown["newest"]["parameters"], len(shown["versions"])) == ({"a": "string"}, 1)
    views = home.client.publish_yaml_all(text.decode().replace("log 1", "log 3"))
    assert [(view.name, view.version, view.is_new) for view in views] == [("first", 2, True), ("second", 1, False)]
    views = home.client.publish_all([{"name": "third", "steps": ["log 1"]}, {"name": "fourth", "steps": ["log 1"]}])
    assert [(view.name, view.version) for view in views] == [("third", 1), ("fourth", 1)]


def test_nothing_is_published_if_one_of_several_is_wrong(home: House) -> None:
    text = b"name: good\nsteps: [log 1]\n---\nname: bad\nsteps:\n- log ${nope}\n---\nsteps: [log 2]\n"
    got = home.ask("POST", f"{W}?file=two.yaml", text, Content_Type="application/yaml")
    assert got.status == 422
    places = [(p["code"], p["file"], p["line"], p["column"]) for p in got.json["error"]["problems"]]
    assert places == [("HF0121", "two.yaml", 6, 9), ("HF0109", "two.yaml", 8, 1)]
    assert home.ask("GET", f"{W}/good").status == 404
    good = {"name": "good", "steps": ["log 1"]}
    got = home.ask("POST", W, {"definitions": [good, {"name": "bad", "steps": ["log ${nope}"]}]})
    (problem,) = got.json["error"]["problems"]
    assert (problem["file"], problem["path"]) == ("definitions[1]", "$.steps[0]")
    for body in (
        {},
        {"definition": good, "definitions": [good]},
        {"definitions": [good, {**good, "name": "y"}], "name": "x"},
    ):
        assert home.ask("POST", W, body).json["error"]["code"] == "HF0201"
    named = home.ask("POST", f"{W}?name=x", b"name: a\nsteps: [log 1]\n---\nname: b\nsteps: [log 1]\n",
                     Content_Type="application/yaml")  # fmt: skip
    assert (named.status, named.json["error"]["code"]) == (422, "HF0201")
    assert home.ask("GET", f"{W}/good").status == 404


def test_publishing_counts_versions_and_knows_what_it_has(home: House) -> None:
    yaml = b"name: counted\nsteps:\n  - test.echo value=1\n"
    first = home.ask("POST", W, yaml, Content_Type="application/yaml")
    assert (first.status, first.json["version"]) == (201, 1)
    assert first.headers["location"] == f"{W}/counted/versions/1"
    same = home.ask("POST", W, {"definition": first.json["definition"]})
    assert (same.status, same.json["version"], same.json["is_new"]) == (200, 1, False)
    second = home.ask("POST", W, yaml.replace(b"1", b"2"), Content_Type="text/yaml")
    assert second.json["version"] == 2
    shown = home.ask("GET", f"{W}/counted").json
    assert [v["version"] for v in shown["versions"]] == [2, 1]
    assert shown["newest"]["definition"] == second.json["definition"]
    assert home.ask("GET", f"{W}/counted/versions/1").json["definition"] == first.json["definition"]
    renamed = home.ask("POST", f"{W}?name=renamed", yaml, Content_Type="application/yaml")
    assert (renamed.json["name"], renamed.json["version"]) == ("renamed", 1)


def test_lists_come_in_pages_and_filtered(home: House) -> None:
    name = "paged"
    ids = [home.start(ECHO | {"name": name}) for _ in range(5)]
    for id in ids:
        home.client.wait(id, 20)
    seen: list[str] = []
    path = f"{X}?workflow={name}&limit=2"
    pages = 0
    while True:
        page = home.ask("GET", path).json
        seen += [item["id"] for item in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        path = f"{X}?workflow={name}&limit=2&before={page['next']}"
    assert pages == 3
    assert sorted(seen) == sorted(ids)
    running = home.start(LONG)
    for query in ("status=RUNNING,CANCELLING", "status=running&status=cancelling"):
        assert running in {item["id"] for item in home.ask("GET", f"{X}?{query}").json["items"]}
    assert not home.ask("GET", f"{X}?workflow={name}&status=RUNNING").json["items"]
    home.ask("POST", f"{X}/{running}/cancel", {})


def test_cancel_stops_an_execution(home: House) -> None:
    id = home.start(LONG)
    body = {"mode": "cancel", "reason": "enough"}
    assert home.ask("POST", f"{X}/{id[:12]}/cancel", body).status == 200
    assert home.client.wait(id, 20).status == "CANCELLED"
    assert home.ask("POST", f"{X}/{id}/cancel", body).status == 200, "said again, it is the same answer"


def test_cancel_and_delete_stop_an_execution(home: House) -> None:
    for method, path in (("POST", "/cancel"), ("DELETE", "?reason=enough")):
        id = home.start(LONG)
        body = {"mode": "cancel", "reason": "enough"} if method == "POST" else None
        got = home.ask(method, f"{X}/{id[:12]}{path}", body)
        assert got.status == 200
        assert home.client.wait(id, 20).status == "CANCELLED"
        assert home.ask(method, f"{X}/{id}{path}", body).status in (200, 409)


def test_purge_forgets_what_has_ended_and_nothing_else(home: House) -> None:
    running = home.start(LONG)
    got = home.ask("POST", f"{X}/{running}/purge")
    assert (got.status, got.code) == (409, "HF0301")
    home.ask("POST", f"{X}/{running}/cancel", {})
    assert home.client.wait(running, 20).status == "CANCELLED"
    unsafe = home.start({"name": "unsafe", "steps": [{"block": "shell", "input": {"command": "true"}}, "fail no"]})
    assert home.client.wait(unsafe, 20).status == "FAILED_UNSAFE"
    got = home.ask("POST", f"{X}/{unsafe}/purge")
    assert (got.status, got.code) == (409, "HF0331")
    assert home.client.show(unsafe).is_ended
    id = home.start({"name": "quick", "steps": ["log hello"]})
    view = home.client.wait(id, 20)
    got = home.ask("POST", f"{X}/{id[:14]}/purge")
    assert (got.status, got.json["id"], got.json["status"]) == (200, id, view.status)
    for method, path in (("GET", ""), ("POST", "/purge")):
        got = home.ask(method, f"{X}/{id}{path}")
        assert (got.status, got.code) == (404, "HF0203")
        assert "purged" in got.json["error"]["message"]


def test_retention_is_shown_and_applied(home: House) -> None:
    name = "kept-by-rule"
    for _ in range(2):
        home.client.wait(home.start({"name": name, "steps": ["log hello"]}), 20)
    view = home.client.retention()
    assert view.default == "max(3, 30d)"
    group = next(group for group in view.groups if group.group == name)
    assert (group.rule, group.meaning, group.count, group.due, group.next_at) == ("system", view.default, 2, 0, None)
    would = home.client.apply_retention(dry_run=True)
    assert (would.ids, would.is_dry_run) == ([], True)
    assert home.client.apply_retention().ids == []
    assert "holdfast_executions_purged_total" in home.client.metrics()


def test_long_values_are_fetched_as_blobs(home: House) -> None:
    long = {"text": "ü" * 3000}
    id = home.start({"name": "blob", "steps": [{"block": "test.echo", "input": {"value": long}}]})
    assert home.client.wait(id, 20).output == long
    refs = [e["result"] for e in home.client.events(id) if e["type"] == "JobSucceeded"]
    digest = refs[0]["$blob"]
    assert home.client.blob(id, digest) == long


def test_a_page_of_events_goes_on_where_it_ended(home: House) -> None:
    id = home.start()
    home.client.wait(id, 20)
    whole = home.ask("GET", f"{X}/{id}/events").json
    assert whole["next"] is None
    first = home.ask("GET", f"{X}/{id}/events?limit=3").json
    rest = home.ask("GET", f"{X}/{id}/events?after={first['next']}").json
    assert first["items"] + rest["items"] == whole["items"]
    assert [e["seq"] for e in whole["items"]] == list(range(1, len(whole["items"]) + 1))


def test_metrics_are_prometheus_text(home: House) -> None:
    home.client.wait(home.start(), 20)
    got = home.ask("GET", "/api/v1/metrics")
    assert got.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in got.data.decode().splitlines():
        if not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            samples[key] = float(value)
    assert samples["holdfast_commits_total"] > 0
    assert samples["holdfast_items_total"] >= samples["holdfast_commits_total"] / 2
    assert samples["holdfast_events_total"] > 0
    assert samples["holdfast_largest_batch"] >= 1
    assert samples['holdfast_executions{status="COMPLETED"}'] >= 1
    assert samples['holdfast_workers{state="online"}'] == 1
    assert "holdfast_wal_bytes" in samples
    assert "holdfast_pending" in samples


def test_answers_say_how_they_are_to_be_treated(home: House) -> None:
    for path in ("/api/v1/health", "/", "/api/v1/nothing"):
        headers = home.ask("GET", path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    assert "default-src 'self'" in home.ask("GET", "/").headers["content-security-policy"]


def test_head_is_get_without_a_body(home: House) -> None:
    got = home.ask("HEAD", "/api/v1/version")
    assert (got.status, got.data) == (200, b"")
    assert int(got.headers["content-length"]) > 0


def test_the_page_shows_strangers_words_as_words(home: House) -> None:
    nasty = "<script>alert(1)</script>\"'&"
    definition = {
        "name": "page",
        "steps": [{"id": "a", "block": "test.fail", "input": {"message": nasty, "permanent": True}}],
    }
    id = home.start(definition)
    home.client.wait(id, 20)
    page = home.ask("GET", f"/x/{id}").data.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<script") == 1
    for path in ("/static/page.css", "/static/page.js", "/static/icon.svg"):
        assert home.ask("GET", path, token="").status == 200
    for path in ("/static/../app.py", "/static/..%2fapp.py", "/static/app.py"):
        assert home.ask("GET", path, token="").status == 404


def test_too_many_requests_are_told_to_come_back(home: House) -> None:
    app = home.server.app
    before, app.max_requests = app.max_requests, 0
    try:
        got = home.ask("GET", "/api/v1/health")
    finally:
        app.max_requests = before
    assert (got.status, got.code, got.headers["retry-after"]) == (429, "HF0702", "1")


def test_a_busy_engine_pushes_back(home: House) -> None:
    engine = home.holdfast.engine
    before, engine.max_pending = engine.max_pending, 0
    try:
        got = home.ask("POST", X, {"workflow": "echo"})
        assert home.ask("GET", "/api/v1/ready").status == 503
    finally:
        engine.max_pending = before
    assert (got.status, got.code, got.headers["retry-after"]) == (429, "HF0702", "1")
    assert home.ask("GET", "/api/v1/ready").json == {"status": "ready"}


def test_it_is_not_ready_while_nothing_can_be_committed(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "sqlite:////srv/state.db: no space left"

    def full(*_: Any, **__: Any) -> Any:
        raise StoreFull(said)

    engine = home.holdfast.engine
    with monkeypatch.context() as patch:
        patch.setattr(engine.driver, "run", full)
        assert home.ask("POST", X, {"workflow": "echo"}).status == 507
        got = home.ask("GET", "/api/v1/ready")
        assert (got.status, got.json) == (503, {"status": "not ready", "reason": said})
        # Where the store is, is nobody's business who has no token.
        got = home.ask("GET", "/api/v1/ready", token="")
        assert (got.status, got.json["status"]) == (503, "not ready")
        assert "commit" in got.json["reason"]
        assert "/srv" not in got.json["reason"]
    deadline = time.monotonic() + 10
    while home.ask("POST", X, {"workflow": "echo"}).status != 201 and time.monotonic() < deadline:
        time.sleep(0.1)
    got = home.ask("GET", "/api/v1/ready", token="")
    assert (got.status, got.json) == (200, {"status": "ready"})


# --- memory ----------------------------------------------------------------------------------------
class Upload:
    """A request whose body comes when it is told to."""

    all: ClassVar[list[Upload]] = []

    def __init__(self, home: House, size: int, *, chunked: bool = False) -> None:
        self.all.append(self)
        self.body = json.dumps({"workflow": "echo"}).encode().ljust(size)
        self.chunked = chunked
        self.connection = http.client.HTTPConnection("127.0.0.1", home.server.port, timeout=20)
        self.connection.putrequest("POST", X)
        self.connection.putheader("Authorization", f"Bearer {home.admin}")
        self.connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
        self.connection.endheaders()
        self.send(self.body[:100])

    def send(self, data: bytes) -> None:
        self.connection.send(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    def finish(self) -> Got:
        self.send(self.body[100:])
        if self.chunked:
            self.connection.send(b"0\r\n\r\n")
        return self.answer()

    def answer(self) -> Got:
        answer = self.connection.getresponse()
        return Got(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())


@pytest.fixture
def narrow(home: House) -> Iterator[App]:
    """Room for 300,000 bytes of bodies."""
    app = home.server.app
    before, app.max_body_bytes = app.max_body_bytes, 300_000
    yield app
    app.max_body_bytes = before
    while Upload.all:
        Upload.all.pop().connection.close()
    until(lambda: app.body_bytes == 0)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_slow_uploads_share_a_bounded_room(home: House, narrow: App) -> None:
    slow = [Upload(home, 100_000) for _ in range(3)]
    until(lambda: narrow.body_bytes == 300_000)
    refused = Upload(home, 100_000)
    got = refused.answer()
    assert (got.status, got.code, got.headers["retry-after"]) == (429, "HF0702", "1")
    # What has no room is not held: the same connection works once the rest of the body has passed.
    refused.send(refused.body[100:])
    refused.connection.request("GET", "/api/v1/ready")
    assert refused.answer().status == 200
    assert Upload(home, 100_000, chunked=True).answer().status == 429
    # Over the limit stays over the limit, and what is small or has no body goes on.
    assert home.ask("POST", X, b" " * (BODY_LIMIT + 1)).status == 413
    id = home.ask("POST", X, {"definition": LONG}).json["id"]
    assert home.ask("POST", f"{X}/{id}/cancel", {}).status < 300
    assert narrow.body_bytes == 300_000
    assert f"holdfast_http_body_bytes {narrow.body_bytes}\n" in home.ask("GET", "/api/v1/metrics").data.decode()

    assert slow[0].finish().status == 201
    until(lambda: narrow.body_bytes == 200_000)
    slow.append(Upload(home, 100_000))
    until(lambda: narrow.body_bytes == 300_000)
    slow[1].connection.close()  # one that goes away gives its room back too
    until(lambda: narrow.body_bytes == 200_000)
    assert [upload.finish().status for upload in slow[2:]] == [201, 201]


def test_a_body_of_unknown_size_takes_the_room_it_may_need(home: House, narrow: App) -> None:
    upload = Upload(home, 50_000, chunked=True)
    until(lambda: narrow.body_bytes == BODY_LIMIT)  # alone it may be larger than the room
    assert Upload(home, 20_000).answer().status == 429
    assert upload.finish().status == 201


def test_a_body_that_is_refused_gives_its_room_back(home: House, narrow: App) -> None:
    for body in (b"{" * 100_000, b" " * 100_000, b'{"workflow": "nothing"}'.ljust(100_000)):
        assert home.ask("POST", X, body).status in (400, 404, 422)
        until(lambda: narrow.body_bytes == 0)


def test_a_bug_is_logged_with_an_incident_and_tells_nothing(
    home: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(home.service, "workers", broken)
    got = home.ask("GET", "/api/v1/workers")
    assert got.status == 500
    error = got.json["error"]
    assert b"secret detail" not in got.data
    assert f"incident {error['incident']}" in caplog.text
    assert "secret detail" in caplog.text


def test_json_is_what_json_says(home: House) -> None:
    """The strict reader agrees with the ordinary one on everything it accepts."""
    value = {"a": [1, -1, 0, 2**63 - 1, -(2**63), 1.5, 1e300, "é\n\u2028😀", None, True, {"": []}]}
    id = home.start({"name": "json", "steps": [{"block": "test.echo", "input": {"value": value}}]})
    home.client.wait(id, 20)
    assert json.loads(home.ask("GET", f"{X}/{id}").data)["output"] == value
