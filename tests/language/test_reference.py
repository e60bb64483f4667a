"""The reference page and the JSON Schema are generated, complete and true."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from holdfast.language import PROBLEMS, compile_definition, load, load_all, load_workflow
from holdfast.language.conditions import TESTS, TURNS
from holdfast.language.doing import ENTER
from holdfast.language.failing import STOPPING
from holdfast.language.functions import FUNCTIONS
from holdfast.language.kinds import KINDS, OF_STOPPING
from holdfast.language.manual import MANUAL, WHERE
from holdfast.language.names import ROOTS
from holdfast.language.reference import reference
from holdfast.language.schema import json_schema, schema_of
from holdfast.language.steps import (
    ACQUIRE_KEYS,
    BLOCK_FORMS,
    BRANCH_KEYS,
    COMMON_KEYS,
    CONFIG_KEYS,
    ENTITY_LOCK_KEYS,
    GATE_KEYS,
    LOCK_KEYS,
    PARAMETER_KEYS,
    REPEAT_KEYS,
    RETRY_KEYS,
    ROLLOUT_KEYS,
    SENSOR_KEYS,
    STEP_TYPES,
    STRATEGY_KEYS,
    VARIABLE_KEYS,
    WORKFLOW_KEYS,
    Key,
)
from holdfast.language.transforms import FILTERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "steps.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "python -m holdfast.language.reference > docs/reference/steps.md"


def missing(page: str) -> list[str]:
    """What the language has and the page does not."""
    found = []
    sections = dict(re.findall(r"^#{2,3} (.+?)\n(.*?)(?=^#{2,3} |\Z)", page, re.MULTILINE | re.DOTALL))

    def table(title: str, keys: Iterable[str], what: str) -> None:
        rows = [line for line in sections.get(title, "").splitlines() if line.startswith("| ")]
        named = {word for row in rows for word in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
        found.extend(f"{what} `{key}` in {title}" for key in keys if key not in named)

    for name in (*STEP_TYPES, *BLOCK_FORMS):
        if f"`{name}`" not in sections:
            found.append(f"section of {name}")
        elif "```yaml workflow" not in sections[f"`{name}`"]:
            found.append(f"example of {name}")
        elif f"May run twice: {MANUAL[name].repeats}." not in sections[f"`{name}`"]:
            found.append(f"idempotency of {name}")
    for name in ("All steps", "Keys of every step"):
        if name not in sections:
            found.append(name)
    table("All steps", (f"{name}" for name in (*STEP_TYPES, *BLOCK_FORMS)), "step")
    table("Keys of every step", words(COMMON_KEYS), "key")
    for kind in STEP_TYPES.values():
        table(f"`{kind.name}`", words(kind.keys), "key")
        table("Keys of every step", (key.name for key in kind.keys), "key")
        found += [f"alias {word}" for word in kind.aliases if f"`{word}`" not in sections.get(f"`{kind.name}`", "")]
    for title, keys in (
        ("Workflow keys", WORKFLOW_KEYS), ("Inputs", PARAMETER_KEYS), ("`retry` of a step", RETRY_KEYS),
        ("`repeat` of a step", REPEAT_KEYS), ("Locks", LOCK_KEYS),
        ("Branches of `parallel`, nodes of `graph`", BRANCH_KEYS), ("Variables and sensors as maps", SENSOR_KEYS),
        ("Variables and sensors as maps", VARIABLE_KEYS), ("`acquire`", ACQUIRE_KEYS),
        ("`config` of a workflow", CONFIG_KEYS), ("`gates` of a workflow", GATE_KEYS),
        ("`execution-strategy`, `rollout`, `lock` in `config`", (*STRATEGY_KEYS, *ROLLOUT_KEYS, *ENTITY_LOCK_KEYS)),
    ):  # fmt: skip
        table(title, words(keys), "key")
    table("Conditions", (*TESTS, *TURNS), "test")
    table("Kinds of errors", KINDS, "kind")
    table("Problems", (), "code")
    found += [code for code in PROBLEMS if f"| {code} |" not in page]
    found += [f"function {name}" for name in FUNCTIONS if f"| `{name}(" not in sections.get("Functions", "")]
    found += [f"filter {name}" for name in FILTERS if f"| `{name}" not in sections.get("Filters of `transform`", "")]
    found += [f"root {name}" for name in ROOTS if f"`{name}" not in sections.get("Expressions", "")]
    waypoints = sections.get("Replaying", "")
    found += [
        f"word {word}" for word in ("from here", "from here only", "reset") if f"replayable: {word}`" not in waypoints
    ]
    return found


def words(keys: Iterable[Key]) -> list[str]:
    return [word for key in keys for word in (key.name, *key.aliases)]


def test_the_page_covers_every_step_key_word_and_code() -> None:
    assert missing(reference()) == []


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("### `foreach`", "section of foreach"),
        ("| [`graph`](#graph) |", "step `graph` in All steps"),
        ("| `reducing` | map |", "key `reducing` in `workflow`"),
        ("| `queue` |", "key `queue` in Keys of every step"),
        ("| `until` |", "key `until` in `repeat` of a step"),
        ("| `has-element` |", "test `has-element` in Conditions"),
        ("| `deadlock` |", "kind `deadlock` in Kinds of errors"),
        ("| `shell_quote(", "function shell_quote"),
    ],
)
def test_a_line_that_is_missing_is_missed(line: str, lost: str) -> None:
    page = "\n".join(each for each in reference().splitlines() if not each.startswith(line))
    assert lost in missing(page)


def test_the_manual_knows_every_step_and_common_key() -> None:
    assert MANUAL.keys() == STEP_TYPES.keys() | BLOCK_FORMS.keys()
    assert WHERE.keys() == {key.name for key in COMMON_KEYS}


def test_every_kind_of_step_that_is_entered_is_in_the_table() -> None:
    """Two are what the compiler makes of `workflow`, one is a registered type, two are about entities."""
    assert ENTER.keys() - STEP_TYPES.keys() == {"settings", "each", "use", "entities", "batches"}
    assert STEP_TYPES.keys() <= ENTER.keys()


@pytest.mark.parametrize("name", MANUAL)
def test_every_example_of_the_manual_is_a_workflow_with_that_step(name: str) -> None:
    example = MANUAL[name].example
    _, _, problems = load_workflow(example, name)
    assert not problems
    spelled = {"subworkflow": "steps:", "block": "net.backup", "workflow": "type: workflow"}.get(name, name)
    assert spelled in example


def kinds_made() -> set[str]:
    """The first argument of every `Failure(…)` in the code, and those that are handed on as words."""
    found: set[str] = set()
    for path in (Path(__file__).parents[2] / "src/holdfast").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            at = {"Failure": 0, "_exhausted": 0, "not_begun": 1, "LoseJob": 2}.get(name)
            if at is None or len(node.args) <= at:
                continue
            given = node.args[at]
            if isinstance(given, ast.Constant):
                found.add(given.value)
            elif isinstance(given, ast.Name) and given.id in constants:
                found.add(constants[given.id])
            else:
                assert ast.unparse(given) in HANDED_ON, (
                    f"{path.name}:{node.lineno}: which kind is {ast.unparse(given)}?"
                )
    return found - {""}


#: kinds that come from somewhere else in the code, where they are constants
HANDED_ON = ("kind", "request.kind", "first.kind", "failure.kind")


def test_the_table_of_kinds_of_errors_is_what_the_code_makes() -> None:
    # Two are chosen between in one expression: see engine/exchanges.py.
    assert kinds_made() | {"result-too-large", "result-not-sendable"} == KINDS.keys()
    assert OF_STOPPING.keys() == STOPPING


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
