"""What a definition says of entities: which it works upon, what is done for each, how many at a time, what must be so
before it begins. The keys `run-on`, `acquire`, `config` and `gates`."""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.model import Policy

from .arranging import INLINE
from .compile_steps import StepCompiler
from .compiled import GateWanted, Plan, Repeat, Step, Want
from .definition import RETRIED, take_keys
from .entering import ENTITY_PARAMETERS
from .evaluate import Scope
from .names import Asks, Excerpt, Names, Previous, Value
from .nodes import Node
from .parts import micros, yes_of
from .problems import Unreadable, did_you_mean
from .rollout import Share, parse_share
from .selectors import selector_problems
from .short import Draft
from .steps import (
    ACQUIRE_KEYS,
    CONFIG_KEYS,
    ENTITY_LOCK_KEYS,
    GATE_KEYS,
    ROLLOUT_KEYS,
    STRATEGY_KEYS,
)
from .wanting import BadGate, check_gate

_TYPE = re.compile(r"[^\W\d][\w.-]{0,63}")
#: kinds of steps that can be done for each of many entities
_EACH = frozenset(("block", *RETRIED))
_WAYS = "`select`, `ids`, `children`, `parent`, `members`"
#: words of `config` that choose one of several
_WORDS = {
    "rollback": ("auto", "manual", "none"),
    "on-unsafe": ("release", "quarantine"),
    "mode": ("exclusive", "shared"),
    "on-conflict": ("wait", "fail"),
}


class EntityCompiler(StepCompiler):
    def __init__(self) -> None:
        super().__init__()
        #: of the workflow that is being compiled; nothing while steps of a type it uses are
        self.plan: Plan | None = None
        self.main_plan: Plan | None = None
        #: inside of something that is done for each entity as a whole
        self._is_within = False
        self._wants: list[Want] = []
        #: names of types that are used here and whose steps say what they run on
        self.types_upon: frozenset[str] = frozenset()

    # --- steps -------------------------------------------------------------------------------------
    def placed(self, draft: Draft, previous: Previous, is_handler: bool) -> tuple[Previous, Step]:
        """The step as it stands in its body: where it may be done for each of many entities, something around it."""
        run_on = self._run_on(draft.common.get("run-on"))
        if "acquire" in draft.common:
            self._acquire(draft.common["acquire"], self._names(draft), is_added=True)
        if run_on and not self._may_run_on(draft, run_on):
            run_on = ""
        if draft.uses in self.types_upon and not run_on and not self._is_within:
            self.report.add(draft.node, "HF0174", f"`{draft.uses}` is done for each entity, and nothing says for which",
                            help="say `run-on` on this step")  # fmt: skip
        is_each = self.plan is not None and self.plan.policy.works_on_entities and not self._is_within
        if not is_each or not (run_on or draft.kind.name == "block") or run_on in ("global",):
            outside, self.run_on = self.run_on, run_on or self.run_on
            after = self.step(draft, previous, is_handler)
            self.run_on = outside
            return after, self.steps[draft.index]
        around, self.shared.asks = self.shared.asks, Asks()
        self._is_within, self.run_on = True, run_on
        after = self.step(draft, previous, is_handler)
        self._is_within, self.run_on = False, ""
        asks, self.shared.asks = self.shared.asks, around
        around.add(asks)
        inner = self.steps[draft.index]
        inner.run_on = run_on
        if inner.wants_entity:
            asks.entity |= {("config", name) for name in ENTITY_PARAMETERS[draft.block]}
        made = Step(len(self.steps), "entities", inner.label, inner.path, inner.id, asks=asks, node=inner.node)
        made.wraps = inner.index
        # What leads elsewhere, or back here, is about all of them.
        made.next, inner.next = inner.next, None
        made.waypoint, inner.waypoint = inner.waypoint, -1
        if is_handler or id(draft.body) in self.cases:
            made.condition, inner.condition = inner.condition, None
        self.steps.append(made)
        self.bodies[made.index, INLINE] = (inner,)
        return Previous(after.keys, True, after.step or f"step `{inner.label}`"), made

    def _names(self, draft: Draft) -> Names:
        return Names(self.shared, draft.lane, 0, previous=Previous())

    def _may_run_on(self, draft: Draft, run_on: str) -> bool:
        node = draft.common["run-on"]
        if draft.kind.name not in _EACH:
            self.report.add(node, "HF0174", f"a `{draft.kind.name}` step cannot be done for each entity",
                            help="put it into `steps:` of a step that has `run-on`")  # fmt: skip
            return False
        if self._is_within and run_on != "global":
            self.report.add(node, "HF0174", "what is around this step is done for each entity already",
                            help="leave `run-on` out here, or on the step around it")  # fmt: skip
            return False
        # A registered type is done where it is used, and says there for what.
        return self.plan is not None or run_on == "global"

    def _run_on(self, node: Node | None) -> str:
        if node is None:
            return ""
        if not isinstance(node.value, str) or not _TYPE.fullmatch(node.value):
            self.report.add(node, "HF0174", "`run-on` is a type of entities, such as `device`, or `global`")
            return ""
        return node.value

    # --- the workflow ------------------------------------------------------------------------------
    def read_plan(
        self, keys: dict[str, Node], drafts: list[Draft], names: Names, is_foreign: bool = False
    ) -> Plan | None:
        """Nothing where the workflow says nothing of entities, of what becomes of effects and of its beginning. What it
        acquires itself is meant for starts that name no entities; in the function-block notation, for all."""
        on_steps = [draft for draft in drafts if {"run-on", "acquire"} & draft.common.keys()]
        is_upon = any(draft.is_upon for draft in drafts)
        if not keys.keys() & {"run-on", "acquire", "config", "gates"} and not on_steps and not is_upon:
            return None
        plan = Plan(run_on=self._run_on(keys.get("run-on")))
        if "acquire" in keys:
            self._acquire(keys["acquire"], names, is_added=is_foreign)
        fields: dict[str, Any] = {"works_on_entities": is_upon or says_upon(keys, on_steps)}
        if "config" in keys:
            self._config(keys["config"], plan, fields, names)
        plan.policy = Policy(**fields)
        if "gates" in keys:
            self._gates(keys["gates"], plan, names)
        return plan

    def finish_plan(self, plan: Plan) -> None:
        plan.wants = tuple(self._wants)

    def _acquire(self, node: Node, names: Names, is_added: bool) -> None:
        for item in node.value if isinstance(node.value, list) else [node]:
            self._want(item, names, is_added)

    def _want(self, node: Node, names: Names, is_added: bool) -> None:
        report = self.report
        if isinstance(node.value, str):
            self._wants.append(Want("select", self._selector(node, names), is_added=is_added))
            return
        if not isinstance(node.value, dict):
            report.add(node, "HF0176", f"an entry of `acquire` is a selector or a map, not {node.kind}")
            return
        parts = take_keys(report, node, ACQUIRE_KEYS, "`acquire`", "not a key of `acquire`")
        type = self._run_on(parts.pop("type", None))
        if len(parts) != 1:
            report.add(node, "HF0176", f"an entry of `acquire` has one of {_WAYS}")
            return
        ((kind, given),) = parts.items()
        value: Value | None = None
        if kind == "select":
            if not isinstance(given.value, str):
                report.add(given, "HF0176", f"a selector is a text, not {given.kind}")
                return
            value = self._selector(given, names)
        elif kind == "ids":
            value = names.shape(given)
            listed = value.constant if isinstance(value.constant, list) else [value.constant]
            if value.fn is None and not all(isinstance(each, str) and each for each in listed):
                report.add(given, "HF0176", "`ids` are ids of entities")
        elif kind == "children" and isinstance(given.value, str) and given.value not in ("yes", "true"):
            type = self._run_on(given)
        elif not yes_of(report, given, kind):
            return
        self._wants.append(Want(kind, value, type, is_added))

    def _selector(self, node: Node, names: Names) -> Value:
        """As a text: it is read again when the input is known."""
        at = Excerpt(str(node.value), node)
        for code, message, start, end, help in selector_problems(at.text, names.shared.inputs):
            at.report(self.report, code, message, start, end, help=help)
        return Value(at.text)

    # --- config ------------------------------------------------------------------------------------
    def _config(self, node: Node, plan: Plan, fields: dict[str, Any], names: Names) -> None:
        report = self.report
        if not isinstance(node.value, dict):
            report.add(node, "HF0108", f"`config` is a map, not {node.kind}")
            return
        keys = take_keys(report, node, CONFIG_KEYS, "`config`", "not a key of `config`")
        for key in ("rollback", "on-unsafe"):
            if key in keys:
                fields[key.replace("-", "_")] = self._choice(keys[key], key)
        for key, field in (("require-clean", "requires_clean"), ("require-entities", "requires_entities")):
            if key in keys:
                fields[field] = yes_of(report, keys[key], key)
        if "priority" in keys:
            fields["priority"] = self._number(keys["priority"], "priority", -1_000_000, 1_000_000, int)
        if "cancel-grace" in keys:
            fields["grace"] = micros(report, keys["cancel-grace"])
        if "fail-fast" in keys:
            plan.is_fail_fast = yes_of(report, keys["fail-fast"], "fail-fast")
        if "max-failures" in keys:
            plan.tolerance = self._share(keys["max-failures"], 0, "`max-failures`")
        if "concurrency" in keys:
            plan.concurrency = self._concurrency(keys["concurrency"], names)
        strategy = self._below(keys.get("execution-strategy"), STRATEGY_KEYS, "execution-strategy")
        if "parallel" in strategy:
            plan.is_parallel = yes_of(report, strategy["parallel"], "parallel")
        self._lock_of_entities(self._below(keys.get("lock"), ENTITY_LOCK_KEYS, "lock"), fields)
        self._rollout(keys.get("rollout"), plan)
        if not fields["works_on_entities"]:
            idle = ("execution-strategy", "fail-fast", "max-failures", "concurrency", "rollout", "lock",
                    "require-clean", "require-entities")  # fmt: skip
            for key in idle:
                if key in keys:
                    report.add(keys[key], "HF0179", f"`{key}` has no effect: the workflow works on no entities",
                               warning=True, help="say `run-on: device`, or `acquire` some")  # fmt: skip

    def _below(self, node: Node | None, table: Any, key: str) -> dict[str, Node]:
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`{key}` is a map, not {node.kind}")
            return {}
        return take_keys(self.report, node, table, f"`{key}`", f"not a key of `{key}`")

    def _choice(self, node: Node, key: str) -> str:
        words = _WORDS[key]
        value = node.value if isinstance(node.value, str) else str(node.value).lower()
        if value == "no" or node.value is False:
            value = "none"
        if value not in words:
            help = did_you_mean(value, words) or f"one of {', '.join(words)}"
            self.report.add(node, "HF0177", f"`{key}` cannot be `{str(node.value)[:40]}`", help=help)
            return words[0]
        return value

    def _share(self, node: Node, least: int, what: str) -> Share | None:
        value = node.value
        if isinstance(value, str) and "${" in value:
            self.report.add(node, "HF0126", f"{what} cannot be an expression")
            return None
        try:
            return parse_share(value, least, what)
        except Unreadable as error:
            self.report.add(node, "HF0172", error.message, help=error.help)
            return None

    def _lock_of_entities(self, keys: dict[str, Node], fields: dict[str, Any]) -> None:
        if "mode" in keys:
            fields["is_shared"] = self._choice(keys["mode"], "mode") == "shared"
        if "timeout" in keys:
            fields["lock_timeout"] = micros(self.report, keys["timeout"])
        if "on-conflict" in keys:
            fields["on_conflict"] = self._choice(keys["on-conflict"], "on-conflict")

    def _rollout(self, node: Node | None, plan: Plan) -> None:
        keys = self._below(node, ROLLOUT_KEYS, "rollout")
        if node is None or not keys:
            return
        given = keys.get("batches")
        if given is None or given.value == []:
            self.report.add(node, "HF0172", "`rollout` needs `batches`", help='e.g. `batches: [1, "25%"]`')
            return
        found = [
            self._share(item, 1, "a batch") for item in (given.value if isinstance(given.value, list) else [given])
        ]
        plan.batches = tuple(share for share in found if share is not None)
        if "gate" in keys:
            gate = keys["gate"]
            plan.gate = 0 if gate.value == "approval" else micros(self.report, gate)

    # --- gates -------------------------------------------------------------------------------------
    def _gates(self, node: Node, plan: Plan, names: Names) -> None:
        report = self.report
        found: list[GateWanted] = []
        for key, given in self._below(node, GATE_KEYS, "gates").items():
            if key == "deadline":
                plan.deadline = micros(report, given)
                continue
            value = names.shape(given)
            if value.fn is None:
                try:
                    check_gate(key, value.constant)
                except BadGate as bad:
                    report.add(given, "HF0178", str(bad), help=bad.help)
                    continue
            found.append(GateWanted(key, value, given if given.document.text else None))
        plan.gates = tuple(found)

    # --- batches -----------------------------------------------------------------------------------
    def roll_out(self, plan: Plan) -> None:
        """Around all steps of the workflow, the way through them batch by batch."""
        from .reaching import BATCH, batch_count, has_more

        if not plan.batches or not plan.policy.works_on_entities:
            return
        steps = self.bodies[-1, 0]
        made = Step(len(self.steps), "batches", "rollout", "$.config.rollout")
        made.repeat = Repeat(condition=has_more)  # type: ignore[arg-type]
        self.steps.append(made)
        if plan.gate >= 0:
            gate = Step(len(self.steps), "approve" if not plan.gate else "sleep", "gate", "$.config.rollout.gate")
            gate.condition = lambda scope: int(scope.variable(BATCH)) > 1
            gate.duration = plan.gate or -1

            def ask(scope: Scope) -> str:
                return f"go on with batch {scope.variable(BATCH)} of {batch_count(scope.run)}?"  # type: ignore[attr-defined]

            gate.args["message"] = Value(None, ask)
            self.steps.append(gate)
            steps = (gate, *steps)
        self.bodies[made.index, 0] = steps
        self.bodies[-1, 0] = (made,)


def is_each(draft: Draft) -> bool:
    """Whether a step of a workflow that works on entities may be done for each of them."""
    return draft.kind.name == "block" or "run-on" in draft.common


def says_upon(keys: dict[str, Node], drafts: list[Draft]) -> bool:
    """Whether a workflow is about entities: it, or one of its steps, says so."""
    return _is_upon(keys) or any(_is_upon(draft.common) for draft in drafts)


def _is_upon(common: dict[str, Node]) -> bool:
    run_on = common.get("run-on")
    return "acquire" in common or (run_on is not None and run_on.value != "global")
