"""The short form of `ssh`: with or without a machine, and a command that is taken as it stands."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.language import compile_definition


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("ssh uptime -p", {"command": "uptime -p"}),
        ("ssh to admin@a.example:2222 uptime -p", {"endpoint": "admin@a.example:2222", "command": "uptime -p"}),
        ("ssh sudo apt-get install -y iputils-ping", {"command": "sudo apt-get install -y iputils-ping"}),
        ("ssh touch to here", {"command": "touch to here"}),
        ("ssh total", {"command": "total"}),
    ],
)
def test_the_machine_is_optional(text: str, fixed: dict[str, Any]) -> None:
    (step,) = compile_definition({"steps": [text]}).steps
    assert step.fixed == fixed
