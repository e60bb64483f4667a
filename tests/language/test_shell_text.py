"""The short form of a block that takes text takes text, whatever it looks like."""

from __future__ import annotations

import pytest

from holdfast.language import compile_definition


@pytest.mark.parametrize("command", ["true", "5", "null", "1e3", "~"])
def test_a_command_that_looks_like_a_value_stays_a_command(command: str) -> None:
    (step,) = compile_definition({"steps": [f"shell {command}"]}).steps
    assert step.fixed == {"command": command}


def test_a_parameter_by_name_is_still_typed() -> None:
    (step,) = compile_definition({"steps": ["test.echo value=true"]}).steps
    assert step.fixed == {"value": True}
