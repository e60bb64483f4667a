"""Documents at random: workflows of all step types, keys and notations. `Writer(random, chaos=0)` writes what should
be valid; with more chaos, wrong keys, types and names come in."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.language.steps import COMMON_KEYS, STEP_TYPES, WORKFLOW_KEYS
from holdfast.language.transforms import FILTERS

from . import expressions
from .texts import written

Step = Any

DURATIONS = ("1s", "10ms", "1h30m", "0s", "1m", "7d", "1us")
BLOCKS = ("net.push", "net.pull", "db.dump", "flaky.one")
RETENTIONS = ("3", "30d", "forever", "max(3, 24h)", "min(context, 10s)", "parent", "system", "disabled",
              "any(2,24h) hash ${workflow.name}", "7d hash x-${count}", "0")  # fmt: skip
CONCURRENCIES = (1, 2, 5, "all", "unlimited", "50%", "-2", "max(1, 50%)", "min(-1, 8)")
LIMITS = ("5", "1h", "3 in 1m", ["2", "5 in 1h"])
BACKOFFS = ("1s", "0 0 1s", "1s increasing 2x up to 1m", "100ms jitter 10%", {"initial": "1s", "factor": 2})
SENSORS = ("s", "level", "lock-a", "ip_address")
SHORTHANDS = ("${x}", '["with " ${x}] ${y...}', '${x} ["=" ${y...}]', "${x} ${y}", '[?${flag} "really"] ${x...}')
FILTER_WORDS = ("trim", "json", "yaml parse", "first", "last", "min", "max", "sum", "average", "size", "to_string",
                "to_upper_case", "split ,", "split regex [a-c]+", "split limit 2 ' '", "join ', '", "slice 0 2",
                "slice -1", "remove 0", "remove a", "replace a b", "replace all regex ([a-z]+) <$1>", "get .a",
                "replace all glob a*b x", "merge list", "merge map deep lax", "append 1", "prepend x", "type integer",
                "type string", "bash", "json encode", "set z", "return", "wait")  # fmt: skip
assert {words.split()[0] for words in FILTER_WORDS} >= FILTERS.keys() - {"to_lower_case"}


class Writer:
    def __init__(self, random: Random, chaos: float = 0.0, types: tuple[str, ...] = ()) -> None:
        self.random = random
        self.chaos = chaos
        self.types = types
        #: names that exist from here on
        self.names: list[str] = []
        self.ids = 0
        self.left = random.choice((1, 2, 3, 5, 8, 30))
        self.in_handler = 0
        self.inputs: list[str] = []

    # --- small things ------------------------------------------------------------------------------
    def often(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, options: Any) -> Any:
        return self.random.choice(options)

    def is_wrong(self) -> bool:
        return bool(self.chaos) and self.random.random() < self.chaos

    def junk(self) -> Any:
        return self.pick(
            (None, True, -1, 1.5, "", "x", "${", "${x", "${}", "${nowhere}", [], {}, [[]], {"a": {"b": [1]}},
             "start", "a" * 300, "💥", "\x07", "1..", "..", "- x", "{{ x }}", "yes", "0x1F", 10**20, "999999d")
        )  # fmt: skip

    def name(self) -> str:
        """One that exists, if any does."""
        if self.is_wrong():
            return str(self.pick(expressions.UNKNOWN))
        return str(self.pick(self.names)) if self.names else "workflow.name"

    def new_name(self) -> str:
        return str(self.pick(expressions.NAMES[:-1]))

    def expression(self, depth: int = 2) -> str:
        """Over names that exist."""
        text = expressions.expression(self.random, depth)
        if self.is_wrong():
            return text
        known = set(self.names)

        def mend(found: re.Match[str]) -> str:
            word = found[0]
            return word if word in known or word not in _NAMES else (self.name() if known else "7")

        return _IDENTIFIER.sub(mend, text)

    def simple(self) -> str:
        """An expression that cannot fail, as far as one can tell."""
        if self.names and self.often(0.5):
            return "${" + self.name() + " ?? 0}"
        return str(self.pick(("1", "some text", "${1 + 2}", "${[1, 2, 3]}", "${{a: 1}}", "'quoted'")))

    def value(self) -> Any:
        if self.is_wrong():
            return self.junk()
        kind = self.random.randrange(6)
        if kind == 0:
            return "${" + self.expression() + "}"
        if kind == 1:
            return self.random.randrange(100)
        if kind == 2:
            return [self.simple(), 2]
        if kind == 3:
            return {"a": self.simple(), "b": [True, None]}
        return self.simple()

    def duration(self) -> Any:
        return self.junk() if self.is_wrong() else self.pick(DURATIONS)

    def condition(self, has_subject: bool = False, depth: int = 2) -> Any:
        if self.is_wrong():
            return self.junk()
        kind = self.random.randrange(7)
        if kind == 0:
            return self.often(0.7)
        if kind < 3:
            subject = self.name() if self.names else "1"
            return f"${{{subject}}} {self.pick(('==', '<', '!=', '>='))} {self.random.randrange(5)}"
        tests: dict[str, Any] = {}
        if not has_subject or self.often(0.2):
            if self.often(0.2):
                tests[self.pick(("sensor", "config"))] = self.pick(SENSORS)
            else:
                tests["target"] = "${" + (f"{self.name()} ?? 0" if self.names else "[1, 2]") + "}"
        for _ in range(self.random.randint(1, 2)):
            key, test = self.test(depth)
            tests.setdefault(key, test)
        return tests

    def test(self, depth: int) -> tuple[str, Any]:
        kind = self.random.randrange(12 if depth else 7)
        match kind:
            case 0 | 1:
                return "equals", self.pick((1, "a", True, "${1 + 1}", [1], None))
            case 2:
                return self.pick(("less-than", "greaterThan", "less_than_or_equal_to")), self.pick((3, "m", 0.5))
            case 3:
                return "regex", self.pick(("a.*", "[0-9]+", "(a|b)*c", ".{0,20}x"))
            case 4:
                return "glob", self.pick(("a*", "*b?", "*"))
            case 5:
                return "when", self.pick(("truthy", "absent", "present_non_null", "always", "falsy"))
            case 6:
                return "in-range", [1, 5]
            case 7:
                return "not", dict([self.test(depth - 1)])
            case 8:
                return self.pick(("any", "all")), [dict([self.test(depth - 1)]) for _ in range(2)]
            case 9:
                return "size", dict([self.test(0)])
            case 10:
                return "has-element", dict([self.test(depth - 1)])
            case _:
                return "check", dict([self.test(depth - 1)])

    # --- steps -------------------------------------------------------------------------------------
    def steps(self, depth: int, most: int = 5) -> list[Step]:
        return [self.step(depth) for _ in range(self.random.randint(1, most))]

    def inside(self, depth: int, most: int = 3, *names: str) -> list[Step]:
        """In a lane of its own: names set there end with it."""
        before = list(self.names)
        self.names += names
        made = self.steps(depth - 1, most)
        self.names = before
        return made

    def step(self, depth: int) -> Step:
        self.left -= 1
        if self.is_wrong():
            return self.junk()
        kinds = _LEAVES if depth <= 0 or self.left <= 0 else _ALL
        made = self.pick(kinds)(self, depth)
        return self.around(made, depth) if self.often(0.45) else made

    def around(self, made: Step, depth: int) -> Step:
        """Keys that every step may have."""
        if isinstance(made, list):
            made = {"steps": made}
        step: dict[str, Any] = {"step": made} if isinstance(made, str) else dict(made)
        text = made if isinstance(made, str) else ""
        is_block = text.split(" ")[0] in ("block", "shell", "ssh", "http", *BLOCKS) or "block" in step
        for _ in range(self.random.randint(1, 3)):
            match self.random.randrange(18):
                case 0 | 1:
                    step.setdefault("condition", self.condition())
                case 2 | 3 if not text.startswith("label"):
                    self.ids += 1
                    step.setdefault("id", f"s{self.ids}")
                case 4:
                    step.setdefault("name", f"a step {self.ids}")
                case 5:
                    step.setdefault("timeout", self.duration())
                case 6 | 7 if depth > 0:
                    self.in_handler += 1
                    step.setdefault("on-error", self.handler(depth - 1))
                    self.in_handler -= 1
                case 8 if depth > 0:
                    step.setdefault("finally", self.pick((["log cleaned"], "let done = true", ["no-op", "sleep 1s"])))
                case 9:
                    step.setdefault("continue-on-error", self.often(0.7))
                case 10:
                    step.setdefault("output", self.value())
                case 11:
                    step.setdefault("next", self.pick(("end", "default")) if self.often(0.5) else "default")
                case 12:
                    step.setdefault("repeat", self.pick((2, {"times": 3, "delay": "1s"},
                                                         {"times": 4, "until": "${true}"})))  # fmt: skip
                case 13:
                    step.setdefault("delay", self.pick(DURATIONS[:3]))
                case 14:
                    step.setdefault("assert", self.condition())
                case 15 if is_block:
                    step.setdefault("retry", self.pick((3, {"attempts": 2, "delay": "1s"}, {"limit": 2, "factor": 3})))
                case 16:
                    step.setdefault("idempotent", self.pick((True, False, "default", "yes")))
                    if self.often(0.5):
                        step.setdefault("replayable", self.pick(("from here", "from here only", "reset")))
                case 17:
                    step.setdefault("metadata", {"owner": "me"})
                    if self.often(0.5):
                        step.setdefault("input", {"given": self.value()})
        if self.is_wrong():
            step[self.pick(_KEYS)] = self.junk()
        if self.often(0.1):
            step = {self.pick((str.upper, _camel, _snake))(key) if key in _STYLED else key: step[key] for key in step}
        return step

    def handler(self, depth: int) -> Any:
        if self.often(0.3):
            return self.pick(("no-op", "log it failed with ${error.message}", "retry limit 2", "goto end", "goto exit",
                              "fail rethrow", "return handled"))  # fmt: skip
        made = self.steps(depth, 2)
        if self.often(0.4):
            made.append({"step": "log ${error.kind}", "condition": self.condition(has_subject=True)})
        if self.often(0.3):
            made.append(self.pick(("retry limit 3 backoff 1s", "fail message again", "retry replay limit 2")))
        return made


# --- one function per kind ---------------------------------------------------------------------------
def _let(w: Writer, depth: int) -> Step:
    name = w.new_name()
    kind = w.random.randrange(8)
    if kind == 0:
        made: Step = {"type": "let", "variable": name, "value": w.value()}
    elif kind == 1:
        made = f"let {w.pick(('integer', 'string', 'list', 'any', 'boolean'))} {name} = {w.simple()}"
    elif kind == 2 and w.names:
        made = f"let {w.name()} = ${{{w.name()}}} {w.pick(('+', '*', '??', '%'))} {w.random.randrange(9)}"
    elif kind == 3:
        name = "m"
        made = f"let m.{w.pick('abc')} = {w.simple()}"
    elif kind == 4:
        name = "l"
        made = f"let l[] = {w.simple()}"
    elif kind == 5:
        return f"let output = {w.simple()}"
    else:
        made = f"let {name} = ${{{w.expression()}}}"
    w.names.append(name)
    return made


def _transform(w: Writer, depth: int) -> Step:
    words = [w.pick(FILTER_WORDS) for _ in range(w.random.randint(1, 3))]
    words = [word for word in words[:-1] if word not in ("return", "wait")] + words[-1:]
    if "set z" in words:
        w.names.append("z")
    chain = " | ".join(words)
    if w.names and w.often(0.3):
        return f"transform variable {w.name()} | {chain}" if "." not in w.name() else "no-op"
    if w.often(0.3):
        name = w.new_name()
        made = f"transform {name} = {w.simple()} | {chain}"
        w.names.append(name)
        return made
    value = w.simple()
    value = value if value[0] in "$1" and " " not in value else "'a b'"
    return f"transform value {value} | {chain}"


def _block(w: Writer, depth: int) -> Step:
    kind = w.random.randrange(7)
    if kind == 0:
        return f"{w.pick(BLOCKS)} host={w.simple()}" if w.often(0.5) else str(w.pick(BLOCKS))
    if kind == 1:
        return {"block": w.pick(BLOCKS), "input": {"a": w.value(), "b": w.value()}}
    if kind == 2:
        return f"shell echo {w.simple()}"
    if kind == 3:
        return f"ssh to db1 uptime {w.simple()}"
    if kind == 4:
        return {"step": "http https://example.com/x", "input": {"method": "post", "body": w.value()}}
    if kind == 5:
        w.names.append("motd")
        return "load motd = /etc/motd"
    return f"block {w.pick(BLOCKS)} x=1"


def _flow(w: Writer, depth: int) -> Step:
    kind = w.random.randrange(10)
    if kind == 0:
        return f"return {w.simple()}"
    if kind == 1:
        return w.pick(("fail", "fail message no", "fail message ${1 + 1} things", {"fail": "no", "value": w.value()}))
    if kind == 2:
        w.ids += 1
        return f"label l{w.ids}"
    if kind == 3:
        return {"step": f"goto {w.pick(('end', 'start', 'end'))}", "condition": w.condition()}
    if kind == 4:
        return f"sleep {w.pick(DURATIONS)}"
    if kind == 5:
        return w.pick(("retry limit 2", "retry replay from start limit 1", {"type": "retry", "limit": w.pick(LIMITS),
                       "backoff": w.pick(BACKOFFS), "hash": "h"}))  # fmt: skip
    if kind == 6:
        return w.pick(("workflow replayable from here", "workflow retention " + w.pick(RETENTIONS),
                       "workflow replayable reset", "workflow replayable from here only"))  # fmt: skip
    if kind == 7:
        return "no-op"
    return w.pick((f"log {w.simple()}", {"log": w.value(), "level": "warning"}))


def _shared(w: Writer, depth: int) -> Step:
    kind = w.random.randrange(9)
    sensor = w.pick(SENSORS)
    if kind == 0:
        return f"set-sensor {sensor} = {w.simple()}"
    if kind == 1:
        return {"type": "set-sensor", "sensor": {"name": sensor, "type": "any"}, "value": w.value(),
                "require": w.condition(has_subject=True)}  # fmt: skip
    if kind == 2:
        return f"clear-sensor {sensor}"
    if kind == 3:
        return w.pick((f"set-config size = {w.simple()}", "clear-config size"))
    if kind == 4:
        return {"step": f"wait ${{entity.sensor.{sensor}}}", "timeout": "1m"}
    if kind == 5:
        return {"step": f"wait-signal {w.pick('ab')}", "timeout": w.pick(DURATIONS)}
    if kind == 6:
        return {"approve": "go on?", "timeout": "1h"}
    if kind == 7:
        return f"signal {w.pick('ab')} with {w.simple()}"
    return w.pick((f"signal {w.pick('ab')} to ${{workflow.id}}", "wait ${entity.attributeWhenReady.s}"))


def _if(w: Writer, depth: int) -> Step:
    if w.often(0.3):
        return f"if ${{{w.name()}}} == {w.random.randrange(3)} then {w.pick(('return 1', 'log x', 'let x = 1'))}"
    made: dict[str, Any] = {"if": f"${{{w.name()}}} == {w.random.randrange(3)}"}
    if w.often(0.3):
        made = {"type": "if", "condition": w.condition()}
    made["steps"] = w.steps(depth - 1, 3)
    if w.often(0.5):
        made["else"] = w.steps(depth - 1, 2)
    return made


def _switch(w: Writer, depth: int) -> Step:
    cases: list[Any] = []
    for _ in range(w.random.randint(1, 3)):
        made = w.pick((_let, _flow, _block))(w, 0)
        made = {"step": made} if isinstance(made, str) else dict(made)
        made["condition"] = w.condition(has_subject=True)
        cases.append(made)
    if w.often(0.8):
        cases.append(w.pick(("log none", "no-op")))
    return {"step": f"switch {w.simple()}", "cases": cases}


def _sub(w: Writer, depth: int) -> Step:
    made = w.steps(depth - 1, 3)
    return made if w.often(0.3) else {"steps": made}


def _nested(w: Writer, depth: int) -> Step:
    made: dict[str, Any] = {"type": "workflow", "steps": w.inside(depth)}
    if w.often(0.4):
        made["target"] = w.pick(("1..3", [1, "a", {"k": 1}], "${[1, 2]}", {"a": 1, "b": 2}))
        if w.often(0.5):
            made["concurrency"] = w.pick(CONCURRENCIES)
        if w.often(0.3):
            made["condition"] = {"target": "${target}", "not": {"equals": 1}}
    elif w.often(0.3):
        made["retry"] = {"attempts": 2, "delay": "1s"}
    if w.often(0.3):
        made["lock"] = w.pick(
            ("a", "b", {"name": "a", "timeout": "10s"}, "l-${count ?? 1}" if "count" in w.names else "c")
        )
    if w.often(0.2):
        made["replayable"] = w.pick(("from start", "automatically", "disabled"))
    return made


def _foreach(w: Writer, depth: int) -> Step:
    if w.often(0.3):
        targets = w.pick(("1..3", "${[1, 2, 3]}"))
        return f"foreach item in {targets} do {w.pick(('log ${item}', 'net.push', 'return ${item}'))}"
    made: dict[str, Any] = {"step": f"foreach item in {w.pick(('1..3', '${[3, 4]}', '1..12', '${range(5)}'))}"}
    names = ["item"]
    if w.often(0.2):
        made = {"step": "foreach {a, b}", "target": [{"a": 1, "b": 2}, {"a": 3}]}
        names = ["a", "b"]
    if w.often(0.3):
        made["reducing"] = {"total": 0, "seen": "${[]}"}
        names += ["total", "seen"]
    made["steps"] = w.inside(depth, 3, *names)
    if w.often(0.5):
        made["concurrency"] = w.pick(CONCURRENCIES)
    return made


def _parallel(w: Writer, depth: int) -> Step:
    branches: list[Any] = []
    for number in range(w.random.randint(1, 3)):
        made = w.inside(depth, 2)
        if w.often(0.4):
            w.ids += 1
            branches.append({"id": f"b{w.ids}", "steps": made})
        else:
            branches.append(made if number % 2 else made[0])
    return {"parallel": branches}


def _graph(w: Writer, depth: int) -> Step:
    nodes: dict[str, Any] = {}
    for _ in range(w.random.randint(1, 4)):
        w.ids += 1
        needs = [key for key in nodes if w.often(0.4)]
        nodes[f"n{w.ids}"] = {"needs": needs, "steps": w.inside(depth, 2)}
    return {"graph": nodes}


def _use(w: Writer, depth: int) -> Step:
    if not w.types:
        return _let(w, depth)
    name = w.pick(w.types)
    if w.often(0.4):
        return f"invoke {name}" + w.pick(("", " with x=1", " on db1"))
    return {"step": name, "input": {"x": w.value()}} if w.often(0.5) else f"{name} x={w.simple()}"


_Make = Callable[[Writer, int], Step]
_LEAVES: tuple[_Make, ...] = (_let, _let, _transform, _block, _block, _flow, _shared, _use)
_ALL: tuple[_Make, ...] = (*_LEAVES, _if, _switch, _sub, _nested, _foreach, _parallel, _graph)
_NAMES = frozenset((*expressions.NAMES, "nowhere"))
_IDENTIFIER = re.compile(r"(?<![\w.'\"$])[a-z_]+(?![\w(:'\"])")
_WRITTEN = (COMMON_KEYS, WORKFLOW_KEYS, *(kind.keys for kind in STEP_TYPES.values()))
_KEYS = tuple(sorted({key.name for keys in _WRITTEN for key in keys} | {"unknown", "stpes"}))
_STYLED = frozenset(("on-error", "continue-on-error", "target-var-name", "max-delay", "timeout", "condition"))


def _camel(key: str) -> str:
    first, *rest = key.split("-")
    return first + "".join(word.title() for word in rest)


def _snake(key: str) -> str:
    return key.replace("-", "_")


# --- whole documents -----------------------------------------------------------------------------------
def workflow(random: Random, chaos: float, name: str = "", types: tuple[str, ...] = ()) -> dict[str, Any]:
    w = Writer(random, chaos, types)
    made: dict[str, Any] = {}
    if name or w.often(0.3):
        made["name"] = name or w.pick(("w", "deploy all", "net.push"))
    if w.often(0.5) or name:
        given = w.random.sample(expressions.NAMES[:-1], w.random.randint(0, 3)) if not name else ["x", "y"]
        made[w.pick(("inputs", "parameters"))] = {
            each: w.pick(
                ("string", "integer = 3", "any", {"type": "list", "default": [1]}, {"type": "any", "default": 1})
            )
            for each in given
        }
        w.names += given
    elif w.often(0.2):
        made["input"] = {"count": w.pick((3, "three", [1]))}
        w.names.append("count")
    if name and w.often(0.5):
        made["shorthand"] = w.pick(SHORTHANDS)
    for key, share, value in (
        ("condition", 0.08, w.condition), ("timeout", 0.1, w.duration), ("retention", 0.2, lambda: w.pick(RETENTIONS)),
        ("lock", 0.1, lambda: w.pick(("a", {"name": "a", "timeout": "1m"}, "x-${workflow.name}"))),
        ("replayable", 0.15, lambda: w.pick(("from start", "automatically", "disabled", "yes", "enabled"))),
        ("idempotent", 0.1, lambda: "all"), ("labels", 0.1, lambda: {"team": "net", "n": 1}),
        ("metadata", 0.05, lambda: {"a": [1]}), ("description", 0.1, lambda: "what it is for"),
    ):  # fmt: skip
        if w.often(share):
            made[key] = w.junk() if w.is_wrong() else value()
    made["steps"] = w.steps(w.pick((1, 2, 2, 3)), w.pick((1, 2, 3, 6)))
    if w.often(0.15):
        w.in_handler = 1
        made["on-error"] = w.handler(1)
        w.in_handler = 0
    if w.often(0.1):
        made["finally"] = ["log the end"]
    if w.often(0.2):
        made["output"] = w.simple()
    if w.is_wrong():
        made[w.pick(_KEYS)] = w.junk()
    return made


def document(random: Random, chaos: float) -> str:
    """The text of one file."""
    if random.random() < 0.15:
        names = ("one", "two")[: random.randint(1, 2)]
        parts = [workflow(random, chaos, name, names[:number]) for number, name in enumerate(names)]
        parts.append(workflow(random, chaos, "main", names))
        if random.random() < 0.1 and chaos:
            random.shuffle(parts)
        return "---\n".join(written(part, random) for part in parts)
    made: Any = workflow(random, chaos)
    if random.random() < 0.1:
        made = made["steps"]
    return written(made, random)
