"""From drafts to a compiled workflow: the second pass, in which every expression is read and checked.

It also gives steps their indices and jobs their specifications, both by their order in the definition alone,
so that the same definition is always numbered alike. Registered types that a workflow uses are compiled with it,
once each, behind its own steps.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.lanes import FINALLY, HANDLER

from .compile_common import OPEN
from .compile_entities import EntityCompiler, is_each, says_upon
from .compiled import Owner, Parameter, Spec, Step, StepUse, Workflow
from .conditions import compile_condition, style_free
from .definition import Reader, take_keys
from .foreign import is_foreign, translate
from .inputs import InputCompiler
from .load import load_data
from .names import Excerpt, LaneNames, Names, Previous, Shared
from .nodes import Document, Node, Report
from .parts import literal_map, retention_of, text_of
from .short import Body, Draft
from .shorthand import BadTemplate, compile_template
from .steps import USE, WORKFLOW_KEYS

#: registered types within each other
MAX_TYPES = 200


def compile_document(document: Document, library: Mapping[str, Any] = {}) -> tuple[Workflow, Report]:
    """Raises `InvalidDefinition` with every problem; the report that comes back holds warnings."""
    workflow, report = read_document(document, library)
    report.check()
    return workflow, report


def read_document(document: Document, library: Mapping[str, Any] = {}) -> tuple[Workflow, Report]:
    """As far as it can be understood, with everything that is wrong; never to be run before `check`."""
    report = Report(document)
    compiler = Compiler()
    unit = compiler.read(document, report, library)
    if unit is None:
        report.check()
        raise AssertionError("unreachable")
    return compiler.workflow(unit), report


@dataclass(slots=True, eq=False)
class Unit:
    """One document: the workflow itself, or a registered type it uses."""

    report: Report
    keys: dict[str, Node]
    reader: Reader
    lane: LaneNames
    body: Body
    parameters: tuple[Parameter, ...] | None
    defaults: dict[str, Any]
    library: Mapping[str, Any]
    #: of the step that stands for it; -1 for the workflow itself
    index: int = -1
    handlers: Body | None = None
    cleanup: Body | None = None
    #: by name
    used: dict[str, Unit] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    #: in the function-block notation
    is_foreign: bool = False


class Compiler(InputCompiler, EntityCompiler):
    def __init__(self) -> None:
        super().__init__()
        self.units: list[Unit] = []
        #: types that were read, by their document
        self.known: dict[Any, Unit] = {}
        self.uses: dict[int, StepUse] = {}

    # --- reading -----------------------------------------------------------------------------------
    def read(self, document: Document, report: Report, library: Mapping[str, Any], known_as: Any = None) -> Unit | None:
        """With `known_as`, it is a type, and known by that to whatever it uses itself."""
        root = document.root
        if is_foreign(root):
            root = translate(document, report, library, is_used=known_as is not None)
        if isinstance(root.value, list):
            keys = {"steps": root}
        elif isinstance(root.value, dict):
            keys = take_keys(report, root, WORKFLOW_KEYS, "the workflow", "not a workflow key")
            if "inputs" in keys and sum(style_free(key) in ("inputs", "parameters") for key in root.value) > 1:
                report.add(root, "HF0115", "`inputs` and `parameters` are the same; keep one", key="parameters")
        else:
            report.add(root, "HF0117", f"a workflow is a map or a list of steps, not {root.kind}")
            return None
        if "steps" not in keys and "output" not in keys:
            report.add(root, "HF0109", "the workflow has no `steps`", help="add `steps:` with a list of steps")
        if "uses" in keys and not isinstance(keys["uses"].value, dict):
            report.add(keys["uses"], "HF0108", f"`uses` is a map of name → definition, not {keys['uses'].kind}")
        elif "uses" in keys:
            library = ChainMap(keys["uses"].value, library)  # type: ignore[arg-type]
        self.report = report
        parameters = self._parameters(keys.get("inputs"))
        defaults = literal_map(report, keys.get("input"), "input")
        for name, item in keys["input"].value.items() if defaults else ():
            if "${" in str(item.plain()):
                report.add(item, "HF0126", f"the input `{name}` cannot be an expression")
        if parameters is not None:
            declared = {parameter.name for parameter in parameters}
            for name in defaults:
                if name not in declared:
                    report.add(keys["input"], "HF0150", f"the workflow declares no input `{name}`", key=name)
        reader = Reader(report, self.drafts, Forms(library))
        lane = LaneNames()
        body = Body([], lane)
        unit = Unit(report, keys, reader, lane, body, parameters, defaults, library)
        unit.is_foreign = root is not document.root
        unit.first = len(self.drafts)
        if known_as is not None:
            self.known[known_as] = unit
            draft = Draft(root, len(self.drafts), USE, lane)
            self.drafts.append(draft)
            unit.index = draft.index
        self.units.append(unit)
        if "steps" in keys:
            reader.body(keys["steps"], lane, 0, body)
            if isinstance(keys["steps"].value, list) and not keys["steps"].value:
                report.add(keys["steps"], "HF0109", "the workflow has no steps")
        reader.current = body
        if "on-error" in keys:
            unit.handlers = reader.some(keys["on-error"], lane, 1, Body([], lane, is_handler=True))
        reader.current = None  # back into the steps would lead to `finally` again, without an end
        if "finally" in keys:
            unit.cleanup = reader.some(keys["finally"], lane, 1, Body([], lane))
        unit.last = len(self.drafts)
        for draft in self.drafts[unit.first : unit.last]:
            self._find_use(unit, draft)
        return unit

    def _find_use(self, unit: Unit, draft: Draft) -> None:
        """The type a step uses is read the first time somebody uses it."""
        if draft.kind.name == "invoke":
            draft.uses = self._invoked(unit, draft)
        name = draft.uses
        if not name or name in unit.used:
            return
        found = unit.library[name]
        data = found.plain() if isinstance(found, Node) else None
        key = repr(data) if data is not None else id(found)
        known = self.known.get(key)
        if known is None:
            if len(self.known) >= MAX_TYPES:
                unit.report.add(draft.node, "HF0107", f"more than {MAX_TYPES} step types are used")
                return
            document = load_data(data, f"step type {name}") if data is not None else found
            report = Report(document)
            # What a type uses is what it was published with, or what comes with it in the same files.
            library = {} if data is not None else unit.library
            known = self.read(document, report, library, key)
            self.report = unit.report
            if known is None:
                unit.report.add(draft.node, "HF0110", f"the step type `{name}` is not a workflow")
                return
            if report.errors:
                first = report.errors[0]
                unit.report.add(draft.node, "HF0110", f"the step type `{name}` has a problem: {first.message}")
        unit.used[name] = known

    def _invoked(self, unit: Unit, draft: Draft) -> str:
        given = draft.args.get("workflow")
        text = given.text if isinstance(given, Excerpt) else given.value if isinstance(given, Node) else ""
        at = given if isinstance(given, Excerpt) else Excerpt(str(text), given or draft.node)
        if not isinstance(text, str) or not text:
            unit.report.add(draft.node, "HF0109", "`invoke` needs the name of a workflow")
        elif "${" in text:
            at.report(unit.report, "HF0126", "the workflow's name cannot be an expression",
                      help="what is invoked is pinned when this workflow is published; use `switch`")  # fmt: skip
        elif text not in unit.library:
            at.report(unit.report, "HF0110", f"there is no workflow `{text}`", label="not published",
                      help="publish it first, or in the same file")  # fmt: skip
        else:
            return text
        return ""

    # --- compiling ---------------------------------------------------------------------------------
    def workflow(self, main: Unit) -> Workflow:
        self._circles(main, [], set())
        self.steps = [Step(draft.index, draft.kind.name, "", "") for draft in self.drafts]
        self.revisits = any(
            draft.kind.name in ("goto", "retry") or {"next", "repeat", "retry"} & draft.common.keys()
            for draft in self.drafts
        )
        # Who is resumed after a cancel passes through `finally` once more.
        bodies = [draft.cleanup for draft in self.drafts] + [unit.cleanup for unit in self.units]
        self.revisits = self.revisits or any(body is not None for body in bodies)
        owners = {}
        for unit in self.units:
            owners[unit.index] = self._unit(unit)
        self._finish()
        keys, report = main.keys, main.report
        self.report = report
        labels = literal_map(report, keys.get("labels"), "labels")
        for key, value in labels.items():
            if not isinstance(value, (str, int)) or isinstance(value, bool):
                report.add(keys["labels"], "HF0108", f"the label `{key}` is a text", key=key)
        shorthand = text_of(report, keys.get("shorthand"), "shorthand", "", 1_000)
        if shorthand:
            try:
                compile_template(shorthand)
            except BadTemplate as bad:
                report.add(keys["shorthand"], "HF0111", f"the template cannot be read: {bad}")
        owner = owners[-1]
        retention = retention_of(report, keys.get("retention"), has_lock=owner.lock is not None)
        name = keys.get("name") or keys.get("id")
        return Workflow(
            name=text_of(report, name, "name", "workflow", 128),
            description=text_of(report, keys.get("description"), "description", ""),
            parameters=main.parameters,
            defaults=main.defaults,
            steps=tuple(self.steps),
            bodies=self.bodies,
            specs=tuple(Spec(*key) for key in self.specs),
            labels={key: str(value) for key, value in labels.items()},
            metadata=literal_map(report, keys.get("metadata"), "metadata"),
            owner=owner,
            retention=retention,
            shorthand=shorthand,
            uses=tuple(main.used),
            places={
                step.index: (scope, body, position)
                for (scope, body), steps in self.bodies.items()
                for position, step in enumerate(steps)
            },
            positions={
                key: {step.id: position for position, step in enumerate(steps) if step.id}
                for key, steps in self.bodies.items()
            },
            cleans_up=any(step.cleanup for step in self.steps) or any(each.cleanup for each in self._owners()),
            types=self.uses,
            inline=frozenset(self.inline),
            plan=self.main_plan,
        )

    def _owners(self) -> list[Owner]:
        return [step.owner for step in self.steps if step.owner is not None] + [self.main_owner]

    def _circles(self, unit: Unit, around: list[tuple[str, Unit]], done: set[int]) -> None:
        for name, used in unit.used.items():
            at = next((at for at, (_, other) in enumerate(around) if other is used), -1)
            if at >= 0:
                node = next(draft.node for draft in self.drafts if draft.uses == name)
                way = " → ".join([*(each for each, _ in around[at:]), name])
                self.units[0].report.add(node, "HF0137", f"step types use each other in a circle: {way}")
                return
            # However many ways lead to a type, what it uses is looked at once.
            if id(used) not in done:
                self._circles(used, [*around, (name, used)], done)
                done.add(id(used))

    def _unit(self, unit: Unit) -> Owner:
        self.report = report = unit.report
        keys = unit.keys
        known = None
        if unit.parameters is not None or unit.defaults:
            known = frozenset((*(parameter.name for parameter in unit.parameters or ()), *unit.defaults))
        if unit.index >= 0:
            known = known or frozenset()
        lanes = {id(draft.lane): draft.lane for draft in self.drafts[unit.first : unit.last]}
        names = (*(known or ()), *(name for lane in lanes.values() for name in lane.variables))
        dashed = frozenset(name for name in names if "-" in name)
        self.shared = Shared(report, known, dashed, frozenset(unit.reader.ids))
        self.unit_uses = {name: used.index for name, used in unit.used.items()}
        self.types_upon = frozenset(
            name for name, used in unit.used.items() if says_upon(used.keys, self.drafts[used.first : used.last])
        )
        self.unit_parameters = {name: (used.parameters, used.defaults) for name, used in unit.used.items()}
        self.all_idempotent = self._says_all(keys.get("idempotent"))
        begin = Names(self.shared, unit.lane, unit.first, previous=Previous())
        owner = Owner()
        self.plan = None
        if unit.index < 0:
            self.main_owner = owner
            self.plan = plan = self.read_plan(keys, self.drafts[unit.first : unit.last], begin, unit.is_foreign)
            if plan is not None and plan.policy.works_on_entities:
                unit.lane.variables.add("entities")
                self.shared.upon = frozenset(
                    draft.id for draft in self.drafts[unit.first : unit.last] if draft.id and is_each(draft)
                )
        else:
            header = self.steps[unit.index]
            header.owner = owner
            header.label = text_of(report, keys.get("name") or keys.get("id"), "name", "type", 128)
            self.uses[unit.index] = StepUse(header.label, unit.parameters, unit.defaults)
        if "condition" in keys:
            owner.condition = compile_condition(keys["condition"], begin)
        self.lock(owner, keys.get("lock"), begin)
        if "timeout" in keys:
            owner.timeout = self.span(keys["timeout"], begin)
        self.replayable(owner, keys.get("replayable"), None)
        previous = self.body(unit.index, 0, unit.body, Previous())
        if "output" in keys:
            owner.output = Names(self.shared, unit.lane, unit.last, previous=previous).shape(keys["output"])
        if unit.handlers is not None:
            owner.on_error = True
            self.body(unit.index, HANDLER, unit.handlers, OPEN)
        if unit.cleanup is not None:
            owner.cleanup = True
            self.body(unit.index, FINALLY, unit.cleanup, OPEN)
        for step in self.steps[unit.first : unit.last]:
            step.keep = step.id if step.id in self.shared.referenced else ""
        for step in self.steps:
            if step.wraps >= 0 and unit.first <= step.wraps < unit.last:
                step.keep = self.steps[step.wraps].keep
        if self.plan is not None:
            self.main_plan = self.plan
            self.finish_plan(self.plan)
            self.roll_out(self.plan)
        return owner

    def _says_all(self, node: Node | None) -> bool:
        if node is None:
            return False
        if isinstance(node.value, str) and node.value.lower() in ("all", "default"):
            return node.value.lower() == "all"
        self.report.add(node, "HF0116", "`idempotent` of a workflow is `all`")
        return False

    def _finish(self) -> None:
        for step in self.steps:
            step.has_before = (
                step.is_counted
                or step.waypoint >= 0
                or step.delay is not None
                or bool(step.asserts)
                or step.timeout is not None
            )
            step.has_after = (
                step.next is not None
                or step.repeat is not None
                or step.cleanup
                or step.timeout is not None
                or step.kind == "load"
            )
            is_evaluated = step.condition is not None or (step.fixed is None and bool(step.inputs))
            is_block = step.kind == "block" and step.spec >= 0
            step.is_plain = is_block and not is_evaluated and not step.has_before and not step.wants_entity


class Forms(Mapping[str, str]):
    """Short forms of the types in a library, which may be far away: it is asked only for words that are no steps."""

    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library

    def __contains__(self, name: object) -> bool:
        return name in self._library

    def __getitem__(self, name: str) -> str:
        return _shorthand(self._library[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._library)

    def __len__(self) -> int:
        return len(self._library)


def _shorthand(found: Any) -> str:
    root = found if isinstance(found, Node) else found.root
    if not isinstance(root.value, dict):
        return ""
    node = next((item for key, item in root.value.items() if style_free(key) == "shorthand"), None)
    return node.value if node is not None and isinstance(node.value, str) else ""
