"""What every step may have: condition, inputs, handlers, `next`, timeouts, waypoints; and parts that many use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from holdfast.core.lanes import FINALLY, HANDLER
from holdfast.core.model import Retry

from .compiled import Again, Owner, Parameter, Repeat, Step
from .conditions import compile_condition
from .definition import NESTING, RETRIED, take_keys
from .evaluate import Scope
from .limits import Backoff, Limit
from .load import Unstorable, scalar
from .names import Excerpt, Names, Previous, Shared, Value, constant
from .nodes import Node, Report
from .parts import excerpt_of, literal_map, micros, plain_of, span, text_of, yes_of
from .problems import did_you_mean
from .short import Body, Draft
from .steps import LOCK_KEYS, REPEAT_KEYS, RETRY_KEYS, STEP_TYPES

OPEN = Previous(is_open=True)
_PLACES = ("start", "end", "exit", "default")
_WAYPOINTS = {"reset": 0, "from here": 1, "from here only": 2}


class CommonCompiler:
    report: Report
    shared: Shared
    main_owner: Owner

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.steps: list[Step] = []
        self.bodies: dict[tuple[int, int], tuple[Step, ...]] = {}
        self.specs: dict[tuple[Any, ...], int] = {}
        #: steps whose body is written in one line with them
        self.inline: set[int] = set()
        self.all_idempotent = False
        #: something in the workflow goes back, so passages are counted
        self.revisits = False
        #: type of the entities that the step at hand, or what is around it, is done for
        self.run_on = ""
        #: bodies of a `switch`
        self.cases: set[int] = set()
        #: what the conditions of cases are about, by their body
        self.subjects: dict[int, Callable[[Scope], Any]] = {}
        #: name of a type → index of the step that stands for it
        self.unit_uses: dict[str, int] = {}
        #: what the types take, and what they have from the beginning
        self.unit_parameters: dict[str, tuple[tuple[Parameter, ...] | None, dict[str, Any]]] = {}

    # --- bodies ------------------------------------------------------------------------------------
    def body(self, scope: int, number: int, body: Body, previous: Previous) -> Previous:
        steps = []
        is_handler = body.is_handler
        for draft in body.steps:
            previous, step = self.placed(draft, previous, is_handler)
            steps.append(step)
        self.bodies[scope, number] = tuple(steps)
        if body.is_inline and number >= 0:
            self.inline.add(scope)
        return previous

    def placed(self, draft: Draft, previous: Previous, is_handler: bool) -> tuple[Previous, Step]:
        """The step, and what stands for it in its body."""
        return self.step(draft, previous, is_handler), self.steps[draft.index]

    def step(self, draft: Draft, previous: Previous, is_handler: bool) -> Previous:
        report, step, common = self.report, self.steps[draft.index], draft.common
        step.id = draft.id
        step.path = draft.node.path
        name = text_of(report, common.get("name"), "name", "", 500)
        step.label = draft.id or name or cut(draft.short or draft.block or draft.uses or draft.kind.name)
        if draft.node.document.text:
            step.node = draft.node
        in_handler = draft.body is not None and draft.body.in_handler
        names = Names(self.shared, draft.lane, draft.index, previous=previous, in_handler=in_handler)
        inner = self._inputs(draft, step, names)
        is_per_target = draft.kind.name in NESTING and ("target" in draft.args or draft.kind.name == "foreach")
        if "condition" in common and not is_per_target:
            subject = (lambda scope: scope.error()) if is_handler else self._case_subject(draft)
            step.condition = compile_condition(common["condition"], inner, subject)
        literal_map(report, common.get("metadata"), "metadata")
        after = getattr(self, f"_{draft.kind.name.replace('-', '_')}")(draft, step, inner, previous)
        assert isinstance(after, Previous)
        self._around(draft, step, inner)
        if "output" in common and step.owner is None:
            final = replace(inner, index=draft.index + 1, previous=after)
            step.output = final.shape(common["output"])
            after = known(step.output, step.label)
        if (step.condition is not None or draft.handlers is not None) and after is not previous:
            is_open = True
            after = Previous(after.keys | previous.keys, is_open, after.step or previous.step)
        return after

    def _case_subject(self, draft: Draft) -> Callable[[Scope], Any] | None:
        """In a case, what the switch is about."""
        return self.subjects.get(id(draft.body))

    def _around(self, draft: Draft, step: Step, names: Names) -> None:
        """What every step may have around its own work."""
        report, common, kind = self.report, draft.common, draft.kind.name
        if "next" in common:
            step.next = self._goal(common["next"], draft, names)
        if draft.handlers is not None:
            if step.owner is not None:
                step.owner.on_error = True
            else:
                step.on_error = True
            self.body(draft.index, HANDLER, draft.handlers, OPEN)
        if draft.cleanup is not None:
            if step.owner is not None:
                step.owner.cleanup = True
            else:
                step.cleanup = True
            self.body(draft.index, FINALLY, draft.cleanup, OPEN)
        if "timeout" in common and step.spec < 0 and kind != "retry":
            if step.owner is not None:
                step.owner.timeout = span(names, common["timeout"])
            else:
                step.timeout = span(names, common["timeout"])
        if "delay" in common:
            step.delay = span(names, common["delay"])
        if "assert" in common:
            step.asserts = self._asserts(common["assert"], names)
        if "repeat" in common:
            step.repeat = self._repeat(common["repeat"], names)
        if "continue-on-error" in common:
            step.continues = yes_of(report, common["continue-on-error"], "continue-on-error")
        if "replayable" in common and step.owner is None and kind != "settings":
            self._waypoint(step, common["replayable"])
        given = common.get("idempotent")
        if given is not None and step.spec < 0 and step.owner is None and given.value != "default":
            step.is_idempotent = yes_of(report, given, "idempotent", True)
            if kind == "fail" and step.is_idempotent:
                report.add(given, "HF0132", "`fail` is never entered again by itself", warning=True)
        if "retry" in common and step.spec < 0 and kind in RETRIED:
            self._retried(draft, step)
        step.is_counted = step.spec >= 0 and (self.revisits or step.repeat is not None)

    # --- parts that many have ------------------------------------------------------------------------
    def span(self, node: Node, names: Names) -> Value:
        return span(names, node)

    def lock(self, owner: Owner, node: Node | None, names: Names) -> None:
        if node is None:
            return
        if isinstance(node.value, dict):
            keys = take_keys(self.report, node, LOCK_KEYS, "`lock`", "not a key of `lock`")
            if "name" not in keys:
                self.report.add(node, "HF0109", "the lock has no `name`")
                return
            if "entity" in keys:
                owner.lock_entity = names.shape(keys["entity"])
            if "timeout" in keys:
                owner.lock_timeout = micros(self.report, keys["timeout"])
            node = keys["name"]
        if not isinstance(node.value, str) or not node.value.strip():
            self.report.add(node, "HF0108", f"a lock has a name, not {node.kind}")
            return
        owner.lock = names.shape(node)

    def replayable(self, owner: Owner, node: Node | None, step: Step | None) -> None:
        """Words of a workflow; on a nested one also those of a step, which mean the workflow around."""
        if node is None:
            return
        words = _words(node.value)
        if step is not None and words in _WAYPOINTS:
            step.waypoint = _WAYPOINTS[words]
            return
        if words in ("enabled", "yes", "true", "automatically", "automatically from start", "from start",
                     "from start automatically"):  # fmt: skip
            owner.from_start = "from start" in words
            owner.automatically = "automatically" in words
        elif words in ("disabled", "no", "false"):
            owner.is_replayable = False
            owner.is_final = True
        else:
            help = "`from start`, `automatically`, `enabled` or `disabled`"
            if words in _WAYPOINTS:
                help = f"`{words}` belongs on a step; {help}"
            self.report.add(node, "HF0116", f"`{node.value}` does not say how a workflow can be replayed", help=help)

    def _waypoint(self, step: Step, given: Node | Excerpt) -> None:
        words = _words(plain_of(given))
        if words in _WAYPOINTS:
            step.waypoint = _WAYPOINTS[words]
            return
        excerpt_of(given).report(
            self.report, "HF0116", f"`{plain_of(given)}` does not say what a step means for replaying",
            help="`from here`, `from here only` or `reset`",
        )  # fmt: skip

    def _goal(self, given: Node | Excerpt, draft: Draft, names: Names) -> Value:
        """Where to go: a step that can be seen from here, or a place with a name."""
        at = excerpt_of(given).unquoted()
        if "${" in at.text:
            return names.template(at)
        word = at.text.strip()
        if word.lower() not in _PLACES and not (draft.body is not None and draft.body.has(word)):
            if word in self.shared.ids:
                help = "it is inside of another lane or block; only steps of this one and of those around it can be"
            else:
                help = did_you_mean(word, (*self.shared.ids, *_PLACES))
            at.report(self.report, "HF0123", f"there is no step `{word}` to go to from here", help=help)
        elif word.lower() == "exit" and not names.in_handler:
            at.report(self.report, "HF0123", "`exit` leaves an error handler, and this is none")
        return constant(word)

    def _asserts(self, node: Node, names: Names) -> tuple[tuple[Callable[[Scope], bool], str], ...]:
        made = []
        for item in node.value if isinstance(node.value, list) else [node]:
            check = compile_condition(item, names)
            if check is not None:
                text = item.value if isinstance(item.value, str) else str(item.plain())
                made.append((check, cut(text)))
        return tuple(made)

    def _repeat(self, node: Node, names: Names) -> Repeat:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return Repeat(self._number(node, "repeat", 1, 1_000_000, int))
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`repeat` is a number or a map, not {node.kind}")
            return Repeat(1)
        keys = take_keys(self.report, node, REPEAT_KEYS, "`repeat`", "not a key of `repeat`")
        times = self._number(keys["times"], "times", 1, 1_000_000, int) if "times" in keys else 0
        delay = micros(self.report, keys["delay"]) if "delay" in keys else 0
        holds = compile_condition(keys["while"], names) if "while" in keys else None
        enough = compile_condition(keys["until"], names) if "until" in keys else None
        if not keys.keys() & {"times", "while", "until"}:
            self.report.add(node, "HF0109", "`repeat` never ends", help="add `times`, `while` or `until`")
        condition = holds
        if enough is not None:
            stop, go = enough, holds
            condition = lambda scope: not stop(scope) and (go is None or go(scope))  # noqa: E731
        return Repeat(times, delay, condition)

    def _retried(self, draft: Draft, step: Step) -> None:
        """`retry` on a step with steps inside: as if its handler were the step `retry`."""
        node = draft.common["retry"]
        if draft.handlers is not None:
            self.report.add(node, "HF0115", "`retry` and `on-error` both say what to do when it fails",
                            help="write the `retry` step in `on-error`")  # fmt: skip
            return
        plan = self._retry_plan(node)
        backoff = Backoff((plan.delay,), factor=plan.factor, jitter=plan.jitter, max=plan.max_delay)
        made = Step(len(self.steps), "retry", f"retry of {step.label}", step.path)
        made.again = Again(limits=(Limit(plan.attempts - 1),), backoff=backoff)
        self.steps.append(made)
        self.bodies[draft.index, HANDLER] = (made,)
        if step.owner is not None:
            step.owner.on_error = True
        else:
            step.on_error = True

    def _inputs(self, draft: Draft, step: Step, names: Names) -> Names:
        """The step's input, in an order in which each part can be evaluated."""
        report = self.report
        given: dict[str, Node | Excerpt] = dict(draft.pairs)
        node = draft.common.get("input")
        if node is None and draft.kind.name == "invoke":
            args = draft.args.pop("args", None)
            node = args if isinstance(args, Node) else None
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
        return micros(self.report, Excerpt(value if isinstance(value, str) else str(value), at.node, at.offset))

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

    def _at(self, given: Node | Excerpt) -> Excerpt:
        return excerpt_of(given)

    def _retry_plan(self, node: Node) -> Retry:
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
                made[key.replace("-", "_")] = micros(report, keys[key])
        if "factor" in keys:
            made["factor"] = float(self._number(keys["factor"], "factor", 1, 100, float))
        if "jitter" in keys:
            made["jitter"] = float(self._number(keys["jitter"], "jitter", 0, 1, float))
        return Retry(**made)


def _words(value: Any) -> str:
    """`from_here`, `From here`: the words alone."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, str) else ""
    return " ".join("".join(c if c.isalpha() else " " for c in text).lower().split())


def known(value: Value, label: str) -> Previous:
    """What is known of an output that the definition itself gives."""
    step = f"step `{label}`"
    if value.fn is not None and value.keys is None:
        return Previous(is_open=True, step=step)
    keys: Iterable[str] = value.constant if isinstance(value.constant, dict) else value.keys or ()
    return Previous(frozenset(keys), False, step)


def cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
