"""Short forms: templates and what they capture."""

from __future__ import annotations

import pytest

from holdfast.language.shorthand import BadTemplate, Capture, compile_template, match_shorthand
from holdfast.language.steps import BLOCK_FORMS, LET, STEP_TYPES

RETRY = (
    '[?${replay} "replay"] [" from " ${next}] [" limit " ${limit...}] [" backoff " ${backoff...}]'
    ' [" timeout " ${timeout}]'
)
FOREACH = '${var} [ " in " ${target...} [ " do " ${step...} ] ]'


def captured(template: str, text: str) -> dict[str, object] | None:
    found = match_shorthand(template, text)
    if found is None:
        return None
    return {name: value.text if isinstance(value, Capture) else value for name, value in found.items()}


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        (LET, "x = 1", {"variable.name": "x", "value": "1"}),
        (LET, "x=1", {"variable.name": "x", "value": "1"}),
        (LET, "integer x = ${x} + 1", {"variable.type": "integer", "variable.name": "x", "value": "${x} + 1"}),
        (LET, "x = a = b", {"variable.name": "x", "value": "a = b"}),
        (LET, "x", {"variable.name": "x"}),
        (LET, "a b c", None),
        (LET, "", None),
        ("${message...}", ' "two words" ', {"message": '"two words"'}),
        ("${a} ${b}", "one ${x + 1} 'q r'", {"a": "one", "b": "${x + 1} 'q r'"}),
        ("${a} ${b} ${c}", "'x y' ${x + 1} rest of it", {"a": "'x y'", "b": "${x + 1}", "c": "rest of it"}),
        (RETRY, "", {"replay": False}),
        (RETRY, "limit 2 in 5s", {"replay": False, "limit": "2 in 5s"}),
        (
            RETRY,
            "replay from a limit 7d backoff 10s increasing 2x up to 5m timeout 1h",
            {"replay": True, "next": "a", "limit": "7d", "backoff": "10s increasing 2x up to 5m", "timeout": "1h"},
        ),
        (RETRY, "limited", None),
        (FOREACH, "x in ${list} do log ${x}", {"var": "x", "target": "${list}", "step": "log ${x}"}),
        (FOREACH, "x", {"var": "x"}),
        (FOREACH, "inn in 1..3", {"var": "inn", "target": "1..3"}),
        ('["to " ${endpoint}] ${command...}', "to host ls -l", {"endpoint": "host", "command": "ls -l"}),
        ('["to " ${endpoint}] ${command...}', "touch file", {"command": "touch file"}),
        ("", "", {}),
        ("", "x", None),
    ],
)
def test_templates_capture(template: str, text: str, expected: dict[str, object] | None) -> None:
    assert captured(template, text) == expected


def test_captures_know_where_they_begin() -> None:
    text = "integer  x=  ${a}"
    found = match_shorthand(LET, text)
    assert found is not None
    for value in found.values():
        assert isinstance(value, Capture)
        assert text[value.start :].startswith(value.text)


@pytest.mark.parametrize("template", ["[ ${a}", "${a} ]", "${}", "word"])
def test_bad_templates_are_refused(template: str) -> None:
    with pytest.raises(BadTemplate):
        compile_template(template)


def test_every_template_of_the_table_compiles() -> None:
    for template in (*(kind.shorthand for kind in STEP_TYPES.values()), *(form for form, _ in BLOCK_FORMS.values())):
        if template is not None:
            compile_template(template)


def test_matching_long_texts_takes_no_exponential_time() -> None:
    text = "replay " + "limit backoff timeout from " * 400
    match_shorthand(RETRY, text)
    match_shorthand(FOREACH, "x in " + "in do " * 2000)
