"""The inventory over HTTP: selected, paged, edited by version, imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import (
    BadInventory,
    BadRelation,
    BadSelector,
    EntityMoved,
    EntityNeeded,
    EntityTooLarge,
    InvalidRequest,
    UnknownEntity,
)
from holdfast.core.inventory import EntityChange, Imported

from .support import House, house


@pytest.fixture
def home(tmp_path: Path) -> Iterator[House]:
    """Of its own: what one test imports the others do not have."""
    with house(tmp_path, with_worker=False) as made:
        yield made


def fleet(home: House) -> None:
    rows = [
        Imported("core", "group"),
        *(
            Imported(f"r{n}", "device", groups=("core",) if n < 3 else (), labels={"site": f"s{n % 2}"}, facts={"n": n})
            for n in range(6)
        ),
        Imported("r1:ge-0/0/1", "interface", parent="r1"),
    ]
    made = home.client.import_entities("lab", rows)
    assert (made.added, made.refused) == (8, 0)


def test_selected_and_paged(home: House) -> None:
    fleet(home)
    ask = home.client.entities
    assert [one.id for one in ask(where='type == "device" && site == "s1"')] == ["r1", "r3", "r5"]
    assert [one.id for one in ask(where="facts.n > 3")] == ["r4", "r5"]
    assert [one.id for one in ask(where='"core" in groups && n != 1')] == ["r0", "r2"]
    assert [one.id for one in ask(type="interface")] == ["r1:ge-0/0/1"]
    assert [one.id for one in ask(where="n >= 1", limit=2)] == ["r1", "r2"]
    assert [one.id for one in ask(where="n >= 1", after="r2", limit=2)] == ["r3", "r4"]
    got = home.ask("GET", "/api/v1/entities?limit=3")
    assert ([one["id"] for one in got.json["items"]], got.json["next"]) == (["core", "default", "r0"], "r0")
    rest = home.ask("GET", "/api/v1/entities?after=r0&limit=100").json
    assert ([one["id"] for one in rest["items"]][-1], rest["next"]) == ("r5", None)
    with pytest.raises(BadSelector) as refused:
        ask(where="site = 's1'")
    assert [(each.code, each.column) for each in refused.value.problems] == [("HF0751", 6)]


def test_edited_by_version(home: House) -> None:
    fleet(home)
    one = home.client.entity("r1")
    assert (one.version, one.parts, one.source, one.facts) == (1, 1, "lab", {"n": 1})
    assert (home.client.entity("core").members, home.client.entity("r1:ge-0/0/1").parent) == (3, "r1")
    two = home.client.patch_entity(EntityChange("r1", facts={"n": None, "os": "17"}, labels={"x": "y"}), version=1)
    assert (two.version, two.facts, two.labels) == (2, {"os": "17"}, {"site": "s1", "x": "y"})
    with pytest.raises(EntityMoved):
        home.client.patch_entity(EntityChange("r1", name="x"), version=1)
    path = "/api/v1/entities/r1"
    assert home.ask("PATCH", path, {"name": "x"}, **{"If-Match": '"1"'}).code == "HF0752"
    assert home.ask("PATCH", path, {"name": "x"}, **{"If-Match": '"2"'}).json["version"] == 3
    assert home.ask("PATCH", path, {"name": "x"}, **{"If-Match": "soon"}).code == "HF0201"
    assert home.ask("PATCH", path, {"name": "x", "version": 4}, **{"If-Match": "3"}).code == "HF0201"
    with pytest.raises(UnknownEntity):
        home.client.patch_entity(EntityChange("nobody", name="x"))
    with pytest.raises(BadRelation):
        home.client.put_entity("new", parent="nobody")
    with pytest.raises(EntityTooLarge):
        home.client.put_entity("new", facts={"x": "y" * 70_000})
    with pytest.raises(InvalidRequest):
        home.client.put_entity(" new")


def test_deleted(home: House) -> None:
    fleet(home)
    with pytest.raises(EntityNeeded, match="1 parts: r1:ge-0/0/1"):
        home.client.delete_entity("r1")
    home.client.set_sensor("r1:ge-0/0/1", "speed", 10)
    assert home.client.delete_entity("r1", recursive=True, version=1) == ["r1", "r1:ge-0/0/1"]
    for id in ("r1", "r1:ge-0/0/1"):
        with pytest.raises(UnknownEntity):
            home.client.entity(id)
    with pytest.raises(UnknownEntity):
        home.client.delete_entity("r1")


def test_imported_as_a_text(home: House) -> None:
    text = "id,groups,os,password\nr1,core,17,x\nimport,,18,\n"
    send = {"source": "csv", "format": "csv", "text": text}
    dry = home.ask("POST", "/api/v1/entities/import", {**send, "dry_run": True}).json
    assert (dry["added"], dry["is_dry_run"], len(dry["warnings"])) == (3, True, 1)
    assert home.client.entities(where="true") == []
    done = home.ask("POST", "/api/v1/entities/import", send).json
    assert (done["added"], done["changed"]) == (3, 0)
    again = home.ask("POST", "/api/v1/entities/import", send).json
    assert (again["added"], again["changed"], again["unchanged"]) == (0, 0, 3)
    # Also one that is called like a route.
    assert home.client.entity("import").facts == {"os": "18"}
    less = home.ask("POST", "/api/v1/entities/import", {**send, "text": "id,os\nr1,19\n"}).json
    assert (less["changed"], less["stale"]) == (1, 2)
    assert less["first"][0] == {
        "id": "r1", "outcome": "changed", "changes": ['facts.os: "17" → "19"'], "place": "inventory.csv:2",
    }  # fmt: skip
    pruned = home.ask("POST", "/api/v1/entities/import", {**send, "text": "id,os\nr1,19\n", "prune": True}).json
    # The group still has its member, which the file says nothing about.
    assert (pruned["deleted"], pruned["skipped"]) == (1, 1)
    bad = home.ask("POST", "/api/v1/entities/import", {**send, "text": "id\na\na\n"})
    assert (bad.code, bad.json["error"]["problems"][0]["line"]) == (BadInventory.code, 3)
    assert home.ask("POST", "/api/v1/entities/import", {"source": "x"}).code == "HF0201"
    assert home.ask("POST", "/api/v1/entities/import", {**send, "rows": [{"id": "a"}]}).code == "HF0201"
    twice = {"source": "x", "rows": [{"id": "a"}, {"id": "a"}]}
    assert home.ask("POST", "/api/v1/entities/import", twice).code == "HF0201"


def test_tenants_and_roles(home: House) -> None:
    fleet(home)
    viewer = home.token("viewer")
    assert home.ask("GET", "/api/v1/entities?where=true", token=viewer).status == 200
    for method, path in (("PATCH", "/entities/r1"), ("DELETE", "/entities/r1"), ("POST", "/entities/import")):
        assert home.ask(method, f"/api/v1{path}", {} if method != "DELETE" else None, token=viewer).status == 403
