"""The reference page and the JSON Schema are generated, complete and true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from holdfast.language import PROBLEMS, compile_definition, load, load_all
from holdfast.language.reference import reference
from holdfast.language.schema import json_schema, schema_of
from holdfast.language.steps import COMMON_KEYS, STEP_TYPES, WORKFLOW_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "steps.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "python -m holdfast.language.reference > docs/reference/steps.md"


def test_the_page_covers_every_step_key_and_code() -> None:
    page = reference()
    for kind in STEP_TYPES.values():
        assert f"### `{kind.name}`" in page
        for key in kind.keys:
            assert f"| `{key.name}`" in page
    for key in (*COMMON_KEYS, *WORKFLOW_KEYS):
        assert f"| `{key.name}`" in page
    for code in PROBLEMS:
        assert code in page


@pytest.mark.parametrize("kind", STEP_TYPES.values(), ids=lambda kind: kind.name)
def test_every_example_of_the_table_compiles(kind: Any) -> None:
    example = yaml.safe_load(kind.example)
    if kind.name == "switch":
        example = {"step": example, "cases": ["no-op"]}
    names = ("host", "hosts", "os", "waiting", "names", "x", "y")
    steps = [{"id": "check", "step": "shell x"}, {"let": "retries = 0"}, {"id": "last-one", "step": "no-op"}, example]
    text = json.dumps({"inputs": dict.fromkeys(names, "any"), "steps": steps}).replace("goto check", "goto last-one")
    library = load("name: restart\ninputs: {force: boolean}\nsteps: [no-op]\n")
    compile_definition(json.loads(text), library={"restart": library})


def valid(schema: Any, value: Any, root: dict[str, Any]) -> bool:
    """The part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return valid(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root)
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
             "null": type(None)}  # fmt: skip
    names = schema.get("type", list(kinds))
    names = [names] if isinstance(names, str) else names
    checks = [
        any(isinstance(value, kinds[n]) and (n == "boolean" or not isinstance(value, bool)) for n in names),  # type: ignore[arg-type]
        "enum" not in schema or any(value is x or (type(value) is type(x) and value == x) for x in schema["enum"]),
        "const" not in schema or (type(value) is type(schema["const"]) and value == schema["const"]),
        "anyOf" not in schema or any(valid(x, value, root) for x in schema["anyOf"]),
        all(valid(x, value, root) for x in schema.get("allOf", ())),
        "not" not in schema or not valid(schema["not"], value, root),
    ]
    if isinstance(value, str) and "pattern" in schema:
        checks.append(re.search(schema["pattern"], value) is not None)
    if isinstance(value, list):
        checks.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9))
        checks += [valid(schema.get("items", {}), item, root) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        checks.append(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if isinstance(value, dict):
        checks.append(all(key in value for key in schema.get("required", ())))
        checks.append(len(value) <= schema.get("maxProperties", 10**9))
        for key, item in value.items():
            if "propertyNames" in schema:
                checks.append(valid(schema["propertyNames"], key, root))
            known = [schema["properties"][key]] if key in schema.get("properties", {}) else []
            known += [s for pattern, s in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
            rest = schema.get("additionalProperties", True)
            if not known and isinstance(rest, dict):
                known = [rest]
            checks.append(rest is not False or bool(known))
            checks += [valid(each, item, root) for each in known]
    return all(checks)


GOOD: list[Any] = [
    ["log hi"],
    {"steps": ["log hi", {"step": "shell x", "timeout": "5s", "retry": 3, "idempotent": "yes"}]},
    {"output": 42},
    {"name": "x", "inputs": {"a": "string", "b": "integer?", "c": {"type": "list", "default": []}, "d": None},
     "steps": [{"parallel": ["shell a", ["no-op"], {"id": "x", "steps": ["no-op"]}]}]},
    {"steps": [{"log done": "yes"}, {"sleep": "${input.d}"}, {"retry": {"maxDelay": "5s"}, "block": "a.b"}]},
    {"steps": [{"let": "x = 1", "condition": {"target": "${input.x}", "greaterThan": 3, "not": {"equals": 9}}}]},
    {"steps": [{"type": "let", "variable": {"name": "x", "type": "map"}, "value": {"a": 1}}, {"no-op": None}]},
    {"steps": [{"set-workflow-variable": "x = 1"}, {"waitSignal": "go"}, {"return": {"a": 1}}]},
    {"id": "x", "type": "workflow", "steps": ["no-op"]},
    {"brooklyn.initializers": [{"type": "workflow-effector", "name": "x", "steps": ["no-op"]}]},
]  # fmt: skip
BAD: list[Any] = [
    {}, {"steps": []}, {"steps": [3]}, {"steps": ["x"], "stpes": 1}, {"steps": [{"id": "a"}]},
    {"steps": [{"log": "x", "tiemout": "5s"}]},
    {"steps": [{"shell": "x", "timeout": "5"}]}, {"steps": [{"shell": "x", "retry": {"attemps": 2}}]},
    {"steps": [{"step": "no-op", "id": "end"}]}, {"steps": [{"parallel": []}]}, {"inputs": {"a": "strin"},
    "steps": ["no-op"]},
    {"steps": [{"log": "x", "level": "loud"}]},
    {"type": "workflow-effector", "steps": ["no-op"]}, {"brooklyn.initializers": []},
    {"brooklyn.initializers": [{"type": "workflow-sensor", "name": "x", "steps": ["no-op"]}]},
    {"brooklyn.initializers": [{"name": "x", "steps": ["no-op"]}]},
    {"steps": [{"step": "no-op", "condition": {"target": "${x}", "equls": 1}}]},
]  # fmt: skip


def test_the_schema_accepts_what_compiles_and_refuses_what_does_not() -> None:
    schema = json_schema()
    msgspec.json.encode(schema)
    for definition in GOOD:
        compile_definition(definition)
        assert valid(schema, definition, schema), definition
    for definition in BAD:
        with pytest.raises(Exception, match="error"):
            compile_definition(definition)
        assert not valid(schema, definition, schema), definition


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_accepts_every_example_and_refuses_it_with_an_unknown_key(path: Path) -> None:
    schema = json_schema()
    for document in load_all(path.read_text(), path.name):
        data = document.root.plain()
        assert valid(schema, data, schema)
        if isinstance(data, dict):
            assert not valid(schema, {**data, "no-such-key": 1}, schema)
            steps = data.get("steps", [])
            assert not valid(schema, {**data, "steps": [*steps, {"step": "no-op", "no-such-key": 1}]}, schema)


def test_every_key_and_type_of_the_tables_is_in_the_schema() -> None:
    definitions = json_schema()["$defs"]
    for key in WORKFLOW_KEYS:
        assert key.text in definitions["workflow"]["properties"][key.name]["description"]
    properties = definitions["step-map"]["properties"]
    for kind in STEP_TYPES.values():
        assert properties[kind.name]["description"]
        assert kind.name in properties["type"]["anyOf"][0]["enum"]
        assert {key.name for key in kind.keys} <= properties.keys()
    assert {key.name for key in COMMON_KEYS} <= properties.keys()


@pytest.mark.parametrize(
    ("takes", "good", "bad"),
    [
        ("text", ["x"], [3, [], {}]),
        ("yes or no", [True, "yes", "off"], ["maybe", 3]),
        ("name, or map with `name` and `type`", ["x", {"name": "x"}], [3, []]),
        ("duration", ["5s", "${x}"], ["5", 5]),
        ("number of attempts, or map with `a`", [3, {"a": 1}], ["x", []]),
        ("list of steps", [["no-op"]], ["no-op", []]),
        ("something nobody has heard of", [1, "x", [], {}, None], []),
        ("text or something else", [1, "x"], []),
    ],
)
def test_the_words_of_the_tables_say_what_a_key_takes(takes: str, good: list[Any], bad: list[Any]) -> None:
    root = json_schema()
    assert [value for value in good if not valid(schema_of(takes), value, root)] == []
    assert [value for value in bad if valid(schema_of(takes), value, root)] == []
