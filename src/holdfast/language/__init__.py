"""The step language: YAML or JSON definitions to programs. Pure: no clock, randomness, environment or files."""

from .interpret import YamlProgram
from .load import decode, load, load_all
from .problems import PROBLEMS, render, summary
from .wanting import gates_of
from .workflow import (
    Definition,
    Examined,
    Published,
    Text,
    canonical,
    choose,
    compile_definition,
    define,
    define_all,
    definition_of,
    digest,
    examine,
    load_workflow,
    load_workflows,
    program_from_bytes,
    signature,
)

__all__ = [
    "PROBLEMS",
    "Definition",
    "Examined",
    "Published",
    "Text",
    "YamlProgram",
    "canonical",
    "choose",
    "compile_definition",
    "decode",
    "define",
    "define_all",
    "definition_of",
    "digest",
    "examine",
    "gates_of",
    "load",
    "load_all",
    "load_workflow",
    "load_workflows",
    "program_from_bytes",
    "render",
    "signature",
    "summary",
]
