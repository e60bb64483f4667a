"""The table of step types and keys: what can be written, with the words the reference is made of.

Everything that reads steps (loader, JSON Schema, reference page) takes it from here; what a step *does* is
in `interpret`.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model import Level

from .conditions import style_free

#: ids that mean something as a place to go to
RESERVED_IDS = frozenset(("start", "end", "last", "here", "exit", "default"))
LEVELS = {
    "trace": Level.DEBUG,
    "debug": Level.DEBUG,
    "info": Level.INFO,
    "warn": Level.WARNING,
    "warning": Level.WARNING,
    "error": Level.ERROR,
}


@dataclass(slots=True, frozen=True)
class Key:
    """A key that may be written on a step or workflow."""

    name: str
    #: what it takes, in the words of the reference: `text`, `expression`, `duration`, `map`, …
    takes: str
    text: str
    aliases: tuple[str, ...] = ()
    required: bool = False


@dataclass(slots=True, frozen=True)
class StepType:
    name: str
    text: str
    #: template of the short form; nothing where there is none
    shorthand: str | None
    keys: tuple[Key, ...] = ()
    #: the key that `NAME: value` sets
    main: str = ""
    #: what the step gives as output; internal steps pass the previous output on
    output: str = "the previous output"
    aliases: tuple[str, ...] = ()
    example: str = ""

    @property
    def is_external(self) -> bool:
        return self.name in ("block", *BLOCK_FORMS)


LET = '[${variable.type}] ${variable.name} ["=" ${value...}]'

STEP_TYPES: dict[str, StepType] = {
    kind.name: kind
    for kind in (
        StepType(
            "let",
            "Sets a variable. In the short form, operators that stand alone between words are evaluated. "
            "The variable `output` sets the step's output.",
            LET,
            (
                Key("variable", "name, or map with `name` and `type`", "the variable", required=True),
                Key("value", "expression", "its value", required=True),
            ),
            aliases=("set-workflow-variable",),
            example="let integer retries = ${retries} + 1 ?? 0",
        ),
        StepType(
            "log",
            "Writes a line to the execution's log.",
            "${message...}",
            (
                Key("message", "text", "what to say; a map or list alone is written as JSON", required=True),
                Key("level", "one of trace, debug, info, warning, error", "how important it is; `info`"),
            ),
            main="message",
            example="log upgrading ${input.host}",
        ),
        StepType(
            "sleep",
            "Waits. The deadline is durable: a restart does not make it longer, and waiting costs nothing.",
            "${duration...}",
            (Key("duration", "duration", "how long", required=True),),
            main="duration",
            example="sleep 1h30m",
        ),
        StepType(
            "fail",
            "Fails the workflow.",
            '[ ["message"] ${message...} ]',
            (Key("message", "text", "why"), Key("value", "expression", "data that goes with the error")),
            main="message",
            output="none",
            example="fail message no backup of ${input.host}",
        ),
        StepType(
            "return",
            "Ends the workflow, or the branch of `parallel` it stands in, with a value.",
            "${value...}",
            (Key("value", "expression", "the value", required=True),),
            main="value",
            output="the value",
            example="return ${steps.check.output.version}",
        ),
        StepType("no-op", "Does nothing; useful with `output`.", "", example="no-op"),
        StepType(
            "block",
            "Runs a block: registered code that does the outside work. Other words than step types are names "
            "of blocks: `net.backup host=${input.host}`.",
            "${block} [ ${pairs...} ]",
            (Key("block", "name", "the block", required=True),),
            main="block",
            output="the block's result",
            example="block net.backup host=${input.host}",
        ),
        StepType(
            "parallel",
            "Runs branches at the same time and waits for all. A branch is a step, a list of steps, or "
            "`{id, steps}`. Branches read the variables around them; what they set stays inside.",
            None,
            (Key("parallel", "list of branches", "the branches", required=True),),
            main="parallel",
            output="a list of the branches' outputs; a map if every branch has an id",
            example="parallel: [shell uptime, shell df]",
        ),
        StepType(
            "wait-signal",
            "Waits for a signal of that name; signals that came earlier are kept and count.",
            "${signal...}",
            (Key("signal", "text", "the name", required=True),),
            main="signal",
            output="the signal's value",
            example="wait-signal approved",
        ),
    )
}

#: short forms of blocks that come with Holdfast, and keys that their results are known to have
BLOCK_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "shell": ("${command...}", ("stdout", "stderr", "exit_code")),
    "ssh": ('["to " ${endpoint}] ${command...}', ("stdout", "stderr", "exit_code")),
    "http": (
        "${endpoint}",
        ("status_code", "headers", "content", "content_text", "content_json", "content_bytes", "duration"),
    ),
}

#: words that belong to the language but not yet to this version; never taken as names of blocks
COMING_TYPES = frozenset(
    (
        "approve", "clear-config", "clear-sensor", "clear-variable", "clear-workflow-variable", "foreach",
        "function-block", "goto", "graph", "if", "invoke", "invoke-effector", "label", "load", "reconcile",
        "retry", "set-config", "set-sensor", "signal", "ssh", "subworkflow", "switch", "transform", "wait",
        "workflow",
    )
)  # fmt: skip

COMMON_KEYS: tuple[Key, ...] = (
    Key("step", "text", "the short form", aliases=("s", "shorthand")),
    Key("type", "name", "the step type, for the long form"),
    Key("id", "name", "makes the output available as `steps.<id>.output`; unique in the workflow"),
    Key("name", "text", "what people see"),
    Key("condition", "condition", "the step is skipped unless it holds"),
    Key("input", "map", "the block's parameters; on other steps, names that its expressions can use"),
    Key("output", "expression", "replaces the step's output, which it sees as `${output}`"),
    Key("timeout", "duration", "how long one attempt of the block may take"),
    Key(
        "retry",
        "number of attempts, or map with `attempts`, `delay`, `factor`, `max-delay`, `jitter`",
        "how often a failed block is tried again",
    ),
    Key("idempotent", "yes or no", "whether the block may safely run twice; overrides what the block says"),
    Key("queue", "name", "which workers get the job"),
    Key("metadata", "map", "anything, for tools"),
)
#: common keys that only mean something on steps that run a block
EXTERNAL_KEYS = frozenset(("timeout", "retry", "idempotent", "queue"))

RETRY_KEYS: tuple[Key, ...] = (
    Key("attempts", "number", "attempts in all, the first included", aliases=("limit",)),
    Key("delay", "duration", "before the second attempt; `1s`", aliases=("initial",)),
    Key("factor", "number", "each delay is that much longer; `2`", aliases=("backoff",)),
    Key("max-delay", "duration", "no delay is longer; `1m`", aliases=("max",)),
    Key("jitter", "number from 0 to 1", "share of the delay that may be added; `0.1`"),
)

WORKFLOW_KEYS: tuple[Key, ...] = (
    Key("name", "text", "the name it is published under"),
    Key("description", "text", "what it is for"),
    Key("inputs", "map of name → type", "what it takes when it is started", aliases=("parameters",)),
    Key("input", "map", "values for inputs that are not given at the start"),
    Key("steps", "list of steps", "what it does"),
    Key("output", "expression", "its output; otherwise the output of the last step"),
    Key("labels", "map of texts", "put on each execution, to find them by"),
    Key("metadata", "map", "anything, for tools"),
)

PARAMETER_KEYS: tuple[Key, ...] = (
    Key("type", "type", "one of string, integer, number, boolean, list, map, any, duration; `string`"),
    Key("default", "any", "taken where the input is not given", aliases=("default-value",)),
    Key("required", "yes or no", "`yes` unless there is a default"),
    Key("description", "text", "what it is for"),
    Key("enum", "list", "the only values allowed"),
)

VARIABLE_KEYS: tuple[Key, ...] = (
    Key("name", "name", "the variable"),
    Key("type", "type", "what the value is read as"),
)

BRANCH_KEYS: tuple[Key, ...] = (
    Key("id", "name", "the branch's key in the output"),
    Key("name", "text", "the same, where there is no id"),
    Key("steps", "list of steps", "what it does", required=True),
)


def key_index(*tables: tuple[Key, ...]) -> dict[str, str]:
    """Spelling without style → the key."""
    return {style_free(word): key.name for table in tables for key in table for word in (key.name, *key.aliases)}


TYPE_INDEX: dict[str, str] = {
    style_free(word): kind.name for kind in STEP_TYPES.values() for word in (kind.name, *kind.aliases)
} | {style_free(name): name for name in BLOCK_FORMS}
