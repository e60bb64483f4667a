"""What is settled when an execution starts: its input by the declared types, its jobs by the offered blocks.

Pure functions of the definition and what they are given; spec indices come from the definition alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.model import BlockOffer, JobSpec, Problem, Retry

from .compiled import Parameter, Spec, Step, Workflow
from .nodes import Report, a_type, type_name
from .operations import same
from .problems import did_you_mean
from .values import Mismatch, coerce


def check_input(workflow: Workflow, input: Any) -> tuple[Any, list[Problem]]:
    """The input with defaults filled in and types coerced, and everything wrong with it."""
    if input is None:
        input = {}
    if not isinstance(input, dict):
        problem = Problem("HF0152", f"the input is a map, not {a_type(input)}", path="$.input")
        return input, [problem]
    return check_parameters(workflow.parameters, workflow.defaults, input)


def check_parameters(
    parameters: tuple[Parameter, ...] | None, defaults: dict[str, Any], input: dict[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    given = {**defaults, **input} if defaults else input
    if parameters is None:
        return given, []
    problems: list[Problem] = []
    checked: dict[str, Any] = {}
    declared = {parameter.name: parameter for parameter in parameters}
    for name in given:
        if name not in declared:
            help = did_you_mean(name, declared) or _listed(declared)
            problems.append(Problem("HF0150", f"the workflow has no input `{name}`", path=f"$.input.{name}", help=help))
    for name, parameter in declared.items():
        value = given.get(name)
        if value is None:
            value = parameter.default
            if value is None and parameter.required:
                about = f": {parameter.description}" if parameter.description else ""
                problems.append(
                    Problem("HF0151", f"the input `{name}` ({parameter.type}) is missing{about}",
                            path=f"$.input.{name}", help=f"give it with `--input {name}=…`")
                )  # fmt: skip
            checked[name] = value
            continue
        checked[name] = _checked(parameter, value, problems)
    return checked, problems


def _listed(declared: Mapping[str, Parameter]) -> str:
    return f"it has: {', '.join(declared)}" if declared else "it takes no input"


def _checked(parameter: Parameter, value: Any, problems: list[Problem]) -> Any:
    path = f"$.input.{parameter.name}"
    try:
        value = coerce(parameter.type, value)
    except Mismatch as mismatch:
        problems.append(Problem("HF0152", f"the input `{parameter.name}`: {mismatch}", path=path))
        return value
    if parameter.enum and not any(same(value, allowed) for allowed in parameter.enum):
        allowed = ", ".join(str(item) for item in parameter.enum)
        problems.append(
            Problem("HF0152", f"the input `{parameter.name}` cannot be `{value}`", path=path,
                    help=f"one of {allowed}")
        )  # fmt: skip
    return value


def pin(workflow: Workflow, blocks: Mapping[str, BlockOffer]) -> tuple[tuple[JobSpec, ...], list[Problem]]:
    problems: list[Problem] = []
    specs = tuple(_spec(spec, blocks.get(spec.block)) for spec in workflow.specs)
    for step in workflow.steps:
        if step.spec < 0:
            continue
        declared, spec = workflow.specs[step.spec], specs[step.spec]
        offer = blocks.get(declared.block)
        if offer is None:
            continue
        if declared.retry is not None and declared.retry.attempts > 1 and not spec.may_repeat:
            _add(
                problems, step, "HF0133",
                f"`retry` is followed only when block `{offer.name}` says that nothing was done: it is neither"
                " pure nor idempotent",
                key="retry", warning=True, help="if it may run twice, say `idempotent: yes`",
            )  # fmt: skip
        if offer.parameters:
            _check_parameters(problems, step, offer)
    return specs, problems


def _spec(spec: Spec, offer: BlockOffer | None) -> JobSpec:
    known = offer or BlockOffer(spec.block)
    return JobSpec(
        block=known.name,
        version=known.version if offer else "",
        queue=spec.queue or "default",
        pure=known.pure,
        idempotent=known.idempotent if spec.idempotent is None else spec.idempotent,
        timeout=known.timeout if spec.timeout is None else spec.timeout,
        retry=(known.retry if offer else Retry()) if spec.retry is None else spec.retry,
        run_on=known.run_on,
        has_acquire=known.has_acquire,
        # What changes nothing leaves nothing to look for or to undo.
        has_verify=known.has_verify and not known.pure,
        has_rollback=known.has_rollback and not known.pure,
        accepts_unknown=known.accepts_unknown,
        is_pivot=known.is_pivot,
    )


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


#: A schema comes from a worker and may refer to itself; nothing that people write is nested deeper.
_DEEPEST = 64


def _check_parameters(problems: list[Problem], step: Step, offer: BlockOffer) -> None:
    """The step's input against the block's JSON Schema: keys, and types of what is literal."""
    schema = offer.parameters
    properties = schema.get("properties") or {}
    given = dict(step.inputs)
    if schema.get("additionalProperties") is False:
        for name in given:
            if name not in properties:
                help = did_you_mean(name, properties) or f"it has: {', '.join(properties) or 'none'}"
                _add(problems, step, "HF0140", f"block `{offer.name}` has no parameter `{name}`",
                     key="input", inner=name, help=help)  # fmt: skip
    for name in schema.get("required") or ():
        if name not in given:
            _add(problems, step, "HF0141", f"block `{offer.name}` needs the parameter `{name}`",
                 help=f"add `input: {{{name}: …}}`")  # fmt: skip
    definitions = schema.get("$defs") or {}
    for name, value in given.items():
        if name in properties and value.fn is None:
            wrong = _misfit(properties[name], value.constant, definitions)
            if wrong is not None:
                _add(problems, step, "HF0142", f"parameter `{name}{wrong[0]}` of block `{offer.name}` {wrong[1]}",
                     key="input", inner=name)  # fmt: skip


def _misfit(schema: Any, literal: Any, definitions: Mapping[str, Any], depth: int = 0) -> tuple[str, str] | None:
    """Where inside of the literal something does not fit, and why; nothing if all of it does."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _misfit(definitions.get(reference.rpartition("/")[2]), literal, definitions, depth + 1)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        found = [_misfit(option, literal, definitions, depth + 1) for option in options]
        if not all(found):
            return None
        real = [wrong for option, wrong in zip(options, found, strict=True) if wrong and option != {"type": "null"}]
        return real[0] if len(real) == 1 else ("", "does not fit")
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else wanted or []
    known = [kind for kind in kinds if kind in _JSON_TYPES]
    if known and not any(_is(literal, kind) for kind in known):
        return "", f"takes {' or '.join(known)}, not {type_name(literal)}"
    if "enum" in schema and not any(same(literal, item) for item in schema["enum"]):
        return "", f"cannot be `{literal}`; one of {', '.join(str(item) for item in schema['enum'])}"
    if isinstance(literal, (int, float)) and not isinstance(literal, bool):
        return _outside(schema, literal)
    if isinstance(literal, list):
        for index, item in enumerate(literal):
            if wrong := _misfit(schema.get("items"), item, definitions, depth + 1):
                return f"[{index}]{wrong[0]}", wrong[1]
    if isinstance(literal, dict):
        return _misfit_of_map(schema, literal, definitions, depth)
    return None


def _outside(schema: Mapping[str, Any], number: float) -> tuple[str, str] | None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, (int, float)) and number < least:
        return "", f"is at least {least}, not {number}"
    if isinstance(most, (int, float)) and number > most:
        return "", f"is at most {most}, not {number}"
    return None


def _misfit_of_map(
    schema: Mapping[str, Any], literal: dict[Any, Any], definitions: Mapping[str, Any], depth: int
) -> tuple[str, str] | None:
    inner, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in literal:
            return "", f"needs `{name}`"
    for name, item in literal.items():
        if name not in inner and more is False:
            return "", f"has no `{name}`"
        if wrong := _misfit(inner.get(name, more), item, definitions, depth + 1):
            return f".{name}{wrong[0]}", wrong[1]
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _JSON_TYPES[kind])


def _add(
    problems: list[Problem], step: Step, code: str, message: str, *,
    key: str = "", inner: str = "", help: str = "", warning: bool = False,
) -> None:  # fmt: skip
    """At the key inside the step where the file is known, by path where it is not."""
    node = step.node
    if node is not None:
        report = Report(node.document)
        below = node.value.get(key) if isinstance(node.value, dict) and key else None
        if inner and below is not None and isinstance(below.value, dict) and inner in below.value:
            report.add(below, code, message, key=inner, help=help, warning=warning)
        elif below is not None:
            report.add(node, code, message, key=key, help=help, warning=warning)
        else:
            report.add(node, code, message, help=help, warning=warning)
        problems += report.found
        return
    path = step.path + (f".{key}" if key else "") + (f".{inner}" if inner else "")
    problems.append(Problem(code, message, path=path, help=help, warning=warning))
