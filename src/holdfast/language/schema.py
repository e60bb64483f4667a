"""JSON Schema (draft 7) of definitions, generated from the step table, so that editors complete and check.

It is looser than the compiler: it knows keys and shapes, not names and expressions.
"""

from __future__ import annotations

from typing import Any

from .conditions import TESTS, TURNS
from .predicates import WHEN
from .steps import (
    BLOCK_FORMS,
    BRANCH_KEYS,
    COMMON_KEYS,
    LEVELS,
    PARAMETER_KEYS,
    RESERVED_IDS,
    RETRY_KEYS,
    STEP_TYPES,
    WORKFLOW_KEYS,
    Key,
)
from .values import TYPE_ALIASES, TYPES

DURATION = r"^\s*(\d+(\.\d+)?\s*(ms|us|µs|d|h|m|s)\s*)+$"
_EXPRESSION = r"\$\{"
_NAME = r"^[^\W\d][\w-]*$"
_YES_OR_NO = {"enum": [True, False, "yes", "no", "true", "false", "on", "off"]}


def json_schema() -> dict[str, Any]:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "urn:holdfast:workflow",
        "title": "Holdfast workflow",
        "anyOf": [{"$ref": "#/definitions/workflow"}, {"$ref": "#/definitions/steps"}],
        "definitions": {
            "workflow": _object(WORKFLOW_KEYS, _WORKFLOW, "A workflow")
            | {"anyOf": [{"required": ["steps"]}, {"required": ["output"]}]},
            "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}, "minItems": 1},
            "step": {
                "anyOf": [
                    {"type": "string", "description": "The short form, e.g. `log hello`"},
                    {"$ref": "#/definitions/step-map"},
                ]
            },
            "step-map": _step(),
            "branch": {
                "anyOf": [
                    {"$ref": "#/definitions/step"},
                    {"$ref": "#/definitions/steps"},
                    _object(BRANCH_KEYS, _BRANCH, "A named branch") | {"required": ["steps"]},
                ]
            },
            "condition": _condition(),
            "test": {"anyOf": [{"$ref": "#/definitions/test-map"}, {"not": {"type": "object"}}]},
            "test-map": _tests(),
            "retry": {
                "anyOf": [
                    {"type": "integer", "minimum": 1},
                    _object(RETRY_KEYS, _RETRY, "How failed attempts follow each other"),
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
                    _object(PARAMETER_KEYS, _PARAMETER, "An input"),
                ]
            },
            "duration": {"type": "string", "pattern": DURATION, "examples": ["10ms", "5s", "1h30m"]},
            "duration-or-expression": {"type": "string", "anyOf": [{"pattern": DURATION}, {"pattern": _EXPRESSION}]},
        },
    }  # fmt: skip


_ANY: dict[str, Any] = {}
_TEXT = {"type": "string"}
_WORKFLOW: dict[str, Any] = {
    "inputs": {"type": "object", "additionalProperties": {"$ref": "#/definitions/parameter"}},
    "steps": {"$ref": "#/definitions/steps"},
    "output": _ANY,
    "labels": {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
}
_BRANCH: dict[str, Any] = {"steps": {"$ref": "#/definitions/steps"}}
_RETRY: dict[str, Any] = {
    "attempts": {"type": "integer", "minimum": 1},
    "delay": {"$ref": "#/definitions/duration"},
    "factor": {"type": "number", "minimum": 1, "maximum": 100},
    "max-delay": {"$ref": "#/definitions/duration"},
    "jitter": {"type": "number", "minimum": 0, "maximum": 1},
}
_PARAMETER: dict[str, Any] = {
    "type": {"enum": [*TYPES, *TYPE_ALIASES]},
    "default": _ANY,
    "required": _YES_OR_NO,
    "enum": {"type": "array", "minItems": 1},
}
_STEP: dict[str, Any] = {
    "id": {"type": "string", "pattern": _NAME, "not": {"enum": sorted(RESERVED_IDS)}},
    "condition": {"$ref": "#/definitions/condition"},
    "output": _ANY,
    "timeout": {"$ref": "#/definitions/duration"},
    "retry": {"$ref": "#/definitions/retry"},
    "idempotent": {"enum": [*_YES_OR_NO["enum"], "default"]},
    "type": {"enum": [*STEP_TYPES, *BLOCK_FORMS]},
    "value": _ANY,
    "variable": {"type": ["string", "object"]},
    "level": {"enum": list(LEVELS)},
    "duration": {"$ref": "#/definitions/duration-or-expression"},
    "message": _ANY,
    "parallel": {"type": "array", "items": {"$ref": "#/definitions/branch"}, "minItems": 1},
    "sleep": {"$ref": "#/definitions/duration-or-expression"},
    "log": _ANY,
    "fail": _ANY,
    "return": _ANY,
    "no-op": {"type": ["null", "object", "string"]},
}


def _spellings(key: Key) -> list[str]:
    """`max-delay`, `maxDelay`, `max_delay` and aliases: editors know no style-insensitive keys."""
    out: list[str] = []
    for word in (key.name, *key.aliases):
        first, *rest = word.split("-")
        out += [word, first + "".join(part.capitalize() for part in rest), word.replace("-", "_")]
    return list(dict.fromkeys(out))


def _object(keys: tuple[Key, ...], schemas: dict[str, Any], title: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in keys:
        schema = schemas.get(key.name)
        if schema is None:
            schema = {"type": "object"} if key.takes.startswith("map") else _TEXT
        described = {"description": f"{key.text} ({key.takes})"}
        for word in _spellings(key):
            # A sibling of $ref is ignored in draft 7, so the description goes around it.
            properties[word] = {"allOf": [schema], **described} if "$ref" in schema else {**schema, **described}
    return {"type": "object", "title": title, "properties": properties, "additionalProperties": False}


def _step() -> dict[str, Any]:
    schema = _object((*COMMON_KEYS, *(key for kind in STEP_TYPES.values() for key in kind.keys)), _STEP, "A step")
    ways: list[dict[str, Any]] = [{"required": [word]} for word in ("step", "s", "shorthand", "type")]
    for kind in STEP_TYPES.values():
        for word in _spellings(Key(kind.name, "", "", kind.aliases)):
            schema["properties"].setdefault(word, dict(_STEP.get(kind.name, _TEXT)))
            schema["properties"][word]["description"] = kind.text
            ways.append({"required": [word]})
    for name, (template, _) in BLOCK_FORMS.items():
        schema["properties"][name] = {"type": "string", "description": f"block `{name}`: {template}"}
        ways.append({"required": [name]})
    # One key with a space in it is a short form that a colon made into a map.
    schema["patternProperties"] = {r"^[A-Za-z_][\w.-]*\s": {"type": ["string", "number", "boolean", "null"]}}
    schema["anyOf"] = [*ways, {"maxProperties": 1, "propertyNames": {"pattern": r"\s"}}]
    return schema


def _condition() -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "string", "description": "An expression, e.g. `${x} > 3`"},
            {"type": "boolean"},
            {"$ref": "#/definitions/test-map"},
        ]
    }


def _tests() -> dict[str, Any]:
    test = {"$ref": "#/definitions/test"}
    shapes: dict[str, Any] = {
        "when": {"enum": sorted({*WHEN, *(word.replace("-", "_") for word in WHEN)})},
        "not": test,
        "size": test,
        "has-element": test,
        "any": {"type": "array", "items": test, "minItems": 1},
        "all": {"type": "array", "items": test, "minItems": 1},
        "in-range": {"type": "array", "minItems": 2, "maxItems": 2},
        **dict.fromkeys(("check", "assert", "filter", "error-cause"), test),
    }
    shapes = dict.fromkeys((*TURNS, *TESTS), _ANY) | shapes
    turns = tuple(Key(name, "what is tested", text) for name, text in TURNS.items())
    keys = tuple(Key(name, "test", text) for name, text in TESTS.items())
    return _object((*turns, *keys), shapes, "Tests")
