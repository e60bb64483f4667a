"""JSON Schema (draft 2020-12) of definitions, generated from the step tables, so that editors complete and check.

What a key takes is read from the words of the tables; a phrase that is not known here allows anything, so that a new
key or step type appears by itself and nothing that compiles is marked. The schema is looser than the compiler: it
knows keys and shapes, not names and expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .conditions import TESTS, TURNS
from .documents import EFFECTOR, INITIALIZERS
from .foreign_schema import foreign_definitions
from .predicates import WHEN
from .steps import (
    ACQUIRE_KEYS,
    BLOCK_FORMS,
    BRANCH_KEYS,
    COMMON_KEYS,
    CONFIG_KEYS,
    ENTITY_LOCK_KEYS,
    GATE_KEYS,
    LEVELS,
    PARAMETER_KEYS,
    RESERVED_IDS,
    RETRY_KEYS,
    ROLLOUT_KEYS,
    STEP_TYPES,
    STRATEGY_KEYS,
    WORKFLOW_KEYS,
    Key,
    StepType,
)
from .values import TYPE_ALIASES, TYPES

DURATION = r"^\s*(\d+(\.\d+)?\s*(ms|us|µs|d|h|m|s)\s*)+$"
_EXPRESSION = r"\$\{"
_NAME = r"^[^\W\d][\w-]*$"
_YES_OR_NO = ["yes", "no", "true", "false", "on", "off"]

_ANY: dict[str, Any] = {}
_TEXT = {"type": "string"}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


#: what a key takes, in the words of the tables → schema; the first phrase that fits counts
_PHRASES: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"texts?$|names?$|queue$", _TEXT),
    (r"duration$", _ref("duration")),
    (r"condition$", _ref("condition")),
    (r"yes/no$", {"enum": [True, False, *_YES_OR_NO]}),
    (r"number from 0 to 1$", {"type": "number", "minimum": 0, "maximum": 1}),
    (r"(whole )?number( of attempts)?$", {"type": "number", "minimum": 0}),
    (r"map of name → type$", {"type": "object", "additionalProperties": _ref("parameter")}),
    (r"map of texts$", {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}),
    (r"map\b", {"type": "object"}),
    (r"step$", _ref("step")),
    (r"steps$|list of steps$", _ref("steps")),
    (r"list of branches$", {"type": "array", "items": _ref("branch"), "minItems": 1}),
    (r"list\b", {"type": "array", "minItems": 1}),
)
#: keys of which more is known than their phrase says
_KNOWN: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": _NAME, "not": {"enum": sorted(RESERVED_IDS)}},
    "level": {"enum": list(LEVELS)},
    "retry": _ref("retry"),
    "acquire": _ref("acquire"),
}
_KNOWN_OF_PARAMETERS: dict[str, dict[str, Any]] = {"type": {"enum": [*TYPES, *TYPE_ALIASES]}}


def json_schema() -> dict[str, Any]:
    steps = {"type": "array", "items": _ref("step"), "minItems": 1}
    has_body = {"anyOf": [{"required": ["steps"]}, {"required": ["output"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:holdfast:workflow",
        "title": "Holdfast workflow",
        "anyOf": [_ref("workflow"), _ref("steps"), _ref("initializers"), _ref("function-block-workflow")],
        "$defs": foreign_definitions()
        | {
            "workflow": _workflow("workflow", "A workflow") | has_body,
            "effector": _workflow(EFFECTOR, "A workflow in a list") | has_body | {"required": ["type"]},
            "initializers": {
                "type": "object",
                "title": "A list of named workflows",
                "properties": {INITIALIZERS: {"type": "array", "items": _ref("effector"), "minItems": 1}},
                "required": [INITIALIZERS],
                "additionalProperties": False,
            },
            "steps": steps,
            "step": {
                "anyOf": [{"type": "string", "description": "The short form, e.g. `log hello`"}, _ref("step-map")]
            },
            "step-map": _step(),
            "branch": {
                "anyOf": [
                    _ref("step"),
                    _ref("steps"),
                    _object(BRANCH_KEYS, "A named branch") | {"required": ["steps"]},
                ]
            },
            "condition": {
                "anyOf": [
                    {"type": "string", "description": "An expression, e.g. `${x} > 3`"},
                    {"type": "boolean"},
                    _ref("test-map"),
                ]
            },
            "test": {"anyOf": [_ref("test-map"), {"not": {"type": "object"}}]},
            "test-map": _tests(),
            "retry": {
                "anyOf": [
                    {"type": "integer", "minimum": 1},
                    _object(RETRY_KEYS, "How failed attempts follow each other"),
                ]
            },
            "parameter": {
                "anyOf": [
                    {"type": "null"},
                    {
                        "type": "string",
                        "description": "`TYPE`, `TYPE?` where it may be left out, or `TYPE = default`",
                        "pattern": rf"^\s*({'|'.join((*TYPES, *TYPE_ALIASES))})\s*\??\s*(=.*)?$",
                    },
                    _object(PARAMETER_KEYS, "An input", _KNOWN_OF_PARAMETERS),
                ]
            },
            "config": _config(),
            "gates": _object(GATE_KEYS, "What has to be so before it begins"),
            "acquire": _acquire(),
            "share": {
                "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\s*[\d.]+\s*%?\s*$"}]
            },
            "duration": {
                "type": "string",
                "anyOf": [{"pattern": DURATION}, {"pattern": _EXPRESSION}],
                "examples": ["10ms", "5s", "1h30m"],
            },
        },
    }


def schema_of(takes: str) -> dict[str, Any]:
    """What the words of a table allow: `name, or map with …` is a text or a map."""
    schemas: list[dict[str, Any]] = []
    for part in re.split(r",? or ", takes.strip().replace("yes or no", "yes/no")):
        schema = next((schema for pattern, schema in _PHRASES if re.match(pattern, part.strip())), _ANY)
        if not schema:
            return {}
        if schema not in schemas:
            schemas.append(schema)
    return dict(schemas[0]) if len(schemas) == 1 else {"anyOf": schemas}


def _spellings(name: str, aliases: Iterable[str] = ()) -> list[str]:
    """`max-delay`, `maxDelay`, `max_delay` and aliases: editors know no style-insensitive keys."""
    out: list[str] = []
    for word in (name, *aliases):
        first, *rest = word.split("-")
        out += [word, first + "".join(part.capitalize() for part in rest), word.replace("-", "_")]
    return list(dict.fromkeys(out))


def _object(keys: Iterable[Key], title: str, known: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in keys:
        schema = (known or {}).get(key.name)
        schema = schema_of(key.takes) if schema is None else schema
        for word in _spellings(key.name, key.aliases):
            _allow(properties, word, schema, f"{key.text} ({key.takes})")
    return {"type": "object", "title": title, "properties": properties, "additionalProperties": False}


def _allow(properties: dict[str, Any], word: str, schema: dict[str, Any], text: str) -> None:
    """One more meaning of a key; step types may use one word for different things."""
    before = properties.get(word)
    if before is None:
        # Around a $ref, because not every editor reads what stands beside one.
        properties[word] = {"allOf": [schema], "description": text} if "$ref" in schema else {
            **schema, "description": text}  # fmt: skip
        return
    plain = {name: value for name, value in before.items() if name != "description"}
    if plain and plain != schema and plain != {"allOf": [schema]}:
        both = {} if not schema else {"anyOf": [plain, schema]}
        properties[word] = {**both, "description": before["description"]}


def _config() -> dict[str, Any]:
    below = {
        "execution-strategy": _object(STRATEGY_KEYS, "How entities go through the steps"),
        "rollout": _object(ROLLOUT_KEYS, "Entities in batches") | {"required": ["batches"]},
        "lock": _object(ENTITY_LOCK_KEYS, "How entities are locked"),
        "max-failures": _ref("share"),
        **{key.name: {"enum": key.takes.removeprefix("one of ").split(", ")} for key in CONFIG_KEYS if _is_choice(key)},
    }
    return _object(CONFIG_KEYS, "How it treats its entities", below)


def _is_choice(key: Key) -> bool:
    return key.takes.startswith("one of ")


def _acquire() -> dict[str, Any]:
    one = {"anyOf": [_TEXT, _object(ACQUIRE_KEYS, "Entities", {"ids": {"anyOf": [_TEXT, {"type": "array"}]}})]}
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _workflow(type: str, title: str) -> dict[str, Any]:
    known = {"config": _ref("config"), "gates": _ref("gates"), "acquire": _ref("acquire")}
    schema = _object(WORKFLOW_KEYS, title, known)
    schema["properties"].setdefault("id", {**_TEXT, "description": "the name it is published under"})
    schema["properties"]["type"] = {"const": type, "description": schema["properties"]["type"]["description"]}
    return schema


def _step() -> dict[str, Any]:
    schema = _object(
        (*COMMON_KEYS, *(key for kind in STEP_TYPES.values() for key in kind.keys)), "A step", _known_of_steps()
    )
    properties = schema["properties"]
    ways: list[dict[str, Any]] = [{"required": [word]} for word in ("step", "s", "shorthand", "type")]
    for kind in STEP_TYPES.values():
        for word in _spellings(kind.name, kind.aliases):
            _allow(properties, word, _value_of(kind), kind.text)
            ways.append({"required": [word]})
    for name, (template, _) in BLOCK_FORMS.items():
        _allow(properties, name, _TEXT, f"block `{name}`: {template}")
        ways.append({"required": [name]})
    # One key with a space in it is a short form that a colon made into a map.
    schema["patternProperties"] = {r"^[A-Za-z_][\w.-]*\s": {"type": ["string", "number", "boolean", "null"]}}
    schema["anyOf"] = [*ways, {"maxProperties": 1, "propertyNames": {"pattern": r"\s"}}]
    return schema


def _known_of_steps() -> dict[str, dict[str, Any]]:
    #: listed for completion; a workflow that was published is a type of step too
    types = {"anyOf": [{"enum": [*STEP_TYPES, *BLOCK_FORMS]}, {"type": "string", "pattern": r"^[\w.:-]+$"}]}
    return {**_KNOWN, "type": types}


def _value_of(kind: StepType) -> dict[str, Any]:
    """What `NAME: …` takes: the main key's value, or the words of the short form."""
    main = next((key for key in kind.keys if key.name == kind.main), None)
    if main is not None:
        schema = schema_of(main.takes)
        takes_words = kind.shorthand and schema and schema not in (_TEXT, _ref("duration"))
        return {"anyOf": [schema, _TEXT]} if takes_words else schema
    return _TEXT if kind.keys and kind.shorthand else {"type": ["string", "null", "object"]}


def _tests() -> dict[str, Any]:
    test = _ref("test")
    many = {"type": "array", "items": test, "minItems": 1}
    shapes: dict[str, Any] = {
        "target": _ANY,
        **dict.fromkeys(TESTS, _ANY),
        "when": {"enum": sorted({*WHEN, *(word.replace("-", "_") for word in WHEN)})},
        "not": test,
        "size": test,
        "has-element": test,
        "any": many,
        "all": many,
        "in-range": {"type": "array", "minItems": 2, "maxItems": 2},
        **dict.fromkeys(("check", "assert", "filter", "error-cause"), test),
    }
    shapes = dict.fromkeys((*TURNS, *TESTS), _ANY) | shapes
    turns = tuple(Key(name, "what is tested", text) for name, text in TURNS.items())
    keys = (*turns, *(Key(name, "test", text) for name, text in TESTS.items()))
    return _object(keys, "Tests", shapes)
