"""From nodes to drafts: which step is of which type, which keys and words belong to it, what it defines.

This is the first pass. It settles the structure (types, ids, branches, the names that `let` defines), so that
the second pass, `compile`, knows every name when it reads the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .conditions import style_free
from .load import MAX_DEPTH
from .names import RESERVED_NAMES, Excerpt, LaneNames
from .nodes import Node, Report
from .problems import did_you_mean, suggest
from .short import BLOCK_NAME, NAME, Body, Draft, ShortForms, rejoin
from .steps import (
    BLOCK_FORMS,
    BRANCH_KEYS,
    COMMON_KEYS,
    EXTERNAL_KEYS,
    RESERVED_IDS,
    SENSOR_KEYS,
    STEP_TYPES,
    TYPE_INDEX,
    USE,
    VARIABLE_KEYS,
    Key,
    StepType,
    key_index,
)

_COMMON = key_index(COMMON_KEYS)


def take_keys(report: Report, node: Node, table: tuple[Key, ...], what: str, label: str) -> dict[str, Node]:
    """The entries of a map by canonical key; unknown and doubled ones are reported."""
    index = key_index(table)
    candidates = [key.name for key in table]
    found: dict[str, Node] = {}
    for key, item in node.value.items():
        known = index.get(style_free(key))
        if known is None:
            report.add(node, "HF0102", f"unknown key `{key}` in {what}", key=key, label=label,
                       help=did_you_mean(key, candidates))  # fmt: skip
        elif known in found:
            report.add(node, "HF0103", f"the key `{known}` occurs twice, in two spellings", key=key)
        else:
            found[known] = item
    return found


class Reader(ShortForms):
    """Reads the steps of one definition and collects what they define."""

    def __init__(self, report: Report, drafts: list[Draft], forms: Mapping[str, str]) -> None:
        super().__init__(report, drafts, forms)
        self.ids: dict[str, Node] = {}

    # --- bodies ------------------------------------------------------------------------------------
    def body(self, node: Node, lane: LaneNames, depth: int = 0, made: Body | None = None) -> Body:
        """Steps of a lane; in the lane they stand in unless that is another one."""
        made = made or Body([], lane)
        if made.lane is (self.current.lane if self.current else None):
            made.around = self.current
        outside, self.current = self.current, made
        if isinstance(node.value, list):
            made.steps = [step for item in node.value if (step := self.step(item, lane, depth)) is not None]
        else:
            self.report.add(node, "HF0108", f"`steps` is a list of steps, not {node.kind}")
        self.current = outside
        return made

    def some(self, node: Node, lane: LaneNames, depth: int, made: Body) -> Body:
        """One step, or a list of steps."""
        if isinstance(node.value, list):
            if not node.value:
                self.report.add(node, "HF0109", "there is no step in it")
            return self.body(node, lane, depth, made)
        made.around = self.current if self.current and self.current.lane is lane else None
        outside, self.current = self.current, made
        step = self.step(node, lane, depth)
        made.steps = [step] if step is not None else []
        self.current = outside
        return made

    def in_line(self, excerpt: Excerpt, draft: Draft, lane: LaneNames) -> Body:
        """A step behind `then` or `do`."""
        made = Body([], lane, is_inline=True)
        made.around = draft.body if draft.lane is lane else None
        outside, self.current = self.current, made
        step = self._short(excerpt, draft.node, {}, lane)
        if step is not None:
            self._fill(step, 0)
            made.steps = [step]
        self.current = outside
        return made

    def step(self, node: Node, lane: LaneNames, depth: int) -> Draft | None:
        if depth > MAX_DEPTH // 2:
            self.report.add(node, "HF0107", f"steps are nested more than {MAX_DEPTH // 2} levels deep")
            return None
        value = node.value
        if isinstance(value, str):
            draft = self._short(Excerpt(value, node), node, {}, lane)
        elif isinstance(value, list):
            draft = self._draft(node, STEP_TYPES["subworkflow"], lane)
            draft.args["steps"] = node
        elif isinstance(value, dict):
            rejoined = rejoin(node)
            if rejoined is not None:
                draft = self._short(Excerpt(rejoined.value, rejoined), node, {}, lane)
            else:
                draft = self._long(node, lane)
        else:
            self.report.add(node, "HF0108", f"a step is a text or a map, not {node.kind}")
            return None
        if draft is not None:
            self._fill(draft, depth)
        return draft

    # --- the long form -----------------------------------------------------------------------------
    def _long(self, node: Node, lane: LaneNames) -> Draft | None:
        report = self.report
        common: dict[str, Node] = {}
        named: list[tuple[str, str]] = []
        other: list[str] = []
        for key in node.value:
            style = style_free(key)
            if style in _COMMON:
                known = _COMMON[style]
                if known in common:
                    report.add(node, "HF0103", f"the key `{known}` occurs twice, in two spellings", key=key)
                else:
                    common[known] = node.value[key]
            elif style in TYPE_INDEX:
                named.append((key, TYPE_INDEX[style]))
            else:
                other.append(key)
        if ("step" in common or "type" in common) and not ("step" in common and "type" in common):
            # A word like `signal` or `workflow` is then a key of the step, if it has one of that name.
            kind = self._kind_of(common)
            own = key_index(kind.keys) if kind is not None else {}
            other += [key for key, _ in named if style_free(key) in own]
            named = [(key, name) for key, name in named if style_free(key) not in own]
        elif len(named) > 1:
            own = key_index(*(STEP_TYPES[name].keys for _, name in named[:1] if name in STEP_TYPES))
            other += [key for key, _ in named[1:] if style_free(key) in own]
            named = [named[0], *((key, name) for key, name in named[1:] if style_free(key) not in own)]
        ways = [key for key in ("step", "type") if key in common] + [key for key, _ in named]
        if len(ways) > 1:
            report.add(node, "HF0115", f"`{ways[0]}` and `{ways[1]}` both say what the step does", key=ways[1])
            return None
        if "step" in common:
            text = common.pop("step")
            if not isinstance(text.value, str):
                report.add(text, "HF0108", f"`step` is a text, not {text.kind}")
                return None
            draft = self._short(Excerpt(text.value, text), node, common, lane)
        elif "type" in common:
            draft = self._typed(common.pop("type"), node, common, lane)
        elif named:
            key, kind_name = named[0]
            draft = self._named(node, node.value[key], kind_name, common, lane)
            if draft is not None:
                draft.is_upon = style_free(key) == FUNCTION_BLOCK
        elif "retry" in common and not any(style_free(key) == "steps" for key in other):
            draft = self._named(node, common.pop("retry"), "retry", common, lane)
        elif any(style_free(key) == "steps" for key in other):
            draft = self._draft(node, STEP_TYPES["subworkflow"], lane)
            draft.common = common
        else:
            self._nameless(node, other)
            return None
        if draft is not None:
            self._own_keys(node, draft, other)
        return draft

    def _kind_of(self, common: dict[str, Node]) -> StepType | None:
        text = common["step"].value if "step" in common else common["type"].value
        word = text.split()[0] if isinstance(text, str) and text.split() else ""
        return STEP_TYPES.get(TYPE_INDEX.get(style_free(word), ""))

    def _fill(self, draft: Draft, depth: int) -> None:
        """Everything a draft has that is made of steps."""
        self._common_keys(draft)
        self._bodies(draft, depth)
        for key, is_handler in (("on-error", True), ("finally", False)):
            if key in draft.common:
                lane = draft.lane
                if draft.kind.name in NESTING and draft.bodies:
                    lane = draft.bodies[0].lane  # of each run, not of the step as a whole
                outside = self.current
                if lane is not draft.lane:
                    self.current = draft.bodies[0]
                made = self.some(draft.common[key], lane, depth + 1, Body([], lane, is_handler=is_handler))
                self.current = outside
                if is_handler:
                    draft.handlers = made
                else:
                    draft.cleanup = made

    def _bodies(self, draft: Draft, depth: int) -> None:
        kind = draft.kind.name
        if kind in ("parallel", "graph"):
            given = draft.args.pop(kind, None)
            if isinstance(given, Node):
                (self._branches if kind == "parallel" else self._nodes)(draft, given, depth)
            return
        if kind == "switch":
            self._cases(draft, depth)
            return
        steps = draft.args.pop("steps", None)
        lane = draft.lane
        if kind in NESTING:
            lane = LaneNames(draft.lane)
            lane.variables |= self._nested_names(draft)
        if draft.inline is not None:
            if steps is not None:
                draft.inline.report(self.report, "HF0115", "the steps are given twice")
            draft.bodies.append(self.in_line(draft.inline, draft, lane))
        elif isinstance(steps, Node):
            made = self.some(steps, lane, depth + 1, Body([], lane))
            draft.bodies.append(made)
        if kind == "if" and "else" in draft.args:
            given = draft.args.pop("else")
            assert isinstance(given, Node)
            if not draft.bodies:
                draft.bodies.append(Body([], lane))
            draft.bodies.append(self.some(given, lane, depth + 1, Body([], lane)))
        do = draft.args.pop("do", None) if kind == "foreach" else None
        if isinstance(do, Node) and not draft.bodies:
            draft.bodies.append(self.some(do, lane, depth + 1, Body([], lane)))

    def _nested_names(self, draft: Draft) -> set[str]:
        """Variables that a nested workflow has from its beginning."""
        loop = draft.args.pop("loop", None) or draft.args.pop("target-var-name", None)
        names: list[str] = []
        if loop is not None:
            text = loop.text if isinstance(loop, Excerpt) else str(loop.value)
            at = loop if isinstance(loop, Excerpt) else Excerpt(text, loop)
            inner = text.strip()
            names = [part.strip() for part in inner.strip("{}").split(",")] if inner[:1] == "{" else [inner]
            for name in names:
                if not NAME.match(name) or name in RESERVED_NAMES or name == "output":
                    at.report(self.report, "HF0113", f"`{name}` is not a name for a variable")
        draft.loop = tuple(names) or ("target",)
        found = {*draft.loop, "target", "target_index"}
        index = draft.args.get("target-index-var-name")
        if isinstance(index, Node) and isinstance(index.value, str):
            found.add(index.value)
        for source in (draft.args.get("reducing"), draft.common.get("input")):
            if isinstance(source, Node) and isinstance(source.value, dict):
                found |= set(source.value)
        return found

    def _cases(self, draft: Draft, depth: int) -> None:
        cases = draft.args.pop("cases", None)
        if not isinstance(cases, Node) or not isinstance(cases.value, list) or not cases.value:
            self.report.add(draft.node, "HF0109", "`switch` needs a list of `cases`")
            return
        for number, item in enumerate(cases.value):
            made = self.some(item, draft.lane, depth + 1, Body([], draft.lane, is_inline=True))
            draft.bodies.append(made)
            is_last = number == len(cases.value) - 1
            if made.steps and not is_last and "condition" not in made.steps[0].common:
                self.report.add(item, "HF0109", "only the last case may be without a `condition`")

    def _nameless(self, node: Node, other: list[str]) -> None:
        """No key says what the step does."""
        for key in other:
            close = suggest(key, [*STEP_TYPES, *BLOCK_FORMS, "step", "type"])
            if close:
                self.report.add(node, "HF0102", f"unknown key `{key}` in a step", key=key,
                                label="not a step key", help=f"did you mean `{close}`?")  # fmt: skip
                return
        if other:
            word = other[0].split()[0] if other[0].split() else other[0]
            is_short = " " in other[0] and (style_free(word) in TYPE_INDEX or len(node.value) > 1)
            help = f"quote the whole text: `step: '{other[0]}: …'`" if is_short else "add `step:` or `type:`"
            self.report.add(node, "HF0102", f"unknown key `{other[0]}` in a step", key=other[0],
                            label="not a step key", help=help)  # fmt: skip
            return
        self.report.add(node, "HF0109", "nothing says what the step does", help="add `step:` or `type:`")

    def _typed(self, node: Node, step: Node, common: dict[str, Node], lane: LaneNames) -> Draft | None:
        if not isinstance(node.value, str):
            self.report.add(node, "HF0108", f"`type` is a name, not {node.kind}")
            return None
        kind = TYPE_INDEX.get(style_free(node.value))
        if kind is None and node.value in self.forms:
            draft = self._draft(step, USE, lane)
            draft.uses, draft.common = node.value, common
            return draft
        if kind is None:
            self._unknown_type(node.value, Excerpt(node.value, node))
            return None
        draft = self._draft(step, STEP_TYPES["block" if kind in BLOCK_FORMS else kind], lane)
        draft.common = common
        draft.is_upon = style_free(node.value) == FUNCTION_BLOCK
        draft.block = kind if kind in BLOCK_FORMS else ""
        return draft

    def _named(self, step: Node, value: Node, kind: str, common: dict[str, Node], lane: LaneNames) -> Draft | None:
        """`log: …`, `block: …`, `parallel: …`: the key is the type, the value its main part."""
        report = self.report
        if kind in BLOCK_FORMS:
            draft = self._draft(step, STEP_TYPES["block"], lane, f"{kind} {value.value}")
            draft.block, draft.common = kind, common
            if isinstance(value.value, str):
                self._block_form(draft, Excerpt(value.value, value), kind)
            else:
                report.add(value, "HF0108", f"`{kind}` takes a text, not {value.kind}")
                return None
            return draft
        made = STEP_TYPES[kind]
        draft = self._draft(step, made, lane)
        draft.common = common
        if kind == "block":
            if isinstance(value.value, str) and BLOCK_NAME.match(value.value):
                draft.block = value.value
            else:
                report.add(value, "HF0113", "`block` takes the name of a block, maybe with a version: `name:1.2`")
        elif isinstance(value.value, str) and made.shorthand and not _IS_SIMPLE.match(made.shorthand):
            draft.short = f"{kind} {value.value}"
            self._captures(draft, Excerpt(value.value, value))
        elif isinstance(value.value, dict) and made.main != kind and kind not in _TAKES_MAP:
            keys = take_keys(report, value, made.keys, f"`{kind}`", f"not a key of `{kind}`")
            draft.args.update(keys)
            self._places(draft)
        elif made.main:
            draft.args[made.main] = value
            if isinstance(value.value, str):
                draft.short = f"{kind} {value.value}"
            self._places(draft)
        elif kind == "let":
            report.add(value, "HF0108", f"`let` takes a text, not {value.kind}")
            return None
        elif value.value not in (None, {}, ""):
            report.add(value, "HF0108", f"`{kind}` takes nothing")
        return draft

    def _own_keys(self, node: Node, draft: Draft, other: list[str]) -> None:
        """Keys that belong to the step's type."""
        report, kind = self.report, draft.kind
        own = key_index(kind.keys)
        if kind.name in ("goto", "retry") and (to := draft.common.pop("next", None)) is not None:
            # What is a common key elsewhere is what these steps are about.
            if "next" in draft.args:
                report.add(to, "HF0115", "where to go was already given in the short form")
            else:
                draft.args["next"] = to
        if kind.name == "if" and "target" not in draft.args and "condition" in draft.common:
            draft.args["target"] = draft.common.pop("condition")
        for key in other:
            known = own.get(style_free(key))
            if known is not None:
                if known in draft.args or known in draft.pairs:
                    report.add(node, "HF0115", f"`{key}` was already given in the short form", key=key)
                else:
                    draft.args[known] = node.value[key]
                continue
            candidates = [entry.name for entry in (*COMMON_KEYS, *kind.keys)]
            of_nested = key_index(STEP_TYPES["workflow"].keys).get(style_free(key))
            if of_nested == "steps":
                help = "a step does one thing: put these steps behind it, or below `type: workflow`"
            elif of_nested is not None:
                help = f"`{of_nested}` belongs to a nested workflow: `type: workflow` with `{of_nested}` and `steps`"
            else:
                help = did_you_mean(key, candidates)
            if not help and draft.block:
                help = f"parameters of a block go under `input`: `input: {{{key}: …}}`"
            what = (
                f"step `{draft.common['id'].value}`" if "id" in draft.common else f"a `{draft.uses or kind.name}` step"
            )
            report.add(node, "HF0102", f"unknown key `{key}` in {what}", key=key, label="not a step key",
                       help=help)  # fmt: skip
        self._places(draft)

    def _places(self, draft: Draft) -> None:
        """What is assigned to, in the long form."""
        if draft.place is None:
            for key in ("variable", "sensor", "config"):
                if key in draft.args and any(own.name == key for own in draft.kind.keys):
                    self._variable(draft, key)

    def _common_keys(self, draft: Draft) -> None:
        if draft.kind.name == "transform" and "transform" in draft.args:
            source = draft.args["transform"]
            filters = source.text if isinstance(source, Excerpt) else source.plain()
            for text in filters if isinstance(filters, list) else [filters]:
                draft.lane.variables |= set(_SETS.findall(text)) if isinstance(text, str) else set()
        id = draft.common.get("id")
        label = draft.args.pop("label", None) if draft.kind.name == "label" else None
        if label is not None:
            given = label if isinstance(label, Node) else None
            if id is not None:
                self.report.add(id, "HF0115", "the label is the id; leave `id` out")
            if given is None:
                assert isinstance(label, Excerpt)
                given = Node(label.node.document, label.text, label.node.parent, label.node.key)
                given.line, given.column = label.node.line, label.node.column
                given.end_line, given.end_column = label.node.end_line, label.node.end_column
            draft.id = self._id(given)
        elif id is not None:
            draft.id = self._id(id)
        if draft.id:
            draft.lane.steps[draft.id] = draft.index
        if not draft.block and draft.kind.name != "load":
            for key in sorted(EXTERNAL_KEYS & draft.common.keys()):
                if key == "retry" and draft.kind.name in RETRIED:
                    continue
                self.report.add(
                    draft.common[key], "HF0132", f"`{key}` has no effect on a `{draft.kind.name}` step",
                    warning=True,
                )  # fmt: skip

    def _id(self, node: Node) -> str:
        value = node.value
        if not isinstance(value, str) or not NAME.match(value):
            self.report.add(node, "HF0113", "an id is made of letters, digits, `_` and `-`")
            return ""
        if value.lower() in RESERVED_IDS:
            self.report.add(node, "HF0113", f"the id `{value}` has a meaning of its own",
                            help=f"call it `{value}-here` or so")  # fmt: skip
            return ""
        if value in self.ids:
            first = self.ids[value].line + 1
            self.report.add(node, "HF0112", f"the id `{value}` is used twice",
                            label=f"first on line {first}" if first else "")  # fmt: skip
            return ""
        self.ids[value] = node
        return value

    def _variable(self, draft: Draft, key: str) -> None:
        """The long form: `variable: x` or `variable: {name, type}`; sensors may say their entity too."""
        given = draft.args.pop(key)
        if isinstance(given, Excerpt):
            (self._define if key == "variable" else self._target)(draft, given)
            return
        name, type = given, None
        if isinstance(given.value, dict):
            table = VARIABLE_KEYS if key == "variable" else SENSOR_KEYS
            parts = take_keys(self.report, given, table, f"a {key}", f"not a key of a {key}")
            if "name" not in parts:
                self.report.add(given, "HF0109", f"the {key} has no `name`")
                return
            name, type = parts["name"], parts.get("type")
            if "entity" in parts:
                draft.args["entity"] = parts["entity"]
        if not isinstance(name.value, str):
            self.report.add(name, "HF0113", f"a {key} is a name, not {name.kind}")
            return
        (self._define if key == "variable" else self._target)(draft, Excerpt(name.value, name))
        if type is not None:
            text = type.value if isinstance(type.value, str) else ""
            self._type(draft, Excerpt(text, type))

    # --- branches ----------------------------------------------------------------------------------
    def _branches(self, draft: Draft, node: Node, depth: int) -> None:
        report = self.report
        if not isinstance(node.value, list):
            report.add(node, "HF0108", f"`parallel` takes a list of branches, not {node.kind}")
            return
        if not node.value:
            report.add(node, "HF0109", "`parallel` has no branches")
        used: set[str] = set()
        for item in node.value:
            made = self._branch(item, draft, depth)
            if made.key and made.key in used:
                report.add(item, "HF0112", f"two branches are called `{made.key}`")
            used.add(made.key)
            draft.bodies.append(made)

    def _branch(self, item: Node, draft: Draft, depth: int, needs: Node | None = None) -> Body:
        report = self.report
        lane = LaneNames(draft.lane)
        made = Body([], lane)
        value = item.value
        if isinstance(value, dict) and _is_branch(value):
            parts = take_keys(report, item, BRANCH_KEYS, "a branch", "not a key of a branch")
            if "id" in parts:
                made.key = self._id(parts["id"])
            elif "name" in parts and isinstance(parts["name"].value, str):
                made.key = parts["name"].value
            needs = needs or parts.get("needs")
            self.body(parts["steps"], lane, depth + 1, made)
        elif isinstance(value, list):
            self.body(item, lane, depth + 1, made)
        else:
            if isinstance(value, dict) and draft.kind.name == "graph":
                key = next((key for key in value if style_free(key) == "needs"), None)
                if key is not None:
                    needs = value[key]
                    rest = Node(item.document, {k: v for k, v in value.items() if k != key}, item.parent, item.key)
                    rest.line, rest.column, rest.marks = item.line, item.column, item.marks
                    rest.end_line, rest.end_column, rest.start, rest.end = (
                        item.end_line, item.end_column, item.start, item.end,
                    )  # fmt: skip
                    item = rest
            self.some(item, lane, depth + 1, made)
            made.key = made.steps[0].id if made.steps else ""
        if isinstance(value, (list, dict)) and not made.steps and not report.errors:
            report.add(item, "HF0109", "the branch has no steps")
        if needs is not None:
            listed = needs.value if isinstance(needs.value, list) else [needs]
            for need in listed:
                if isinstance(need.value, str):
                    made.needs.append(Excerpt(need.value, need))
                    lane.variables.add(need.value)  # its output
                else:
                    report.add(need, "HF0108", f"`needs` names nodes, not {need.kind}")
        return made

    def _nodes(self, draft: Draft, node: Node, depth: int) -> None:
        """`graph`: a map of id → node, or a list of nodes that have ids."""
        report = self.report
        items: list[tuple[str, Node]] = []
        if isinstance(node.value, dict):
            # As they are stored: a map has no order, and what runs after a restart must be numbered like this.
            items = sorted(node.value.items())
        elif isinstance(node.value, list):
            items = [("", item) for item in node.value]
        else:
            report.add(node, "HF0108", f"`graph` takes a map or a list of nodes, not {node.kind}")
        if not items and isinstance(node.value, (dict, list)):
            report.add(node, "HF0109", "`graph` has no nodes")
        used: set[str] = set()
        for key, item in items:
            made = self._branch(item, draft, depth)
            made.key = key or made.key
            if not made.key:
                report.add(item, "HF0109", "a node of a graph needs an `id`")
            elif made.key in used:
                report.add(item, "HF0112", f"two nodes are called `{made.key}`")
            used.add(made.key)
            draft.bodies.append(made)


def _is_branch(value: dict[str, Node]) -> bool:
    """`{id, steps}`, and not a step that has steps itself."""
    keys = {style_free(key) for key in value}
    return "steps" in keys and not keys & _SAYS_STEP


_SAYS_STEP = frozenset(("step", "s", "shorthand", "type", *TYPE_INDEX))
#: the other word for `block`
FUNCTION_BLOCK = "functionblock"
#: kinds whose body is a lane of its own
NESTING = frozenset(("workflow", "foreach"))
#: kinds on which `retry` goes on at what failed inside
RETRIED = frozenset(("workflow", "foreach", "subworkflow", "parallel", "graph", "use", "invoke", "if", "switch"))
#: the filter `set`, and the variable it sets
_SETS = re.compile(r"(?:^|\|)\s*set\s+([^\W\d]\w*)")
_IS_SIMPLE = re.compile(r"\$\{\w+(\.\.\.)?\}\Z")
#: kinds whose main part may be a map
_TAKES_MAP = frozenset(("log", "return", "if", "switch", "graph", "approve", "fail"))
