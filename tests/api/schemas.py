"""Just enough JSON Schema to hold an answer against the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_KNOWN = {
    "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "examples", "format", "items",
    "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minimum", "pattern", "prefixItems",
    "properties", "propertyNames", "required", "title", "type",
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], components: dict[str, Any], path: str = "$") -> list[str]:
    """What is wrong with the value; an unknown keyword is wrong too, so that none is overlooked."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"{path}: keywords {unknown}"
    if "$ref" in schema:
        return problems(value, components[schema["$ref"].rpartition("/")[2]], components, path)
    found: list[str] = []
    if "anyOf" in schema:
        tried = [problems(value, option, components, path) for option in schema["anyOf"]]
        if all(tried):
            found += min(tried, key=len)
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is not one of {schema['enum']}")
    types = schema.get("type")
    if types is not None:
        names = [types] if isinstance(types, str) else types
        allowed = tuple(kind for name in names for kind in _TYPES[name])
        if not isinstance(value, allowed) or (isinstance(value, bool) and "boolean" not in names):
            return [*found, f"{path}: {type(value).__name__} is not {names}"]
    if isinstance(value, dict):
        found += [f"{path}: lacks {name}" for name in schema.get("required", ()) if name not in value]
        known = schema.get("properties", {})
        other = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in known:
                found += problems(item, known[name], components, f"{path}.{name}")
            elif other is False:
                found.append(f"{path}: has {name}")
            elif isinstance(other, dict):
                found += problems(item, other, components, f"{path}.{name}")
            elif known and "additionalProperties" not in schema:
                found.append(f"{path}: has {name}, which is not declared")
    if isinstance(value, list):
        fixed = schema.get("prefixItems", [])
        for at, item in enumerate(value):
            inner = fixed[at] if at < len(fixed) else schema.get("items", {})
            if inner is not False:
                found += problems(item, inner, components, f"{path}[{at}]")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{path}: {value} is out of bounds")
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            found.append(f"{path}: has a wrong length")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"{path}: does not match {schema['pattern']}")
    return found
