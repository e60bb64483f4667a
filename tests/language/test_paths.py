"""`{{ … }}`: JMESPath text to values, over the tree that every expression becomes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.model import BlobRef
from holdfast.language.evaluate import ABSENT, FUEL, compile_expression
from holdfast.language.expressions import ExpressionSyntax
from holdfast.language.operations import ExpressionError
from holdfast.language.paths import parse_braces, parse_path

DATA: dict[str, Any] = {
    "host": "sw1", "zero": 0, "one": 1, "half": 0.5, "yes": True, "no": False, "empty": "", "none": None,
    "list": [3, 1, 2], "words": ["b", "a"], "blank": [], "bare": {}, "da-sh": "d", "nested": [[1, 2], [3, [4]], 5],
    "map": {"b": {"c": 7}, "s": "text"},
    "ports": [
        {"name": "e1", "speed": 10, "up": True, "tags": ["x", "y"]},
        {"name": "e2", "speed": 100, "up": False, "tags": []},
        {"name": "e3", "speed": 1000, "up": True},
    ],
    "sites": {"ams": {"racks": {"n": 2}}, "fra": {"racks": {"n": 3}}},
}  # fmt: skip


class World:
    """A scope with inputs, an entity and outputs of steps."""

    def __init__(self, type: str = "device") -> None:
        self.fuel = FUEL
        self.facts = {"id": "sw1", "name": "Switch 1", "type": type, "facts": {"platform": "ios", "ip": "10.0.0.1"}}
        self.outputs: dict[str, Any] = {
            "check": {"ports": DATA["ports"], "version": "15.2"},
            "quiet": None,
            "broken": {"success": False, "error": {"message": "no answer"}},
        }

    def lookup(self, name: str) -> Any:
        return ABSENT

    def given(self) -> Any:
        return DATA

    def step(self, id: str) -> Any:
        return self.outputs.get(id, ABSENT)

    def entity(self, kind: str, name: str) -> Any:
        return self.facts.get(name, ABSENT) if kind == "about" else ABSENT

    def load(self, value: Any) -> Any:
        return DATA["ports"] if isinstance(value, BlobRef) else value

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing of this asks for `{name}`")


def value_of(text: str, world: World | None = None) -> Any:
    return compile_expression(parse_path(text), lenient=True)(world or World())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # paths
        ("parameters.host", "sw1"),
        ("parameters.map.b.c", 7),
        ("parameters", DATA),
        ("parameters.missing", None),
        ("parameters.missing.deeper.still", None),
        ("parameters.host.of_a_text", None),
        ("parameters.list.of_a_list", None),
        ("parameters.none.x", None),
        ('parameters."da-sh"', "d"),
        ('parameters."map"."b"', {"c": 7}),
        # indexes and slices
        ("parameters.list[0]", 3),
        ("parameters.list[-1]", 2),
        ("parameters.list[9]", None),
        ("parameters.list[-9]", None),
        ("parameters.map[0]", None),
        ("parameters.missing[0]", None),
        ("parameters.nested[1][1][0]", 4),
        ("parameters.list[1:]", [1, 2]),
        ("parameters.list[:1]", [3]),
        ("parameters.list[::-1]", [2, 1, 3]),
        ("parameters.list[0:2:2]", [3]),
        ("parameters.host[0:2]", None),
        # projections
        ("parameters.ports[*].name", ["e1", "e2", "e3"]),
        ("parameters.ports[*].tags", [["x", "y"], []]),
        ("parameters.ports[*].tags[]", ["x", "y"]),
        ("parameters.ports[].tags[0]", ["x"]),
        ("parameters.ports[*].missing", []),
        ("parameters.host[*].name", None),
        ("parameters.missing[*].name", None),
        ("parameters.nested[]", [1, 2, 3, [4], 5]),
        ("parameters.nested[][]", [1, 2, 3, 4, 5]),
        ("parameters.sites.*.racks", [{"n": 2}, {"n": 3}]),
        ("parameters.sites.*.racks.n", [2, 3]),
        ("parameters.list.*", None),
        ("parameters.ports[1:].name", ["e2", "e3"]),
        ("parameters.ports[*].name | [0]", "e1"),
        ("parameters.ports[*].[name, speed]", [["e1", 10], ["e2", 100], ["e3", 1000]]),
        ("parameters.ports[0].{n: name, s: speed}", {"n": "e1", "s": 10}),
        ("parameters.missing.[a, b]", None),
        ("[parameters.one, parameters.host]", [1, "sw1"]),
        ("{a: parameters.one, b: parameters.missing}", {"a": 1, "b": None}),
        # filters
        ("parameters.ports[?up].name", ["e1", "e3"]),
        ("parameters.ports[?!up].name", ["e2"]),
        ("parameters.ports[?speed > `10`].name", ["e2", "e3"]),
        ("parameters.ports[?speed > `10` && up].name", ["e3"]),
        ("parameters.ports[?speed == `10` || name == 'e3'].name", ["e1", "e3"]),
        ("parameters.ports[?tags[0] == 'x'].name | [0]", "e1"),
        ("parameters.ports[?contains(name, '2')].name", ["e2"]),
        ("parameters.ports[?missing].name", []),
        ("parameters.list[?@ > `1`]", [3, 2]),
        # operators; 0 is true, and sides are given as they are
        ("parameters.missing || 'other'", "other"),
        ("parameters.empty || parameters.blank || parameters.bare || parameters.no || 'last'", "last"),
        ("parameters.zero || 'other'", 0),
        ("parameters.host && parameters.one", 1),
        ("parameters.empty && parameters.one", ""),
        ("parameters.yes || parameters.no && parameters.no", True),
        ("(parameters.yes || parameters.no) && parameters.no", False),
        ("!parameters.missing", True),
        ("!parameters.zero", False),
        ("!!parameters.host", True),
        ("!parameters.no && parameters.yes", True),
        ("parameters.one == `1`", True),
        ("parameters.one == `1.0`", True),
        ("parameters.one == `true`", False),
        ("parameters.list == `[3, 1, 2]`", True),
        ("parameters.map.b != `{\"c\": 7}`", False),
        ("parameters.missing == `null`", True),
        ("parameters.one < `2`", True),
        ("parameters.one >= `2`", False),
        ("parameters.host < 'z'", None),
        ("parameters.missing < `2`", None),
        ("parameters.one == `1` && parameters.half < `1` || parameters.no", True),
        ("!parameters.one == `1`", False),
        # literals
        ("'it\\'s'", "it's"),
        ("`\"text\"`", "text"),
        ("`[1, {\"a\": null}]`", [1, {"a": None}]),
        ("`0.5`", 0.5),
        # pipes
        ("parameters.map | b.c", 7),
        ("parameters | host", "sw1"),
        ("parameters.list | sort(@) | [0]", 1),
        ("parameters.missing | length(keys(`{}`))", 0),
        # functions
        ("length(parameters.host)", 3),
        ("length(parameters.list)", 3),
        ("length(parameters.map)", 2),
        ("contains(parameters.list, `3`)", True),
        ("contains(parameters.host, 'w1')", True),
        ("contains(parameters.host, `1`)", False),
        ("starts_with(parameters.host, 'sw')", True),
        ("ends_with(parameters.host, 'sw')", False),
        ("join(', ', parameters.words)", "b, a"),
        ("keys(parameters.map)", ["b", "s"]),
        ("values(parameters.map)", [{"c": 7}, "text"]),
        ("to_string(parameters.list)", "[3,1,2]"),
        ("to_string(parameters.host)", "sw1"),
        ("to_number('12')", 12),
        ("to_number('1.5')", 1.5),
        ("to_number('x')", None),
        ("to_number(parameters.yes)", None),
        ("sort(parameters.words)", ["a", "b"]),
        ("sort(parameters.list)", [1, 2, 3]),
        ("max(parameters.list)", 3),
        ("min(parameters.words)", "a"),
        ("max(parameters.blank)", None),
        ("sum(parameters.list)", 6),
        ("avg(parameters.list)", 2.0),
        ("avg(parameters.blank)", None),
        ("abs(`-3`)", 3),
        ("ceil(parameters.half)", 1),
        ("floor(parameters.half)", 0),
        ("not_null(parameters.missing, parameters.none, 'x')", "x"),
        ("not_null(parameters.missing)", None),
        ("type(parameters.missing)", "null"),
        ("type(parameters.half)", "number"),
        ("type(parameters.list)", "array"),
        ("type(parameters.map)", "object"),
        ("type(parameters.yes)", "boolean"),
        ("reverse(parameters.list)", [2, 1, 3]),
        ("reverse(parameters.host)", "1ws"),
        ("to_array(parameters.host)", ["sw1"]),
        ("merge(parameters.map, `{\"s\": 1}`)", {"b": {"c": 7}, "s": 1}),
        ("map(&speed, parameters.ports)", [10, 100, 1000]),
        ("map(&tags[0], parameters.ports)", ["x", None, None]),
        ("sort_by(parameters.ports, &name)[-1].name", "e3"),
        ("max_by(parameters.ports, &speed).name", "e3"),
        ("min_by(parameters.ports, &speed).name", "e1"),
        ("parameters.ports[*].length(name)", [2, 2, 2]),
        # the entity at hand and the results of steps
        ("context.device.id", "sw1"),
        ("context.device.facts.platform", "ios"),
        ("context.device.platform", "ios"),
        ("context.device.missing", None),
        ("context.device.platform == 'ios'", True),
        ("context.interface.name", None),
        ("context.device_group.id", None),
        ("check.result.data.version", "15.2"),
        ("check.result.data.ports[?up].name", ["e1", "e3"]),
        ("check.result.success", True),
        ("broken.result.success", False),
        ("quiet.result.success", True),
        ("never.result.success", None),
        ("never.result.data.x", None),
    ],
)  # fmt: skip
def test_value(text: str, expected: Any) -> None:
    found = value_of(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("type", "expected"), [("device", None), ("interface", "Switch 1"), ("group", None)])
def test_context_is_of_the_type_at_hand_only(type: str, expected: str | None) -> None:
    assert value_of("context.interface.name", World(type)) == expected
    assert (value_of("context.device_group.name", World(type)) is None) == (type != "group")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ parameters.one }}", 1),
        ("{{parameters.list}}", [3, 1, 2]),
        ("{{ parameters.missing }}", None),
        ("vlan {{ parameters.one }}", "vlan 1"),
        ("{{ parameters.host }}-{{ parameters.one }}", "sw1-1"),
        ("is {{ parameters.yes }} or {{ parameters.missing }}", "is true or null"),
        ("list {{ parameters.list }}", "list [3,1,2]"),
        ("{{ {a: parameters.one} }}", {"a": 1}),
        ("{{ '}}' }}", "}}"),
        ("{{ `{\"a\": {}}` }}!", '{"a":{}}!'),
        ("no braces, and ${HOME} is text", "no braces, and ${HOME} is text"),
        ("{{ parameters.host }} ${x}", "sw1 ${x}"),
    ],
)  # fmt: skip
def test_braces_in_text(text: str, expected: Any) -> None:
    assert compile_expression(parse_braces(text), lenient=True)(World()) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code", "marked", "message"),
    [
        ("{{ }}", "HF0185", "{{ }}", "no expression"),
        ("a {{ parameters.x", "HF0185", "{{", "never closed"),
        ("{{ parameters. }}", "HF0185", ".", "missing behind the dot"),
        ("{{ parameters.a b }}", "HF0185", "b", "unexpected `b`"),
        ("{{ parameters.a = 1 }}", "HF0185", "=", "unexpected `=`"),
        ("{{ parameters.da-sh }}", "HF0185", "-", "unexpected `-`"),
        ("{{ parameters.a == 1 }}", "HF0185", "1", "stands alone"),
        ("{{ parameters.a['x'] }}", "HF0185", "'x'", "an index is a number"),
        ("{{ parameters.a[::0] }}", "HF0185", "parameters.a[::0]", "cannot be 0"),
        ("{{ 'open }}", "HF0185", "{{", "never closed"),
        ("{{ `{no json` }}", "HF0185", "`{no json`", "not JSON"),
        ("{{ length() }}", "HF0185", "length()", "takes 1 argument"),
        ("{{ sort_by(parameters.a, name) }}", "HF0185", "name", "takes `&…`"),
        ("{{ length(&a) }}", "HF0185", "&a", "takes no `&…`"),
        ("{{ lenght(parameters.a) }}", "HF0186", "lenght", "no function"),
        ("{{ host }}", "HF0186", "host", "has `result`"),
        ("{{ host.name }}", "HF0186", "host.name", "is not `parameters`"),
        ("{{ check.result }}", "HF0186", "check.result", "`data` and `success`"),
        ("{{ check.result.date.x }}", "HF0186", "check.result.date.x", "no `date`"),
        ("{{ context.router.x }}", "HF0186", "context.router.x", "no `router`"),
        ("{{ context }}", "HF0186", "context", "not a value"),
        ("{{ @ }}", "HF0186", "@", "whole context"),
        ("{{ (parameters.a }}", "HF0185", "a", "`)` expected"),
        ("{{ parameters.a || }}", "HF0185", "|", "not finished"),
        ("{{ " + "(" * 80 + "a" + ")" * 80 + " }}", "HF0124", " ", "too large"),
        ("{{ parameters" + ".a" * 90 + " }}", "HF0124", " ", "too large"),
        ("{{ parameters." + "a" * 5000 + " }}", "HF0124", " ", "longer than"),
    ],
)  # fmt: skip
def test_unreadable(text: str, code: str, marked: str, message: str) -> None:
    with pytest.raises(ExpressionSyntax) as caught:
        parse_braces(text)
    assert caught.value.code == code
    assert message in caught.value.message
    assert text[caught.value.start : caught.value.end] == marked


@pytest.mark.parametrize(
    ("text", "message", "is_absent"),
    [
        ("length(parameters.missing)", "`length` needs a string, a list or a map, not null", True),
        ("length(parameters.one)", "not an integer", False),
        ("sort(parameters.nested)", "a list of numbers or of strings", False),
        ("sum(parameters.words)", "a list of numbers", False),
        ("join(',', parameters.list)", "needs a string", False),
        ("keys(parameters.list)", "needs a map", False),
    ],
)
def test_functions_refuse_other_types(text: str, message: str, is_absent: bool) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        value_of(text)
    assert caught.value.absent == is_absent


def test_side_that_is_not_needed_is_not_evaluated() -> None:
    assert value_of("parameters.host || length(parameters.one)") == "sw1"
    assert value_of("parameters.no && length(parameters.one)") is False


def test_long_results_are_loaded_when_they_are_looked_into() -> None:
    world = World()
    world.outputs["check"] = {"ports": BlobRef(b"x" * 16, 10)}
    assert value_of("check.result.data.ports[0].name", world) == "e1"
    assert value_of("check.result.data.ports[*].name", world) == ["e1", "e2", "e3"]


def test_cost_is_limited() -> None:
    world = World()
    world.outputs["check"] = {"many": [{"n": n} for n in range(6000)]}
    with pytest.raises(ExpressionError) as caught:
        value_of("check.result.data.many[?n > `1`].n", world)
    assert caught.value.code == "HF0161"


@settings(max_examples=300)
@given(st.text("parametershost.[]*?@&|!=<>(){}`'\"0:1,- ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    whole = f"{{{{{text}}}}}"
    tree = None
    with suppress(ExpressionSyntax):
        tree = parse_braces(whole)
    if tree is not None:
        with suppress(ExpressionError):
            compile_expression(tree, lenient=True)(World())  # type: ignore[arg-type]
