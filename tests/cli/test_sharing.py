"""`locks` and `entity` as a user has them: without a server on the project's store, and with one."""

from __future__ import annotations

from pathlib import Path

from tests.api.support import house

from .support import holdfast


def test_entities_and_their_sensors_without_a_server(project: Path) -> None:
    assert holdfast("entity", "list", "-o", "json", cwd=project).json[0]["id"] == "default"
    made = holdfast("entity", "set", "web", "--type", "server", "-l", "role=edge", cwd=project)
    assert (made.code, "made" in made.err) == (0, True)
    changed = holdfast("entity", "set", "web", "--name", "Web 1", "-o", "json", cwd=project).json
    assert (changed["type"], changed["name"], changed["labels"]) == ("server", "Web 1", {"role": "edge"})
    assert holdfast("entity", "sensor", "set", "web", "count", "5", cwd=project).code == 0
    as_map = holdfast("entity", "config", "set", "web", "ports", "--json", '{"http": 80}', "-o", "json", cwd=project)
    assert (as_map.json["value"], as_map.json["version"]) == ({"http": 80}, 1)
    assert holdfast("entity", "sensor", "get", "web", "count", cwd=project).out.strip() == "5"
    shown = holdfast("entity", "show", "web", cwd=project)
    assert "count" in shown.out
    assert '{"http":80}' in shown.out.replace(" ", "")
    assert holdfast("entity", "sensor", "clear", "web", "count", cwd=project).code == 0
    missing = holdfast("entity", "sensor", "get", "web", "count", cwd=project)
    assert (missing.code, "HF0223" in missing.err) == (2, True)
    assert "HF0221" in holdfast("entity", "show", "nobody", cwd=project).err
    assert "K=V" in holdfast("entity", "set", "web", "-l", "role", cwd=project).err


def test_a_run_on_an_entity_says_so(project: Path) -> None:
    (project / "hi.yaml").write_text("steps: [log hi, return hi]")
    refused = holdfast("run", "hi.yaml", "--entity", "web", cwd=project)
    assert (refused.code, "holdfast entity set web" in refused.err) == (2, True)
    holdfast("entity", "set", "web", cwd=project)
    done = holdfast("run", "hi.yaml", "--entity", "web", "-o", "json", cwd=project).json
    assert done["entity"] == "web"
    shown = holdfast("show", done["id"], cwd=project).out
    assert [line.split() for line in shown.splitlines() if line.startswith("Entity")] == [["Entity:", "web"]]


def test_locks_are_listed_and_taken_away(project: Path) -> None:
    assert holdfast("locks", "-o", "json", cwd=project).json == []
    with house(project) as home:
        first, second = home.take_lock("default", "apt"), home.take_lock("default", "apt")
        reach = ("--server", home.server.address, "--token", home.admin)
        listed = holdfast("locks", *reach, cwd=project)
        (row,) = [line for line in listed.out.splitlines() if "apt" in line]
        assert first[:8] in row
        assert second[:8] in row
        assert holdfast("locks", "-o", "json", *reach, cwd=project).json[0]["waiting"] == 1
        why = " ".join(holdfast("why", second, *reach, cwd=project).out.split())
        assert f"waits for lock apt on default: held by execution {first[:8]}" in why
        taken = holdfast("locks", "release", "apt", *reach, cwd=project)
        assert (taken.code, f"held by {second[:8]}, fence 2" in taken.err) == (0, True)
        home.take_lock("web", "apt")
        on_web = holdfast("locks", "--entity", "web", *reach, "release", "apt", cwd=project)
        assert (on_web.code, "lock apt of web" in on_web.err, "free, fence 2" in on_web.err) == (0, True, True)
        nobody = holdfast("locks", "release", "yum", *reach, cwd=project)
        assert (nobody.code, "HF0222" in nobody.err) == (2, True)


def test_entities_are_listed_drawn_and_taken_away(project: Path) -> None:
    nobody = holdfast("locks", "graph", cwd=project)
    assert (nobody.code, "nobody waits" in nobody.err) == (0, True)
    with house(project) as home:
        home.client.put_entity("r1", type="device")
        upgrade = {"name": "upgrade", "run-on": "device", "acquire": [{"ids": ["r1"]}], "steps": ["wait-signal never"]}
        first, second = home.start(upgrade), home.start(upgrade)
        reach = ("--server", home.server.address, "--token", home.admin)
        (row,) = [line for line in holdfast("locks", *reach, cwd=project).out.splitlines() if "r1" in line]
        assert [word for word in row.split() if word in ("r1", "X", first[:8], second[:8])] == [
            "r1", first[:8], "X", second[:8],
        ]  # fmt: skip
        (listed,) = holdfast("locks", "-o", "json", *reach, cwd=project).json
        assert (listed["entity"], listed["waiting"]) == ("r1", 1)
        drawn = holdfast("locks", "graph", *reach, cwd=project).out.splitlines()
        assert [line.split()[0] for line in drawn] == [first[:8], second[:8]]
        assert "waits for r1 (X)" in drawn[1]
        assert holdfast("locks", "graph", "-o", "json", *reach, cwd=project).json["cycles"] == []
        why = " ".join(holdfast("why", second, *reach, cwd=project).out.split())
        assert f"for r1: r1 is held by execution {first[:8]}" in why
        taken = holdfast("locks", "free", "r1", *reach, cwd=project)
        assert (taken.code, f"is held by {first[:8]} (X)" in taken.err, "taken; it is" in taken.err) == (0, True, True)
        home.client.wait(first)
        free = holdfast("locks", "free", "r1", "--execution", first, *reach, cwd=project)
        assert (free.code, "HF0781" in free.err) == (1, True)


def test_an_inventory_comes_in_and_goes_out_again(project: Path) -> None:
    table = "id,type,groups,label.site,os,password\nr1,device,core,ams1,17,x\nr2,device,core,fra1,16,\n"
    (project / "lab.csv").write_text(table)
    dry = holdfast("inventory", "import", "lab.csv", "--dry-run", "-o", "json", cwd=project).json
    assert (dry["added"], dry["is_dry_run"]) == (3, True)
    done = holdfast("inventory", "import", "lab.csv", cwd=project)
    assert (done.code, "lab (csv): 3 added, 0 changed, 0 unchanged" in done.err) == (0, True)
    assert "HF0759" in done.err
    assert "1 warning in lab.csv; `holdfast explain" in done.err
    again = holdfast("inventory", "import", "lab.csv", "-o", "json", cwd=project).json
    assert (again["added"], again["changed"], again["unchanged"], again["stale"]) == (0, 0, 3, 0)
    listed = holdfast("entity", "list", "--where", 'site == "ams1"', "-o", "json", cwd=project).json
    assert [one["id"] for one in listed] == ["r1"]
    out = holdfast("inventory", "export", "-o", "csv", "--where", 'type == "device"', cwd=project).out
    assert out.splitlines()[:2] == ["id,type,name,parent,groups,label.site,fact.os", "r1,device,r1,,core,ams1,17"]
    (project / "lab.csv").write_text(out)
    assert "3 unchanged" in holdfast("inventory", "import", "lab.csv", cwd=project).err
    wrong = holdfast("entity", "list", "--where", "site = 'x'", cwd=project)
    assert (wrong.code, "HF0751" in wrong.err, "^" in wrong.err) == (2, True, True)
    (project / "bad.csv").write_text("id\na\na\n")
    bad = holdfast("inventory", "import", "bad.csv", cwd=project)
    assert (bad.code, "bad.csv:3:1" in bad.err) == (2, True)


def test_entities_are_patched_and_deleted(project: Path) -> None:
    for words in (["core", "--type", "group"], ["r1", "-g", "core", "-f", "os=17", "-f", "ports:=48", "-f", "x=1"],
                  ["r1:ge-0/0/1", "--parent", "r1"]):  # fmt: skip
        assert holdfast("entity", "set", *words, cwd=project).code == 0
    words = ["-f", "x-", "-f", "os=18", "-l", "a=b", "--leave", "core"]
    patched = holdfast("entity", "patch", "r1", *words, "-o", "json", cwd=project).json
    assert (patched["facts"], patched["labels"], patched["groups"]) == ({"os": 18, "ports": 48}, {"a": "b"}, [])
    assert "HF0752" in holdfast("entity", "patch", "r1", "--name", "x", "--version", "1", cwd=project).err
    assert "HF0754" in holdfast("entity", "delete", "r1", cwd=project).err
    assert holdfast("entity", "delete", "r1", "--recursive", "-o", "json", cwd=project).json == ["r1", "r1:ge-0/0/1"]
    assert "HF0221" in holdfast("entity", "get", "r1", cwd=project).err
