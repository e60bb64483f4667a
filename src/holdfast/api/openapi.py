"""The API as an OpenAPI 3.1 document, made from the route objects. Nothing is said here that they do not say."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.core.errors import MethodNotAllowed, NoSuchRoute, Refused
from holdfast.core.version import VERSION as __version__
from holdfast.transport.refusals import ErrorBody

from .auth import Role
from .routes import API, JSON, MSGPACK, SSE, YAML, Route, Router

_REF = "#/components/schemas/{name}"
_PARAMS = {
    "id": "Id of an execution (or token); of an execution the first characters suffice.",
    "name": "Name of a published workflow, of a lock, a sensor or a value of the configuration.",
    "version": "Version of a workflow, from 1; of a block `x.y.z`, perhaps only in part.",
    "digest": "32 hexadecimal digits, from `$blob`.",
    "entity": "Id of an entity; `default` is the one every tenant has.",
    "state": "A status, in upper or lower case.",
    "package": "Package of a block.",
    "block": "Name of a block, without its package.",
    "step": "Id or number of an `approve` step; `-` for the one that waits.",
}


def document(router: Router) -> dict[str, Any]:
    routes = [route for route in router if route.path.startswith(API) or route.tag == "compat"]
    types: dict[Any, None] = {ErrorBody: None}
    for route in routes:
        for type in (route.answer, route.body, route.query):
            if type is not None and type is not Any:
                types[type] = None
    found, components = msgspec.json.schema_components(list(types), ref_template=_REF)
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    used = {k: v for k, v in components.items() if k not in {r.query.__name__ for r in routes}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Durable workflows for people who change real infrastructure. "
            "Every error has the form of ErrorBody; unknown addresses answer 404 "
            f"{NoSuchRoute.code}, wrong methods 405 {MethodNotAllowed.code}.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": used,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "hf_<id>_<secret>"},
                "session": {"type": "apiKey", "in": "cookie", "name": "holdfast_session"},
            },
        },
    }


def _operation(route: Route, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "x-role": route.role.name.lower(),
        "parameters": [*_path_parameters(route), *_query_parameters(route, components)],
        "responses": _responses(route, schemas),
    }
    operation["security"] = [{}] if route.role is Role.PUBLIC else [{"token": []}, {"session": []}]
    if route.body is not None:
        content: dict[str, Any] = {}
        for media in route.accepts:
            schema = {"type": "string"} if media == YAML else schemas[route.body]
            content[media] = {"schema": schema}
        operation["requestBody"] = {"required": _needs_body(route), "content": content}
    if route.handler.__name__ == "start":
        schema = {"type": "string", "maxLength": 255}
        operation["parameters"].append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    if route.tag == "entities" and route.method in ("PUT", "PATCH", "DELETE"):
        schema = {"type": "string", "pattern": '^(W/)?"?[0-9]{1,15}"?$'}
        operation["parameters"].append({"name": "If-Match", "in": "header", "schema": schema})
    if SSE in (route.media, *([SSE] if route.streams else [])):
        schema = {"type": "string", "pattern": "^[0-9]{1,18}$"}
        operation["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": schema})
    return operation


def _needs_body(route: Route) -> bool:
    return any(field.required for field in msgspec.structs.fields(route.body))


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    return [
        {"name": name, "in": "path", "required": True, "description": _PARAMS[name], "schema": {"type": "string"}}
        for name in names
    ]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[route.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": inner}
        for name, inner in schema["properties"].items()
    ]


def _responses(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.answer is not None:
        schema = {} if route.answer is Any else schemas[route.answer]
        for media in (JSON, MSGPACK) if MSGPACK in route.accepts else (JSON,):
            content[media] = {"schema": schema}
    else:
        content[route.media] = {"schema": {"type": "string"}}
    if route.streams:
        content[SSE] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {str(route.status): {"description": route.summary, "content": content}}
    for status, text in route.also.items():
        responses[str(status)] = {"description": text, "content": content}
    by_status: dict[int, list[type[Refused]]] = {}
    for refused in route.all_refusals():
        by_status.setdefault(refused.status, []).append(refused)
    for status, classes in sorted(by_status.items()):
        titles = [f"{c.code}: {(c.__doc__ or '').strip().splitlines()[0]}" for c in classes]
        known = responses.get(str(status))
        if known is not None:
            schema = {"anyOf": [known["content"][JSON]["schema"], schemas[ErrorBody]]}
            responses[str(status)] = {
                "description": "\n".join([known["description"], *titles]),
                "content": {JSON: {"schema": schema}},
            }
            continue
        response: dict[str, Any] = {
            "description": "\n".join(titles),
            "content": {JSON: {"schema": schemas[ErrorBody]}},
            "x-codes": [c.code for c in classes],
        }
        if any(c.retry_after for c in classes):
            response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
        responses[str(status)] = response
    return responses


_encoded: dict[int, bytes] = {}


def encoded(router: Router) -> bytes:
    """Made once per router, on first request."""
    data = _encoded.get(id(router))
    if data is None:
        data = _encoded[id(router)] = msgspec.json.encode(document(router))
    return data
