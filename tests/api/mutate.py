"""Requests from the OpenAPI document, and what a careless or hostile caller would make of them. Seeded."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

STRINGS = [
    "", " ", "\0", "\n", "é", "\u202e", "\ud800", "😀", "null", "true", "-1", "1e999", "../../etc/passwd", "%00",
    "%2e%2e", "'; DROP TABLE executions; --", "${input.x}", "${{", "{{7*7}}", "<script>", "x" * 300, "x" * 5000,
    "echo:0", "echo:1", "echo:-1", "echo:99999999999999999999", ":", "/", "\\", "\x7f", "０", "a\tb", "NaN", "hf_a_b",
    "secret://x",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), [], {}, [[]], {"": None}, {"$blob": "0" * 32}, [None] * 50, {"a": {"b": {"c": [1]}}},
    *STRINGS[:20],
]  # fmt: skip


HEADERS = [
    b"accept", b"content-type", b"last-event-id", b"idempotency-key", b"content-encoding", b"content-length", b"cookie",
    b"origin", b"x-http-method-override", b"expect",
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


class Request(NamedTuple):
    operation: str
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Mutator:
    def __init__(self, document: dict[str, Any], pool: dict[str, list[str]], token: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.schemas = document["components"]["schemas"]
        self.pool = pool
        self.token = token
        self.operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    # --- good ones -------------------------------------------------------------------------------------
    def value(self, schema: dict[str, Any], name: str = "", depth: int = 0) -> Any:
        """Something that fits the schema."""
        choose = self.random
        if "$ref" in schema:
            return self.value(self.schemas[schema["$ref"].rpartition("/")[2]], name, depth)
        if "anyOf" in schema:
            return self.value(choose.choice(schema["anyOf"]), name, depth)
        if "enum" in schema:
            return choose.choice(schema["enum"])
        if name == "workflow" and schema.get("type") == "object":
            name = "definition"  # in full, not by its name
        if name in self.pool and choose.random() < 0.95:
            found: Any = choose.choice(self.pool[name])
            return json.loads(found) if schema.get("type") in ("object", "integer") or name == "definition" else found
        match schema.get("type"):
            case "object":
                inner = schema.get("properties", {})
                keep = set(schema.get("required", ())) | {key for key in inner if choose.random() < 0.4}
                return {key: self.value(inner[key], key, depth + 1) for key in inner if key in keep}
            case "array":
                fixed = schema.get("prefixItems")
                if fixed:
                    least = schema.get("minItems", len(fixed))
                    return [self.value(item, name, depth + 1) for item in fixed[:least]]
                return [
                    self.value(schema.get("items", {}), name, depth + 1) for _ in range(choose.choice([0, 0, 1, 2]))
                ]
            case "integer":
                low, high = schema.get("minimum", 0), schema.get("maximum", 1000)
                return choose.randint(low, min(high, low + 1000))
            case "number":
                return choose.choice([schema.get("minimum", 0), 0.01])
            case "boolean":
                return choose.random() < 0.3
            case "string":
                return choose.choice(["abc", "a-name", "x"])
            case "null":
                return None
        return choose.choice([None, 1, "text", {"value": 1}, ["a", 2.5]])

    def request(self) -> Request:
        choose = self.random
        path, method, operation = choose.choice(self.operations)
        parts = {}
        query: list[tuple[str, str]] = []
        headers = [(b"authorization", f"Bearer {self.token}".encode())]
        for parameter in operation["parameters"]:
            name, schema = parameter["name"], parameter["schema"]
            if parameter["in"] == "path":
                parts[name] = choose.choice(self.pool["token" if "/tokens/" in path else name])
            elif parameter["in"] == "query" and choose.random() < 0.3:
                value = self.value(schema, name)
                texts = value if isinstance(value, list) else [value]
                query += [(name, str(text).lower() if isinstance(text, bool) else str(text)) for text in texts]
            elif parameter["in"] == "header" and choose.random() < 0.3:
                headers.append((name.lower().encode(), b"3" if name == "Last-Event-ID" else b"key-1"))
        body: Any = None
        media = ""
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            media = choose.choice(list(content))
            body = self.value(content[media]["schema"], "source" if "yaml" in media else "")
        return self._mutated(operation["operationId"], method.upper(), path, parts, query, headers, body, media)

    # --- and what becomes of them ------------------------------------------------------------------------
    def _mutated(
        self,
        operation: str,
        method: str,
        path: str,
        parts: dict[str, str],
        query: list[tuple[str, str]],
        headers: list[tuple[bytes, bytes]],
        body: Any,
        media: str,
    ) -> Request:
        choose = self.random
        kinds: list[Callable[[], None]] = []
        raw: list[bytes] = []

        def part() -> None:
            if parts:
                parts[choose.choice(list(parts))] = choose.choice([*STRINGS, "0", "f" * 32, "F" * 31, "a"])

        def question() -> None:
            names = [name for name, _ in query] + ["limit", "after", "wait", "status", "before", "x"]
            query.append((choose.choice(names), str(choose.choice(VALUES))))

        def header() -> None:
            name = choose.choice(HEADERS)
            value = choose.choice([*STRINGS, "text/event-stream", "application/json", "gzip", "7", "0"])
            headers.append((name, value.encode("utf-8", "surrogatepass").replace(b"\n", b"")))

        def inside() -> None:
            nonlocal body
            body = self._inside(body)

        def bytewise() -> None:
            raw.append(b"")

        kinds = [part, question, header, inside, inside, inside, bytewise]
        for _ in range(choose.choice([0, 0, 1, 1, 1, 2, 3])):
            choose.choice(kinds)()
        text = path
        for name, value in parts.items():
            text = text.replace(f"{{{name}}}", quote(value.encode("utf-8", "surrogatepass"), safe=""))
        data = self._encoded(body, media)
        if raw:
            data = self._bytewise(data)
        if media and not any(name == b"content-type" for name, _ in headers):
            headers.append((b"content-type", media.encode()))
        if query:
            pairs = [(k, v.encode("utf-8", "surrogatepass")) for k, v in query]
            text += "?" + urlencode(pairs, safe="" if choose.random() < 0.9 else "/%&=")
        if choose.random() < 0.01:
            # Another operation then, or none: not to be held against what this one declares.
            operation, method = "", choose.choice(["PUT", "PATCH", "OPTIONS", "HEAD", "DELETE", "GET", "POST"])
        return Request(operation, method, text, headers, data)

    def _inside(self, body: Any) -> Any:
        """Change one thing somewhere in it."""
        choose = self.random
        if isinstance(body, dict) and body and choose.random() < 0.85:
            body = dict(body)
            key = choose.choice(list(body))
            match choose.randrange(6):
                case 0:
                    del body[key]
                case 1:
                    body[choose.choice(["tenant", "x", "actor", "", key.upper(), "$type"])] = choose.choice(VALUES)
                case 2:
                    body[key] = nested(choose.choice([5, 63, 64, 65, 200, 500]))
                case _:
                    body[key] = self._inside(body[key])
            return body
        if isinstance(body, list) and body and choose.random() < 0.7:
            at = choose.randrange(len(body))
            return [*body[:at], self._inside(body[at]), *body[at + 1 :]]
        if isinstance(body, str) and choose.random() < 0.5:
            return body + choose.choice(STRINGS)
        return choose.choice(VALUES)

    def _encoded(self, body: Any, media: str) -> bytes:
        if body is None and not media:
            return b""
        if "yaml" in media:
            return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else json.dumps(body).encode()
        if "msgpack" in media:
            try:
                return msgspec.msgpack.encode(body)
            except (OverflowError, UnicodeEncodeError, RecursionError):
                pass
        return json.dumps(body).encode()

    def _bytewise(self, data: bytes) -> bytes:
        choose = self.random
        if not data:
            return choose.choice([b"{", b"\xff", b"[" * 2000, b"null", b"\xc1", b"0", b'"', b"{}", b"\x80"])
        at = choose.randrange(len(data))
        match choose.randrange(5):
            case 0:
                return data[:at]
            case 1:
                return data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :]
            case 2:
                return data[:at] + choose.choice([b"\0", b"\xff\xfe", b"{", b'"', b"NaN", b"9" * 30]) + data[at:]
            case 3:
                return data + data
            case _:
                return data[at:]
