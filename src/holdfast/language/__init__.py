"""The step language: YAML or JSON definitions to programs. Pure: no clock, randomness, environment or files."""

from .interpret import YamlProgram
from .load import load
from .problems import PROBLEMS, render, summary
from .workflow import canonical, compile_definition, definition_of, digest, examine, load_workflow, program_from_bytes

__all__ = [
    "PROBLEMS",
    "YamlProgram",
    "canonical",
    "compile_definition",
    "definition_of",
    "digest",
    "examine",
    "load",
    "load_workflow",
    "program_from_bytes",
    "render",
    "summary",
]
