"""Importers: what the files of others say, where they are wrong, and what is never taken from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInventory, BadUsage
from holdfast.core.inventory import EntityRow, Imported, is_alike
from holdfast.inventory import InventoryText, load, read, upserted
from holdfast.inventory.ansible import expanded
from holdfast.inventory.files import guess


def entities(files: dict[str, str], format: str = "", **options: object) -> dict[str, Imported]:
    return {one.id: one for one in read(files, format, **options).entities}  # type: ignore[arg-type]


def wrong(files: dict[str, str], format: str = "") -> list[tuple[str, int, str]]:
    with pytest.raises(BadInventory) as refused:
        read(files, format)
    return [(p.file, p.line, p.message) for p in refused.value.problems if not p.warning]


# --- CSV -----------------------------------------------------------------------------------------------------
TABLE = """\
id,name,type,parent,groups,labels,label.site,vlan,up,serial
r1,Router 1,,,core;edge,role=spine;tier=1,ams1,17,true,007

ge-0/0/1,,interface,r1,,,,,,
"""


def test_a_table() -> None:
    found = entities({"f.csv": TABLE})
    assert found["r1"] == Imported(
        "r1", "device", "Router 1", "", ("core", "edge"), {"site": "ams1", "role": "spine", "tier": "1"},
        {"vlan": "17", "up": "true", "serial": "007"}, "f.csv:2",
    )  # fmt: skip
    assert found["ge-0/0/1"] == Imported("ge-0/0/1", "interface", None, "r1", (), place="f.csv:4")
    assert found["core"] == Imported("core", "group", "core", place="f.csv:2")
    assert list(found) == ["core", "edge", "r1", "ge-0/0/1"], "wholes before parts, groups before all"


def test_a_typed_table() -> None:
    facts = entities({"f.csv": TABLE}, typed=True)["r1"].facts
    assert facts == {"vlan": 17, "up": True, "serial": "007"}
    assert entities({"f.csv": "name,a,b,c\nx,1.5,-3,null\n"}, typed=True)["x"].facts == {"a": 1.5, "b": -3}


def test_what_a_table_does_not_have_it_does_not_say() -> None:
    one = entities({"f.csv": "name\tos\nx\t\ny\t17\n"})
    assert (one["x"].parent, one["x"].groups, one["x"].facts) == (None, None, {})
    assert one["y"].facts == {"os": "17"}


def test_quotes_semicolons_and_marks_at_the_beginning() -> None:
    text = '\ufeffid;groups;note\r\nr1;"a;b";"two\r\nlines; and, more"\r\nr2;;\r\n'
    found = entities({"f.csv": text})
    assert found["r1"].groups == ("a", "b")
    assert found["r1"].facts == {"note": "two\r\nlines; and, more"}
    assert found["r2"].place == "f.csv:4"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("site,os\na,b\n", 1, "no column is called `id` or `name`"),
        ("id,,os\na,b,c\n", 1, "column 2 has no name"),
        ("id,os,OS,os\na,b,c,d\n", 1, "two columns are called 'os'"),
        ("id,os\na,b,c\n", 2, "the row has 3 cells, the header 2"),
        ("id,os\n,b\n", 2, "neither an id nor a name"),
        ("id\na\nb\na\n", 4, "'a' occurs twice; the first time at f.csv:2"),
        ("id\na?b\n", 2, "it has one of ? # % \\"),
        ("id\n" + "x" * 300 + "\n", 2, "more than 200 characters"),
        ("id,labels\na,b\n", 2, "a label is written name=value"),
        ('id,os\na,"b\n', 2, "not valid CSV"),
        ("id,parent\na,b\nb,a\n", 2, "'a' would be a part of itself"),
        ("id,groups\na,b\nb,\n", 2, "'b' is a group and a device too"),
    ],
)
def test_what_is_wrong_with_a_table_has_its_line(text: str, line: int, message: str) -> None:
    ((file, at, said), *_) = wrong({"f.csv": text})
    assert (file, at) == ("f.csv", line)
    assert message in said


def test_all_problems_are_told_at_once() -> None:
    assert [line for _, line, _ in wrong({"f.csv": "id,x\n,1\na,1,2\nb?,1\n"})] == [2, 3, 4]


# --- secrets ---------------------------------------------------------------------------------------------------
def test_secrets_are_left_out_unless_they_are_references() -> None:
    text = (
        "id,password,enable_secret,api_token,snmp_community,passport\na,hunter2,secret://env/X,t,public,P1\nb,x,,,,\n"
    )
    made = read({"f.csv": text})
    assert made.entities[0].facts == {"enable_secret": "secret://env/X", "passport": "P1"}
    assert [(p.file, p.message.split("`")[1], p.code, p.warning) for p in made.warnings] == [
        ("f.csv:2", "password", "HF0759", True), ("f.csv:2", "api_token", "HF0759", True),
        ("f.csv:2", "snmp_community", "HF0759", True),
    ]  # fmt: skip
    assert "hunter2" not in repr(made)


# --- Ansible -----------------------------------------------------------------------------------------------------
YAML = """\
all:
  vars: {ntp: 10.0.0.1, os: none, level: all}
  children:
    emea:
      vars: {level: emea, region: emea}
      children:
        ams:
          vars: {level: ams}
          hosts:
            r1:
              ansible_host: 192.0.2.1
              ansible_password: hunter2
              os: junos
            r2:
    edge:
      vars: {level: edge, ansible_group_priority: 10}
      hosts:
        r1:
        web[01:03].example.net: {tier: 1}
"""


def test_a_yaml_inventory() -> None:
    made = read({"hosts.yml": YAML})
    found = {one.id: one for one in made.entities}
    assert made.format == "ansible"
    r1 = found["r1"]
    assert (r1.type, r1.name, r1.place) == ("device", "r1", "hosts.yml:10")
    assert r1.groups == ("emea", "edge", "ams"), "from the outermost to the innermost"
    assert r1.facts == {
        "ntp": "10.0.0.1", "os": "junos", "level": "ams", "region": "emea", "ansible_host": "192.0.2.1",
        "ansible_group_priority": 10,
    }  # fmt: skip
    assert found["r2"].facts["level"] == "ams"
    assert found["web02.example.net"].facts == {
        "ntp": "10.0.0.1", "os": "none", "level": "edge", "tier": 1, "ansible_group_priority": 10,
    }  # fmt: skip
    assert found["emea"] == Imported("emea", "group", "emea", facts={"children": ["ams"]}, place="hosts.yml:4")
    assert [warning.message.split("`")[1] for warning in made.warnings] == ["ansible_password"]


def test_the_list_that_ansible_prints() -> None:
    listed = {
        "_meta": {"hostvars": {"r1": {"os": "junos", "level": "host"}, "r2": {}}},
        "all": {"children": ["ungrouped", "core"]},
        "core": {"hosts": ["r1"], "children": ["spine"], "vars": {"level": "core", "x": 1}},
        "spine": {"hosts": ["r2"]},
        "ungrouped": {"hosts": []},
    }
    found = entities({"i.json": json.dumps(listed)})
    assert found["r1"].facts == {"os": "junos", "level": "host", "x": 1}
    assert found["r2"].groups == ("core", "spine")
    assert found["r2"].facts == {"level": "core", "x": 1}
    assert set(found) == {"core", "spine", "r1", "r2"}


def test_variables_beside_an_inventory_and_vaults() -> None:
    files = {
        "hosts.yml": "core:\n  hosts:\n    r1:\n",
        "group_vars/all.yml": "ntp: a\n",
        "group_vars/core/main.yml": "level: core\nwhen: 2024-01-02\n",
        "host_vars/r1.yaml": "key: !vault |\n  $ANSIBLE_VAULT;1.1\nplain: !unsafe '{{ x }}'\n",
        "group_vars/nobody.yml": "a: 1\n",
    }
    made = read(files)
    assert made.entities[-1].facts == {"ntp": "a", "level": "core", "when": "2024-01-02", "plain": "{{ x }}"}
    assert "encrypted" in made.warnings[0].message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("all:\n  hosts:\n    r1: x\n", 3, "are a map"),
        ("all:\n  hosts: {r1: {a: 1}\n", 3, "not valid YAML"),
        ("all:\n  host: {}\n", 2, "hosts, children and vars, not 'host'"),
        ("all:\n  hosts:\n    r1:\n    r1:\n", 4, "'r1' occurs twice"),
        ("a: {children: {b: }}\nb: {children: {a: }}\n", 1, "within itself"),
        ("core:\n  hosts:\n    core:\n", 3, "'core' occurs twice"),
        ("all:\n  hosts:\n    web[1:x]:\n", 3, "neither of numbers nor of letters"),
        ("all:\n  hosts:\n    web[1:999999]:\n", 3, "too many hosts"),
        ("- a\n- b\n", 1, "map of groups"),
        ("a: &x {hosts: {h: {f: *x}}}\n", 0, "more than 2,000,000 values"),
    ],
)
def test_what_is_wrong_with_an_inventory_has_its_line(text: str, line: int, message: str) -> None:
    ((_, at, said), *_) = wrong({"f.yml": text}, "ansible")
    assert (at, message in said) == (line, True), said


def test_an_ini_inventory_is_named_as_such() -> None:
    with pytest.raises(BadInventory) as refused:
        read({"hosts": "# ours\n[core]\nr1 ansible_host=192.0.2.1\n"}, "ansible")
    assert "ansible-inventory -i FILE --list" in refused.value.problems[0].help


def test_a_small_file_that_stands_for_much_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "2,000,000" in wrong({"f.yml": "\n".join(lines)}, "ansible")[0][2]
    assert wrong({"f.yml": "[" * 3000 + "]" * 3000}, "ansible")
    assert wrong({"f.json": '{"a":' * 50_000 + "1" + "}" * 50_000}, "ansible")


def test_ranges() -> None:
    assert list(expanded("r[8:10]")) == ["r8", "r9", "r10"]
    assert list(expanded("r[08:10]-[a:c:2]")) == ["r08-a", "r08-c", "r09-a", "r09-c", "r10-a", "r10-c"]


# --- Nornir --------------------------------------------------------------------------------------------------------
NORNIR = {
    "hosts.yaml": """\
r1:
  hostname: 192.0.2.1
  port: 22
  groups: [spine, emea]
  data: {site: ams1, level: host}
r2:
  groups: [emea]
  password: secret://env/R2
  connection_options: {netmiko: {extras: {secret: s, timeout: 5}}}
""",
    "groups.yaml": """\
emea: {data: {region: emea, level: emea, asn: 1}, username: ops}
spine: {groups: [fabric], data: {level: spine}}
fabric: {platform: eos, data: {asn: 2}}
""",
    "defaults.yaml": "username: admin\npassword: hunter2\ndata: {ntp: a, level: default}\n",
}


def test_nornir() -> None:
    made = read(NORNIR)
    found = {one.id: one for one in made.entities}
    assert made.format == "nornir"
    assert found["r1"].groups == ("spine", "fabric", "emea")
    # The first group that says something wins, with the groups it is in.
    assert found["r1"].facts == {
        "ntp": "a", "username": "ops", "region": "emea", "asn": 2, "platform": "eos", "level": "host",
        "hostname": "192.0.2.1", "port": 22, "site": "ams1",
    }  # fmt: skip
    assert (found["r1"].name, found["r2"].name) == ("192.0.2.1", "r2")
    assert found["r2"].facts["password"] == "secret://env/R2"
    assert found["r2"].facts["connection_options"] == {"netmiko": {"extras": {"timeout": 5}}}
    assert {one.id for one in made.entities if one.type == "group"} == {"emea", "spine", "fabric"}
    assert "hunter2" not in repr(made)
    assert made.entities[0].place == "groups.yaml:1"


@pytest.mark.parametrize(
    ("change", "file", "line", "message"),
    [
        ({"hosts.yaml": "r1: {groups: [nope]}\n"}, "hosts.yaml", 1, "there is no group 'nope'"),
        ({"groups.yaml": "emea: {groups: [spine]}\nspine: {groups: [emea]}\n"}, "groups.yaml", 1, "within itself"),
        ({"hosts.yaml": "r1:\n  site: x\n"}, "hosts.yaml", 1, "has no 'site' in Nornir"),
        ({"hosts.yaml": "r1: [\n"}, "hosts.yaml", 2, "not valid YAML"),
        ({"hosts.yaml": "- r1\n"}, "hosts.yaml", 1, "a map by name"),
    ],
)
def test_what_is_wrong_with_nornirs_files(change: dict[str, str], file: str, line: int, message: str) -> None:
    ((at_file, at, said), *_) = wrong(NORNIR | change)
    assert (at_file, at, message in said) == (file, line, True), said


# --- which it is, and where it is ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("files", "format"),
    [
        ({"x.csv": "id\n"}, "csv"),
        ({"x.txt": "id,os\nr1,a\n"}, "csv"),
        ({"x.yml": YAML}, "ansible"),
        ({"x.json": '{"_meta": {}}'}, "ansible"),
        ({"hosts.yml": "core: {hosts: {a: }}"}, "ansible"),
        ({"hosts.yaml": NORNIR["hosts.yaml"]}, "nornir"),
        (NORNIR, "nornir"),
        ({"a/hosts.yaml": "x: {}", "a/group_vars/x.yml": ""}, "ansible"),
    ],
)
def test_the_format_is_guessed(files: dict[str, str], format: str) -> None:
    assert guess(files) == format


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "inv" / "group_vars").mkdir(parents=True)
    (tmp_path / "inv" / ".git").mkdir()
    (tmp_path / "inv" / "hosts.yml").write_text(YAML)
    (tmp_path / "inv" / "group_vars" / "all.yml").write_text("extra: 1\n")
    (tmp_path / "inv" / ".git" / "x.yml").write_text("no\n")
    (tmp_path / "inv" / "README.md").write_text("no\n")
    assert set(load(tmp_path / "inv")) == {"hosts.yml", "group_vars/all.yml"}
    assert read(load(tmp_path / "inv")).entities[-1].facts["extra"] == 1
    assert list(load(tmp_path / "inv" / "hosts.yml")) == ["hosts.yml"]
    with pytest.raises(BadUsage, match="there is no"):
        load(tmp_path / "nothing")
    (tmp_path / "bad.csv").write_bytes(b"id\n\xff\n")
    with pytest.raises(BadUsage, match="not UTF-8"):
        load(tmp_path / "bad.csv")
    with pytest.raises(BadInventory, match="nothing to import"):
        read({})
    with pytest.raises(BadInventory, match="there is no entity"):
        read({"a.csv": "id\n"})
    with pytest.raises(BadInventory, match="no format"):
        read({"a.csv": "id\n"}, "ini")


def test_the_type_of_those_that_do_not_say() -> None:
    made: InventoryText = read({"x.yml": "core: {hosts: {a: }}"}, type="server")
    assert [(one.id, one.type) for one in made.entities] == [("core", "group"), ("a", "server")]


# --- differences -----------------------------------------------------------------------------------------------
OLD = EntityRow("r1", "device", "one", {"by": "hand"}, 1, 1, groups=("core", "mine"), facts={"found": 1, "os": "16"},
                source="s", external="r1", version=4, is_stale=True)  # fmt: skip


def test_what_a_source_does_not_say_stays() -> None:
    said = Imported("r1", "device", groups=("edge",), facts={"os": "17"})
    after = upserted(OLD, said, "s", 9, {"core", "edge"}, replaces=False)
    assert after == EntityRow(
        "r1", "device", "one", {"by": "hand"}, 1, 9, groups=("mine", "edge"), facts={"found": 1, "os": "17"},
        source="s", external="r1", version=5,
    )  # fmt: skip
    whole = upserted(OLD, said, "s", 9, {"core", "edge"}, replaces=True)
    assert (whole.labels, whole.facts, whole.groups) == ({}, {"os": "17"}, ("edge",))


NAMES = st.sampled_from(["a", "b", "c"])
SAID = st.builds(
    lambda type, name, parent, groups, labels, facts: Imported("r1", type, name, parent, groups, labels, facts),
    st.sampled_from(["", "device"]), st.none() | st.just("n"), st.none() | st.sampled_from(["", "p"]),
    st.none() | st.lists(NAMES, unique=True).map(tuple), st.dictionaries(NAMES, NAMES),
    st.dictionaries(NAMES, st.integers(0, 2) | st.booleans() | NAMES),
)  # fmt: skip


@given(st.none() | st.just(OLD), SAID, st.sets(NAMES), st.booleans())
def test_importing_twice_changes_nothing(before: EntityRow | None, said: Imported, own: set[str], whole: bool) -> None:
    once = upserted(before, said, "s", 10, own, replaces=whole)
    assert upserted(once, said, "s", 20, own, replaces=whole) is once
    assert once.version == (1 if before is None else before.version + (not is_alike(before, once)))
