"""Reading the short form of steps: the first word is the type or a block, the rest follows a template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .conditions import style_free
from .names import RESERVED_NAMES, Excerpt, LaneNames
from .nodes import Node, Report
from .places import Place, parse_place
from .problems import Unreadable, did_you_mean, suggest
from .shorthand import BadTemplate, Capture, match_shorthand, quoted_end, skip, word_end
from .steps import BLOCK_FORMS, COMING_TYPES, STEP_TYPES, TYPE_INDEX, USE, StepType
from .values import type_of

NAME = re.compile(r"[^\W\d][\w-]*\Z")
#: with its package before it and a version, whole or partial, behind it
BLOCK_NAME = re.compile(r"[A-Za-z_][\w.-]*(?:/[A-Za-z_][\w.-]*)?(?::[0-9][0-9A-Za-z.-]*)?\Z")
_PAIR = re.compile(r"(?P<key>[^\W\d][\w-]*)\s*=\s*")
#: of `invoke … with a=1, b: 2`
_ARGUMENT = re.compile(r"(?P<key>[^\W\d][\w-]*)(?:\s*=\s*|:\s+)")


@dataclass(slots=True, eq=False)
class Body:
    """Steps that follow each other."""

    steps: list[Draft]
    lane: LaneNames
    #: its name among the branches, if it has one
    key: str = ""
    #: the body of the same lane that it is in, if any
    around: Body | None = None
    #: its steps handle an error
    is_handler: bool = False
    #: written in one line with its step
    is_inline: bool = False
    #: of a node of a graph: what comes before it
    needs: list[Excerpt] = field(default_factory=list)
    #: the ids of its steps, once somebody asks
    ids: frozenset[str] | None = None

    def has(self, id: str) -> bool:
        """Whether a step of that id can be gone to from inside. Asked only when all steps are there."""
        body: Body | None = self
        while body is not None:
            if body.ids is None:
                body.ids = frozenset(step.id for step in body.steps)
            if id in body.ids:
                return True
            body = body.around
        return False

    @property
    def in_handler(self) -> bool:
        body: Body | None = self
        while body is not None:
            if body.is_handler:
                return True
            body = body.around
        return False


@dataclass(slots=True, eq=False)
class Draft:
    """One step, sorted out but not compiled."""

    node: Node
    index: int
    kind: StepType
    lane: LaneNames
    #: the short form as it was written
    short: str = ""
    id: str = ""
    #: keys that every step has
    common: dict[str, Node] = field(default_factory=dict)
    #: what belongs to the type, from keys (nodes) or from the short form (excerpts)
    args: dict[str, Node | Excerpt] = field(default_factory=dict)
    #: written as `function-block`, which is a block that works on entities
    is_upon: bool = False
    #: words of the short form that are there or not
    flags: dict[str, bool] = field(default_factory=dict)
    #: parameters given in the short form of a block
    pairs: dict[str, Excerpt] = field(default_factory=dict)
    block: str = ""
    #: of a step that is a registered type
    uses: str = ""
    #: what is assigned to
    place: Place | None = None
    type: str = ""
    #: a step in the same line: `then …`, `do …`
    inline: Excerpt | None = None
    #: by number, in the order of `Step.bodies`
    bodies: list[Body] = field(default_factory=list)
    handlers: Body | None = None
    cleanup: Body | None = None
    #: the body it stands in
    body: Body | None = None
    loop: tuple[str, ...] = ()


class ShortForms:
    """Makes drafts out of texts. The reader of whole definitions builds on it."""

    def __init__(self, report: Report, drafts: list[Draft], forms: Mapping[str, str]) -> None:
        self.report = report
        #: of all documents that are compiled together
        self.drafts = drafts
        #: short forms of registered types, by name
        self.forms = forms
        self.current: Body | None = None

    def _draft(self, node: Node, kind: StepType, lane: LaneNames, short: str = "") -> Draft:
        draft = Draft(node, len(self.drafts), kind, lane, short)
        draft.body = self.current
        self.drafts.append(draft)
        return draft

    def _short(self, whole: Excerpt, step: Node, common: dict[str, Node], lane: LaneNames) -> Draft | None:
        text = whole.node
        lead = len(whole.text) - len(whole.text.lstrip())
        end = lead
        while end < len(whole.text) and not whole.text[end].isspace():
            end += 1
        word = whole.text[lead:end]
        if not word:
            self.report.add(text, "HF0109", "the step is empty")
            return None
        kind = TYPE_INDEX.get(style_free(word))
        rest = whole.part(end)
        # What the language says itself means the same everywhere, whatever somebody publishes.
        if kind is None and word in self.forms:
            draft = self._use(step, word, lane, rest, whole.text.strip())
        elif kind is None:
            if style_free(word) in _COMING or not self._may_be_block(word, rest):
                self._unknown_type(word, whole.part(lead, end))
                return None
            draft = self._draft(step, STEP_TYPES["block"], lane, whole.text.strip())
            draft.block = word
            self._pairs(draft, rest)
        elif kind in BLOCK_FORMS:
            draft = self._draft(step, STEP_TYPES["block"], lane, whole.text.strip())
            draft.block = kind
            self._block_form(draft, rest, kind)
        elif STEP_TYPES[kind].shorthand is None:
            whole.report(self.report, "HF0111", f"`{kind}` has no short form", lead, end,
                         help=f"write `{STEP_TYPES[kind].example}`")  # fmt: skip
            return None
        else:
            draft = self._draft(step, STEP_TYPES[kind], lane, whole.text.strip())
            self._captures(draft, rest)
        draft.common = common
        return draft

    def _use(self, step: Node, name: str, lane: LaneNames, rest: Excerpt, short: str) -> Draft:
        draft = self._draft(step, USE, lane, short)
        draft.uses = name
        template = self.forms[name]
        if template and rest.text.strip():
            self._parameters_of(draft, rest, name, template)
        else:
            self._pairs(draft, rest)
        return draft

    def _parameters_of(self, draft: Draft, rest: Excerpt, name: str, template: str) -> None:
        try:
            found = match_shorthand(template, rest.text)
        except BadTemplate as bad:
            rest.report(self.report, "HF0111", f"the short form of `{name}` cannot be read: {bad}",
                        help=f"mend `shorthand` of `{name}`, or give its parameters under `input`")  # fmt: skip
            return
        if found is None:
            self._unmatched(name, template, rest)
            return
        for key, capture in found.items():
            if isinstance(capture, Capture):
                draft.pairs[key] = rest.part(capture.start, capture.start + len(capture.text))
            else:
                draft.flags[key] = capture

    def _may_be_block(self, word: str, rest: Excerpt) -> bool:
        """A name with a dot, parameters behind it, or nothing like a step type."""
        if not BLOCK_NAME.match(word):
            return False
        if "." in word or _PAIR.match(rest.text.strip()):
            return True
        return not rest.text.strip() and not suggest(word, [*STEP_TYPES, *BLOCK_FORMS])

    def _unknown_type(self, word: str, at: Excerpt) -> None:
        if style_free(word) in _COMING:
            help = "it belongs to the language, but not yet to this version"
        else:
            help = did_you_mean(word, [*STEP_TYPES, *BLOCK_FORMS]) or "`block: NAME` runs a block"
        at.report(self.report, "HF0110", f"unknown step type `{word}`", label="not a step type", help=help)

    def _captures(self, draft: Draft, rest: Excerpt) -> None:
        template = draft.kind.shorthand or ""
        if not rest.text.strip():
            return  # what is missing may be given by keys
        found = match_shorthand(template, rest.text)
        if found is None:
            self._unmatched(draft.kind.name, template, rest)
            return
        for name, capture in found.items():
            if not isinstance(capture, Capture):
                draft.flags[name] = capture
                continue
            excerpt = rest.part(capture.start, capture.start + len(capture.text))
            if name in ("variable.name", "place"):
                self._define(draft, excerpt)
            elif name in ("sensor.name", "config.name"):
                self._target(draft, excerpt)
            elif name.endswith(".type"):
                self._type(draft, excerpt)
            elif name == "block":
                draft.block = excerpt.text
                if not BLOCK_NAME.match(excerpt.text):
                    excerpt.report(self.report, "HF0113", f"`{excerpt.text}` is not a name for a block")
            elif name == "pairs":
                self._pairs(draft, excerpt)
            elif name in ("then", "do"):
                draft.inline = excerpt
            elif name == "source":
                draft.args["value"] = excerpt
            else:
                draft.args[name] = excerpt

    def _unmatched(self, name: str, template: str, rest: Excerpt) -> None:
        shown = template.replace("...", "")
        text = rest.text.strip()
        start = len(rest.text) - len(rest.text.lstrip())
        help = f"it is `{name} {shown}`" if shown else f"`{name}` takes nothing"
        message = f"the short form of `{name}` does not fit"
        rest.report(self.report, "HF0111", message, start, start + len(text), help=help)

    def _block_form(self, draft: Draft, rest: Excerpt, name: str) -> None:
        template = BLOCK_FORMS[name][0]
        if not rest.text.strip():
            return
        found = match_shorthand(template, rest.text)
        if found is None:
            self._unmatched(name, template, rest)
            return
        for key, capture in found.items():
            if isinstance(capture, Capture):
                part = rest.part(capture.start, capture.start + len(capture.text))
                inner = part.unquoted()
                draft.pairs[key] = Excerpt(inner.text, inner.node, inner.offset, is_text=True)

    def _pairs(self, draft: Draft, rest: Excerpt) -> None:
        """`key=value key2="two words"`, separated by spaces; after `with` also by commas, and with colons."""
        at = 0
        text = rest.text
        is_invoked = draft.kind.name == "invoke"
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            match = (_ARGUMENT if is_invoked else _PAIR).match(text, at)
            end = word_end(text, match.end() if match else at)
            after = end
            if is_invoked and match is not None:
                end, after = _argument_end(text, match.end())
            if match is None or match.end() >= len(text):
                word = text[at:end]
                close = suggest(draft.block, [*STEP_TYPES, *BLOCK_FORMS]) if "." not in draft.block else ""
                help = f"did you mean `{close}`?" if close else "parameters are written `key=value`"
                name = draft.block or draft.uses or draft.kind.name
                message = f"`{word}` is not a parameter of `{name}`"
                rest.report(self.report, "HF0111", message, at, end, help=help)
                return
            key = match["key"]
            if key in draft.pairs:
                rest.report(self.report, "HF0103", f"the parameter `{key}` occurs twice", at, match.end())
            draft.pairs[key] = rest.part(match.end(), end)
            at = after

    def _define(self, draft: Draft, name: Excerpt) -> None:
        """A variable, or a place inside of one, that the step sets."""
        place = self._place(name)
        if place is None:
            return
        if place.name in RESERVED_NAMES:
            name.report(self.report, "HF0113", f"`{place.name}` cannot be a variable")
        elif place.name == "output" and place.path:
            name.report(self.report, "HF0113", "only the output as a whole can be set")
        else:
            draft.place = place
            if place.name != "output":
                draft.lane.variables.add(place.name)

    def _target(self, draft: Draft, name: Excerpt) -> None:
        """A sensor or configuration value, or a place inside of one."""
        draft.place = self._place(name)

    def _place(self, name: Excerpt) -> Place | None:
        try:
            return parse_place(name.text)
        except Unreadable as error:
            name.report(self.report, "HF0113", f"`{name.text}` is not a place for a value: {error.message}",
                        error.start, error.end, help=error.help)  # fmt: skip
            return None

    def _type(self, draft: Draft, word: Excerpt) -> None:
        draft.type = type_of(word.text) or ""
        if not draft.type:
            help = "one of string, integer, number, boolean, list, map, any, duration"
            if draft.kind.name == "transform":
                help = f"write `transform variable {word.text} | …` to change it, `transform value …` for a value"
            word.report(self.report, "HF0116", f"`{word.text}` is not a type", help=help)


_COMING = frozenset(style_free(word) for word in COMING_TYPES)


def _argument_end(text: str, at: int) -> tuple[int, int]:
    """Where the value of an argument ends, and where the next one begins."""
    end = quoted_end(text, at) or word_end(text, at)
    if text[end - 1] == "," and _ARGUMENT.match(text, skip(text, end)):
        return end - 1, end
    comma = skip(text, end)
    return end, comma + 1 if text.startswith(",", comma) else end


def _is_inline(item: Node) -> bool:
    """`[…]` or `{…}` on one line."""
    text = item.document.text[item.start : item.end]
    return item.line >= 0 and text[:1] in ("[", "{") and "\n" not in text.rstrip()


def rejoin(node: Node) -> Node | None:
    """`- log done: yes` is a map by accident; as a single key with a space it is read as the text it was."""
    if len(node.value) != 1:
        return None
    ((key, item),) = node.value.items()
    words = key.split()
    if len(words) < 2 or (isinstance(item.value, (dict, list)) and not _is_inline(item)):
        return None
    if style_free(words[0]) not in TYPE_INDEX and not BLOCK_NAME.match(words[0]):
        return None
    document = node.document
    if item.line >= 0 and key in node.marks:
        line, column = node.marks[key]
        text = document.text[node.start : item.end]
        if not text.startswith(key) or "\n" in text:
            text = f"{key}: {document.text[item.start : item.end]}"
        text = text.rstrip()
    else:
        line = column = -1
        text = f"{key}: {'' if item.value is None else item.value}".rstrip()
    joined = Node(document, text, node.parent, node.key)
    joined.line, joined.column = line, column
    joined.end_line, joined.end_column = line, column + len(text)
    joined.start, joined.end = node.start, item.end
    return joined
