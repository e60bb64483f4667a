"""Which names an expression may use, checked before anything runs, and expressions tied to their place.

A `Names` is what one step can see. It parses texts of the document, reports what is wrong with them at
their place, and hands back a `Value` to be evaluated later. It knows nothing of step types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .evaluate import Fn, Scope, compile_expression, weigh
from .expressions import ExpressionSyntax, parse
from .functions import FUNCTIONS
from .literals import parse_literal
from .nodes import Node, Report
from .operations import ExpressionError
from .problems import Unreadable, did_you_mean, suggest
from .templates import is_quoted, parse_template, parse_words, unquote
from .tree import (
    ABOUT,
    ENTITY_FACTS,
    ENTITY_KINDS,
    STEP_FACTS,
    Binary,
    Call,
    Expr,
    Index,
    Literal,
    Member,
    Name,
    StepRef,
    Text,
    Word,
    chain,
    children,
)

ROOTS = ("input", "vars", "steps", "output", "workflow", "entity", "error")
_FIRST_NAME = re.compile(r"[^\W\d][\w-]*")
#: names that can be neither variables nor inputs
RESERVED_NAMES = frozenset(("input", "vars", "steps", "workflow", "entity", "true", "false", "null", "in"))


@dataclass(slots=True, frozen=True)
class Excerpt:
    """A part of a scalar of the document."""

    text: str
    node: Node
    offset: int = 0
    #: never anything but text, whatever it looks like: a command `true`, an address `10`
    is_text: bool = False

    def part(self, start: int, end: int | None = None) -> Excerpt:
        return Excerpt(self.text[start:end], self.node, self.offset + start)

    def unquoted(self) -> Excerpt:
        inner = unquote(self.text)
        return self if inner == self.text else Excerpt(inner, self.node, self.offset + 1)

    def report(
        self, report: Report, code: str, message: str, start: int = 0, end: int | None = None,
        *, label: str = "", help: str = "", warning: bool = False,
    ) -> None:  # fmt: skip
        snippet = self.text[start:end]
        report.add(
            self.node, code, message, offset=self.offset + start, snippet=snippet,
            label=label, help=help, warning=warning,
        )  # fmt: skip


class Value:
    """A literal, or something to be evaluated each time it is needed."""

    __slots__ = ("constant", "fn", "keys", "text", "trees")

    def __init__(self, constant: Any, fn: Fn | None = None, text: str = "", trees: tuple[Expr, ...] = ()):
        self.constant = constant
        #: nothing for a literal
        self.fn = fn
        self.text = text
        self.trees = trees
        #: of a map: its keys
        self.keys: frozenset[str] | None = None

    def get(self, scope: Scope) -> Any:
        if self.fn is None:
            return self.constant
        try:
            return self.fn(scope)
        except ExpressionError as error:
            raise self.placed(error) from None

    def placed(self, error: ExpressionError) -> ExpressionError:
        """The error with the expression it came from; the innermost text wins."""
        if self.text and not error.text:
            error.text = self.text
        return error

    @property
    def free(self) -> set[str]:
        """Plain names it uses."""
        found: set[str] = set()
        pending = list(self.trees)
        while pending:
            node = pending.pop()
            if isinstance(node, Name):
                found.add(node.name)
            pending.extend(children(node))
        return found


def constant(value: Any) -> Value:
    return Value(value)


@dataclass(slots=True, frozen=True)
class Previous:
    """What is known about the previous step's output: its keys, or only that there may be some."""

    keys: frozenset[str] = frozenset()
    is_open: bool = False
    step: str = ""


@dataclass(slots=True)
class Asks:
    """What the expressions of a step look at; read for many entities at once where it is done for each of them."""

    steps: set[str] = field(default_factory=set)
    output: bool = False
    #: (kind, name), see `Scope.entity`
    entity: set[tuple[str, str]] = field(default_factory=set)

    def add(self, other: Asks) -> None:
        self.steps |= other.steps
        self.output = self.output or other.output
        self.entity |= other.entity


@dataclass(slots=True)
class Shared:
    """What all the scopes of one definition have in common."""

    report: Report
    #: declared inputs, or nothing where any are taken
    inputs: frozenset[str] | None
    #: names with a dash in them, see `Parser`
    dashed: frozenset[str]
    #: all step ids of the definition
    ids: frozenset[str]
    #: ids used as `steps.<id>`
    referenced: set[str] = field(default_factory=set)
    warned: set[str] = field(default_factory=set)
    #: ids of steps that may be done for each of many entities
    upon: frozenset[str] = frozenset()
    #: what the step at hand looks at
    asks: Asks = field(default_factory=Asks)


@dataclass(slots=True)
class LaneNames:
    """What the steps of one lane define. A lane sees its own names and those of the lanes around it."""

    around: LaneNames | None = None
    variables: set[str] = field(default_factory=set)
    #: index of each step that has an id
    steps: dict[str, int] = field(default_factory=dict)

    def has_variable(self, name: str) -> bool:
        lane: LaneNames | None = self
        while lane is not None:
            if name in lane.variables:
                return True
            lane = lane.around
        return False

    def find_step(self, id: str) -> int | None:
        lane: LaneNames | None = self
        while lane is not None:
            if id in lane.steps:
                return lane.steps[id]
            lane = lane.around
        return None

    def all_variables(self) -> frozenset[str]:
        around = self.around.all_variables() if self.around else frozenset()
        return around | self.variables


@dataclass(slots=True, frozen=True)
class Names:
    """What can be seen from one place."""

    shared: Shared
    lane: LaneNames
    #: of the step that looks; steps from here on have not run
    index: int
    #: the step's own input
    local: frozenset[str] = frozenset()
    previous: Previous = Previous()
    #: `error` is known here
    in_handler: bool = False
    #: what absent values in texts mean: `fail`, `blank` or `ignore`
    absent: str = "fail"

    def with_local(self, names: frozenset[str]) -> Names:
        return replace(self, local=names)

    # --- texts to values ---------------------------------------------------------------------------
    def template(self, excerpt: Excerpt, lenient: bool = False, keep_absent: bool = False) -> Value:
        """With `keep_absent`, names may be unknown as where it is lenient, but what is absent is not made null."""
        if "${" not in excerpt.text:
            return Value(excerpt.text)
        return self._value(excerpt, parse_template, lenient, keep_absent)

    def words(self, excerpt: Excerpt) -> Value:
        if is_quoted(excerpt.text) and "${" in excerpt.text:
            excerpt.report(
                self.shared.report, "HF0134", "`${…}` in quotes is literal text here", warning=True,
                help="leave the quotes out to have it evaluated",
            )  # fmt: skip
        return self._value(excerpt, parse_words, False)

    def test(self, excerpt: Excerpt, lenient: bool = True) -> Value:
        """The text of a condition: an expression as such, in which `${…}` may be an operand."""
        return self._value(excerpt, lambda text, dashed: parse(text, dashed, words=True), lenient)

    def literal(self, excerpt: Excerpt) -> Value:
        """A list or map in the short form."""
        return self._value(excerpt, parse_literal, False)

    def shape(self, node: Node, lenient: bool = False, keep_absent: bool = False) -> Value:
        """Any data of the document, with `${…}` in its texts. A reference to a long value stays one."""
        value = node.value
        if node.tree is not None:
            return self.ready(node, node.tree)
        if isinstance(value, str):
            return self.template(Excerpt(value, node), lenient, keep_absent)
        if isinstance(value, list):
            items = [self.shape(item, lenient, keep_absent) for item in value]
            if all(item.fn is None for item in items):
                return Value([item.constant for item in items])
            gets = [item.get for item in items]
            trees = tuple(tree for item in items for tree in item.trees)
            return Value(None, lambda scope: weigh(scope, [get(scope) for get in gets], None), trees=trees)
        if isinstance(value, dict):
            pairs = {key: self.shape(item, lenient, keep_absent) for key, item in value.items()}
            if all(item.fn is None for item in pairs.values()):
                return Value({key: item.constant for key, item in pairs.items()})
            each = [(key, item.get) for key, item in pairs.items()]
            trees = tuple(tree for item in pairs.values() for tree in item.trees)
            fn: Fn = lambda scope: weigh(scope, {key: get(scope) for key, get in each}, None)  # noqa: E731
            made = Value(None, fn, trees=trees)
            made.keys = frozenset(pairs)
            return made
        return Value(value)

    def ready(self, node: Node, tree: Expr) -> Value:
        """An expression that was read before; it takes what is absent for null."""
        if isinstance(tree, Literal):
            return Value(tree.value)
        excerpt = Excerpt(str(node.value), node)
        self.check(tree, excerpt, True)
        return Value(None, compile_expression(tree, lenient=True), excerpt.text, (tree,))

    def _value(
        self, excerpt: Excerpt, read: Callable[[str, frozenset[str]], Expr], lenient: bool, keep_absent: bool = False
    ) -> Value:
        try:
            tree = read(excerpt.text, self.shared.dashed)
        except ExpressionSyntax as error:
            excerpt.report(self.shared.report, error.code, error.message, error.start, error.end, help=error.help)
            return Value(None, lambda scope: None, excerpt.text)
        if isinstance(tree, Literal):
            return Value(tree.value)
        if self.absent != "fail":
            tree = self._filled(tree, excerpt.text)
        self.check(tree, excerpt, lenient)
        return Value(None, compile_expression(tree, lenient and not keep_absent), excerpt.text, (tree,))

    def _filled(self, tree: Expr, text: str) -> Expr:
        """Blank, or as it was written, where a value in the text is absent."""
        parts = tree.parts if isinstance(tree, Text) else (tree,)
        made: list[str | Expr] = []
        for part in parts:
            if isinstance(part, str):
                made.append(part)
                continue
            written = "" if self.absent == "blank" else f"${{{text[part.start : part.end]}}}"
            other = Literal(written, part.start, part.end)
            made.append(Binary("??", part, other, part.start, part.end, part.height + 1))
        if isinstance(tree, Text):
            return Text(tuple(made), tree.start, tree.end, tree.height + 1)
        (only,) = made
        assert not isinstance(only, str)
        return only

    # --- names -------------------------------------------------------------------------------------
    def check(self, node: Expr, at: Excerpt, optional: bool) -> None:
        report = self.shared.report
        if isinstance(node, (Member, Index)) and self._rooted(node, at, optional):
            return
        match node:
            case Member(object=StepRef(id=id) as step, name=name):
                self._step(step, id, at)
                if name in STEP_FACTS and id not in self.shared.upon and id in self.shared.ids:
                    at.report(report, "HF0175", f"step `{id}` is not done for each of many entities, so it has no "
                              f"`{name}`", node.start, node.end, help=f"write `steps.{id}.output`")  # fmt: skip
                elif name != "output" and name not in STEP_FACTS:
                    at.report(report, "HF0123", f"a step has `output`, not `{name}`", node.start, node.end,
                              help=f"`steps.{id}.output.{name}` is that key of its output")  # fmt: skip
                return
            case StepRef(id=id):
                at.report(report, "HF0123", f"`steps.{id}` is not a value", node.start, node.end,
                          help=f"write `steps.{id}.output`")  # fmt: skip
                return
            case Name(name="@"):
                return  # the item at hand in a `Path`
            case Name(name=name):
                self._name(node, name, at, optional)
            case Word(value=str() as text):
                self._bare(node, text, at)
            case Call(name=name, args=args):
                self._call(node, name, args, at)
                if name == "default" and args:
                    self.check(args[0], at, True)
                    for arg in args[1:]:
                        self.check(arg, at, optional)
                    return
            case Binary(operator="??", left=left, right=right):
                self.check(left, at, True)
                self.check(right, at, optional)
                return
            case _:
                pass
        for child in children(node):
            self.check(child, at, optional)

    def _bare(self, node: Word, text: str, at: Excerpt) -> None:
        first = _FIRST_NAME.match(text)
        name = first.group() if first else ""
        is_known = self.lane.has_variable(name) or name in (self.shared.inputs or ()) or name in self.local
        if is_known or (name in RESERVED_NAMES and "." in text):
            at.report(self.shared.report, "HF0134", f"`{text}` is a text here, not a name", node.start, node.end,
                      warning=True, help=f"write `${{{text}}}` for its value, or quote it")  # fmt: skip

    def _rooted(self, node: Member | Index, at: Excerpt, optional: bool) -> bool:
        """Check what begins with a root; false where it is the turn of its parts."""
        path = chain(node)
        match path:
            case ("vars", name) | ("workflow", "var", name):
                if not self.lane.has_variable(name):
                    known = self.lane.all_variables()
                    self._undefined(node, at, f"no step sets the variable `{name}`", name, known, optional)
            case ("input", name) | ("workflow", "input", name):
                declared = self.shared.inputs
                if declared is not None and name not in declared:
                    self._undefined(node, at, f"the workflow has no input `{name}`", name, declared, optional)
            case ("workflow", "error"):
                self._error(node, at, optional)
            case ("workflow", "step", id, key):
                self._step(node, id, at)
                if key != "output":
                    at.report(self.shared.report, "HF0123", f"a step has `output`, not `{key}`", node.start, node.end,
                              help=f"`steps.{id}.output.{key}` is that key of its output")  # fmt: skip
            case ("workflow", "step", id):
                self._no_value(node, ".".join(path), "write `.output` behind it", at)
            case ("workflow", "var" | "step" as key):
                self._no_value(
                    node, f"workflow.{key}", f"name a {'variable' if key == 'var' else 'step'} behind it", at
                )
            case ("workflow", key) if key not in ABOUT:
                self._undefined(node, at, f"`workflow` has no `{key}`", key, frozenset(ABOUT), optional)
            case ("workflow", key) if ABOUT[key]:
                self._no_value(node, f"workflow.{key}", f"it has {', '.join(ABOUT[key])}", at)
            case ("workflow", _):
                pass
            case ("workflow", group, key) if ABOUT.get(group):
                if key not in ABOUT[group]:
                    known = frozenset(ABOUT[group])
                    self._undefined(node, at, f"`workflow.{group}` has no `{key}`", key, known, optional)
            case ("entity", key) if key in ENTITY_FACTS:
                if key != "id":
                    self.shared.asks.entity.add(("about", ""))
            case ("entity", key) if key in ENTITY_KINDS:
                self._no_value(node, f"entity.{key}", "name one of them behind it", at)
            case ("entity", key):
                close = did_you_mean(key, (*ENTITY_FACTS, *ENTITY_KINDS))
                at.report(
                    self.shared.report, "HF0121", f"`entity` has no `{key}`", node.start, node.end, warning=optional,
                    help=close or f"a sensor is written `entity.sensor.{key}`",
                )  # fmt: skip
            case ("entity", group, name) if group in ENTITY_KINDS:
                self.shared.asks.entity.add(("config" if group == "config" else "sensor", name))
            case _:
                inner = chain(node.object) if isinstance(node, Index) else ()
                if not path and len(inner) == 2 and inner[0] == "entity" and inner[1] in ENTITY_KINDS:
                    assert isinstance(node, Index)
                    self.check(node.index, at, optional)
                    return True
                return False
        return True

    def _no_value(self, node: Expr, what: str, help: str, at: Excerpt) -> None:
        at.report(self.shared.report, "HF0121", f"`{what}` is not a value", node.start, node.end, help=help)

    def _error(self, node: Expr, at: Excerpt, optional: bool) -> None:
        if not self.in_handler:
            at.report(
                self.shared.report, "HF0121", "there is no error here", node.start, node.end, warning=optional,
                label="counts as absent" if optional else "not defined", help="it is known in `on-error`",
            )  # fmt: skip

    def _name(self, node: Expr, name: str, at: Excerpt, optional: bool) -> None:
        if name in self.previous.keys or self.previous.is_open or name == "output":
            self.shared.asks.output = True
        if name in ("input", "output") or name in self.local:
            return
        if name in ("vars", "steps", "workflow", "entity"):
            has = {"vars": "a variable", "steps": "a step id", "workflow": "`id`", "entity": "`sensor` and a name"}[
                name
            ]
            self._no_value(node, name, f"name {has} behind it", at)
            return
        if name == "error" and self.in_handler:
            if self.lane.has_variable(name) and name not in self.shared.warned:
                self.shared.warned.add(name)
                at.report(
                    self.shared.report, "HF0130", "`error` is a variable and the error that is handled; the error wins",
                    node.start, node.end, help="write `vars.error` for the variable", warning=True,
                )  # fmt: skip
            return
        inputs = self.shared.inputs or frozenset()
        if self.lane.has_variable(name):
            if name in inputs and name not in self.shared.warned:
                self.shared.warned.add(name)
                at.report(
                    self.shared.report, "HF0130", f"`{name}` is a variable and an input; the variable wins",
                    node.start, node.end, help=f"write `vars.{name}` or `input.{name}`", warning=True,
                )  # fmt: skip
            return
        if name in inputs or name in self.previous.keys:
            return
        if self.previous.is_open:
            close = suggest(name, self.lane.all_variables() | inputs | self.local)
            also = f", or did you mean `{close}`?" if close else ""
            at.report(
                self.shared.report, "HF0131",
                f"`{name}` is defined nowhere; it will be looked up in the output of {self.previous.step}",
                node.start, node.end, warning=True, help=f"write `output.{name}` to say so{also}",
            )  # fmt: skip
            return
        if name == "error":
            self._error(node, at, optional)
            return
        known = self.lane.all_variables() | inputs | self.local | self.previous.keys
        self._undefined(node, at, f"`{name}` is defined nowhere", name, known, optional)

    def _undefined(
        self, node: Expr, at: Excerpt, message: str, name: str, known: frozenset[str], optional: bool
    ) -> None:
        help = did_you_mean(name, known)
        if not help and name in FUNCTIONS:
            help = f"a function is called with parentheses: `{name}(…)`"
        if not help and isinstance(node, Name):
            if self.shared.inputs is None:
                help = f"declare it under `inputs:`, set it with `let`, or write `input.{name}`"
            else:
                help = f"quote it if it is text: `'{name}'`"
        at.report(
            self.shared.report, "HF0121", message, node.start, node.end, help=help, warning=optional,
            label="counts as absent" if optional else "not defined",
        )  # fmt: skip

    def _step(self, node: Expr, id: str, at: Excerpt) -> None:
        report = self.shared.report
        self.shared.referenced.add(id)
        self.shared.asks.steps.add(id)
        if id not in self.shared.ids:
            at.report(report, "HF0123", f"there is no step `{id}`", node.start, node.end,
                      help=did_you_mean(id, self.shared.ids))  # fmt: skip
            return
        index = self.lane.find_step(id)
        if index is None:
            at.report(report, "HF0123", f"step `{id}` cannot be seen from here", node.start, node.end,
                      help=f"it is inside a branch; use the output of the `parallel` step, or, in a graph, `needs` "
                      f"and `${{{id}}}`")  # fmt: skip
        elif index >= self.index:
            at.report(report, "HF0135", f"step `{id}` has not run yet here", node.start, node.end,
                      warning=True)  # fmt: skip

    def _call(self, node: Expr, name: str, args: tuple[Expr, ...], at: Excerpt) -> None:
        report = self.shared.report
        count = len(args)
        function = FUNCTIONS.get(name)
        if function is None:
            at.report(report, "HF0122", f"there is no function `{name}`", node.start, node.start + len(name),
                      help=did_you_mean(name, FUNCTIONS))  # fmt: skip
        elif not function.least <= count <= function.most:
            at.report(report, "HF0122", f"`{name}` does not take {count} argument{'s' if count != 1 else ''}",
                      node.start, node.end, help=f"it is {function.signature}")  # fmt: skip
        elif function.pattern is not None:
            self._pattern(args[function.pattern], at)

    def _pattern(self, node: Expr, at: Excerpt) -> None:
        """A pattern that is known already is checked already."""
        if isinstance(node, Literal) and isinstance(node.value, str):
            from .regex import compile_regex  # as in `functions`

            try:
                compile_regex(node.value, dotall=True)
            except Unreadable as error:
                shift = node.start + 1 + error.start
                found = node.value[error.start : error.end]
                # Escapes in the quotes move what follows them.
                start, end = (
                    (shift, shift + len(found)) if at.text[shift:].startswith(found) else (node.start, node.end)
                )
                at.report(self.shared.report, "HF0120", error.message, start, end, help=error.help)
