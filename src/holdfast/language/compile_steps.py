"""One method per step type: it fills in the step and says what is known of its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .compile_common import OPEN, CommonCompiler, known
from .compiled import Again, Owner, Step
from .conditions import compile_condition, compile_test
from .evaluate import Scope, settle
from .expressions import ExpressionSyntax
from .limits import Limit, parse_backoff, parse_concurrency, parse_limit
from .names import Excerpt, Names, Previous, Value, constant
from .nodes import Node
from .parts import check_retention, excerpt_of, micros, plain_of, readable, text_of, yes_of
from .places import Place
from .predicates import equal
from .problems import did_you_mean
from .short import Draft
from .steps import BLOCK_FORMS, LEVELS
from .templates import words
from .transforms import list_of_words, parse_transforms
from .values import Mismatch, coerce


class StepCompiler(CommonCompiler):
    # --- variables -----------------------------------------------------------------------------------
    def _let(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.place, step.type = draft.place, draft.type
        self._paths(draft, names)
        given = draft.args.get("value")
        if given is None:
            if draft.place is not None or " " not in draft.short:
                self.report.add(draft.node, "HF0109", "`let` needs a value", help="`let x = 1`")
            return previous
        if draft.place is None and not self.report.errors:
            self.report.add(draft.node, "HF0109", "`let` needs a variable", help="`let x = 1`")
        errors = plain_of(draft.args["interpolation-errors"]) if "interpolation-errors" in draft.args else "fail"
        if errors not in ("fail", "ignore", "blank"):
            self._at(draft.args["interpolation-errors"]).report(
                self.report, "HF0116", f"`{errors}` is not a way to treat absent names", help="fail, ignore or blank"
            )
        names = replace(names, absent=str(errors))
        value = names.words(given) if isinstance(given, Excerpt) else names.shape(given)
        if step.type and value.fn is None and value.constant is not None:
            try:
                value = constant(coerce(step.type, value.constant))
            except Mismatch as mismatch:
                self._at(given).report(self.report, "HF0116", str(mismatch))
        step.args["value"] = value
        is_output = step.place is not None and step.place.name == "output"
        return known(value, step.label) if is_output else previous

    def _paths(self, draft: Draft, names: Names) -> None:
        """Variables in brackets of a place must be known."""
        place = draft.place
        if isinstance(place, Place):
            for part in place.variables:
                is_known = part.name in (self.shared.inputs or ()) or part.name in names.local
                if not is_known and not names.lane.has_variable(part.name) and not names.previous.is_open:
                    self.report.add(draft.node, "HF0121", f"`{part.name}` is defined nowhere",
                                    help=f"quote it if it is a key: `['{part.name}']`")  # fmt: skip

    def _clear_variable(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.place = draft.place
        if draft.place is None and not self.report.errors:
            self.report.add(draft.node, "HF0109", "`clear-variable` needs a variable")
        return previous

    def _transform(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.place, step.type = draft.place, draft.type
        if "value" in draft.args:
            given = draft.args["value"]
            step.args["value"] = self._piped(draft, given, names) if isinstance(given, Excerpt) else names.shape(given)
        elif draft.place is None:
            if not self.report.errors:
                self.report.add(draft.node, "HF0109", "`transform` needs a value or a variable",
                                help="`transform variable x | …` or `transform value ${x} | …`")  # fmt: skip
            return previous
        if "transform" in draft.args:
            step.filters = tuple(parse_transforms(draft.args["transform"], names))
        if step.place is not None:
            return previous
        return Previous(is_open=True, step=f"step `{step.label}`")

    def _piped(self, draft: Draft, given: Excerpt, names: Names) -> Value:
        """What the filters begin with. Before `merge`, words that stand together are as many values."""
        if given.text[:1] in ("[", "{"):
            return names.literal(given)
        filters = draft.args.get("transform")
        first = str(plain_of(filters)).split() if filters is not None else []
        try:
            is_many = first[:1] == ["merge"] and len(words(given.text, self.shared.dashed)) > 1
        except ExpressionSyntax:
            is_many = False  # reported where the text is read as one value
        return list_of_words(given, names) if is_many else self._word(given, names)

    def _load(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        """A block reads it; its result goes into the variable."""
        step.place, step.type = draft.place, draft.type
        if draft.place is None or "url" not in draft.args:
            self.report.add(draft.node, "HF0109", "`load` needs a variable and a file or URL", help="`load x = FILE`")
            return previous
        values = {"url": self._arg(draft, "url", names)}
        if "charset" in draft.args:
            values["charset"] = self._arg(draft, "charset", names)
        step.inputs = (*values.items(), *step.inputs)
        step.by_name = dict(step.inputs)
        step.fixed = None
        self._specify(draft, step, "load")
        return previous

    def _wait(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.place = draft.place
        given = draft.args.get("value")
        if given is None:
            self.report.add(draft.node, "HF0109", "`wait` needs a value", help="`wait ${entity.sensor.x}`")
            return previous
        at = excerpt_of(given).unquoted()
        step.args["value"] = names.template(at, keep_absent=True)
        if step.args["value"].fn is None:
            at.report(self.report, "HF0116", "a fixed value need not be waited for", help="`wait ${entity.sensor.x}`")
        return previous if step.place is not None else Previous(is_open=True, step=f"step `{step.label}`")

    # --- words ---------------------------------------------------------------------------------------
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
            step.duration = self._duration(self._at(draft.args["duration"]), value.constant)
        return previous

    def _fail(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        for key in ("message", "value"):
            if key in draft.args:
                step.args[key] = self._arg(draft, key, names)
        if draft.flags.get("rethrow") or "rethrow" in draft.args:
            wanted = draft.flags.get("rethrow") or yes_of(self.report, draft.args["rethrow"], "rethrow")
            step.args["rethrow"] = constant(bool(wanted))
            if wanted and not names.in_handler:
                self.report.add(draft.node, "HF0115", "there is no error to throw again outside of `on-error`")
        step.is_idempotent = False
        return previous

    def _return(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        given = draft.args.get("value")
        if not isinstance(given, Excerpt):
            step.args["value"] = self._arg(draft, "value", names)
        elif given.text[:1] in ("[", "{"):
            step.args["value"] = names.literal(given)
        else:
            step.args["value"] = self._word(given, names)
        return known(step.args["value"], step.label)

    def _no_op(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        return previous

    def _label(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        if not draft.id and not self.report.errors:
            self.report.add(draft.node, "HF0109", "`label` needs a name", help="`label again`")
        return previous

    # --- elsewhere -----------------------------------------------------------------------------------
    def _goto(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        given = draft.args.get("next")
        if given is None:
            self.report.add(draft.node, "HF0109", "`goto` needs a place to go to", help="`goto STEP`")
            return previous
        step.args["next"] = self._goal(given, draft, names)
        return previous

    def _if(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        target = draft.args.get("target")
        equals = draft.args.get("equals")
        if target is None and "condition" in draft.common:
            step.each = _always  # `condition` alone says when
        elif target is None:
            self.report.add(draft.node, "HF0109", "`if` needs something to test", help="`if ${x} == 1 then …`")
        elif equals is not None:
            left = self._word(target, names) if isinstance(target, Excerpt) else names.shape(target)
            wanted = self._word(equals, names) if isinstance(equals, Excerpt) else names.shape(equals)
            step.each = _equal(left, wanted)
        else:
            node = target if isinstance(target, Node) else _as_node(target)
            if isinstance(node.value, str) and "${" not in node.value and node.value.lower() not in ("true", "false"):
                excerpt_of(target).report(self.report, "HF0127", "a plain word is always true",
                                          help=f"write `${{{node.value}}}`")  # fmt: skip
            step.each = compile_condition(node, names) or _always
        if not draft.bodies:
            self.report.add(draft.node, "HF0109", "`if` has no steps", help="add `then STEP` or `steps:`")
        for number, body in enumerate(draft.bodies):
            self.body(draft.index, number, body, previous)
        return Previous(is_open=True, step=f"step `{step.label}`")

    def _switch(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.bodies = len(draft.bodies)
        if "value" in draft.args:
            given = draft.args["value"]
            value = self._word(given, names) if isinstance(given, Excerpt) else names.shape(given, lenient=True)
            step.args["value"] = value
            for body in draft.bodies:
                self.subjects[id(body)] = value.get
        self.cases |= {id(body) for body in draft.bodies}
        for number, body in enumerate(draft.bodies):
            self.body(draft.index, number, body, previous)
            self.subjects.pop(id(body), None)
        return Previous(is_open=True, step=f"step `{step.label}`")

    def _subworkflow(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        draft.lane.variables |= {name for name, _ in step.inputs}
        if not draft.bodies or not draft.bodies[0].steps:
            if not self.report.errors:
                self.report.add(draft.node, "HF0109", "there are no steps in it")
            return previous
        return self.body(draft.index, 0, draft.bodies[0], previous)

    # --- nested workflows ----------------------------------------------------------------------------
    def _workflow(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        if not draft.bodies:
            return self._settings(draft, step, names, previous)
        if "target" in draft.args:
            step.kind = "each"
        return self._nested(draft, step, names, previous)

    def _foreach(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        if not draft.bodies:
            self.report.add(draft.node, "HF0109", "`foreach` has no steps", help="add `do STEP` or `steps:`")
            return previous
        if "target" not in draft.args:
            self.report.add(draft.node, "HF0109", "`foreach` has no target", help="`foreach x in ${list}`")
        return self._nested(draft, step, names, previous)

    def _settings(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        """`workflow replayable …`, `workflow retention …`."""
        step.kind = "settings"
        replayable = draft.args.get("replayable") or draft.common.get("replayable")
        if replayable is not None:
            self._waypoint(step, replayable)
        given = draft.args.get("retention")
        if given is not None:
            at = excerpt_of(given).unquoted()
            check_retention(self.report, at)
            step.retention = names.template(at)
        if replayable is None and given is None:
            self.report.add(draft.node, "HF0109", "the nested workflow has no `steps`")
        return previous

    def _nested(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        report, args = self.report, draft.args
        owner = step.owner = Owner()
        body = draft.bodies[0]
        inside = replace(names, lane=body.lane)
        lock = args.get("lock")
        if isinstance(lock, Node):
            self.lock(owner, lock, inside)
        replayable = draft.common.get("replayable") or args.get("replayable")
        if isinstance(replayable, Node):
            self.replayable(owner, replayable, step)
        if "retention" in args:
            self._at(args["retention"]).report(
                report, "HF0132", "a nested workflow is kept with its execution", warning=True,
                help="set `retention` on the workflow itself, or use the step `workflow retention …`",
            )  # fmt: skip
        before, idempotent = self.all_idempotent, draft.common.get("idempotent")
        if idempotent is not None:
            word = str(idempotent.value).lower()
            if word == "all":
                self.all_idempotent = True
            elif word not in ("default", "yes", "true"):
                owner.is_final = not yes_of(report, idempotent, "idempotent", True)
        if "target" in args:
            self._targets(draft, step, names, owner)
        inner = self.body(draft.index, 0, body, previous)
        self.all_idempotent = before
        if "output" in draft.common:
            owner.output = replace(inside, index=len(self.steps), previous=inner, local=frozenset()).shape(
                draft.common["output"]
            )
        if step.reducing is not None:
            draft.lane.variables |= {name for name, _ in step.reducing}
            return Previous(frozenset(name for name, _ in step.reducing), False, f"step `{step.label}`")
        if step.kind == "workflow" and owner.output is None:
            return Previous(inner.keys, True, f"step `{step.label}`")
        return Previous(is_open=step.kind == "workflow", step=f"step `{step.label}`")

    def _targets(self, draft: Draft, step: Step, names: Names, owner: Owner) -> None:
        report, args = self.report, draft.args
        target = args["target"]
        if isinstance(target, Excerpt) and target.text[:1] == "[":
            step.args["target"] = names.literal(target)
        else:
            step.args["target"] = self._arg(draft, "target", names)
        value = step.args["target"]
        if value.fn is None and isinstance(value.constant, str) and ".." not in value.constant:
            self._at(target).report(report, "HF0116", f"`{value.constant}` is neither a list nor a range",
                                    help="`1..10`, a list, or `${…}`")  # fmt: skip
        step.loop = draft.loop
        index = args.get("target-index-var-name")
        step.loop_index = index.value if isinstance(index, Node) and isinstance(index.value, str) else "target_index"
        if "condition" in draft.common:
            seen = replace(names, local=names.local | {*draft.loop, "target", step.loop_index})
            step.each = compile_condition(draft.common["condition"], seen, lambda scope: scope.lookup("target"))
        if "concurrency" in args:
            step.concurrency = self._concurrency(args["concurrency"], names)
        reducing = args.get("reducing")
        if isinstance(reducing, Node):
            if not isinstance(reducing.value, dict) or not reducing.value:
                report.add(reducing, "HF0108", f"`reducing` is a map of variables, not {reducing.kind}")
                return
            step.reducing = tuple((key, names.shape(item)) for key, item in reducing.value.items())
            if step.concurrency is not None and plain_of(args["concurrency"]) not in (1, "1"):
                self._at(args["concurrency"]).report(
                    report, "HF0115", "`reducing` passes values from run to run, so there can be only one at a time"
                )

    def _concurrency(self, given: Node | Excerpt, names: Names) -> Callable[[Scope, int], int]:
        at = excerpt_of(given)
        if "${" in at.text:
            value = names.template(at.unquoted())

            def resolve(scope: Scope, count: int) -> int:
                return parse_concurrency(value.get(scope)).resolve(count)

            return resolve
        found = readable(self.report, given, parse_concurrency, None, "`concurrency`")
        if found is None:
            return lambda scope, count: 1
        if found.fixed is not None and found.fixed < 1:
            at.report(self.report, "HF0116", "`concurrency` is at least 1")
        return lambda scope, count: found.resolve(count)

    def _use(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.uses = self.unit_uses.get(draft.uses, -1)
        self._arguments(draft, step)
        for key, value in draft.flags.items():
            step.inputs = (*step.inputs, (key, constant(value)))
        for key in ("entity",):
            if key in draft.args:
                step.args[key] = self._arg(draft, key, names)
        return Previous(is_open=True, step=f"step `{step.label}`")

    _invoke = _use

    def _arguments(self, draft: Draft, step: Step) -> None:
        """Names of parameters, which are known now; their values are not."""
        parameters, defaults = self.unit_parameters.get(draft.uses, (None, {}))
        if parameters is None:
            return
        given = {*(name for name, _ in step.inputs), *draft.flags}
        node = draft.common.get("input", draft.node)
        known = {parameter.name: parameter for parameter in parameters}
        for name in sorted(given - known.keys()):
            is_key = isinstance(node.value, dict) and name in node.value
            self.report.add(node, "HF0150", f"`{draft.uses}` has no parameter `{name}`", key=name if is_key else None,
                            help=did_you_mean(name, known))  # fmt: skip
        for name, parameter in known.items():
            if parameter.required and parameter.default is None and name not in given and name not in defaults:
                self.report.add(draft.node, "HF0151", f"`{draft.uses}` needs its parameter `{name}`",
                                help=f"give it under `input`: `input: {{{name}: …}}`")  # fmt: skip

    # --- retry ---------------------------------------------------------------------------------------
    def _retry(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        args, report = draft.args, self.report
        is_forced = False
        replay = draft.flags.get("replay", False)
        if "replay" in args:
            word = str(plain_of(args["replay"])).lower()
            is_forced = word == "force"
            replay = is_forced or yes_of(report, args["replay"], "replay")
        target = None
        if "next" in args:
            at = excerpt_of(args["next"]).unquoted()
            if "${" in at.text or at.text.strip().lower() in ("last", "end", "start"):
                target = names.template(at)
            else:
                target = self._goal(args["next"], draft, names)
        elif "replay" in args and not replay:
            self._at(args["replay"]).report(report, "HF0115", "without replaying, `retry` needs `from`")
        limits: tuple[Limit, ...] = ()
        if "limit" in args:
            limits = readable(report, args["limit"], parse_limit, (), "the limit")
        backoff = None
        if "backoff" in args:
            backoff = readable(report, args["backoff"], parse_backoff, None, "the backoff")
        timeout = args.get("timeout") or draft.common.get("timeout")
        hash = self._arg(draft, "hash", names) if "hash" in args else None
        step.again = Again(
            bool(replay), is_forced, target, limits, backoff,
            micros(report, timeout) if timeout is not None else 0, hash,
        )  # fmt: skip
        return previous

    # --- entities ------------------------------------------------------------------------------------
    def _sensor(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.place, step.type = draft.place, draft.type
        self._paths(draft, names)
        kind = draft.kind.name
        if draft.place is None:
            if not self.report.errors:
                self.report.add(draft.node, "HF0109", f"`{kind}` needs a name",
                                help=f"e.g. `{draft.kind.example}`")  # fmt: skip
            return previous
        if "entity" in draft.args:
            step.args["entity"] = self._arg(draft, "entity", names)
        if kind.startswith("set-"):
            given = draft.args.get("value")
            if given is None:
                self.report.add(draft.node, "HF0109", f"`{kind}` needs a value", help=f"`{draft.kind.example}`")
            else:
                step.args["value"] = names.words(given) if isinstance(given, Excerpt) else names.shape(given)
        require = draft.args.get("require")
        if isinstance(require, Node):
            step.require = compile_test(require, names)
        return previous

    _set_sensor = _clear_sensor = _set_config = _clear_config = _sensor

    # --- messages ------------------------------------------------------------------------------------
    def _wait_signal(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        value = step.args["signal"] = self._arg(draft, "signal", names)
        if value.fn is None and not (isinstance(value.constant, str) and value.constant):
            self.report.add(draft.node, "HF0109", "`wait-signal` needs the name of a signal")
        return Previous(is_open=True, step=f"step `{step.label}`")

    def _approve(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        if "message" in draft.args:
            step.args["message"] = self._arg(draft, "message", names)
        return Previous(frozenset(("approved", "by", "note")), True, f"step `{step.label}`")

    def _signal(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.args["signal"] = self._arg(draft, "signal", names)
        for key in ("to", "value"):
            if key in draft.args:
                given = draft.args[key]
                is_word = isinstance(given, Excerpt) and key == "value"
                step.args[key] = self._word(given, names) if is_word else self._arg(draft, key, names)  # type: ignore[arg-type]
        return previous

    # --- branches ------------------------------------------------------------------------------------
    def _parallel(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        step.bodies = len(draft.bodies)
        keys = tuple(body.key for body in draft.bodies)
        step.keys = keys if keys and all(keys) else None
        for number, body in enumerate(draft.bodies):
            self.body(draft.index, number, body, previous)
        return Previous(frozenset(step.keys or ()), False, f"step `{step.label}`")

    def _graph(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        after = self._parallel(draft, step, names, previous)
        numbers = {body.key: number for number, body in enumerate(draft.bodies)}
        needs: list[tuple[int, ...]] = []
        for body in draft.bodies:
            found = []
            for need in body.needs:
                if need.text not in numbers:
                    need.report(self.report, "HF0123", f"the graph has no node `{need.text}`",
                                help=did_you_mean(need.text, numbers))  # fmt: skip
                else:
                    found.append(numbers[need.text])
            needs.append(tuple(found))
        step.needs = tuple(needs)
        circle = _circle(step.needs)
        if circle:
            way = " → ".join(draft.bodies[number].key for number in circle)
            self.report.add(draft.node, "HF0137", f"nodes of the graph need each other in a circle: {way}")
        return after

    # --- blocks --------------------------------------------------------------------------------------
    def _block(self, draft: Draft, step: Step, names: Names, previous: Previous) -> Previous:
        if not draft.block:
            if not any(problem.path.startswith(step.path) for problem in self.report.errors):
                self.report.add(draft.node, "HF0109", "the step names no block", help="add `block: NAME`")
            return OPEN
        self._specify(draft, step, draft.block)
        block = draft.block.partition(":")[0]
        step.wants_entity = block == "ssh"
        known = frozenset(BLOCK_FORMS[block][1]) if block in BLOCK_FORMS else frozenset()
        return Previous(known, True, f"step `{step.label}`")

    def _specify(self, draft: Draft, step: Step, block: str) -> None:
        common = draft.common
        timeout = micros(self.report, common["timeout"]) if "timeout" in common else None
        idempotent = True if self.all_idempotent else None
        if "idempotent" in common and common["idempotent"].value != "default":
            idempotent = yes_of(self.report, common["idempotent"], "idempotent")
        queue = text_of(self.report, common.get("queue"), "queue", "", 200)
        if "${" in queue:
            self.report.add(common["queue"], "HF0126", "the queue cannot be an expression")
        retry = self._retry_plan(common["retry"]) if "retry" in common else None
        key = (block, queue, timeout, retry, idempotent, self.run_on)
        step.spec = self.specs.setdefault(key, len(self.specs))


def _always(scope: Scope) -> bool:
    return True


def _equal(left: Value, right: Value) -> Callable[[Scope], bool]:
    def check(scope: Scope) -> bool:
        return equal(settle(scope, left.get(scope), None), settle(scope, right.get(scope), None))

    return check


def _as_node(at: Excerpt) -> Node:
    """A part of a text as a node of its own, at the same place."""
    node = Node(at.node.document, at.text, at.node.parent, at.node.key)
    node.line, node.column, node.end_line, node.end_column = (
        at.node.line, at.node.column, at.node.end_line, at.node.end_column,
    )  # fmt: skip
    node.start, node.end, node.style = at.node.start, at.node.end, at.node.style
    return node


def _circle(needs: tuple[tuple[int, ...], ...]) -> list[int]:
    """Nodes that need each other, or none."""
    done: set[int] = set()
    for start in range(len(needs)):
        stack: list[tuple[int, int]] = [(start, 0)]
        on_way = [start]
        while stack:
            node, at = stack[-1]
            if node in done or at >= len(needs[node]):
                done.add(node)
                stack.pop()
                on_way.pop()
                continue
            stack[-1] = (node, at + 1)
            following = needs[node][at]
            if following in on_way:
                return [*on_way[on_way.index(following) :], following]
            if following not in done:
                stack.append((following, 0))
                on_way.append(following)
    return []
