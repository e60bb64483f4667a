"""Names that begin with a root: what is checked before anything runs."""

from __future__ import annotations

import pytest

from .scopes import excerpt_of, marked


@pytest.mark.parametrize(
    "text",
    [
        "${entity.id}", "${entity.sensor.lock-NAME}", "${entity.sensor['a.b'].c}", "${entity.config.x[0]}",
        "${entity.attributeWhenReady.up}", "${entity.sensor[v]}", "${workflow.id} ${workflow.run} ${workflow.link}",
        "${workflow.util.now_iso}", "${workflow.current_step.step_id}", "${workflow.previous_step.output.x}",
        "${workflow.var.v.x}", "${workflow.output.x}",
    ],
)  # fmt: skip
def test_roots_that_are_known(text: str) -> None:
    excerpt, names, report = excerpt_of(text, {"v"})
    names.template(excerpt)
    assert report.found == []


@pytest.mark.parametrize("text", ["${error}", "${error.kind}", "${workflow.error.message}", "${error.cause.kind ?? 0}"])
def test_the_error_is_known_in_handlers_only(text: str) -> None:
    excerpt, names, report = excerpt_of(text, set(), in_handler=True)
    names.template(excerpt)
    assert report.found == []
    excerpt, names, report = excerpt_of(text, set())
    names.template(excerpt)
    assert [(problem.code, problem.warning) for problem in report.found] == [("HF0121", "??" in text)]
    assert marked(report.found[0]) in ("error", "workflow.error")


def test_a_variable_may_be_called_error() -> None:
    excerpt, names, report = excerpt_of("${error}", {"error"})
    names.template(excerpt)
    assert report.found == []
    excerpt, names, report = excerpt_of("${error}", {"error"}, in_handler=True)
    names.template(excerpt)
    assert [(problem.code, problem.warning) for problem in report.found] == [("HF0130", True)]


def test_optional_roots_are_warnings() -> None:
    excerpt, names, report = excerpt_of("${workflow.var.x ?? entity.sensor[nope] ?? workflow.util.x ?? 1}", set())
    names.template(excerpt)
    assert [(problem.warning, marked(problem)) for problem in report.found] == [
        (True, "workflow.var.x"), (True, "nope"), (True, "workflow.util.x"),
    ]  # fmt: skip
