"""Small parts of the function-block notation: keys, numbers, conditions, parameters, schemas, what is acquired."""

from __future__ import annotations

import re
from typing import Any

from .conditions import style_free
from .expressions import ExpressionSyntax
from .nodes import Node, Report
from .paths import parse_braces, parse_path
from .problems import did_you_mean
from .tree import Expr, ListOf, Literal, MapOf, Path

_COMMON = (
    "label", "type", "runOn", "parameters", "rawParameters", "condition", "assert", "acquire", "retryConfig",
    "repeatConfig", "continueOnError", "delay", "description",
)  # fmt: skip
#: type of a step → its keys
STEP_KEYS = {
    "functionBlock": (*_COMMON, "functionBlock"),
    "workflow": (*_COMMON, "steps", "name", "package", "majorVersion", "minorVersion", "patchVersion", "seedEntity"),
    "workflowReference": (*_COMMON, "workflow", "strategy"),
}
ROOT_KEYS = (
    *_COMMON, "name", "package", "majorVersion", "minorVersion", "patchVersion", "seedEntity", "steps", "config",
    "parameterSchema", "cron", "hideForExecution", "$schema", "uses",
)  # fmt: skip
#: what a step may run on, and what that is called here
RUN_ON = {"device": "device", "interface": "interface", "group": "group", "device_group": "group",
          "deviceGroup": "group", "global": "global"}  # fmt: skip
#: `{{ … }}` is the word for all of it
BRACES = "{{"
#: rules of a schema that are checked at the start, and words that rule nothing
_CHECKED = frozenset(("type", "default", "enum", "description"))
_SAID = frozenset(("title", "examples", "$comment", "$schema", "$id", "readOnly", "writeOnly", "deprecated"))
#: `site:ams1 AND role:edge`
_TERM = re.compile(r"\s*(?P<field>[A-Za-z_][\w.]*):(?P<value>\"[^\"]*\"|[^\s\"()*?:]+)\s*\Z")
#: a parameter in a query, perhaps in quotes
_PARAMETER = re.compile(r"(?P<quote>['\"]?)\{\{\s*parameters\.(?P<name>\w+)\s*\}\}(?P=quote)")
_RELATED = {"interfaces": "children", "interface": "children", "device": "parent", "parent": "parent",
            "devices": "members", "members": "members"}  # fmt: skip


def is_per_entity(value: Any) -> bool:
    return isinstance(value, str) and RUN_ON.get(value, "global") != "global"


class Keys:
    """A map in native keys that stands where another one stands."""

    def __init__(self, source: Node) -> None:
        self.source = source
        self.made: dict[str, Node] = {}
        self.marks: dict[str, tuple[int, int]] = {}

    def put(self, native: str, written: str, node: Node) -> None:
        self.made[native] = node
        for key, mark in self.source.marks.items():
            if style_free(key) == style_free(written):
                self.marks[native] = mark

    def node(self) -> Node:
        made = again(self.source, self.made)
        made.marks = self.marks
        return made


def again(node: Node, value: Any) -> Node:
    """Another value at the same place."""
    made = Node(node.document, value, node.parent, node.key)
    made.line, made.column, made.end_line, made.end_column = node.line, node.column, node.end_line, node.end_column
    made.start, made.end, made.style = node.start, node.end, node.style
    if isinstance(value, dict):
        made.marks = dict(node.marks)
    return made


class Parts:
    def __init__(self, report: Report) -> None:
        self.report = report
        #: parameters that a workflow around gives, by name
        self.bound: dict[str, Expr] = {}
        #: conditions of the groups around
        self.around: list[Node] = []

    def fresh(self, node: Node, value: Any) -> Node:
        """Plain data, or nodes, at the place of another node."""
        if isinstance(value, dict):
            value = {key: item if isinstance(item, Node) else self.fresh(node, item) for key, item in value.items()}
        elif isinstance(value, list):
            value = [item if isinstance(item, Node) else self.fresh(node, item) for item in value]
        return again(node, value)

    def take(self, node: Node, known: tuple[str, ...], what: str) -> dict[str, Node]:
        """The entries of a map by key; unknown and doubled ones are reported."""
        index = {style_free(key): key for key in known}
        found: dict[str, Node] = {}
        for key, item in node.value.items():
            name = index.get(style_free(key))
            if name is None:
                self.report.add(node, "HF0188", f"unknown key `{key}` in {what}", key=key,
                                label="not a key of this notation", help=did_you_mean(key, known))  # fmt: skip
            elif name in found:
                self.report.add(node, "HF0103", f"the key `{name}` occurs twice, in two spellings", key=key)
            else:
                found[name] = item
        return found

    def map_of(self, node: Node | None, key: str) -> dict[str, Node]:
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`{key}` is a map, not {node.kind}")
            return {}
        return node.value

    def yes(self, node: Node, key: str) -> bool:
        if not isinstance(node.value, bool):
            self.report.add(node, "HF0108", f"`{key}` is true or false, not {node.kind}")
        return node.value is True

    def number(self, node: Node, key: str, low: int, high: int, whole: bool = False) -> Any:
        value = node.value
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            self.report.add(node, "HF0116", f"`{key}` is {what} from {low} to {high:,}")
            return low
        return value

    def seconds(self, node: Node, key: str) -> Node:
        value = self.number(node, key, 0, 600)
        return self.fresh(node, f"{round(value * 1000)}ms")

    def run_on(self, node: Node, key: str = "runOn") -> Node:
        value = node.value
        if not isinstance(value, str) or value not in RUN_ON:
            self.report.add(node, "HF0116", f"`{key}` is one of device, interface, group and global",
                            help=did_you_mean(value, RUN_ON) if isinstance(value, str) else "")  # fmt: skip
            return self.fresh(node, "global")
        return self.fresh(node, RUN_ON[value])

    def config(self, node: Node) -> Node:
        """Native keys stay what they are; `executionStrategy` is `execution-strategy` in its other spelling."""
        self.map_of(node, "config")
        return node

    # --- expressions -------------------------------------------------------------------------------
    def tree(self, node: Node) -> Expr | None:
        """Of any data with `{{ … }}` in its texts; nothing where there is none."""
        value = node.value
        if isinstance(value, str):
            return parse_braces(value, self.bound) if BRACES in value else None
        if isinstance(value, dict):
            trees = {key: self.tree(item) for key, item in value.items()}
            if all(tree is None for tree in trees.values()):
                return None
            pairs = tuple((key, tree or Literal(value[key].plain())) for key, tree in trees.items())
            return MapOf(pairs, 0, 0, 1 + max(tree.height for _, tree in pairs))
        if isinstance(value, list):
            made = [self.tree(item) for item in value]
            if all(tree is None for tree in made):
                return None
            items = tuple(tree or Literal(item.plain()) for tree, item in zip(made, value, strict=True))
            return ListOf(items, 0, 0, 1 + max(tree.height for tree in items))
        return None

    def data(self, node: Node, is_raw: bool = False) -> Node:
        """A copy whose texts are expressions already: no text is read as anything else afterwards."""
        value = node.value
        if isinstance(value, dict):
            return again(node, {key: self.data(item, is_raw) for key, item in value.items()})
        if isinstance(value, list):
            return again(node, [self.data(item, is_raw) for item in value])
        made = again(node, value)
        if isinstance(value, str):
            made.tree = Literal(value)
            if not is_raw and BRACES in value:
                try:
                    made.tree = parse_braces(value, self.bound)
                except ExpressionSyntax as error:
                    self._unreadable(node, error)
        return made

    def _unreadable(self, node: Node, error: ExpressionSyntax) -> None:
        snippet = str(node.value)[error.start : error.end]
        self.report.add(node, error.code, error.message, offset=error.start, snippet=snippet, help=error.help)

    def given(self, keys: dict[str, Node]) -> Node | None:
        """Parameters of a step; what is raw is never read, and wins."""
        plain, raw = keys.get("parameters"), keys.get("rawParameters")
        if plain is None and raw is None:
            return None
        made = {key: self.data(item) for key, item in self.map_of(plain, "parameters").items()}
        made |= {key: self.data(item, is_raw=True) for key, item in self.map_of(raw, "rawParameters").items()}
        source = plain or raw
        assert source is not None
        found = again(source, made)
        found.marks = {**(raw.marks if raw is not None else {}), **(plain.marks if plain is not None else {})}
        return found

    def condition(self, node: Node) -> Node:
        """`{type: jmes, jmes: "{{ … }}"}`, the text alone, or true or false."""
        at = node
        if isinstance(node.value, dict):
            keys = self.take(node, ("type", "jmes"), "a condition")
            type = keys.get("type")
            if type is not None and type.value != "jmes":
                self.report.add(type, "HF0116", "the `type` of a condition is `jmes`")
            if "jmes" not in keys:
                self.report.add(node, "HF0109", "the condition has no `jmes`", help='e.g. `jmes: "{{ parameters.x }}"`')
                return self.fresh(node, True)
            at = keys["jmes"]
        if isinstance(at.value, bool):
            return self.fresh(at, at.value)
        if not isinstance(at.value, str) or not at.value.strip():
            self.report.add(at, "HF0127", f"a condition is an expression, not {at.kind}" if at.value != "" else
                            "the condition is empty")  # fmt: skip
            return self.fresh(at, True)
        made = again(at, at.value)
        try:
            tree = parse_braces(at.value, self.bound) if BRACES in at.value else parse_path(at.value, bound=self.bound)
        except ExpressionSyntax as error:
            self._unreadable(at, error)
            return self.fresh(at, True)
        made.tree = Path("true", (tree,), tree.start, tree.end, tree.height + 1)
        return made

    def conditions(self, node: Node, key: str) -> list[Node]:
        if isinstance(node.value, list):
            return [self.ready(item) or self.condition(item) for item in node.value]
        return [self.condition(node)]

    def ready(self, node: Node) -> Node | None:
        """One that was read already, as part of a group around."""
        return node if node.tree is not None else None

    def ready_list(self, node: Node, items: list[Node]) -> Node:
        return again(node, items)

    def all_of(self, tests: list[Node], at: Node) -> Node:
        if len(tests) == 1:
            return tests[0]
        trees = [test.tree or Literal(test.value) for test in tests]
        tree = trees[0]
        for other in trees[1:]:
            tree = Path("and", (tree, other), other.start, other.end, 1 + max(tree.height, other.height))
        made = again(tests[-1], tests[-1].value)
        made.tree = tree
        return made

    # --- retry and repeat --------------------------------------------------------------------------
    def retry(self, node: Node, made: Keys) -> None:
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`retryConfig` is a map, not {node.kind}")
            return
        keys = self.take(node, ("maxRetries", "delay", "condition"), "`retryConfig`")
        if "maxRetries" not in keys:
            self.report.add(node, "HF0109", "`retryConfig` has no `maxRetries`")
            return
        retries = self.number(keys["maxRetries"], "maxRetries", 1, 100, whole=True)
        delay = self.seconds(keys["delay"], "delay").value if "delay" in keys else "0ms"
        if "condition" not in keys:
            plan = {"attempts": retries + 1, "delay": delay, "factor": 1, "max-delay": delay, "jitter": 0}
            made.put("retry", "retryConfig", self.fresh(node, plan))
            return
        # What is asked each time is a handler that does the step again.
        handler = {"type": "retry", "limit": str(retries), "condition": self.condition(keys["condition"])}
        if "delay" in keys and delay != "0ms":
            handler["backoff"] = delay
        made.put("on-error", "retryConfig", self.fresh(node, [handler]))

    def repeat(self, node: Node, made: Keys) -> None:
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`repeatConfig` is a map, not {node.kind}")
            return
        keys = self.take(node, ("repeats", "delay", "condition"), "`repeatConfig`")
        if not keys.keys() & {"repeats", "condition"}:
            self.report.add(node, "HF0109", "`repeatConfig` has neither `repeats` nor a `condition`")
            return
        plan: dict[str, Any] = {}
        if "repeats" in keys:
            plan["times"] = self.number(keys["repeats"], "repeats", 1, 100, whole=True)
        if "delay" in keys:
            plan["delay"] = self.seconds(keys["delay"], "delay")
        if "condition" in keys:
            plan["while"] = self.condition(keys["condition"])
        made.put("repeat", "repeatConfig", self.fresh(node, plan))

    # --- schema ------------------------------------------------------------------------------------
    def schema(self, node: Node) -> Node:
        """A JSON Schema of an object, as declared inputs."""
        made: dict[str, Node] = {}
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`parameterSchema` is a JSON Schema, not {node.kind}")
            return again(node, made)
        type, needed = node.value.get("type"), node.value.get("required")
        if type is not None and type.value != "object":
            self.report.add(type, "HF0189", "`parameterSchema` describes an object", help="write `type: object`")
        if needed is not None and not isinstance(needed.value, list):
            self.report.add(needed, "HF0189", f"`required` is a list of names, not {needed.kind}")
        listed: list[Node] = needed.value if needed is not None and isinstance(needed.value, list) else []
        names = [item.value for item in listed]
        properties = self.map_of(node.value.get("properties"), "properties")
        for name, item in properties.items():
            made[name] = self._parameter(name, item, name in names)
        for item in listed:
            if not isinstance(item.value, str) or item.value not in properties:
                self.report.add(item, "HF0189", "what is required is not among the `properties`")
        others = node.value.keys() - {"type", "required", "properties", "additionalProperties", "description"} - _SAID
        for key in sorted(others):
            self._unchecked(node, key)
        source = node.value.get("properties", node)
        return again(source, made)

    def _parameter(self, name: str, node: Node, is_required: bool) -> Node:
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0189", f"`{name}` is described by a schema, not by {node.kind}")
            return self.fresh(node, {"type": "any"})
        keys: dict[str, Any] = {key: item for key, item in node.value.items() if key in _CHECKED}
        type = keys.get("type")
        if type is None or isinstance(type.value, list) or type.value == "null":
            keys["type"] = "any"
        if "default" not in keys:
            keys["required"] = is_required
        elif keys["default"].value is None:
            del keys["default"]
            keys["required"] = False
        for key in sorted(node.value.keys() - _CHECKED - _SAID):
            self._unchecked(node, key)
        return self.fresh(node, keys)

    def _unchecked(self, node: Node, key: str) -> None:
        self.report.add(node, "HF0189", f"the rule `{key}` is not checked when the workflow is started", key=key,
                        warning=True)  # fmt: skip

    # --- what is acquired --------------------------------------------------------------------------
    def acquire(self, node: Node) -> Node:
        """A list of selectors, ids and related entities."""
        if not isinstance(node.value, list):
            self.report.add(node, "HF0108", f"`acquire` is a list, not {node.kind}")
            return again(node, [])
        return again(node, [made for item in node.value if (made := self._acquired(item)) is not None])

    def _acquired(self, node: Node) -> Node | None:
        if isinstance(node.value, str):
            return self._select(node)
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"what is acquired is a query or a map, not {node.kind}")
            return None
        keys = self.take(node, ("type", "query", "select", "ids", "context", "label", "description"), "`acquire`")
        ways = [key for key in ("query", "select", "ids", "context") if key in keys]
        if len(ways) != 1:
            self.report.add(node, "HF0188", "`acquire` says one of `query`, `ids` and `context`",
                            help='e.g. `query: "site:ams1"`, `ids: [sw1]` or `context: interfaces`')  # fmt: skip
            return None
        item = keys[ways[0]]
        if ways[0] in ("query", "select"):
            select = self._select(item)
            return None if select is None else self.fresh(node, {"select": select})
        if ways[0] == "ids":
            return self.fresh(node, {"ids": self.data(item)})
        related = _RELATED.get(item.value) if isinstance(item.value, str) else None
        if related is None:
            self.report.add(item, "HF0188", "`context` of `acquire` names what is related to what is there",
                            help=f"one of {', '.join(_RELATED)}")  # fmt: skip
            return None
        return self.fresh(node, {related: "interface" if related == "children" else True})

    def _select(self, node: Node) -> Node | None:
        """`field:value AND …`, or a selector in the grammar of this system."""
        text = node.value
        if not isinstance(text, str) or not text.strip():
            self.report.add(node, "HF0108", f"a query is a text, not {node.kind}")
            return None
        text = _PARAMETER.sub(r"input.\g<name>", text)
        if BRACES in text:
            self.report.add(node, "HF0188", "a query can be made with `{{ parameters.NAME }}` only")
            return None
        if "==" in text or "!=" in text:
            return again(node, text)
        terms = [_TERM.match(term) for term in re.split(r"\s+AND\s+", text)]
        found = []
        for term in terms:
            if term is None:
                self.report.add(node, "HF0188", "the query is neither `field:value AND …` nor a selector",
                                help="e.g. `site:ams1 AND role:edge`, or `site == 'ams1'`")  # fmt: skip
                return None
            value = term["value"].strip('"').replace("\\", "\\\\")
            found.append(
                f"{term['field']} == {value}" if value.startswith("input.") else f'{term["field"]} == "{value}"'
            )
        return again(node, " && ".join(found))
