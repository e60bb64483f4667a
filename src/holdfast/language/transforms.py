"""The pipeline of `transform`: `trim | split , | first`, read when the workflow is checked.

Each filter becomes a closure over its arguments, which may hold `${…}`. What filters do to values is in
`filters`; setting variables, waiting and returning are the step's business, so those filters only say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

from . import filters
from .evaluate import STEPS_PER_FUEL, Scope, settle, spend, weigh
from .expressions import ExpressionSyntax
from .load import Unstorable, scalar
from .names import Excerpt, Names, Value, constant
from .nodes import Node
from .operations import ExpressionError
from .places import Place, parse_place
from .predicates import parse_path
from .problems import Unreadable, did_you_mean
from .regex import Regex, compile_regex, parse_replacement
from .templates import embedded, is_quoted, unquote
from .values import TYPES, Mismatch, coerce, type_of

MAX_FILTERS = 50

Run: TypeAlias = Callable[[Scope, Any], Any]


@dataclass(slots=True, frozen=True)
class Filter:
    """One part of the pipeline. Called with a scope and a value, it gives the next value."""

    name: str
    run: Run
    #: of `set`: the value goes there, and on
    place: Place | None = None
    #: the value has to be there first: `wait`, `merge … wait`
    is_wait: bool = False
    #: the pipeline ends here, and the value is what the workflow returns
    is_return: bool = False

    def __call__(self, scope: Scope, value: Any) -> Any:
        try:
            return weigh(scope, self.run(scope, settle(scope, value, None)), None)
        except ExpressionError as error:
            if not error.message.startswith("`"):
                error.message = f"`{self.name}`: {error.message}"
            raise


class Kind(NamedTuple):
    build: Callable[[_Args], Run | Filter]
    #: what may follow the name
    arguments: str
    text: str


class _Refused(Exception):
    """Reported already."""


def parse_transforms(source: Excerpt | Node, names: Names) -> list[Filter]:
    """Filters from `a | b c | d`, or from a list of these. What is wrong is reported at its place."""
    if isinstance(source, Excerpt):
        return _pipeline(source, names)
    value = source.value
    if isinstance(value, str):
        return _pipeline(Excerpt(value, source), names)
    report = names.shared.report
    if not isinstance(value, list) or not value:
        report.add(source, "HF0108", f"filters are a text or a list of texts, not {source.kind}")
        return []
    made: list[Filter] = []
    for item in value:
        if isinstance(item.value, str):
            made += _pipeline(Excerpt(item.value, item), names)
        else:
            report.add(item, "HF0108", f"a filter is a text, not {item.kind}", help="write it as `name argument`")
    return made


def list_of_words(excerpt: Excerpt, names: Names) -> Value:
    """`${a} ${b} 3` as a list of its words, which is what `merge` as the first filter is about."""
    try:
        pieces = _split(excerpt, names)
    except _Refused:
        return constant([])
    values = [_value(word, names) for piece in pieces for word in piece]
    if all(value.fn is None for value in values):
        return constant([value.constant for value in values])
    gets = [value.get for value in values]
    trees = tuple(tree for value in values for tree in value.trees)
    return Value(None, lambda scope: weigh(scope, [get(scope) for get in gets], None), excerpt.text, trees)


# --- text ------------------------------------------------------------------------------------------
def _pipeline(excerpt: Excerpt, names: Names) -> list[Filter]:
    report = names.shared.report
    try:
        pieces = _split(excerpt, names)
    except _Refused:
        return []
    if len(pieces) > MAX_FILTERS:
        excerpt.report(report, "HF0116", f"more than {MAX_FILTERS} filters")
        return []
    made: list[Filter] = []
    for piece in pieces:
        try:
            made.append(_filter(piece, excerpt, names))
        except _Refused:
            continue
    for one in made[:-1]:
        if one.is_return:
            excerpt.report(report, "HF0116", "nothing can follow `return`")
    return made


def _filter(words: list[Excerpt], whole: Excerpt, names: Names) -> Filter:
    report = names.shared.report
    if not words:
        whole.report(report, "HF0116", "a filter is missing", help="filters are joined by one `|`")
        raise _Refused
    name = words[0].text.lower().replace("-", "_")
    kind = FILTERS.get(name)
    if kind is None:
        help = "expressions are read when the workflow is checked, so that a text cannot become one while it runs"
        if name != "resolve_expression":
            help = did_you_mean(words[0].text, FILTERS) or f"the filters are {', '.join(sorted(FILTERS))}"
        words[0].report(report, "HF0116", f"there is no filter `{words[0].text}`", help=help)
        raise _Refused
    args = _Args(name, kind, words, names)
    built = kind.build(args)
    args.end()
    return built if isinstance(built, Filter) else Filter(name, built)


def _split(excerpt: Excerpt, names: Names) -> list[list[Excerpt]]:
    """Words of each filter. A quoted phrase and `${…}` are one word, whatever is in them."""
    text = excerpt.text
    pieces: list[list[Excerpt]] = [[]]
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        if char == "|":
            pieces.append([])
            at += 1
            continue
        start = at
        at = _quoted_end(text, at)
        if at == start:
            at = _word_end(excerpt, at, names)
        pieces[-1].append(excerpt.part(start, at))
    return pieces


def _quoted_end(text: str, start: int) -> int:
    """Behind a quoted phrase that stands alone; `start` if there is none."""
    quote = text[start]
    if quote not in "'\"":
        return start
    at = start + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    at += 1
    return at if at <= len(text) and (at == len(text) or text[at].isspace() or text[at] == "|") else start


def _word_end(excerpt: Excerpt, at: int, names: Names) -> int:
    text = excerpt.text
    while at < len(text) and not text[at].isspace() and text[at] != "|":
        if text.startswith("${", at) and (at == 0 or text[at - 1] != "$"):
            try:
                at = embedded(text, at, names.shared.dashed)[1]
            except ExpressionSyntax as error:
                excerpt.report(names.shared.report, error.code, error.message, error.start, error.end, help=error.help)
                raise _Refused from None
        else:
            at += 1
    return at


def _value(word: Excerpt, names: Names) -> Value:
    """A word as a value: quoted text, a template, or a literal typed as YAML."""
    if is_quoted(word.text):
        inner = word.unquoted()
        return names.template(inner) if "${" in inner.text else constant(unquote(word.text))
    if "${" in word.text:
        return names.template(word)
    try:
        return constant(scalar(word.text))
    except Unstorable as error:
        word.report(names.shared.report, "HF0118", str(error))
        return constant(None)


class _Args:
    """The words behind a filter's name, taken one after the other."""

    def __init__(self, name: str, kind: Kind, words: list[Excerpt], names: Names) -> None:
        self.name = name
        self.kind = kind
        self.head, *self.words = words
        self.names = names

    def fail(self, message: str, at: Excerpt | None = None, help: str = "") -> NoReturn:
        usage = f"it is `{self.name} {self.kind.arguments}`" if self.kind.arguments else f"it is only `{self.name}`"
        (at or self.head).report(self.names.shared.report, "HF0116", message, help=help or usage)
        raise _Refused

    def misread(self, error: Unreadable, at: Excerpt) -> NoReturn:
        """At its own place in the word, if nothing in it was quoted or escaped."""
        inner = at.unquoted()
        is_same = inner.text == at.text or inner.text == at.text[1:-1]
        start, end = (error.start, error.end) if is_same else (0, None)
        inner.report(self.names.shared.report, "HF0116", error.message, start, end, help=error.help)
        raise _Refused

    def flags(self, *allowed: str) -> set[str]:
        found: set[str] = set()
        while self.words and self.words[0].text.lower() in allowed:
            word = self.words.pop(0)
            if word.text.lower() in found:
                self.fail(f"`{word.text}` is given twice", word)
            found.add(word.text.lower())
        return found

    def one_of(self, *allowed: str) -> str:
        """One of the words that exclude each other, or nothing."""
        found = self.flags(*allowed)
        if len(found) > 1:
            self.fail(f"{' and '.join(f'`{word}`' for word in sorted(found))} exclude each other")
        return next(iter(found), "")

    def word(self, what: str) -> Excerpt:
        if not self.words:
            self.fail(f"`{self.name}` needs {what}")
        return self.words.pop(0)

    def value(self, what: str) -> Value:
        return _value(self.word(what), self.names)

    def text(self, what: str) -> Callable[[Scope], str]:
        """Written as it stands: `1.0` stays that text."""
        return self.text_at(self.word(what))

    def text_at(self, word: Excerpt) -> Callable[[Scope], str]:
        if "${" not in word.text:
            fixed = unquote(word.text)
            return lambda scope: fixed
        value = _value(word, self.names)
        return lambda scope: filters.text_of(settle(scope, value.get(scope), None))

    def number(self, what: str) -> Callable[[Scope], int]:
        word = self.word(what)
        value = _value(word, self.names)
        if value.fn is None and (not isinstance(value.constant, int) or isinstance(value.constant, bool)):
            self.fail(f"`{word.text}` is not an integer", word)

        def get(scope: Scope) -> int:
            found = settle(scope, value.get(scope), None)
            try:
                made: int = coerce("integer", found)
            except Mismatch as mismatch:
                raise ExpressionError(str(mismatch), absent=found is None) from None
            return made

        return get

    def regex(self, word: Excerpt, groups_in: Excerpt | None = None) -> Callable[[Scope], Regex]:
        if "${" in word.text:
            text = self.text_at(word)
            return lambda scope: _compiled(text(scope))
        try:
            ready = compile_regex(unquote(word.text))
        except Unreadable as error:
            self.misread(error, word)
        if groups_in is not None and "${" not in groups_in.text:
            try:
                parse_replacement(unquote(groups_in.text), ready.groups)
            except Unreadable as error:
                self.misread(error, groups_in)
        return lambda scope: ready

    def end(self) -> None:
        if not self.words:
            return
        extra = self.words[0]
        if not self.kind.arguments:
            self.fail(f"`{self.name}` takes no arguments", extra)
        self.fail(f"unexpected `{extra.text}`", extra, help=f"it is `{self.name} {self.kind.arguments}`; quote spaces")


def _compiled(pattern: str) -> Regex:
    try:
        return compile_regex(pattern)
    except Unreadable as error:
        raise ExpressionError(f"the regular expression cannot be read: {error}") from None


def _pay(scope: Scope) -> Callable[[int], None]:
    return lambda steps: spend(scope, 1 + steps // STEPS_PER_FUEL, None)


# --- filters with arguments ------------------------------------------------------------------------
def _replace(args: _Args) -> Run:
    found = args.flags("all", "regex", "glob", "literal")
    modes = found - {"all"}
    if len(modes) > 1:
        args.fail("`regex`, `glob` and `literal` exclude each other")
    is_all, mode = "all" in found, next(iter(modes), "literal")
    pattern, to = args.word("a pattern"), args.word("a replacement")
    new = args.text_at(to)
    if mode == "regex":
        regex = args.regex(pattern, to)

        def run(scope: Scope, value: Any) -> Any:
            try:
                return regex(scope).replace(filters.as_string(value), new(scope), is_all, _pay(scope))
            except Unreadable as error:
                raise ExpressionError(str(error)) from None

        return run
    old = args.text_at(pattern)
    if mode == "literal":
        return lambda scope, value: filters.replace(filters.as_string(value), old(scope), new(scope), is_all)

    def run_glob(scope: Scope, value: Any) -> Any:
        plain = new(scope).replace("\\", "\\\\").replace("$", "$$")
        return filters.glob_regex(old(scope), is_all).replace(filters.as_string(value), plain, is_all, _pay(scope))

    return run_glob


def _merge(args: _Args) -> Filter:
    found = args.flags("list", "set", "map", "deep", "wait", "lax")
    kinds = found & {"list", "set", "map"}
    if len(kinds) > 1:
        args.fail("`list`, `set` and `map` exclude each other")
    kind, is_deep, is_lax = next(iter(kinds), ""), "deep" in found, "lax" in found
    if is_deep and kind in ("list", "set"):
        args.fail(f"`deep` means nothing for a {kind}")
    run: Run = lambda scope, value: filters.merge(value, kind, is_deep, is_lax)  # noqa: E731
    return Filter("merge", run, is_wait="wait" in found)


def _add(is_before: bool) -> Callable[[_Args], Run]:
    def build(args: _Args) -> Run:
        more = args.value("what to add")
        return lambda scope, value: filters.add(value, settle(scope, more.get(scope), None), is_before)

    return build


def _join(args: _Args) -> Run:
    separator = args.text("a separator") if args.words else (lambda scope: "")
    return lambda scope, value: filters.join(value, separator(scope))


def _split_text(args: _Args) -> Run:
    limit: Callable[[Scope], int] = lambda scope: 0  # noqa: E731
    keeps, mode = False, ""
    while args.words and args.words[0].text.lower() in ("limit", "keep_delimiters", "literal", "regex"):
        # The last word is the delimiter, whatever it is.
        if len(args.words) == 1:
            break
        word = args.words.pop(0).text.lower()
        if word == "limit":
            limit = args.number("a number")
        elif word == "keep_delimiters":
            keeps = True
        elif mode and mode != word:
            args.fail("`literal` and `regex` exclude each other")
        else:
            mode = word
    delimiter = args.word("a delimiter")
    if mode == "regex":
        regex = args.regex(delimiter)
        return lambda scope, value: filters.split_regex(
            filters.as_string(value), regex(scope), limit(scope), keeps, _pay(scope)
        )
    text = args.text_at(delimiter)
    return lambda scope, value: filters.split(filters.as_string(value), text(scope), limit(scope), keeps)


def _slice(args: _Args) -> Run:
    start = args.number("where to begin")
    end: Callable[[Scope], int | None] = args.number("where to end") if args.words else (lambda scope: None)
    return lambda scope, value: filters.cut(value, start(scope), end(scope))


def _remove(args: _Args) -> Run:
    part = args.value("a key or a number")
    return lambda scope, value: filters.without(value, settle(scope, part.get(scope), None))


def _type(args: _Args) -> Run:
    word = args.word("a type")
    kind = type_of(word.text)
    if kind is None:
        args.fail(f"there is no type `{word.text}`", word, did_you_mean(word.text, TYPES) or f"use {', '.join(TYPES)}")

    def run(scope: Scope, value: Any) -> Any:
        try:
            return coerce(kind, value)
        except Mismatch as mismatch:
            raise ExpressionError(str(mismatch), absent=value is None) from None

    return run


def _notation(args: _Args) -> Run:
    convert = filters.notation(args.name, args.one_of("string", "parse", "encode"))
    return lambda scope, value: convert(value)


def _bash(args: _Args) -> Run:
    name = args.one_of("json", "yaml")
    convert = filters.bash(name, args.one_of("string", "encode"))
    return lambda scope, value: convert(value)


def _get(args: _Args) -> Run:
    if not args.words:
        return lambda scope, value: value
    word = args.word("a path")
    if "${" not in word.text:
        try:
            path = parse_path(unquote(word.text))
        except Unreadable as error:
            args.misread(error, word)
        return lambda scope, value: filters.get(value, path)
    key = _value(word, args.names)
    return lambda scope, value: filters.get(value, (settle(scope, key.get(scope), None),))


def _set(args: _Args) -> Filter:
    word = args.word("a variable")
    try:
        place = parse_place(word.text)
    except Unreadable as error:
        args.misread(error, word)
    return Filter("set", lambda scope, value: value, place=place)


def _plain(function: Callable[[Any], Any]) -> Callable[[_Args], Run]:
    return lambda args: lambda scope, value: function(value)


FILTERS: dict[str, Kind] = {
    "trim": Kind(
        _plain(filters.trim), "", "no space around a text; no null or empty text in a list; no null in a map"
    ),
    "replace": Kind(
        _replace, "[all] [regex|glob|literal] PATTERN REPLACEMENT",
        "the first match, or all; `$1` is a group of a `regex`; a `glob` takes as much as it can, unless `all`",
    ),
    "merge": Kind(
        _merge, "[list|set|map] [deep] [wait] [lax]",
        "a list of maps or lists in one; `lax` leaves out what does not fit",
    ),
    "prepend": Kind(_add(True), "VALUE", "a text or items before"),
    "append": Kind(_add(False), "VALUE", "a text or items behind"),
    "join": Kind(_join, "[SEPARATOR]", "one text from many"),
    "split": Kind(
        _split_text, "[limit N] [keep_delimiters] [literal|regex] DELIMITER", "many texts from one"
    ),
    "slice": Kind(_slice, "START [END]", "a part of a list or text; negative numbers count from the end"),
    "remove": Kind(_remove, "KEY|INDEX", "without that key or item"),
    "type": Kind(_type, "TYPE", "read as that type"),
    "json": Kind(_notation, "[string|parse|encode]", "texts are read as JSON; `string` and `encode` write it"),
    "yaml": Kind(_notation, "[string|parse|encode]", "the same for YAML; only what follows the last `---` is read"),
    "bash": Kind(_bash, "[json|yaml] [string|encode]", "as one word of a shell command"),
    "first": Kind(_plain(filters.end_of(0)), "", "the first item or character"),
    "last": Kind(_plain(filters.end_of(-1)), "", "the last item or character"),
    "min": Kind(_plain(filters.extreme("<")), "", "the smallest number, text or duration of a list"),
    "max": Kind(_plain(filters.extreme(">")), "", "the largest number, text or duration of a list"),
    "sum": Kind(_plain(filters.total), "", "numbers or durations added"),
    "average": Kind(_plain(filters.average), "", "the mean of numbers or durations"),
    "size": Kind(_plain(filters.size), "", "length of a text, list or map"),
    "to_string": Kind(_plain(filters.text_of), "", "as text; lists and maps as JSON"),
    "to_upper_case": Kind(_plain(lambda value: filters.as_string(value).upper()), "", "in upper case"),
    "to_lower_case": Kind(_plain(lambda value: filters.as_string(value).lower()), "", "in lower case"),
    "get": Kind(_get, "[PATH]", "what is at `.key[0]`"),
    "set": Kind(_set, "VARIABLE", "put it into a variable, and go on with it"),
    "wait": Kind(lambda args: Filter("wait", lambda scope, value: value, is_wait=True), "", "until it is there"),
    "return": Kind(
        lambda args: Filter("return", lambda scope, value: value, is_return=True), "", "return it from the workflow"
    ),
}  # fmt: skip
