"""From drafts to a compiled workflow: the second pass, in which every expression is read and checked.

It also gives steps their indices and jobs their specifications, both by their order in the definition alone,
so that the same definition is always numbered alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.model import Retry

from .compiled import Parameter, Spec, Step, Workflow
from .conditions import compile_condition, style_free
from .definition import Reader, take_keys
from .load import Unstorable, scalar
from .names import RESERVED_NAMES, Excerpt, LaneNames, Names, Previous, Shared, Value, constant
from .nodes import Document, Node, Report
from .short import NAME, Body, Draft
from .steps import BLOCK_FORMS, LEVELS, PARAMETER_KEYS, RETRY_KEYS, STEP_TYPES, WORKFLOW_KEYS
from .values import Mismatch, coerce, parse_duration, type_of, yes_or_no

_OPEN = Previous(is_open=True)


def compile_document(document: Document) -> tuple[Workflow, Report]:
    """Raises `InvalidDefinition` with every problem; the report that comes back holds warnings."""
    workflow, report = read_document(document)
    report.check()
    return workflow, report


def read_document(document: Document) -> tuple[Workflow, Report]:
    """As far as it can be understood, with everything that is wrong; never to be run before `check`."""
    report = Report(document)
    root = document.root
    if isinstance(root.value, list):
        keys = {"steps": root}
    elif isinstance(root.value, dict):
        keys = take_keys(report, root, WORKFLOW_KEYS, "the workflow", "not a workflow key")
        if "inputs" in keys and sum(style_free(key) in ("inputs", "parameters") for key in root.value) > 1:
            report.add(root, "HF0115", "`inputs` and `parameters` are the same; keep one", key="parameters")
    else:
        report.add(root, "HF0117", f"a workflow is a map or a list of steps, not {root.kind}")
        report.check()
        raise AssertionError("unreachable")
    if "steps" not in keys and "output" not in keys:
        report.add(root, "HF0109", "the workflow has no `steps`", help="add `steps:` with a list of steps")
    compiler = _Compiler(report)
    return compiler.workflow(keys), report


def _text(report: Report, node: Node | None, key: str, default: str, limit: int = 10_000) -> str:
    if node is None:
        return default
    if not isinstance(node.value, str) or not node.value.strip():
        report.add(node, "HF0108", f"`{key}` is a text, not {node.kind}")
        return default
    if len(node.value) > limit:
        report.add(node, "HF0116", f"`{key}` is longer than {limit} characters")
    return node.value


def _literal_map(report: Report, node: Node | None, key: str) -> dict[str, Any]:
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        report.add(node, "HF0108", f"`{key}` is a map, not {node.kind}")
        return {}
    plain: dict[str, Any] = node.plain()
    return plain


class _Compiler:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.bodies: dict[tuple[int, int], tuple[Step, ...]] = {}
        self.steps: list[Step] = []
        self.specs: dict[tuple[Any, ...], int] = {}
        self.shared: Shared

    def workflow(self, keys: dict[str, Node]) -> Workflow:
        report = self.report
        parameters = self._parameters(keys.get("inputs"))
        defaults = _literal_map(report, keys.get("input"), "input")
        for key, item in keys["input"].value.items() if defaults else ():
            if "${" in str(item.plain()):
                report.add(item, "HF0126", f"the input `{key}` cannot be an expression")
        if parameters is not None:
            declared = {parameter.name for parameter in parameters}
            for key in defaults:
                if key not in declared:
                    report.add(keys["input"], "HF0150", f"the workflow declares no input `{key}`", key=key)
        known = None
        if parameters is not None or defaults:
            known = frozenset((*(parameter.name for parameter in parameters or ()), *defaults))
        reader = Reader(report)
        lane = LaneNames()
        drafts = reader.body(keys["steps"], lane) if "steps" in keys else []
        if "steps" in keys and isinstance(keys["steps"].value, list) and not keys["steps"].value:
            report.add(keys["steps"], "HF0109", "the workflow has no steps")
        dashed = frozenset(
            name
            for name in (*(known or ()), *(v for draft in reader.drafts for v in draft.lane.variables))
            if "-" in name
        )
        self.shared = Shared(report, known, dashed, frozenset(reader.ids))
        self.steps = [Step(draft.index, draft.kind.name, "", "") for draft in reader.drafts]
        previous = self._body(-1, 0, Body(drafts, lane), Previous())
        output = None
        if "output" in keys:
            output = Names(self.shared, lane, len(self.steps), previous=previous).shape(keys["output"])
        for step in self.steps:
            step.keep = step.id if step.id in self.shared.referenced else ""
        labels = _literal_map(report, keys.get("labels"), "labels")
        for key, value in labels.items():
            if not isinstance(value, (str, int)) or isinstance(value, bool):
                report.add(keys["labels"], "HF0108", f"the label `{key}` is a text", key=key)
        return Workflow(
            name=_text(report, keys.get("name"), "name", "workflow", 128),
            description=_text(report, keys.get("description"), "description", ""),
            parameters=parameters,
            defaults=defaults,
            steps=tuple(self.steps),
            bodies=self.bodies,
            output=output,
            specs=tuple(Spec(*key) for key in self.specs),
            labels={key: str(value) for key, value in labels.items()},
            metadata=_literal_map(report, keys.get("metadata"), "metadata"),
        )

    # --- inputs ------------------------------------------------------------------------------------
    def _parameters(self, node: Node | None) -> tuple[Parameter, ...] | None:
        if node is None:
            return None
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`inputs` is a map of name → type, not {node.kind}")
            return None
        found = []
        for name, item in node.value.items():
            if not NAME.match(name) or name in RESERVED_NAMES or name == "output":
                self.report.add(node, "HF0113", f"`{name}` is not a name for an input", key=name)
                continue
            found.append(self._parameter(name, item))
        return tuple(found)

    def _parameter(self, name: str, node: Node) -> Parameter:
        report = self.report
        if node.value is None:
            return Parameter(name)
        if isinstance(node.value, str):
            return self._short_parameter(name, Excerpt(node.value, node))
        if not isinstance(node.value, dict):
            report.add(node, "HF0108", f"the input `{name}` is a type or a map, not {node.kind}")
            return Parameter(name)
        keys = take_keys(report, node, PARAMETER_KEYS, f"the input `{name}`", "not a key of an input")
        kind = "string"
        if "type" in keys:
            text = keys["type"].value
            known = type_of(text) if isinstance(text, str) else None
            if known is None:
                report.add(keys["type"], "HF0116", f"`{text}` is not a type",
                           help="one of string, integer, number, boolean, list, map, any, duration")  # fmt: skip
            kind = known or "any"
        default = None
        if "default" in keys:
            default = self._default(kind, keys["default"].plain(), keys["default"])
        required = "default" not in keys
        if "required" in keys:
            required = self._yes_or_no(keys["required"], "required", required)
        enum: tuple[Any, ...] = ()
        if "enum" in keys:
            if not isinstance(keys["enum"].value, list) or not keys["enum"].value:
                report.add(keys["enum"], "HF0108", "`enum` is a list of values")
            else:
                enum = tuple(self._default(kind, item.plain(), item) for item in keys["enum"].value)
                if default is not None and default not in enum:
                    report.add(keys["default"], "HF0116", "the default is not among the values of `enum`")
        description = _text(report, keys.get("description"), "description", "")
        return Parameter(name, kind, default, required and default is None, description, enum)

    def _short_parameter(self, name: str, text: Excerpt) -> Parameter:
        """`integer`, `integer?` (may be left out) or `integer = 3`."""
        word, equals, rest = text.text.partition("=")
        word = word.strip()
        optional = word.endswith("?")
        kind = type_of(word.removesuffix("?").strip())
        if kind is None:
            text.report(self.report, "HF0116", f"`{word}` is not a type", 0, len(word),
                        help="one of string, integer, number, boolean, list, map, any, duration")  # fmt: skip
            return Parameter(name, "any")
        if not equals:
            return Parameter(name, kind, required=not optional)
        rest = rest.strip()
        try:
            value = rest if kind in ("string", "duration") else scalar(rest) if rest else None
        except Unstorable:
            value = rest
        return Parameter(name, kind, self._default(kind, value, text.node), required=False)

    def _default(self, kind: str, value: Any, node: Node) -> Any:
        if value is None:
            return None
        try:
            return coerce(kind, value)
        except Mismatch as mismatch:
            self.report.add(node, "HF0116", str(mismatch))
            return value

    def _yes_or_no(self, node: Node, key: str, default: bool) -> bool:
        try:
            return yes_or_no(node.value)
        except Mismatch:
            self.report.add(node, "HF0116", f"`{key}` is yes or no")
            return default

    # --- steps -------------------------------------------------------------------------------------
    def _body(self, scope: int, number: int, body: Body, previous: Previous) -> Previous:
        steps = []
        for draft in body.steps:
            previous = self._step(draft, previous)
            steps.append(self.steps[draft.index])
        self.bodies[scope, number] = tuple(steps)
        return previous

    def _step(self, draft: Draft, previous: Previous) -> Previous:
        report, step, common = self.report, self.steps[draft.index], draft.common
        step.id = draft.id
        step.path = draft.node.path
        name = _text(report, common.get("name"), "name", "", 500)
        step.label = draft.id or name or _cut(draft.short or draft.block or draft.kind.name)
        if draft.node.document.text:
            step.node = draft.node
        names = Names(self.shared, draft.lane, draft.index, previous=previous)
        inner = self._inputs(draft, step, names)
        if "condition" in common:
            step.condition = compile_condition(common["condition"], inner)
        _literal_map(report, common.get("metadata"), "metadata")
        after = getattr(self, f"_{draft.kind.name.replace('-', '_')}")(draft, step, inner, previous)
        assert isinstance(after, Previous)
        if "output" in common:
            final = Names(self.shared, draft.lane, draft.index + 1, inner.local, after)
            step.output = final.shape(common["output"])
            after = _known(step.output, step.label)
        if step.condition is not None and after is not previous:
            after = Previous(after.keys | previous.keys, True, after.step or previous.step)
        return after

    def _inputs(self, draft: Draft, step: Step, names: Names) -> Names:
        """The step's input, in an order in which each part can be evaluated."""
        report = self.report
        given: dict[str, Node | Excerpt] = dict(draft.pairs)
        node = draft.common.get("input")
        if node is not None:
            if not isinstance(node.value, dict):
                report.add(node, "HF0108", f"`input` is a map, not {node.kind}")
            else:
                own = {key.name for key in draft.kind.keys} if not draft.block else set()
                for key, item in node.value.items():
                    if key in given or (key in own and key in draft.args):
                        report.add(node, "HF0115", f"`{key}` was already given in the short form", key=key)
                    elif key in own:
                        draft.args[key] = item
                    else:
                        given[key] = item
        if not given:
            return names
        local = frozenset(given)
        inner = names.with_local(local)
        values: dict[str, Value] = {}
        for key, item in given.items():
            # An input that uses its own name means the one outside.
            view = names.with_local(local - {key})
            if isinstance(item, Node):
                values[key] = view.shape(item)
            elif item.node is not None:
                values[key] = self._word(item, view)
        if all(value.fn is None for value in values.values()):
            step.fixed = {key: value.constant for key, value in values.items()}
        step.inputs = self._ordered(values, node or draft.node)
        step.by_name = dict(step.inputs)
        return inner

    def _word(self, excerpt: Excerpt, names: Names) -> Value:
        """A value in the short form: quotes make text, `${…}` an expression, the rest is typed as YAML."""
        if "${" in excerpt.text:
            return names.template(excerpt.unquoted())
        if excerpt.is_text:
            return constant(excerpt.text)
        if excerpt.unquoted() is not excerpt:
            return constant(excerpt.unquoted().text)
        if excerpt.text in ("", "~"):
            return constant(excerpt.text)
        try:
            return constant(scalar(excerpt.text))
        except Unstorable:
            return constant(excerpt.text)

    def _ordered(self, values: dict[str, Value], node: Node) -> tuple[tuple[str, Value], ...]:
        done: dict[str, Value] = {}
        waiting = {key: (value.free & values.keys()) - {key} for key, value in sorted(values.items())}
        while waiting:
            ready = [key for key, needs in waiting.items() if needs <= done.keys()]
            if not ready:
                listed = ", ".join(f"`{key}`" for key in waiting)
                self.report.add(node, "HF0128", f"the inputs {listed} refer to each other in a circle")
                return ()
            for key in ready:
                done[key] = values[key]
                del waiting[key]
        return tuple(done.items())

    # --- one method per step type: fills in the step, says what its output is ----------------------
    def _let(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.variable, step.type = draft.variable, draft.type
        given = draft.args.get("value")
        if given is None:
            if draft.variable or " " not in draft.short:
                self.report.add(draft.node, "HF0109", "`let` needs a value", help="`let x = 1`")
            return previous
        value = names.words(given) if isinstance(given, Excerpt) else names.shape(given)
        if step.type and value.fn is None and value.constant is not None:
            try:
                value = constant(coerce(step.type, value.constant))
            except Mismatch as mismatch:
                self._at(given, draft).report(self.report, "HF0116", str(mismatch))
        step.args["value"] = value
        return _known(value, step.label) if step.variable == "output" else previous

    def _log(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.args["message"] = self._arg(draft, "message", names)
        level = draft.args.get("level")
        if isinstance(level, Node):
            word = level.value.lower() if isinstance(level.value, str) else ""
            if word not in LEVELS:
                self.report.add(level, "HF0116", f"`{level.value}` is not a level", help=f"one of {', '.join(LEVELS)}")
            step.level = LEVELS.get(word, step.level)
        return previous

    def _sleep(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        value = step.args["duration"] = self._arg(draft, "duration", names)
        if value.fn is None and "duration" in draft.args:
            step.duration = self._duration(self._at(draft.args["duration"], draft), value.constant)
        return previous

    def _fail(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        for key in ("message", "value"):
            if key in draft.args:
                step.args[key] = self._arg(draft, key, names)
        return previous

    def _return(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        given = draft.args.get("value")
        if not isinstance(given, Excerpt):
            step.args["value"] = self._arg(draft, "value", names)
        elif given.text[:1] in ("[", "{"):
            step.args["value"] = names.test(given, lenient=False)
        else:
            step.args["value"] = self._word(given, names)
        return _known(step.args["value"], step.label)

    def _no_op(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        return previous

    def _wait_signal(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        value = step.args["signal"] = self._arg(draft, "signal", names)
        if value.fn is None and not (isinstance(value.constant, str) and value.constant):
            self.report.add(draft.node, "HF0109", "`wait-signal` needs the name of a signal")
        return Previous(is_open=True, step=f"step `{step.label}`")

    def _parallel(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.bodies = len(draft.bodies)
        keys = tuple(body.key for body in draft.bodies)
        step.keys = keys if keys and all(keys) else None
        for number, body in enumerate(draft.bodies):
            self._body(draft.index, number, body, previous)
        return Previous(frozenset(step.keys or ()), False, f"step `{step.label}`")

    def _block(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        common = draft.common
        if not draft.block:
            if not any(problem.path.startswith(step.path) for problem in self.report.errors):
                self.report.add(draft.node, "HF0109", "the step names no block", help="add `block: NAME`")
            return _OPEN
        timeout = None
        if "timeout" in common:
            timeout = self._duration(Excerpt(str(common["timeout"].value), common["timeout"]), common["timeout"].value)
        idempotent = None
        if "idempotent" in common and common["idempotent"].value != "default":
            idempotent = self._yes_or_no(common["idempotent"], "idempotent", False)
        queue = _text(self.report, common.get("queue"), "queue", "", 200)
        if "${" in queue:
            self.report.add(common["queue"], "HF0126", "the queue cannot be an expression")
        retry = self._retry(common["retry"]) if "retry" in common else None
        key = (draft.block, queue, timeout, retry, idempotent)
        step.spec = self.specs.setdefault(key, len(self.specs))
        known = frozenset(BLOCK_FORMS[draft.block][1]) if draft.block in BLOCK_FORMS else frozenset()
        return Previous(known, True, f"step `{step.label}`")

    def _retry(self, node: Node) -> Retry:
        report = self.report
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return Retry(attempts=self._number(node, "attempts", 1, 1_000_000, int))
        if not isinstance(node.value, dict):
            report.add(node, "HF0108", f"`retry` is a number of attempts or a map, not {node.kind}")
            return Retry()
        keys = take_keys(report, node, RETRY_KEYS, "`retry`", "not a key of `retry`")
        made: dict[str, Any] = {"attempts": 3}
        if "attempts" in keys:
            made["attempts"] = self._number(keys["attempts"], "attempts", 1, 1_000_000, int)
        for key in ("delay", "max-delay"):
            if key in keys:
                item = keys[key]
                made[key.replace("-", "_")] = self._duration(Excerpt(str(item.value), item), item.value)
        if "factor" in keys:
            made["factor"] = float(self._number(keys["factor"], "factor", 1, 100, float))
        if "jitter" in keys:
            made["jitter"] = float(self._number(keys["jitter"], "jitter", 0, 1, float))
        return Retry(**made)

    # --- parts -------------------------------------------------------------------------------------
    def _number(self, node: Node, key: str, low: float, high: float, kind: type) -> Any:
        value = node.value
        wanted = (int,) if kind is int else (int, float)
        if isinstance(value, str) and "${" in value:
            self.report.add(node, "HF0126", f"`{key}` cannot be an expression")
        elif isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
            what = "a whole number" if kind is int else "a number"
            self.report.add(node, "HF0116", f"`{key}` is {what} from {low:g} to {high:,}")
        else:
            return value
        return low

    def _duration(self, at: Excerpt, value: Any) -> int:
        if isinstance(value, str) and "${" in value:
            at.report(self.report, "HF0126", "the duration cannot be an expression here")
            return 0
        try:
            return parse_duration(value if isinstance(value, str) else str(value))
        except Mismatch as mismatch:
            at.report(self.report, "HF0114", str(mismatch), help="e.g. `10ms`, `5s`, `3m`, `2h`, `1d`, `1h30m`")
            return 0

    def _arg(self, draft: Draft, key: str, names: Names) -> Value:
        given = draft.args.get(key)
        if isinstance(given, Excerpt):
            return names.template(given.unquoted())
        if isinstance(given, Node):
            return names.shape(given)
        if " " in draft.short and not draft.args:
            return constant(None)  # the short form was already found wanting
        self.report.add(draft.node, "HF0109", f"`{draft.kind.name}` needs `{key}`",
                        help=f"e.g. `{STEP_TYPES[draft.kind.name].example}`")  # fmt: skip
        return constant(None)

    def _at(self, given: Node | Excerpt, draft: Draft) -> Excerpt:
        return given if isinstance(given, Excerpt) else Excerpt(str(given.value), given)


def _known(value: Value, label: str) -> Previous:
    """What is known of an output that the definition itself gives."""
    step = f"step `{label}`"
    if value.fn is not None and value.keys is None:
        return Previous(is_open=True, step=step)
    keys: Iterable[str] = value.constant if isinstance(value.constant, dict) else value.keys or ()
    return Previous(frozenset(keys), False, step)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
