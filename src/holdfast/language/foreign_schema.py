"""JSON Schema of the function-block notation: a part of the schema of definitions, so that editors complete it too."""

from __future__ import annotations

from typing import Any

from .foreign_parts import ROOT_KEYS, RUN_ON, STEP_KEYS

_ANY: dict[str, Any] = {}
_TEXT = {"type": "string"}
_MAP = {"type": "object"}
_VERSION = {"type": "integer", "minimum": 0}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 600}
_TIMES = {"type": "integer", "minimum": 1, "maximum": 100}
_CONDITION: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "boolean"]},
        {
            "type": "object",
            "properties": {"type": {"const": "jmes"}, "jmes": {"type": ["string", "boolean"]}},
            "required": ["jmes"],
            "additionalProperties": False,
        },
    ]
}
_STEPS = {"type": "array", "items": {"$ref": "#/$defs/function-block-step"}, "minItems": 1}
_KEYS: dict[str, dict[str, Any]] = {
    "label": {"type": "string", "pattern": r"^\w+$", "description": "The name of the step's result"},
    "type": _TEXT,
    "runOn": {"enum": list(RUN_ON), "description": "One job for each entity of that type"},
    "seedEntity": {"enum": list(RUN_ON), "description": "What the workflow is started on"},
    "parameters": {"type": "object", "description": "With `{{ … }}` in its texts"},
    "rawParameters": {"type": "object", "description": "As they are; they win"},
    "condition": _CONDITION,
    "assert": {"anyOf": [_CONDITION, {"type": "array", "items": _CONDITION}]},
    "acquire": {"type": "array"},
    "retryConfig": {
        "type": "object",
        "properties": {"maxRetries": _TIMES, "delay": _SECONDS, "condition": _CONDITION},
        "required": ["maxRetries"],
        "additionalProperties": False,
    },
    "repeatConfig": {
        "type": "object",
        "properties": {"repeats": _TIMES, "delay": _SECONDS, "condition": _CONDITION},
        "additionalProperties": False,
    },
    "continueOnError": {"type": "boolean"},
    "delay": _SECONDS,
    "description": _TEXT,
    "functionBlock": {"type": "string", "description": "`package/name:version`, the version perhaps in part"},
    "workflow": {"type": "string", "description": "`package/name:version` of a published workflow"},
    "strategy": _ANY,
    "steps": _STEPS,
    "name": _TEXT,
    "package": _TEXT,
    **dict.fromkeys(("majorVersion", "minorVersion", "patchVersion"), _VERSION),
    "config": _MAP,
    "parameterSchema": {"type": "object", "description": "A JSON Schema of the parameters"},
    "cron": {"type": "array", "description": "Kept; nothing is started by it yet"},
    "hideForExecution": {"type": "boolean"},
    "$schema": _TEXT,
    "uses": _MAP,
}
_REQUIRED = ["label", "name", "package", "majorVersion", "minorVersion", "patchVersion", "seedEntity", "type", "steps"]
#: by what a step is told, where it has no `type`
_MAIN = {"functionBlock": "functionBlock", "workflow": "steps", "workflowReference": "workflow"}


def foreign_definitions() -> dict[str, Any]:
    """What goes under `$defs`."""
    return {
        "function-block-workflow": {
            "type": "object",
            "title": "A workflow in the function-block notation",
            "properties": {key: _KEYS[key] for key in ROOT_KEYS} | {"type": {"const": "workflow"}},
            "required": _REQUIRED,
            "additionalProperties": False,
        },
        "function-block-step": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {key: _KEYS[key] for key in keys} | {"type": {"const": kind}},
                    "required": ["label", _MAIN[kind]],
                    "additionalProperties": False,
                }
                for kind, keys in STEP_KEYS.items()
            ]
        },
    }
