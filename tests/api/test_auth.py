"""Who may do what: every route of the router, with every kind of wrong credential, by every crooked path."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from holdfast.api.auth import ROLES, Role, new_token
from holdfast.api.routes import Route
from holdfast.api.routing import make_router
from holdfast.core.model import Actor
from holdfast.engine.items import future_reply

from .support import ECHO, Got, House, house

ROUTES = list(make_router())
CANARY = "canary-7f3a"


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("auth")) as made:
        made.client.publish(ECHO | {"description": CANARY}, name="secretive")
        made.id = made.client.start(workflow="secretive", input={}, labels={"of": CANARY}).id  # type: ignore[attr-defined]
        made.client.wait(made.id, 20)  # type: ignore[attr-defined]
        yield made


def address(home: House, route: Route) -> str:
    values = {"id": home.id, "name": "secretive", "version": "1", "digest": "0" * 32, "entity": "default", "step": "x"}  # type: ignore[attr-defined]
    path = route.path
    for key, value in values.items():
        path = path.replace(f"{{{key}}}", value)
    return path


def stored(home: House, lifetime: float = 0, *, is_revoked: bool = False) -> str:
    row, text = new_token(Actor("somebody"), Role.ADMIN, lifetime)
    row.is_revoked = is_revoked
    if lifetime:
        row.expires_at = row.created_at - 1
    future, reply = future_reply()
    home.holdfast.engine.put_tokens([row], reply)
    future.result(10)
    return text


def test_tokens_that_expired_long_ago_are_forgotten(tmp_path: Path) -> None:
    hour = 3600 * 1_000_000
    with house(tmp_path, with_worker=False) as home:
        rows = {after: new_token(Actor("somebody"), Role.VIEWER)[0] for after in (-25, -1, 1, 0)}
        for after, row in rows.items():
            row.expires_at = row.created_at + after * hour if after else 0
        future, reply = future_reply()
        home.holdfast.engine.put_tokens(list(rows.values()), reply)
        future.result(10)
    with house(tmp_path, with_worker=False) as home:  # an engine sweeps when it comes, and then again and again
        stored(home)
        with home.holdfast.store.reading() as queries:
            left = {row.id for row in queries.tokens()}
        assert {after for after, row in rows.items() if row.id in left} == {-1, 1, 0}


def assert_refused(got: Got, *statuses: int) -> None:
    assert got.status in statuses, (got.status, got.data[:300])
    assert CANARY.encode() not in got.data
    if got.data:
        assert set(got.json["error"]) >= {"code", "message", "status", "problems"}


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_no_route_opens_without_a_valid_token(home: House, route: Route) -> None:
    path = address(home, route)
    half = home.admin[: len(home.admin) // 2]
    wrong = {
        "garbage": "nothing",
        "half": half,
        "other secret": home.admin[:-4] + "AAAA",
        "unknown id": "hf_000000000000_" + "x" * 43,
        "expired": stored(home, 1),
        "revoked": stored(home, is_revoked=True),
        "odd": "hf_é_é",
    }
    for token in wrong.values():
        got = home.ask(route.method, path, token="", Authorization=f"Bearer {token}".encode().decode("latin-1"))
        assert_refused(got, 401)
        assert "www-authenticate" in got.headers
    for header in ("Basic YTpi", "Bearer", "Bearer ", "bearer nothing", home.admin, f"Token {home.admin}"):
        assert_refused(home.ask(route.method, path, token="", Authorization=header), 401)
    without = home.ask(route.method, path, token="")
    if route.role is Role.PUBLIC:
        assert without.status < 500
        assert CANARY.encode() not in without.data
    else:
        assert_refused(without, 401)
        assert_refused(home.ask(route.method, path, token="", Cookie=f"holdfast_session={half}"), 401)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.path != "/login"], ids=name)
def test_every_route_asks_for_its_role(home: House, route: Route) -> None:
    for text, role in ROLES.items():
        # An empty body: allowed callers get past the guard and no further than they have to.
        got = home.ask(route.method, address(home, route), token=home.tokens[text])
        if route.role is Role.PUBLIC or role.allows(route.role):
            assert got.status not in (401, 403, 500), (text, got)
        else:
            assert_refused(got, 403)
            assert got.code == "HF0602"


def test_roles_are_ordered_and_workers_stand_aside() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.AUTHOR, Role.ADMIN]
    for at, role in enumerate(order):
        assert [needed for needed in order if role.allows(needed)] == order[: at + 1]
    assert not any(Role.WORKER.allows(role) for role in order)
    assert [role for role in Role if role.allows(Role.WORKER)] == [Role.ADMIN, Role.WORKER]
    assert {route.role for route in ROUTES if route.path.startswith("/api/v1/worker/")} == {Role.WORKER}
    public = {route.path for route in ROUTES if route.role is Role.PUBLIC}
    assert public == {"/api/v1/health", "/api/v1/ready", "/login", "/static/{name}"}


@pytest.mark.parametrize("route", [r for r in ROUTES if r.role is not Role.PUBLIC], ids=name)
def test_no_crooked_path_leads_around_the_guard(home: House, route: Route) -> None:
    path = address(home, route)
    crooked = [
        "/" + path, path + "/", path.replace("/api/", "/api//"), path + "//", "/./" + path[1:],
        "/api/v1/health/.." + path, "/api/v1/health/%2e%2e" + path, path + "/health", path + "/../health",
        path + "/..;/health", path + ";/api/v1/health", path + "%2fhealth", path + "%2Fready", path + "%00",
        path + "%20", path + "?x=/api/v1/health", path + "#/health", path.upper(), path + ".json", "/static" + path,
        "/static/..%2f.." + path, path.replace("v1", "%761"), path.replace("/api", "/%61pi"), path + "/static/page.css",
        path + "\\health", "//evil.example" + path, "http://evil.example" + path, path + "%ff", path + "?" + "a=" * 400,
    ]  # fmt: skip
    for odd in crooked:
        for method in {route.method, "GET"}:
            assert_refused(home.ask(method, odd, token=""), 400, 401, 404, 405)
    overrides = {"X-HTTP-Method-Override": route.method, "X-Original-URL": path, "X-Rewrite-URL": path}
    for header, value in overrides.items():
        got = home.ask("GET", "/api/v1/health", token="", **{header: value})
        assert got.json == {"status": "ok"}
    upgraded = home.ask("GET", path, token="", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13")
    assert_refused(upgraded, 401, 405)
    forwarded = home.ask(route.method, path, token="", X_Forwarded_For="127.0.0.1", X_Real_IP="127.0.0.1")
    assert_refused(forwarded, 401)


def test_inline_definitions_need_an_author(home: House) -> None:
    for body in ({"definition": ECHO}, {"source": "steps: [test.noop]"}):
        got = home.ask("POST", "/api/v1/executions", body, token=home.tokens["operator"])
        assert_refused(got, 403)
        assert home.ask("POST", "/api/v1/executions", body, token=home.tokens["author"]).status == 201
    by_name = home.ask("POST", "/api/v1/executions", {"workflow": "secretive"}, token=home.tokens["operator"])
    assert by_name.status == 201


def test_another_tenant_sees_nothing(home: House) -> None:
    token = home.token("admin", "elsewhere")
    id = home.id  # type: ignore[attr-defined]
    for route in ROUTES:
        if route.role is Role.WORKER or route.path == "/login":
            continue
        got = home.ask(route.method, address(home, route), token=token, Accept="application/json")
        assert got.status not in (401, 403), name(route)
        assert got.status < 500
        assert CANARY.encode() not in got.data, name(route)
        assert id.encode() not in got.data or got.status == 404, name(route)
        if "{id}" in route.path and "tokens" not in route.path and route.body is None:
            assert (got.status, got.code) == (404, "HF0203"), name(route)
            missing = home.ask(route.method, address(home, route).replace(id, "f" * 32), token=token)
            assert missing.data.replace(b"f" * 32, b"") == got.data.replace(id.encode(), b""), "it can be told apart"
    assert home.ask("GET", "/api/v1/executions", token=token).json == {"items": [], "next": None}
    assert home.ask("GET", f"/api/v1/executions/{id[:4]}", token=token).status == 404
    start = home.ask("POST", "/api/v1/executions", {"workflow": "secretive"}, token=token)
    assert (start.status, start.code) == (404, "HF0202")
    mine = {row["name"] for row in home.ask("GET", "/api/v1/tokens", token=token).json["items"]}
    assert mine == {"admin-elsewhere"}
    theirs = home.client.create_token("theirs", "viewer")["id"]
    assert home.ask("DELETE", f"/api/v1/tokens/{theirs}", token=token).status == 404
    for body in ({"workflow": "x", "tenant": "default"}, {"workflow": "x", "actor": {"tenant": "default"}}):
        assert home.ask("POST", "/api/v1/executions", body, token=token).code == "HF0201"


def test_tokens_are_made_shown_once_and_revoked(home: House) -> None:
    made = home.client.create_token("ci", "operator", lifetime=3600)
    assert made["token"].startswith(f"hf_{made['id']}_")
    assert len(made["token"].partition(made["id"] + "_")[2]) >= 43
    listed = next(row for row in home.client.tokens() if row["id"] == made["id"])
    assert "token" not in listed
    assert "hash" not in listed
    assert listed["expires_at"] - listed["created_at"] == 3_600_000_000
    secret = made["token"].encode().partition(made["id"].encode() + b"_")[2]
    folder = Path(home.holdfast.store.path)  # type: ignore[attr-defined]
    assert all(secret not in file.read_bytes() for file in folder.parent.iterdir() if file.is_file())
    assert home.ask("GET", "/api/v1/version", token=made["token"]).json["role"] == "operator"
    assert home.client.revoke_token(made["id"])["is_revoked"]
    assert home.ask("GET", "/api/v1/version", token=made["token"]).status == 401


def test_wrong_tokens_are_limited_per_address(tmp_path: Path) -> None:
    with house(tmp_path, attempts=10) as home:
        seen = [home.ask("GET", "/api/v1/version", token=f"hf_{'0' * 12}_{n}").status for n in range(14)]
        assert seen == [401] * 10 + [429] * 4
        got = home.ask("GET", "/api/v1/version", token="hf_111111111111_x")
        assert (got.status, got.code) == (429, "HF0603")
        assert int(got.headers["retry-after"]) > 0
        # Those who have a right one are not locked out by a neighbour …
        assert home.ask("GET", "/api/v1/version").status == 200
        # … but nobody may guess the secret of one token for long, not even rightly at last.
        id = home.admin.split("_")[1]
        for n in range(10):
            home.ask("GET", "/api/v1/version", token=f"hf_{id}_{n}")
        assert home.ask("GET", "/api/v1/version").status == 429


def test_health_says_little_to_strangers(home: House) -> None:
    assert home.ask("GET", "/api/v1/health", token="").json == {"status": "ok"}
    assert set(home.ask("GET", "/api/v1/health").json) > {"status", "version", "engine"}


# --- browsers --------------------------------------------------------------------------------------
def login(home: House, link: str) -> Got:
    parts = urlsplit(link)
    return home.ask("GET", f"{parts.path}?{parts.query}", token="")


def test_a_login_link_works_once(home: House) -> None:
    link = home.server.login_link()
    got = login(home, link)
    assert (got.status, got.headers["location"]) == (303, "/")
    cookie = got.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="))
    session = cookie.partition(";")[0]
    page = home.ask("GET", "/", token="", Cookie=f"theme=dark; {session}; x=y")
    assert page.status == 200
    assert b"<h1>Executions</h1>" in page.data
    assert login(home, link).status == 401
    one = login(home, home.server.login_link(execution=home.id))  # type: ignore[attr-defined]
    assert one.headers["location"] == f"/x/{home.id}"  # type: ignore[attr-defined]
    for elsewhere in ("//evil.example", "https://evil.example", "/x/../../api", "/x/0\n", "javascript:alert(1)", ""):
        link = f"/login?{urlencode({'code': home.server.auth.login_code('x', Role.VIEWER), 'to': elsewhere})}"
        assert home.ask("GET", link, token="").status in (400, 422), elsewhere
    assert home.ask("GET", "/login?code=guess", token="").status == 401
    assert home.ask("GET", "/login", token="").status == 401


def test_an_old_login_link_is_refused(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    link = home.server.login_link()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 301)
    got = login(home, link)
    monkeypatch.undo()
    assert got.status == 401


def test_a_session_may_only_act_from_our_own_pages(home: House) -> None:
    session = login(home, home.server.login_link()).headers["set-cookie"].partition(";")[0]
    own = f"http://127.0.0.1:{home.server.port}"
    path = "/api/v1/executions"

    def post(**headers: str) -> int:
        body = {"workflow": "secretive"}
        return home.ask("POST", path, body, token="", Cookie=session, **headers).status

    assert post(Origin=own) == 201
    assert post(Sec_Fetch_Site="same-origin") == 201
    assert post(Origin=own, Sec_Fetch_Site="same-origin") == 201
    assert post() == 403
    for origin in (
        "null",
        "http://evil.example",
        own + ".evil.example",
        f"http://localhost:{home.server.port}",
        "",
        "http://",
    ):
        assert post(Origin=origin) == 403, origin
        assert post(Origin=origin, Sec_Fetch_Site="same-origin") == 403, origin
    for site in ("cross-site", "same-site", "none", ""):
        assert post(Sec_Fetch_Site=site) == 403, site
        assert post(Sec_Fetch_Site=site, Origin=own) == 403, site
    assert home.ask("DELETE", f"{path}/{home.id}", token="", Cookie=session).status == 403  # type: ignore[attr-defined]
    assert home.ask("GET", path, token="", Cookie=session, Origin="http://evil.example").status == 200
    got = home.ask("GET", path, token="", Cookie=session, Origin="http://evil.example")
    assert not [header for header in got.headers if header.startswith("access-control")]


def test_a_session_ends_when_it_is_revoked(home: House) -> None:
    session = login(home, home.server.login_link(name="browser")).headers["set-cookie"].partition(";")[0]
    assert home.ask("GET", "/api/v1/version", token="", Cookie=session).json["name"] == "browser"
    id = session.partition("=")[2].split("_")[1]
    home.client.revoke_token(id)
    assert home.ask("GET", "/api/v1/version", token="", Cookie=session).status == 401


def test_a_page_is_refused_as_a_page(home: House) -> None:
    got = home.ask("GET", "/", token="", Accept="text/html")
    assert got.status == 401
    assert got.headers["content-type"].startswith("text/html")
    assert b"login link" in got.data


def test_two_authorization_headers_are_refused(home: House) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", home.server.port)
    connection.putrequest("GET", "/api/v1/version")
    connection.putheader("Authorization", "Bearer nothing")
    connection.putheader("Authorization", f"Bearer {home.admin}")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
