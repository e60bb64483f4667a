"""Expressions: golden values, absence, limits, and agreement with a simple oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model import BlobRef
from holdfast.language.evaluate import ABSENT, FUEL, compile_expression
from holdfast.language.expressions import ExpressionSyntax, parse
from holdfast.language.functions import FUNCTIONS
from holdfast.language.operations import ExpressionError, distinct, same
from holdfast.language.templates import parse_template, parse_words
from holdfast.language.tree import (
    Binary,
    Call,
    Choice,
    Expr,
    Index,
    ListOf,
    Literal,
    MapOf,
    Member,
    Name,
    StepRef,
    Unary,
    unparse,
)


class Scope:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.fuel = FUEL
        self.loaded: list[BlobRef] = []

    def lookup(self, name: str) -> Any:
        return self.values.get(name, ABSENT)

    def variable(self, name: str) -> Any:
        return self.values.get(name, ABSENT)

    def given(self) -> Any:
        return self.values

    def previous(self) -> Any:
        return self.values.get("output")

    def step(self, id: str) -> Any:
        return self.values.get(f"step {id}", ABSENT)

    def about(self, key: str) -> Any:
        return {"id": "e1", "util.now": 5, "current_step.name": "here", "output": 1}.get(key, ABSENT)

    def entity(self, kind: str, name: str) -> Any:
        facts = {("about", "id"): "n1", ("sensor", "lock-a"): "e1", ("sensor", "a.b"): 2, ("config", "c"): {"d": 3},
                 ("ready", "up"): True, ("sensor", "null"): None, ("sensor", "text"): {"k": 4}}  # fmt: skip
        return facts.get((kind, name), ABSENT)

    def error(self) -> Any:
        return self.values.get("the error", ABSENT)

    def load(self, value: Any) -> Any:
        self.loaded.append(value)
        return {b"list": [1, 2, 3], b"map": {"k": "v", "deep": BlobRef(b"list", 9)}}[value.digest]


VALUES: dict[str, Any] = {
    "x": 3, "y": 4.5, "s": "text", "t": True, "n": None, "l": [1, "b", [True]], "m": {"a": 1, "b c": {"d": [5]}},
    "blob": BlobRef(b"map", 2000), "output": {"o": 1}, "step my-step": {"v": 7}, "dry-run": False,
}  # fmt: skip


def value_of(text: str, lenient: bool = False) -> Any:
    return compile_expression(parse(text, frozenset(["dry-run"])), lenient)(Scope(VALUES))


GOLDEN: list[tuple[str, Any]] = [
    ("1 + 1 == 2", True), ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("8 / 2", 4), ("4 / 5", 0.8), ("7 % 3", 1),
    ("2 - 3 - 4", -5), ("-x + 1", -2), ("!t", False), ("!n", True), ("1 < 2 && 2 < 3", True), ("t || 1 / 0", True),
    ("false || true && false", False), ("'a' + 'b'", "ab"), ("[1] + [2]", [1, 2]), ("1 == 1.0", True),
    ("1 == true", False), ("'1' == 1", False), ("[1, {a: 2}] == [1, {a: 2}]", True), ("[1] == [true]", False),
    ("x > 2 ? 'big' : 'small'", "big"), ("t ? n ? 1 : 2 : 3", 2), ("nope ?? 5", 5), ("n ?? 6", 6),
    ("nope.a.b[3] + 1 ?? 7", 7), ("1 / 0 ?? 8", 8), ("a ?? b ?? 9", 9), ("false ?? 1", False),
    ("m.a", 1), ("m['b c'].d[0]", 5), ("l[1]", "b"), ("'b' in l", True), ("'a' in m", True), ("'ex' in s", True),
    ("input.x", 3), ("vars.x", 3), ("output.o", 1), ("o ?? output.o", 1), ("steps.my-step.output.v", 7),
    ("steps['my-step'].output.v", 7), ("workflow.id", "e1"), ("blob.k", "v"), ("blob.deep[2]", 3),
    ("sum(blob.deep)", 6), ("size(l)", 3), ("{a: x, 'b c': [s]}", {"a": 3, "b c": ["text"]}), ("dry-run", False),
    ("x-1", 2), ("!dry-run", True), ("upper(s)", "TEXT"), ("join(['a', 1, true], '-')", "a-1-true"),
    ("split('a,b', ',')", ["a", "b"]), ("keys(m)", ["a", "b c"]), ("first(l)", 1), ("last('abc')", "c"),
    ("min(3, 1, 2)", 1), ("max([1, 5, 2])", 5), ("int('12')", 12), ("int(2.9)", 2), ("float(1)", 1.0),
    ("string(m)", '{"a":1,"b c":{"d":[5]}}'), ("string(1.5)", "1.5"), ("bool('no')", False), ("range(2, 5)", [2, 3, 4]),
    ("default(nope, 1)", 1), ("replace('aXbX', 'X', '-')", "a-b-"), ("round(2.456, 1)", 2.5), ("abs(-3)", 3),
    ("trim('  a ')", "a"), ("starts_with(s, 'te')", True), ("ends_with(s, 'x')", False), ("unique([1, 1, 2])", [1, 2]),
    ("contains(s, 'ex')", True), ("'it\\'s' + \"\\n\\u00e9\"", "it's\né"), ("1e3", 1000.0), (".5 + 0", 0.5),
    ("matches('ab\\n', 'a.+')", True), ("matches('abc', 'b')", False), ("find('a1b22', '[0-9]+')", "1"),
    ("find('k=v', '(.)=(.)')", ["k", "v"]), ("find('k=v', '(.)=')", "k"), ("find('k', 'x') ?? 'no'", "no"),
    ("find_all('a1b22', '[0-9]+')", ["1", "22"]), ("replace_regex('a1b22', '([0-9]+)', '<$1>')", "a<1>b<22>"),
    ("json({a: [1, null]})", '{"a":[1,null]}'), ("parse_json('{\"a\": [1, null]}')", {"a": [1, None]}),
    ("merge({a: 1, b: 1}, {b: 2})", {"a": 1, "b": 2}), ("merge([1], [2], [])", [1, 2]), ("get(m, 'a')", 1),
    ("get(m, 'z', 5)", 5), ("get(l, -3)", 1), ("get(l, 9)", None), ("get(n, 'a', 2)", 2), ("index_of(l, 'b')", 1),
    ("index_of(s, 'x')", 2), ("index_of(l, 9)", -1), ("slice(s, 1, -1)", "ex"), ("slice(l, 1)", ["b", [True]]),
    ("sort([3, 1.5, 2])", [1.5, 2, 3]), ("sort(['b', 'a'])", ["a", "b"]), ("reverse([1, 2])", [2, 1]),
    ("reverse(s)", "txet"), ("flatten([1, [2, [3]]])", [1, 2, [3]]), ("entries({a: 1})", [{"key": "a", "value": 1}]),
    ("lines('a\\nb\\n')", ["a", "b"]), ("duration('1h30m')", 5400), ("duration('10ms')", 0.01), ("floor(2.7)", 2),
    ("ceil(2.1)", 3), ("average([1, 2])", 1.5), ("average([])  ?? 0", 0), ("type(l)", "list"), ("type(1.5)", "number"),
    ("base64('hé')", "aMOp"), ("base64_decode('aMOp')", "hé"), ("url_encode('a b/c')", "a%20b%2Fc"),
    ("shell_quote('it\\'s')", "'it'\"'\"'s'"), ("shell_quote(5)", "5"),
    ("entity.id", "n1"), ("entity.sensor.lock-a", "e1"), ("entity.sensor['a.b']", 2), ("entity.config.c.d", 3),
    ("entity.attributeWhenReady.up", True), ("entity.sensor[s].k", 4), ("entity.sensor.null", None),
    ("entity.sensor.none ?? 0", 0), ("entity.sensor.null ?? 1", 1), ("entity.sensor.lock-a == 'e1'", True),
    ("entity.sensor[nope] ?? 3", 3),
    ("workflow.util.now", 5), ("workflow.current_step.name", "here"), ("workflow.output", 1), ("workflow.var.x", 3),
    ("workflow.input.x", 3), ("workflow.step.my-step.output.v", 7), ("workflow.step['my-step'].output.v", 7),
    ("vars['x']", 3), ("error ?? 'none'", "none"), ("workflow.error ?? 'none'", "none"),
    ("values({a: 1})", [1]), ("lower('AB')", "ab"), ("[]", []), ("{}", {}), ("[1, 2,]", [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), GOLDEN)
def test_golden_values(text: str, value: Any) -> None:
    got = value_of(text)
    assert got == value
    assert type(got) is type(value)
    tree = parse(text, frozenset(["dry-run"]))
    assert parse(unparse(tree), frozenset(["dry-run"])) == tree


def test_an_error_is_known_where_it_is_handled() -> None:
    scope = Scope({"error": "a variable"})
    assert compile_expression(parse("error"))(scope) == "a variable"
    scope.values["the error"] = {"kind": "timeout", "cause": None}
    assert compile_expression(parse("error.kind"))(scope) == "timeout"
    assert compile_expression(parse("workflow.error.kind"))(scope) == "timeout"


def test_every_function_has_a_golden_value() -> None:
    shown = " ".join(text for text, _ in GOLDEN)
    assert [name for name in FUNCTIONS if f"{name}(" not in shown] == []


@pytest.mark.parametrize(
    ("text", "message", "start", "end"),
    [
        ("x + s", "`+` does not work on an integer and a string", 0, 5),
        ("1 + nope", "`nope` is absent", 4, 8),
        ("m.zz", "there is no `zz`; there is: a, b c", 0, 4),
        ("s.a", "a string has no `a`", 0, 3),
        ("l[9]", "there is no item 9 in a list of 3", 0, 4),
        ("l[0 - 1]", "an index cannot be negative", 0, 8),
        ("1 / 0", "division by zero", 0, 5),
        ("t < 1", "a boolean and an integer cannot be compared", 0, 5),
        ("9223372036854775807 + 1", "does not fit into 64 bits", 0, 23),
        ("1e308 * 10", "not a finite number", 0, 10),
        ("5.5 % 2", "`%` needs two integers", 0, 7),
        ("upper(x)", "`upper` needs a string, not an integer", 0, 8),
        ("range(99999)", "at most 10,000", 0, 12),
        ("-s", "`-` does not work on a string", 0, 2),
        ("n + 1", "null cannot be used", 0, 5),
        ("int('x')", "is not an integer", 0, 8),
        ("matches(s, '(')", "`matches`: `(` is never closed", 0, 15),
        ("merge({}, [])", "maps only or lists only", 0, 13),
        ("sort([1, 'a'])", "cannot be compared", 0, 14), ("parse_json('{')", "the text is not JSON", 0, 15),
        ("parse_json('99999999999999999999999')", "64 bits", 0, 37), ("base64_decode('?')", "base64 of a text", 0, 18),
        ("replace_regex(s, 'a', '$1')", "there is no group 1", 0, 27), ("floor(s)", "needs a number", 0, 8),
        ("duration('5')", "`5` is not a duration", 0, 13), ("get(s, 1)", "a string has no items", 0, 9),
        ("entity.sensor.none", "the sensor `none` is absent", 0, 18),
        ("entity.sensor[x]", "the name of a sensor is text, not an integer", 0, 16),
        ("entity.sensor", "this is not a value", 0, 13), ("workflow.util", "this is not a value", 0, 13),
        ("error.kind", "`error` is absent", 0, 5), ("workflow.run", "`workflow.run` is absent", 0, 12),
    ],
)  # fmt: skip
def test_errors_say_what_and_where(text: str, message: str, start: int, end: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        value_of(text)
    assert message in caught.value.message
    assert (caught.value.start, caught.value.end) == (start, end)


_data = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0, 1.5, "", "a", "list"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(_data, max_size=8))
def test_distinct_keeps_the_first_of_those_that_are_the_same(items: list[Any]) -> None:
    expected: list[Any] = []
    for item in items:
        if not any(same(item, other) for other in expected):
            expected.append(item)
    got = distinct(items)
    assert [(type(item), item) for item in got] == [(type(item), item) for item in expected]


def test_coalescing_does_not_hide_mistakes() -> None:
    with pytest.raises(ExpressionError):
        value_of("x + s ?? 1")


@pytest.mark.parametrize(
    ("text", "value"),
    [("nope", None), ("nope.a.b", None), ("m.zz", None), ("nope > 3", False), ("!nope", True), ("nope == null", True),
     ("l[9]", None), ("1 in nope", False), ("!(nope > 3) && x == 3", True)],
)  # fmt: skip
def test_conditions_take_absence_as_null(text: str, value: Any) -> None:
    assert value_of(text, lenient=True) == value


@pytest.mark.parametrize(
    ("text", "message", "start", "end"),
    [
        ("1 +", "a value is missing", 2, 3), ("", "a value is missing", 0, 1), ("a = 1", "unexpected `=`", 2, 3),
        ("a b", "unexpected `b`", 2, 3), ("(1", "`(` is never closed", 0, 1), ("[1, 2", "`[` is never closed", 0, 1),
        ("'abc", "the quote is never closed", 0, 1), ("1 < 2 < 3", "cannot be chained", 6, 7),
        ("a.", "a name is missing", 1, 2),
        ("5s", "neither a number nor a name", 0, 2), ("a ? 1", "`?` is never closed", 2, 3),
        ("a and b", "unexpected `and`", 2, 5),
        ("f(1", "`(` is never closed", 1, 2), ("'\\q'", "unknown escape", 1, 3), ("{a: 1, a: 2}", "occurs twice", 7, 8),
        ("a | b", "unexpected `|`", 2, 3), ("99999999999999999999", "64 bits", 0, 20),
        ("* 3", "a value is missing before `*`", 0, 1),
        ("${x}", "a value is missing before `${`", 0, 2), ("#", "unexpected `#`", 0, 1),
    ],
)  # fmt: skip
def test_syntax_errors_point_into_the_text(text: str, message: str, start: int, end: int) -> None:
    with pytest.raises(ExpressionSyntax) as caught:
        parse(text)
    assert message in caught.value.message
    assert (caught.value.start, caught.value.end) == (start, end)


@pytest.mark.parametrize(
    "text",
    ["(" * 500 + "1" + ")" * 500, "-" * 500 + "1", "[" * 500, "+".join("1" * 500), "a" + ".b" * 500, "a" + "[0" * 300,
     "1 ?" * 300, "x" * 5000, "'" + "y" * 5000 + "'", ",".join(["[1"] * 400), "!" * 10_000],
)  # fmt: skip
def test_size_and_depth_are_limited(text: str) -> None:
    with pytest.raises(ExpressionSyntax) as caught:
        parse(text)
    assert caught.value.code == "HF0124"


def test_patterns_are_limited() -> None:
    scope = Scope({"big": "ab" * 100_000, "many": list(range(20_000))})
    for text in ["find_all(big, '(a|b)+c')", "replace_regex(big, 'a', join(range(1000), '-'))",
                 "matches(big, '(?:[ab]?){500}')"]:  # fmt: skip
        scope.fuel = FUEL
        with pytest.raises(ExpressionError) as caught:
            compile_expression(parse(text))(scope)
        assert caught.value.code == "HF0161", text


def test_values_are_limited() -> None:
    scope = Scope({"big": "x" * 200_000, "many": list(range(20_000)), "deep": _deep(200)})
    for text in ["big + big", "join(many, big)", "[big, big]", "replace(big, 'x', 'yyyy')", "{a: big, b: big}",
                 "deep == deep", "string(split(big, 'x')) + string(split(big, 'x'))"]:  # fmt: skip
        scope.fuel = FUEL
        with pytest.raises(ExpressionError) as caught:
            compile_expression(parse(text))(scope)
        assert caught.value.code == "HF0161", text
    scope.fuel = 5
    with pytest.raises(ExpressionError, match="too many steps"):
        compile_expression(parse("size(many)"))(scope)


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"), ("${x}", 3), ("a ${x} b ${s}", "a 3 b text"), ("$${x} ${x}", "${x} 3"), ("${t}!", "true!"),
        ("${ {a: 1}.a }", 1), ("${'}'}", "}"), ("$x {y}", "$x {y}"), ("${m}", VALUES["m"]), ("${y}%", "4.5%"),
    ],
)  # fmt: skip
def test_templates(text: str, value: Any) -> None:
    assert compile_expression(parse_template(text))(Scope(VALUES)) == value


@pytest.mark.parametrize("text", ["a ${m}", "a ${l}", "a ${n}", "a ${nope}"])
def test_only_scalars_go_into_text(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(parse_template(text))(Scope(VALUES))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("no", "no"), ("'1'", "1"), ("hello world", "hello world"), ("${x} + 1", 4), ("${nope} + 1 ?? 0", 0),
        ("(${x} + 1) * 2", 8), ("${x} + 1 * 2", 5), ("${x} > 2 ? big one : small", "big one"), ("a ${x} b", "a 3 b"),
        ("'a  b' c", "a  b c"), ("[1, ${x}]", [1, 3]), ("{}", {}), ("${x} == 3 && ${t}", True), ("- 5", "- 5"),
        ("-5", -5),
        ("2 - 3", -1), ("null", None), ("'a' + 'b'", "ab"), ("${s} + '!'", "text!"), ('"${x}"', "${x}"),
        ("${l}", VALUES["l"]),
    ],
)  # fmt: skip
def test_words_of_let(text: str, value: Any) -> None:
    got = compile_expression(parse_words(text))(Scope(VALUES))
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["x + 1", "a - b", "${x} * y", "1 +", "+ 1 +", "1 ? 2", "( 1 + 2"])
def test_words_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ExpressionSyntax):
        parse_words(text)


# --- properties ------------------------------------------------------------------------------------
_names = st.sampled_from(["x", "y", "s", "n", "l", "m", "nope"])
_leaves: st.SearchStrategy[Expr] = st.one_of(
    st.builds(Literal, st.integers(0, 100)), st.builds(Literal, st.floats(0, 1e6).filter(lambda f: "e" not in repr(f))),
    st.builds(Literal, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)),
    st.builds(Literal, st.booleans()),
    st.builds(Literal, st.none()), st.builds(Name, _names),
    st.builds(Member, st.builds(StepRef, st.sampled_from(["a", "b-c"])),
                                                                      st.just("output")),
    st.builds(Member, st.just(Member(Name("entity"), "sensor")), st.sampled_from(["a", "b-c"])),
    st.builds(Index, st.just(Member(Name("entity"), "sensor")), st.builds(Literal, st.sampled_from(["a.b", "x"]))),
)  # fmt: skip
_operators = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "??"])


def _above(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Binary, _operators, inner, inner),
        st.builds(Unary, st.sampled_from("!-"), inner),
        st.builds(Choice, inner, inner, inner),
        st.builds(Member, inner, st.sampled_from(["a", "in", "output"])),
        st.builds(Index, inner, inner),
        st.builds(Call, st.sampled_from(["size", "string"]), st.tuples(inner)),
        st.builds(ListOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(MapOf, st.dictionaries(st.sampled_from(["a", "b c"]), inner, max_size=2).map(
            lambda made: tuple(made.items()))),
    )  # fmt: skip


_trees: st.SearchStrategy[Expr] = st.recursive(_leaves, _above, max_leaves=12)


@given(_trees)
def test_parsing_the_text_of_a_tree_gives_the_tree(tree: Expr) -> None:
    assert parse(unparse(tree)) == tree


@given(_trees, st.booleans())
def test_evaluation_gives_a_value_or_an_expression_error(tree: Expr, lenient: bool) -> None:
    try:
        compile_expression(tree, lenient)(Scope(VALUES))
    except ExpressionError:
        pass


_arithmetic: st.SearchStrategy[Expr] = st.recursive(
    st.builds(Literal, st.integers(0, 50)),
    lambda inner: st.builds(Binary, st.sampled_from(["+", "-", "*", "==", "<", ">="]), inner, inner),
    max_leaves=10,
)


@given(_arithmetic)
def test_integers_agree_with_python(tree: Expr) -> None:
    def oracle(node: Expr) -> Any:
        if isinstance(node, Literal):
            return node.value
        assert isinstance(node, Binary)
        left, right = oracle(node.left), oracle(node.right)
        if isinstance(left, bool) or isinstance(right, bool):
            if node.operator != "==":
                raise TypeError
            return left is right if isinstance(left, bool) and isinstance(right, bool) else False
        by_operator = {"+": left + right, "-": left - right, "*": left * right, "==": left == right}
        return (by_operator | {"<": left < right, ">=": left >= right})[node.operator]

    try:
        expected = oracle(tree)
    except TypeError:
        expected = TypeError
    try:
        got = compile_expression(parse(unparse(tree)))(Scope({}))
    except ExpressionError as error:
        got = TypeError if "64 bits" not in str(error) else expected
    assert got == expected


@given(st.text(st.sampled_from("ab1 .+-*/%!?:=<>&|()[]{}'\"$,xn\n"), max_size=40))
def test_any_text_is_an_expression_or_a_syntax_error(text: str) -> None:
    for read in (parse, parse_template, parse_words):
        try:
            tree = read(text)
        except ExpressionSyntax as error:
            if not 0 <= error.start < error.end:
                raise
            continue
        try:
            compile_expression(tree)(Scope(VALUES))
        except ExpressionError:
            pass
