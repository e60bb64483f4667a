"""The function-block notation: definitions with `functionBlock`, `runOn`, `seedEntity` and `{{ … }}`, as they are.

It is a translation of nodes into nodes: every key becomes the native one, at the place where its author wrote it, so
problems point into the author's file. What is stored is the definition as it was published; it is translated whenever
it is compiled. Nothing here knows what a step does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .conditions import style_free
from .expressions import ExpressionSyntax
from .foreign_parts import ROOT_KEYS, RUN_ON, STEP_KEYS, Keys, Parts, is_per_entity
from .nodes import Document, Node, Report
from .tree import Expr, Literal, Member, Name, Path

#: keys that only a root of this notation has
_SIGNS = frozenset(("seedentity", "majorversion", "minorversion", "patchversion"))
_VERSIONS = ("majorVersion", "minorVersion", "patchVersion")
_LABEL = re.compile(r"\w+\Z")
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*\Z")
_PACKAGE = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*\Z")
#: `package/name:1.2.3`, the version perhaps in part
REFERENCE = re.compile(r"(?P<name>[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)+)(?::(?P<version>\d+(?:\.\d+){0,2}))?\Z")
#: keys that a group of steps has as a whole
_AROUND = ("retry", "repeat", "continue-on-error", "delay", "on-error")


def is_foreign(root: Node) -> bool:
    """By what only this notation has: versions or `seedEntity` at the root, or steps with a label and a block."""
    if not isinstance(root.value, dict):
        return False
    if any(style_free(key) in _SIGNS for key in root.value):
        return True
    steps = root.value.get("steps")
    return steps is not None and isinstance(steps.value, list) and any(_is_block_step(item) for item in steps.value)


def _is_block_step(node: Node) -> bool:
    if not isinstance(node.value, dict):
        return False
    keys = {style_free(key): item for key, item in node.value.items()}
    type = keys.get("type")
    names_block = "functionblock" in keys or (
        type is not None and isinstance(type.value, str) and style_free(type.value) == "functionblock"
    )
    return names_block and "label" in keys


def name_of(root: Node) -> str:
    """`package/name`, as far as the root says so."""
    keys = {style_free(key): item.value for key, item in root.value.items()}
    name, package = keys.get("name"), keys.get("package")
    if not isinstance(name, str) or not name:
        return ""
    return f"{package}/{name}" if isinstance(package, str) and package else name


def version_of(definition: Any) -> str:
    """`x.y.z` of a stored definition; empty where it has none."""
    if not isinstance(definition, dict):
        return ""
    keys = {style_free(key): value for key, value in definition.items()}
    numbers = [keys.get(style_free(key)) for key in _VERSIONS]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        return ""
    return ".".join(str(number) for number in numbers)


def parameters_of(definition: dict[str, Any]) -> dict[str, Any]:
    """What a stored definition declares to take, in the native form."""
    schema = {style_free(key): value for key, value in definition.items()}.get("parameterschema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return dict(properties) if isinstance(properties, dict) else {}


def is_version(wanted: str, version: str) -> bool:
    """Whether `1` or `1.2` means that version."""
    return not wanted or f"{version}.".startswith(f"{wanted}.")


def _type_of(node: Node | None) -> str:
    """The type of entities that `runOn` or `seedEntity` names; empty for none."""
    return RUN_ON[node.value] if node is not None and is_per_entity(node.value) else ""


def translate(document: Document, report: Report, library: Mapping[str, Any], is_used: bool = False) -> Node:
    """The root in native keys. One that another workflow uses is done for the entities which that one says."""
    return _Translation(report, library).root(document.root, is_used)


class _Translation(Parts):
    def __init__(self, report: Report, library: Mapping[str, Any]) -> None:
        super().__init__(report)
        self.library = library
        self.labels: dict[str, Node] = {}
        #: inside of a group that each entity of this type passes as a whole
        self.within = ""

    # --- the root ----------------------------------------------------------------------------------
    def root(self, node: Node, is_used: bool) -> Node:
        keys = self.take(node, ROOT_KEYS, "the workflow")
        self._required(node, keys)
        made = Keys(node)
        named = keys.get("name")
        if named is not None:
            made.put("name", "name", self.fresh(named, name_of(node)))
        for key, native in (("description", "description"), ("uses", "uses")):
            if key in keys:
                made.put(native, key, keys[key])
        labels = {"package": keys.get("package"), "version": keys.get("majorVersion")}
        version = version_of(node.plain())
        texts = {
            key: self.fresh(item, version if key == "version" else item.value)
            for key, item in labels.items()
            if item is not None and (key != "version" or version) and isinstance(item.value, (str, int))
        }
        if texts:
            made.put("labels", "package", self.fresh(node, texts))
        self._kept(node, keys, made)
        run_on = keys.get("runOn")
        if run_on is None or not is_per_entity(run_on.value):
            run_on = keys.get("seedEntity", run_on)
        if run_on is not None and not is_used:
            made.put("run-on", "runOn" if run_on is keys.get("runOn") else "seedEntity", self.run_on(run_on))
        if "acquire" in keys and not is_used:
            made.put("acquire", "acquire", self.acquire(keys["acquire"]))
        if "config" in keys and not is_used:
            made.put("config", "config", self.config(keys["config"]))
        if "parameterSchema" in keys:
            made.put("inputs", "parameterSchema", self.schema(keys["parameterSchema"]))
        self._defaults(keys, made)
        default = _type_of(run_on)
        if is_used:
            self.within = default
        if "steps" in keys:
            around = self.run_on(keys["runOn"]).value if "runOn" in keys and not is_used else ""
            steps = self._group(node, keys, keys["steps"], around, is_root=True)
            made.put("steps", "steps", self.fresh(keys["steps"], steps))
        return made.node()

    def _required(self, node: Node, keys: dict[str, Node]) -> None:
        for key in ("label", "name", "package", *_VERSIONS, "seedEntity", "type", "steps"):
            if key not in keys:
                self.report.add(node, "HF0109", f"the workflow has no `{key}`", help=f"add `{key}:`")
        self._label(keys.get("label"), is_unique=False)
        for key, pattern in (("name", _NAME), ("package", _PACKAGE)):
            item = keys.get(key)
            if item is not None and not (isinstance(item.value, str) and pattern.match(item.value)):
                self.report.add(item, "HF0113", f"`{key}` is made of letters, digits, `.`, `_` and `-`")
        for key in _VERSIONS:
            if key in keys:
                self.number(keys[key], key, 0, 1_000_000, whole=True)
        type = keys.get("type")
        if type is not None and type.value != "workflow":
            self.report.add(type, "HF0116", "the `type` of a workflow is `workflow`")
        if "seedEntity" in keys:
            self.run_on(keys["seedEntity"], "seedEntity")

    def _kept(self, node: Node, keys: dict[str, Node], made: Keys) -> None:
        """What is kept for tools, and said to be no more than that."""
        kept = {}
        if "cron" in keys:
            cron = keys["cron"]
            if not isinstance(cron.value, list) or not all(isinstance(item.value, dict) for item in cron.value):
                self.report.add(cron, "HF0108", f"`cron` is a list of maps, not {cron.kind}")
            else:
                self.report.add(node, "HF0187", "`cron` is kept, but nothing is started by it yet", key="cron",
                                help="start the workflow from your own scheduler", warning=True)  # fmt: skip
                kept["cron"] = cron
        if "hideForExecution" in keys:
            self.yes(keys["hideForExecution"], "hideForExecution")
            kept["hide-for-execution"] = keys["hideForExecution"]
        if kept:
            made.put("metadata", "cron", self.fresh(node, kept))

    def _defaults(self, keys: dict[str, Node], made: Keys) -> None:
        """Parameters at the root are what is taken where the start gives none; expressions are asked when used."""
        found: dict[str, Node] = {}
        for name, item in self.map_of(keys.get("parameters"), "parameters").items():
            tree = self.whole_tree(item)
            if tree is None:
                found[name] = item
                continue
            given = Member(Name("input"), name, 0, 0, 1)
            self.bound[name] = Path("not_null", (given, tree), tree.start, tree.end, tree.height + 1)
        found |= self.map_of(keys.get("rawParameters"), "rawParameters")
        for name in found:
            self.bound.pop(name, None)
        if found:
            at = keys.get("parameters") or keys["rawParameters"]
            made.put("input", "parameters", self.fresh(at, found))

    # --- steps -------------------------------------------------------------------------------------
    def _group(
        self, node: Node, keys: dict[str, Node], steps: Node, run_on: str, *, is_root: bool = False
    ) -> list[Node]:
        """Embedded steps: one after the other in place, or in a block of their own where something is said of all."""
        if not isinstance(steps.value, list) or not steps.value:
            what = f"a list of steps, not {steps.kind}" if not isinstance(steps.value, list) else "empty"
            self.report.add(steps, "HF0108", f"`steps` is {what}")
            return [self.fresh(steps, "no-op")]
        own = [self.condition(keys["condition"])] if "condition" in keys else []
        asserts = self.conditions(keys["assert"], "assert") if "assert" in keys else []
        around = Keys(node)
        self._control(keys, around)
        is_whole = any(key in around.made for key in _AROUND)
        outside, self.around = self.around, [*self.around, *own]
        if is_whole and is_per_entity(run_on):
            # Each entity passes all of it by itself, so all of it is what is tested, repeated and tried again.
            around.put("run-on", "runOn", self.fresh(keys.get("runOn", node), run_on))
            if self.around:
                around.put("condition", "condition", self.all_of(self.around, node))
            if asserts:
                around.put("assert", "assert", self.fresh(keys.get("assert", node), asserts))
            self.around, asserts = [], []
        within, self.within = self.within, self.within or (run_on if is_whole and is_per_entity(run_on) else "")
        made: list[Node] = []
        for item in steps.value:
            made += self._step(item, "" if self.within else run_on, asserts)
            asserts = []
        self.around, self.within = outside, within
        if not is_whole:
            return made
        if not is_root:
            self._put_id(keys, around)
        around.put("type", "type", self.fresh(node, "subworkflow"))
        around.put("steps", "steps", self.fresh(steps, made))
        return [around.node()]

    def _step(self, node: Node, run_on: str, asserts: list[Node]) -> list[Node]:
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"a step is a map, not {node.kind}")
            return [self.fresh(node, "no-op")]
        found = {style_free(key): item for key, item in node.value.items()}
        given = found.get("type")
        type = given.value if given is not None else None
        if type is None:
            type = next(
                (kind for key, kind in (("functionblock", "functionBlock"), ("workflow", "workflowReference"),
                                        ("steps", "workflow")) if key in found), None,
            )  # fmt: skip
        if not isinstance(type, str) or type not in STEP_KEYS:
            message = "nothing says what the step does" if given is None else f"unknown step type `{given.value}`"
            self.report.add(given or node, "HF0110", message, help=f"a step is one of {', '.join(STEP_KEYS)}")
            return [self.fresh(node, "no-op")]
        keys = self.take(node, STEP_KEYS[type], f"a `{type}` step")
        if "label" not in keys:
            self.report.add(node, "HF0109", "the step has no `label`", help="its result is known by it")
        self._label(keys.get("label"))
        if "description" in keys and not isinstance(keys["description"].value, str):
            self.report.add(keys["description"], "HF0108", f"`description` is a text, not {keys['description'].kind}")
        if type == "workflow":
            return self._embedded(node, keys, run_on, asserts)
        return [self._leaf(node, keys, type, run_on, asserts)]

    def _leaf(self, node: Node, keys: dict[str, Node], type: str, run_on: str, asserts: list[Node]) -> Node:
        made = Keys(node)
        self._put_id(keys, made)
        if type == "functionBlock":
            self._block(node, keys, made, run_on)
        else:
            self._reference(node, keys, made, run_on)
        given = self.given(keys)
        if given is not None:
            made.put("input", "parameters" if "parameters" in keys else "rawParameters", given)
        tests = [*self.around, *([self.condition(keys["condition"])] if "condition" in keys else [])]
        if tests:
            made.put("condition", "condition", self.all_of(tests, keys.get("condition", node)))
        asserts = [*asserts, *(self.conditions(keys["assert"], "assert") if "assert" in keys else [])]
        if asserts:
            made.put("assert", "assert", self.fresh(keys.get("assert", node), asserts))
        if "acquire" in keys:
            made.put("acquire", "acquire", self.acquire(keys["acquire"]))
        if "description" in keys:
            made.put("metadata", "description", self.fresh(node, {"description": keys["description"]}))
        self._control(keys, made)
        return made.node()

    def _block(self, node: Node, keys: dict[str, Node], made: Keys, run_on: str) -> None:
        block = keys.get("functionBlock")
        if block is None:
            self.report.add(node, "HF0109", "the step has no `functionBlock`",
                            help="add `functionBlock: package/name:version`")  # fmt: skip
        elif not isinstance(block.value, str) or not REFERENCE.match(block.value):
            self.report.add(block, "HF0113", "a function block is named `package/name:version`",
                            help="the version may be given in part: `package/name:1`")  # fmt: skip
            block = None
        # Something has to stand there, or its absence would be told too.
        made.put("block", "functionBlock", block or self.fresh(node, "none"))
        self._run_on(node, keys, made, run_on)

    def _run_on(self, node: Node, keys: dict[str, Node], made: Keys, run_on: str) -> None:
        if "runOn" in keys:
            said = self.run_on(keys["runOn"])
            if self._outside(keys["runOn"], said.value):
                made.put("run-on", "runOn", said)
        elif run_on:
            made.put("run-on", "runOn", self.fresh(node, run_on))

    def _reference(self, node: Node, keys: dict[str, Node], made: Keys, run_on: str) -> None:
        named = keys.get("workflow")
        if "strategy" in keys:
            self.report.add(node, "HF0187", "`strategy` is not followed: a workflow is run as one part of this one",
                            key="strategy", warning=True)  # fmt: skip
        match = REFERENCE.match(named.value) if named is not None and isinstance(named.value, str) else None
        if named is None or match is None:
            self.report.add(named or node, "HF0113", "a workflow is named `package/name:version`")
            made.put("type", "type", self.fresh(node, "no-op"))
            return
        name, wanted = match["name"], match["version"] or ""
        made.put("type", "type", self.fresh(node, "invoke"))
        made.put("workflow", "workflow", self.fresh(named, name))
        found = self.library.get(name)
        root = found.root if isinstance(found, Document) else found
        if root is not None and is_foreign(root):
            said = {style_free(key): item for key, item in root.value.items()}
            run_on = run_on or ("" if self.within else _type_of(said.get("runon") or said.get("seedentity")))
        self._run_on(node, keys, made, run_on)
        if wanted and root is not None:
            version = version_of(root.plain())
            if not is_version(wanted, version):
                self.report.add(named, "HF0110", f"there is no version {wanted} of the workflow `{name}`",
                                label=f"there is {version or 'one without a version'}")  # fmt: skip

    def _embedded(self, node: Node, keys: dict[str, Node], run_on: str, asserts: list[Node]) -> list[Node]:
        given = self.given(keys)
        outside = self.bound
        if given is not None:
            self.bound = {**outside, **{name: self.tree_of(item) for name, item in given.value.items()}}
        if "runOn" in keys:
            checked = self.run_on(keys["runOn"])
            run_on = self._outside(keys["runOn"], checked.value)
        if "steps" not in keys:
            self.report.add(node, "HF0109", "the workflow has no `steps`")
            return [self.fresh(node, "no-op")]
        if "acquire" in keys:
            self.report.add(node, "HF0188", "`acquire` belongs to the workflow or to a step with a block",
                            key="acquire")  # fmt: skip
        if asserts:
            inner = self.conditions(keys["assert"], "assert") if "assert" in keys else []
            keys = {**keys, "assert": self.ready_list(node, [*asserts, *inner])}
        made = self._group(node, keys, keys["steps"], run_on)
        self.bound = outside
        return made

    def _outside(self, node: Node, run_on: str) -> str:
        """Nothing where that is what the group around is done for anyway."""
        if self.within and run_on == "global":
            self.report.add(node, "HF0188", "what is done once cannot stand in what each entity passes by itself",
                            help="put it before or behind that group")  # fmt: skip
        return "" if run_on == self.within else run_on

    def _put_id(self, keys: dict[str, Node], made: Keys) -> None:
        if "label" in keys:
            made.put("id", "label", keys["label"])

    def _label(self, node: Node | None, is_unique: bool = True) -> None:
        if node is None:
            return
        if not isinstance(node.value, str) or not _LABEL.match(node.value):
            self.report.add(node, "HF0113", "a label is made of letters, digits and `_`")
        elif is_unique and self.labels.setdefault(node.value, node) is not node:
            first = self.labels[node.value].line + 1
            self.report.add(node, "HF0112", f"the label `{node.value}` is used twice",
                            label=f"first on line {first}" if first else "")  # fmt: skip

    # --- what a step or a group may have -----------------------------------------------------------
    def _control(self, keys: dict[str, Node], made: Keys) -> None:
        if "delay" in keys:
            made.put("delay", "delay", self.seconds(keys["delay"], "delay"))
        if "continueOnError" in keys:
            self.yes(keys["continueOnError"], "continueOnError")
            made.put("continue-on-error", "continueOnError", keys["continueOnError"])
        if "retryConfig" in keys:
            self.retry(keys["retryConfig"], made)
        if "repeatConfig" in keys:
            self.repeat(keys["repeatConfig"], made)

    def tree_of(self, node: Node) -> Expr:
        """What a parameter of a workflow around is, wherever it is used inside."""
        return self.whole_tree(node) or Literal(node.plain())

    def whole_tree(self, node: Node) -> Expr | None:
        try:
            return self.tree(node)
        except ExpressionSyntax:
            return None  # reported where it stands
