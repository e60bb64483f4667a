"""The reference page and the JSON Schema are generated, complete and true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from holdfast.language import PROBLEMS, compile_definition
from holdfast.language.reference import reference
from holdfast.language.schema import json_schema
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
    compile_definition({
        "inputs": {"host": "string"},
        "steps": [{"id": "check", "step": "shell x"}, {"let": "retries = 0"}, example],
    })  # fmt: skip


def valid(schema: Any, value: Any, root: dict[str, Any]) -> bool:
    """The part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return valid(root["definitions"][schema["$ref"].rpartition("/")[2]], value, root)
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
             "null": type(None)}  # fmt: skip
    names = schema.get("type", list(kinds))
    names = [names] if isinstance(names, str) else names
    checks = [
        any(isinstance(value, kinds[n]) and (n == "boolean" or not isinstance(value, bool)) for n in names),  # type: ignore[arg-type]
        "enum" not in schema or any(value is x or (type(value) is type(x) and value == x) for x in schema["enum"]),
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
]  # fmt: skip
BAD: list[Any] = [
    {}, {"steps": []}, {"steps": [3]}, {"steps": ["x"], "stpes": 1}, {"steps": [{"id": "a"}]},
    {"steps": [{"log": "x", "tiemout": "5s"}]},
    {"steps": [{"shell": "x", "timeout": "5"}]}, {"steps": [{"shell": "x", "retry": {"attemps": 2}}]},
    {"steps": [{"step": "no-op", "id": "end"}]}, {"steps": [{"parallel": []}]}, {"inputs": {"a": "strin"},
    "steps": ["no-op"]},
    {"steps": [{"log": "x", "level": "loud"}]},
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
