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


LET = '[${variable.type}] ${variable.name} ["=" ${value...}]'
_PLACE = "name, or map with `name` and `type`"
_NESTED = (
    Key("steps", "list of steps", "what it does"),
    Key("lock", "name, or map with `name`, `entity`, `timeout`", "held from entry to the end, handlers included"),
    Key("replayable", "words", "`from start`, `automatically`, `disabled`: of the nested workflow"),
    Key("retention", "retention", "has no effect on a nested workflow: it is kept with its execution"),
)
_TARGETS = (
    Key("target", "list, `1..10`, or expression", "it runs once for each"),
    Key("target-var-name", "name", "the loop variable; `target`"),
    Key("target-index-var-name", "name", "the number of the target, from 0; `target_index`"),
    Key("concurrency", "number, `all`, `50%`, `-2`, `min(…)`, `max(…)`", "how many at the same time; 1"),
    Key("reducing", "map", "variables passed from run to run, with their first values"),
)

STEP_TYPES: dict[str, StepType] = {
    kind.name: kind
    for kind in (
        StepType(
            "let",
            "Sets a variable. In the short form, operators that stand alone between words are evaluated. "
            "The variable may be a place inside of one: `a.b`, `a['b']`, `a[0]`, `a[]` (append). "
            "The variable `output` sets the step's output.",
            LET,
            (
                Key("variable", _PLACE, "the variable", required=True),
                Key("value", "expression", "its value", required=True),
                Key(
                    "interpolation-errors",
                    "one of fail, ignore, blank",
                    "what an absent value is: an error, `${…}` as it is written, or nothing; `fail`",
                ),
            ),
            aliases=("set-workflow-variable", "set-variable"),
            example="let integer retries = ${retries} + 1 ?? 0",
        ),
        StepType(
            "clear-variable",
            "Removes a variable, or a place inside of one.",
            "${variable.name}",
            (Key("variable", _PLACE, "the variable", required=True),),
            main="variable",
            aliases=("clear-workflow-variable",),
            example="clear-variable x",
        ),
        StepType(
            "transform",
            "Passes a value through filters. `transform variable x | trim` changes a variable, "
            "`transform y = ${x} | trim` sets one, `transform value ${x} | trim` makes it the output.",
            '[${variable.type}] ["variable " ${variable.name}] ["value " ${value...}] [${place} "=" ${source...}] '
            '["|" ${transform...}]',
            (
                Key("variable", _PLACE, "what is set"),
                Key("value", "expression", "what the filters begin with; the variable if there is none"),
                Key("transform", "filters, as text with `|` or as a list", "what is done to it"),
            ),
            output="the result, unless a variable is set",
            example="transform value ${names} | join ', ' | to_upper_case",
        ),
        StepType(
            "load",
            "Reads the text of a file or URL into a variable. A worker reads it, so the file is one of the worker's.",
            '[${variable.type}] ${variable.name} "=" ${url...}',
            (
                Key("variable", _PLACE, "the variable", required=True),
                Key("url", "text", "file or URL", required=True),
                Key("charset", "text", "`utf-8`"),
            ),
            example="load motd = /etc/motd",
        ),
        StepType(
            "wait",
            "Waits until a value is there: a sensor that is set (`${entity.sensor.x}`), or set and true "
            "(`${entity.attributeWhenReady.x}`). Waiting costs nothing; `timeout` limits it.",
            '[${variable.name} "="] ${value...}',
            (
                Key("value", "expression", "what must be there", required=True),
                Key("variable", _PLACE, "where the value goes; otherwise it is the output"),
            ),
            output="the value, unless a variable is set",
            example="wait ip = ${entity.sensor.ip_address}",
        ),
        StepType(
            "log",
            "Writes a line to the execution's log.",
            "${message...}",
            (
                Key("message", "text", "what to say; a map or list alone is written as JSON", required=True),
                Key("level", "one of trace, debug, info, warning, error", "how important it is; `info`"),
                Key("category", "text", "for tools"),
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
            "Fails. In a handler the error at hand becomes the cause; without a message it is thrown again as it is.",
            '[?${rethrow} "rethrow"] [ ["message"] ${message...} ]',
            (
                Key("message", "text", "why"),
                Key("value", "expression", "data that goes with the error"),
                Key("rethrow", "yes or no", "`no`: the error at hand is not the cause"),
            ),
            main="message",
            output="none",
            example="fail message no backup of ${input.host}",
        ),
        StepType(
            "return",
            "Ends the workflow, nested workflow or branch it stands in, with a value.",
            "${value...}",
            (Key("value", "expression", "the value", required=True),),
            main="value",
            output="the value",
            example="return ${steps.check.output.version}",
        ),
        StepType("no-op", "Does nothing; useful with `output`, `condition` and `next`.", "", example="no-op"),
        StepType(
            "goto",
            "Goes to a step of this body or of one around it, or to `start`, `end`, `exit` (out of a handler). "
            "Variables stay as they are.",
            "${next}",
            (Key("next", "step id or place", "where to", required=True),),
            main="next",
            example="goto check",
        ),
        StepType(
            "label",
            "A place to go to.",
            "${label}",
            (Key("label", "name", "its id", required=True),),
            main="label",
            example="label again",
        ),
        StepType(
            "if",
            "Runs steps where a condition holds. `then STEP` in one line; `goto end` there ends the workflow, in "
            "`steps` only the block. Variables are shared.",
            '${target...} ["==" ${equals}] [" then " ${then...}]',
            (
                Key(
                    "target",
                    "expression",
                    "what is tested; true or false, or a map of tests. Without it, `condition` is",
                ),
                Key("equals", "expression", "what it must be equal to"),
                Key("steps", "list of steps", "where it holds", aliases=("then",)),
                Key("else", "list of steps", "where it does not"),
            ),
            main="target",
            output="the last step's output",
            example="if ${input.host} == localhost then return nothing to do",
        ),
        StepType(
            "switch",
            "Runs the first case whose condition holds for the value. Without one it is an error.",
            "[ ${value} ]",
            (
                Key("value", "expression", "what the conditions are about"),
                Key("cases", "list of steps", "all but the last need a condition", required=True),
            ),
            main="value",
            output="the case's output",
            example="switch ${input.os}",
        ),
        StepType(
            "subworkflow",
            "Steps in a block of their own, with the variables around it; a list of steps is one too. For a handler, "
            "a `finally` or a condition over several steps.",
            None,
            (Key("steps", "list of steps", "what it does", required=True),),
            main="steps",
            output="the last step's output",
            example="steps: [log one, log two]",
        ),
        StepType(
            "workflow",
            "A nested workflow: it reads the variables around it, what it sets stays inside. With `target` it runs "
            "once for each. Without steps it is a setting: `workflow replayable from here`, `workflow retention 7d`.",
            '["replayable " ${replayable...}] ["retention " ${retention...}]',
            (*_NESTED, *_TARGETS),
            output="its last step's output; a list of them with a list of targets; with `reducing` the map",
            example="workflow replayable from here",
        ),
        StepType(
            "foreach",
            "A nested workflow for each target, with a loop variable. `{a, b}` spreads maps over several.",
            '${loop} [" in " ${target...} [" do " ${do...}]]',
            (*_NESTED, *_TARGETS, Key("do", "step", "what it does, in one line")),
            output="the list of outputs; with `reducing` the map",
            example="foreach host in ${input.hosts} do shell ping -c1 ${host}",
        ),
        StepType(
            "retry",
            "Does something again. In a handler: the step that failed, if it may run twice, else from the last "
            "waypoint; elsewhere from the last waypoint; with `from` it goes there as `goto` does, with `replay` "
            "too back to that waypoint. The count is kept through restarts and replays.",
            '[?${replay} "replay"] [" from " ${next}] [" limit " ${limit...}] [" backoff " ${backoff...}] '
            '[" timeout " ${timeout...}]',
            (
                Key("replay", "yes, no or force", "go back to a waypoint"),
                Key("next", "step id, `start`, `last` or `end`", "from where", aliases=("from",)),
                Key("limit", "`5`, `1h`, `5 in 1m`, or a list", "how often, how long"),
                Key("backoff", "`10s increasing 2x up to 5m jitter 10%`, or a map", "the pauses"),
                Key("hash", "text", "retries of the same hash are counted together"),
            ),
            example="retry limit 10 backoff 1s increasing 2x up to 1m",
        ),
        StepType(
            "set-sensor",
            "Sets a value on the entity. Reading, `require` and writing are one thing: nobody comes between.",
            '[${sensor.type}] ${sensor.name} [" on " ${entity}] ["=" ${value...}]',
            (
                Key("sensor", "name, or map with `name`, `type`, `entity`", "what is set", required=True),
                Key("value", "expression", "its value", required=True),
                Key("entity", "entity id", "where; otherwise where the workflow runs"),
                Key("require", "condition", "of the old value; otherwise it is an error"),
            ),
            example="set-sensor count = ${x}",
        ),
        StepType(
            "clear-sensor",
            "Removes a value from the entity. `clear-sensor lock-NAME` takes a lock away from whoever has it.",
            '${sensor.name} [" on " ${entity}]',
            (
                Key("sensor", "name, or map with `name`, `entity`", "what is removed", required=True),
                Key("entity", "entity id", "where"),
            ),
            example="clear-sensor count",
        ),
        StepType(
            "set-config",
            "Sets a configuration value of the entity.",
            '[${config.type}] ${config.name} [" on " ${entity}] ["=" ${value...}]',
            (
                Key("config", "name, or map with `name`, `type`, `entity`", "what is set", required=True),
                Key("value", "expression", "its value", required=True),
                Key("entity", "entity id", "where"),
            ),
            example="set-config size = large",
        ),
        StepType(
            "clear-config",
            "Removes a configuration value from the entity.",
            '${config.name} [" on " ${entity}]',
            (
                Key("config", "name, or map with `name`, `entity`", "what is removed", required=True),
                Key("entity", "entity id", "where"),
            ),
            example="clear-config size",
        ),
        StepType(
            "block",
            "Runs a block: registered code that does the outside work. Other words than step types are names "
            "of blocks: `net.backup host=${input.host}`.",
            "${block} [ ${pairs...} ]",
            (Key("block", "`name`, `package/name` or `package/name:version`", "the block", required=True),),
            main="block",
            aliases=("function-block",),
            output="the block's result",
            example="block net.backup host=${input.host}",
        ),
        StepType(
            "invoke",
            "Runs a published workflow inside of this execution, perhaps on another entity.",
            '${workflow} [" on " ${entity}] [" with " ${pairs...}]',
            (
                Key("workflow", "name", "the workflow", required=True, aliases=("effector",)),
                Key("entity", "entity id", "where"),
                Key("args", "map", "its inputs"),
            ),
            main="workflow",
            aliases=("invoke-effector",),
            output="its output",
            example="invoke restart on db1 with force=true",
        ),
        StepType(
            "approve",
            "Waits until a person approves or rejects; rejecting is an error. `holdfast approve ID`, or the signal "
            "`approve/STEP`.",
            "${message...}",
            (Key("message", "text", "what is asked"),),
            main="message",
            output="`{approved, by, note}`",
            example="approve reboot ${input.host}?",
        ),
        StepType(
            "signal",
            "Sends a signal to another execution, or to this one.",
            '${signal} [" to " ${to}] [" with " ${value...}]',
            (
                Key("signal", "text", "its name", required=True),
                Key("to", "execution id", "who gets it"),
                Key("value", "expression", "what goes with it"),
            ),
            main="signal",
            example="signal ready to ${input.waiting} with ${output}",
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
        StepType(
            "parallel",
            "Runs branches at the same time and waits for all. A branch is a step, a list of steps, or "
            "`{id, steps}`. Branches read the variables around them; what they set stays inside. Where some fail, "
            "the step fails after the others have ended.",
            None,
            (Key("parallel", "list of branches", "the branches", required=True),),
            main="parallel",
            output="a list of the branches' outputs; a map if every branch has an id",
            example="parallel: [shell uptime, shell df]",
        ),
        StepType(
            "graph",
            "Runs nodes as soon as those they need have ended. A node is a step with `needs`, or `{needs, steps}`. "
            "The outputs of those it needs are variables of their names.",
            None,
            (Key("graph", "map of id → node, or list of nodes with ids", "the nodes", required=True),),
            main="graph",
            output="a map of the nodes' outputs",
            example="graph: {a: shell one, b: {needs: [a], step: shell two}}",
        ),
    )
}

#: a step that is a registered type
USE = StepType("use", "Runs a registered step type.", "${pairs...}", output="its output")

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
COMING_TYPES = frozenset(("reconcile",))

COMMON_KEYS: tuple[Key, ...] = (
    Key("step", "text", "the short form", aliases=("s", "shorthand")),
    Key("type", "name", "the step type, for the long form"),
    Key("id", "name", "makes the output available as `steps.<id>.output`, and the step a place to go to"),
    Key("name", "text", "what people see"),
    Key("condition", "condition", "the step is skipped unless it holds"),
    Key("input", "map", "the block's parameters; on other steps, names that its expressions can use"),
    Key("output", "expression", "replaces the step's output, which it sees as `${output}`"),
    Key("next", "step id, `start`, `end`, `exit` or `default`", "where to go afterwards"),
    Key("on-error", "step or list of steps", "what to do when it fails; conditions there are about the error"),
    Key("finally", "step or list of steps", "what to do afterwards in any case, also when it is cancelled"),
    Key("continue-on-error", "yes or no", "go on when it fails and no handler wants the error"),
    Key("timeout", "duration", "how long one attempt of the block, or the whole step, may take"),
    Key(
        "retry",
        "number of attempts, or map with `attempts`, `delay`, `factor`, `max-delay`, `jitter`",
        "how often a failed block is tried again",
        aliases=("retry-config",),
    ),
    Key("repeat", "number, or map with `times`, `delay`, `while`, `until`", "do it so often, or as long as",
        aliases=("repeat-config",)),
    Key("delay", "duration", "wait before it"),
    Key("assert", "condition or list of conditions", "it fails, and does nothing, unless they hold"),
    Key("idempotent", "yes, no or default", "whether it may safely run twice; overrides what the block says"),
    Key("replayable", "`from here`, `from here only` or `reset`", "makes it a waypoint, or forgets those before"),
    Key("queue", "name", "which workers get the job"),
    Key("run-on", "name of a type of entities", "do it for each of them; `global`: once. Otherwise what the block "
        "says, then what the workflow says"),
    Key("acquire", "selector, or map with `select`, `ids`, `children`, `parent` or `members`, or a list of these",
        "entities that are acquired for it, beside those of the workflow"),
    Key("metadata", "map", "anything, for tools"),
)  # fmt: skip
#: common keys that only mean something on steps that run a block
EXTERNAL_KEYS = frozenset(("retry", "queue"))

REPEAT_KEYS: tuple[Key, ...] = (
    Key("times", "number", "how often in all", aliases=("repeats",)),
    Key("delay", "duration", "between two"),
    Key("while", "condition", "asked after each: once more as long as it holds", aliases=("condition",)),
    Key("until", "condition", "asked after each: enough when it holds"),
)

LOCK_KEYS: tuple[Key, ...] = (
    Key("name", "text", "which lock", required=True),
    Key("entity", "entity id", "whose; otherwise where the workflow runs"),
    Key("timeout", "duration", "how long to wait for it; for ever"),
)

ACQUIRE_KEYS: tuple[Key, ...] = (
    Key("select", "selector", "entities for which it holds, e.g. `type == 'device' && site == 'ams1'`"),
    Key("ids", "list of ids, or expression", "these entities"),
    Key("children", "name of a type, or yes", "parts of what was acquired before, e.g. the interfaces of devices"),
    Key("parent", "yes or no", "what they are parts of"),
    Key("members", "yes or no", "the members of the groups among them"),
    Key("type", "name of a type", "of those only the ones of that type"),
)

CONFIG_KEYS: tuple[Key, ...] = (
    Key("execution-strategy", "map with `parallel`", "`parallel: yes`: every entity goes through consecutive steps by "
        "itself; otherwise all have passed a step before the next begins"),
    Key("fail-fast", "yes or no", "once more has failed than may, what no worker has begun is not begun"),
    Key("max-failures", "number or percentage", "so many entities may fail; they are left out of what follows"),
    Key("rollout", "map with `batches` and `gate`", "entities in batches, one after the other"),
    Key("rollback", "one of auto, manual, none", "what to do about effects when it fails; `auto`"),
    Key("on-unsafe", "one of release, quarantine", "entities that are left in doubt: marked as suspect, or shut for "
        "everybody until somebody has acknowledged it; `release`"),
    Key("lock", "map with `mode`, `timeout`, `on-conflict`", "how entities are locked"),
    Key("priority", "number", "in the queues of locks; the higher goes first; `0`"),
    Key("cancel-grace", "duration", "what jobs have to stop when it is cancelled; what has not answered by then is "
        "given up, its effect unknown; `30s`"),
    Key("require-clean", "yes or no", "fail where an entity is suspect"),
    Key("require-entities", "yes or no", "fail where there is no entity at all"),
    Key("concurrency", "number, `all`, `50%`, `-2`, `min(…)`, `max(…)`", "entities at the same time; `all`"),
)  # fmt: skip

STRATEGY_KEYS: tuple[Key, ...] = (Key("parallel", "yes or no", "every entity goes its own way; `no`"),)

ROLLOUT_KEYS: tuple[Key, ...] = (
    Key("batches", "number, percentage, or list of these", "how many entities each batch has; the last is repeated",
        required=True),
    Key("gate", "duration, or `approval`", "before every batch but the first: wait so long, or for a person"),
)  # fmt: skip

ENTITY_LOCK_KEYS: tuple[Key, ...] = (
    Key("mode", "one of exclusive, shared", "`shared` needs blocks that are pure; `exclusive`"),
    Key("timeout", "duration", "how long to wait for all of them; for ever"),
    Key("on-conflict", "one of wait, fail", "where somebody else has one of them; `wait`"),
)

GATE_KEYS: tuple[Key, ...] = (
    Key("not-before", "time, or expression", "e.g. `2030-01-31T22:00:00Z`"),
    Key(
        "window",
        "`HH:MM-HH:MM`, or expression",
        "every day, e.g. `22:00-04:00`; `+01:00` behind it if it is not UTC",
    ),
    Key("approval", "text, or yes", "a person has to approve"),
    Key("after", "execution id, or list of ids", "these have ended"),
    Key("deadline", "duration", "how long all of that may take; then it fails safe"),
)

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
    Key("condition", "condition", "it does nothing unless it holds"),
    Key("on-error", "step or list of steps", "what to do when it fails; its output is then the workflow's"),
    Key("finally", "step or list of steps", "what to do at the end in any case, also when it is cancelled"),
    Key("timeout", "duration", "how long it may take, counted from when it has its lock"),
    Key("lock", "name, or map with `name`, `entity`, `timeout`", "one at a time, first come, first served"),
    Key("replayable", "words", "`from start`, `automatically`, `disabled`, `enabled`"),
    Key("idempotent", "`all`", "every external step may run twice unless it says otherwise"),
    Key("retention", "`3`, `30d`, `max(3, 24h)`, `forever`, `disabled`, … `hash NAME`", "how long it is kept"),
    Key("run-on", "name of a type of entities", "its block steps are done for each of them, unless they say otherwise"),
    Key("acquire", "selector, or map with `select`, `ids`, `children`, `parent` or `members`, or a list of these",
        "entities it works upon where it is started on none"),
    Key("config", "map", "how it treats its entities, see there"),
    Key("gates", "map", "what has to be so before it begins, see there"),
    Key("labels", "map of texts", "put on each execution, to find them by"),
    Key("metadata", "map", "anything, for tools"),
    Key("id", "name", "another word for `name`, of a step type"),
    Key("type", "`workflow`", "says what the document is; nothing else is possible"),
    Key("shorthand", "template", "how it is written as a step of another workflow"),
    Key("uses", "map of name → definition", "step types and workflows it uses, as they were when it was published"),
)  # fmt: skip

PARAMETER_KEYS: tuple[Key, ...] = (
    Key("type", "type", "one of string, integer, number, boolean, list, map, any, duration; `string`"),
    Key("default", "any", "taken where the input is not given", aliases=("default-value",)),
    Key("required", "yes or no", "`yes` unless there is a default"),
    Key("description", "text", "what it is for"),
    Key("enum", "list", "the only values allowed"),
    Key("constraints", "list", "kept for tools"),
)

VARIABLE_KEYS: tuple[Key, ...] = (
    Key("name", "name", "the variable"),
    Key("type", "type", "what the value is read as"),
)

SENSOR_KEYS: tuple[Key, ...] = (*VARIABLE_KEYS, Key("entity", "entity id", "where it is"))

BRANCH_KEYS: tuple[Key, ...] = (
    Key("id", "name", "the branch's key in the output"),
    Key("name", "text", "the same, where there is no id"),
    Key("needs", "id or list of ids", "of a graph: the nodes that come before it"),
    Key("steps", "list of steps", "what it does", required=True),
)


def key_index(*tables: tuple[Key, ...]) -> dict[str, str]:
    """Spelling without style → the key."""
    return {style_free(word): key.name for table in tables for key in table for word in (key.name, *key.aliases)}


TYPE_INDEX: dict[str, str] = {
    style_free(word): kind.name for kind in STEP_TYPES.values() for word in (kind.name, *kind.aliases)
} | {style_free(name): name for name in BLOCK_FORMS}
