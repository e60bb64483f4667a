"""From nodes to drafts: which step is of which type, which keys and words belong to it, what it defines.

This is the first pass. It settles the structure (types, ids, branches, the names that `let` defines), so that
the second pass, `compile`, knows every name when it reads the expressions.
"""

from __future__ import annotations

from .conditions import style_free
from .load import MAX_DEPTH
from .names import Excerpt, LaneNames
from .nodes import Node, Report
from .problems import did_you_mean, suggest
from .short import BLOCK_NAME, NAME, Body, Draft, ShortForms, rejoin
from .steps import (
    BLOCK_FORMS,
    BRANCH_KEYS,
    COMMON_KEYS,
    EXTERNAL_KEYS,
    RESERVED_IDS,
    STEP_TYPES,
    TYPE_INDEX,
    VARIABLE_KEYS,
    Key,
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

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.ids: dict[str, Node] = {}

    def body(self, node: Node, lane: LaneNames, depth: int = 0) -> list[Draft]:
        if not isinstance(node.value, list):
            self.report.add(node, "HF0108", f"`steps` is a list of steps, not {node.kind}")
            return []
        return [step for item in node.value if (step := self.step(item, lane, depth)) is not None]

    def step(self, node: Node, lane: LaneNames, depth: int) -> Draft | None:
        if depth > MAX_DEPTH // 2:
            self.report.add(node, "HF0107", f"steps are nested more than {MAX_DEPTH // 2} levels deep")
            return None
        value = node.value
        if isinstance(value, str):
            return self._short(node, node, {}, lane)
        if isinstance(value, dict):
            rejoined = rejoin(node)
            if rejoined is not None:
                return self._short(rejoined, node, {}, lane)
            return self._long(node, lane, depth)
        self.report.add(node, "HF0108", f"a step is a text or a map, not {node.kind}")
        return None

    # --- the long form -----------------------------------------------------------------------------
    def _long(self, node: Node, lane: LaneNames, depth: int) -> Draft | None:
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
        ways = [key for key in ("step", "type") if key in common] + [key for key, _ in named]
        if len(ways) > 1:
            report.add(node, "HF0115", f"`{ways[0]}` and `{ways[1]}` both say what the step does", key=ways[1])
            return None
        if "step" in common:
            text = common.pop("step")
            if not isinstance(text.value, str):
                report.add(text, "HF0108", f"`step` is a text, not {text.kind}")
                return None
            draft = self._short(text, node, common, lane)
        elif "type" in common:
            draft = self._typed(common.pop("type"), node, common, lane)
        elif named:
            key, kind = named[0]
            draft = self._named(node, node.value[key], kind, common, lane, depth)
        else:
            self._nameless(node, other)
            return None
        if draft is not None:
            self._own_keys(node, draft, other)
            self._common_keys(draft)
        return draft

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
        if kind is None:
            self._unknown_type(node.value, Excerpt(node.value, node))
            return None
        draft = self._draft(step, STEP_TYPES["block" if kind in BLOCK_FORMS else kind], lane)
        draft.common = common
        draft.block = kind if kind in BLOCK_FORMS else ""
        return draft

    def _named(
        self, step: Node, value: Node, kind: str, common: dict[str, Node], lane: LaneNames, depth: int
    ) -> Draft | None:
        """`log: …`, `block: …`, `parallel: …`: the key is the type, the value its main part."""
        report = self.report
        if kind in BLOCK_FORMS or kind == "let":
            if not isinstance(value.value, str):
                report.add(value, "HF0108", f"`{kind}` takes a text, not {value.kind}")
                return None
            if kind == "let":
                draft = self._draft(step, STEP_TYPES["let"], lane, f"let {value.value}")
                self._captures(draft, Excerpt(value.value, value))
            else:
                draft = self._draft(step, STEP_TYPES["block"], lane, f"{kind} {value.value}")
                draft.block = kind
                self._block_form(draft, Excerpt(value.value, value), kind)
            draft.common = common
            return draft
        draft = self._draft(step, STEP_TYPES[kind], lane)
        draft.common = common
        if kind == "parallel":
            self._branches(draft, value, depth)
        elif kind == "block":
            if isinstance(value.value, str) and BLOCK_NAME.match(value.value):
                draft.block = value.value
            else:
                report.add(value, "HF0113", "`block` takes the name of a block")
        elif STEP_TYPES[kind].main:
            draft.args[STEP_TYPES[kind].main] = value
            if isinstance(value.value, str):
                draft.short = f"{kind} {value.value}"
        elif value.value not in (None, {}, ""):
            report.add(value, "HF0108", f"`{kind}` takes nothing")
        return draft

    def _own_keys(self, node: Node, draft: Draft, other: list[str]) -> None:
        """Keys that belong to the step's type."""
        report, kind = self.report, draft.kind
        own = key_index(kind.keys)
        for key in other:
            known = own.get(style_free(key))
            if known is not None:
                if known in draft.args or known in draft.pairs:
                    report.add(node, "HF0115", f"`{key}` was already given in the short form", key=key)
                else:
                    draft.args[known] = node.value[key]
                continue
            candidates = [entry.name for entry in (*COMMON_KEYS, *kind.keys)]
            help = did_you_mean(key, candidates)
            if not help and draft.block:
                help = f"parameters of a block go under `input`: `input: {{{key}: …}}`"
            what = f"step `{draft.common['id'].value}`" if "id" in draft.common else f"a `{kind.name}` step"
            report.add(node, "HF0102", f"unknown key `{key}` in {what}", key=key, label="not a step key",
                       help=help)  # fmt: skip
        if kind.name == "let" and not draft.variable:
            self._variable(draft)

    def _common_keys(self, draft: Draft) -> None:
        id = draft.common.get("id")
        if id is not None:
            draft.id = self._id(id)
            if draft.id:
                draft.lane.steps[draft.id] = draft.index
        if not draft.block:
            for key in sorted(EXTERNAL_KEYS & draft.common.keys()):
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

    def _variable(self, draft: Draft) -> None:
        """The long form: `variable: x` or `variable: {name, type}`."""
        given = draft.args.pop("variable", None)
        if not isinstance(given, Node):
            self.report.add(draft.node, "HF0109", "`let` needs a variable", help="`let x = 1`")
            return
        name, type = given, None
        if isinstance(given.value, dict):
            parts = take_keys(self.report, given, VARIABLE_KEYS, "a variable", "not a key of a variable")
            if "name" not in parts:
                self.report.add(given, "HF0109", "the variable has no `name`")
                return
            name, type = parts["name"], parts.get("type")
        if not isinstance(name.value, str):
            self.report.add(name, "HF0113", f"a variable is a name, not {name.kind}")
            return
        self._define(draft, Excerpt(name.value, name))
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
            lane = LaneNames(draft.lane)
            body = Body([], lane)
            value = item.value
            if isinstance(value, dict) and any(style_free(key) == "steps" for key in value):
                parts = take_keys(report, item, BRANCH_KEYS, "a branch", "not a key of a branch")
                if "id" in parts:
                    body.key = self._id(parts["id"])
                elif "name" in parts and isinstance(parts["name"].value, str):
                    body.key = parts["name"].value
                body.steps = self.body(parts["steps"], lane, depth + 1)
            elif isinstance(value, list):
                body.steps = self.body(item, lane, depth + 1)
            else:
                step = self.step(item, lane, depth + 1)
                body.steps = [step] if step else []
                body.key = step.id if step else ""
            if isinstance(value, (list, dict)) and not body.steps and not report.errors:
                report.add(item, "HF0109", "the branch has no steps")
            if body.key and body.key in used:
                report.add(item, "HF0112", f"two branches are called `{body.key}`")
            used.add(body.key)
            draft.bodies.append(body)
