"""What can be wrong with a definition: every code with its title and explanation, and how it is shown.

The table is what `holdfast explain HF0102` prints; a code that is not in it cannot be reported. Nothing
here knows YAML or steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

from holdfast.core.model import Problem


class Explanation(NamedTuple):
    title: str
    text: str


class Unreadable(ValueError):
    """A text that does not follow its own small grammar; `start` and `end` say where in it."""

    def __init__(self, message: str, start: int, end: int, help: str = "") -> None:
        super().__init__(f"{message}; {help}" if help else message)
        self.message = message
        self.start = start
        self.end = max(end, start + 1)
        self.help = help


PROBLEMS: dict[str, Explanation] = {
    # --- the document --------------------------------------------------------------------------------
    "HF0101": Explanation(
        "not valid YAML",
        "The file cannot be read as YAML. The most frequent reason is an unquoted `: ` inside a value: "
        "put the whole value in quotes. Indentation is made of spaces, never of tabs. A step that has keys "
        "beside its text writes the text as `step: …`.",
    ),
    "HF0102": Explanation(
        "unknown key",
        "Keys are strict, so that a misspelt setting never becomes something else silently. Spelling "
        "style does not matter: `max-delay`, `maxDelay` and `max_delay` are one key. Parameters of a "
        "block go under `input`.",
    ),
    "HF0103": Explanation(
        "duplicate key",
        "A key occurs twice in one map, perhaps in two spellings. YAML readers disagree about which one "
        "wins, so neither does.",
    ),
    "HF0104": Explanation(
        "YAML feature not supported",
        "Anchors, aliases, merge keys and tags are refused: they make small files huge and hide what "
        "runs. Write the value out.",
    ),
    "HF0105": Explanation(
        "key is not a string",
        "Keys of maps are strings. Put numbers, `true`, `false` and `null` in quotes when they are meant as keys.",
    ),
    "HF0106": Explanation(
        "document too large",
        "A file may have 1 MB of text, 50,000 values and 1,000 documents. Keep data in files or inputs, not in the "
        "workflow.",
    ),
    "HF0107": Explanation(
        "nested too deeply",
        "Lists and maps may be nested 40 levels deep. Split the workflow.",
    ),
    "HF0108": Explanation(
        "wrong type of value",
        "The key takes another type of value, e.g. a list of steps, a map or a string.",
    ),
    "HF0109": Explanation(
        "something is missing",
        "A key or a part of the step is required and not there.",
    ),
    "HF0110": Explanation(
        "unknown step type",
        "The first word of a step, or its `type`, names what it does. Other words are taken as the name "
        "of a block only when they cannot be a misspelt step type; `block: NAME` always names a block.",
    ),
    "HF0111": Explanation(
        "the short form cannot be read",
        "The text after the step type does not follow the template of that type; "
        "`docs/reference/steps.md` lists them all. The long form with keys always works.",
    ),
    "HF0112": Explanation(
        "duplicate id",
        "An id is unique in the whole workflow, branches included; a name is unique among workflows that are published "
        "together.",
    ),
    "HF0113": Explanation(
        "name not allowed",
        "Ids and variables are made of letters, digits, `_` and `-` and begin with a letter or `_`. The "
        "ids `start`, `end`, `last`, `here`, `exit` and `default` have a meaning of their own, and so "
        "have the variables `input`, `vars`, `steps`, `workflow` and `entity`.",
    ),
    "HF0114": Explanation(
        "not a duration",
        "Durations are numbers with units: `10ms`, `5s`, `3m`, `2h`, `1d`, `1h30m`. A unit is always needed.",
    ),
    "HF0115": Explanation(
        "keys contradict each other",
        "Two keys say the same thing in two ways, or two step types are named in one step. Keep one.",
    ),
    "HF0116": Explanation(
        "value not allowed",
        "The value is outside of what this key allows.",
    ),
    "HF0117": Explanation(
        "not a workflow",
        "A workflow is a map with `steps`, or only the list of steps. A file may hold several, separated by lines "
        "with `---`; where one is asked for, it has to be one.",
    ),
    "HF0118": Explanation(
        "value cannot be stored",
        "Control characters, infinite numbers and integers beyond 64 bits cannot be stored and read back alike.",
    ),
    "HF0119": Explanation(
        "not UTF-8",
        "Workflow files are text in UTF-8. Most editors can save a file with another encoding as UTF-8.",
    ),
    # --- expressions ---------------------------------------------------------------------------------
    "HF0120": Explanation(
        "the expression cannot be read",
        "See `docs/reference/steps.md` for the grammar. To write `${` literally, double the dollar: `$${HOME}`.",
    ),
    "HF0121": Explanation(
        "undefined name",
        "The name is no input, no variable set by `let` and no root (`input`, `vars`, `steps`, `output`, "
        "`workflow`, `entity`, and `error` in a handler). In a condition and on the left of `??` this is a "
        "warning, and the name counts as absent.",
    ),
    "HF0122": Explanation(
        "wrong function call",
        "The function does not exist, or takes another number of arguments.",
    ),
    "HF0123": Explanation(
        "unknown step",
        "`steps.<id>.output` needs a step with that id that can be seen from here: steps inside a branch "
        "of `parallel` are only seen in that branch.",
    ),
    "HF0124": Explanation(
        "the expression is too large",
        "An expression may have 4,096 characters, 1,000 parts and 60 levels. Split it over several `let` steps.",
    ),
    "HF0125": Explanation(
        "text is not a value to calculate with",
        "Outside of `${…}`, words in `let` are text. Write `${x} + 1`, not `x + 1`; put text that "
        "contains ` + ` or ` - ` in quotes.",
    ),
    "HF0126": Explanation(
        "expressions are not possible here",
        "The value is needed before the workflow runs, so it has to be a literal.",
    ),
    "HF0127": Explanation(
        "the condition cannot be read",
        "A condition is an expression, a boolean, or a map with a `target` and tests such as `equals`, "
        "`when`, `less-than`, `regex`, `not`, `any`, `all`. Where a step has a value of its own to test (the "
        "error, the value of a `switch`), the `target` can be left out.",
    ),
    "HF0128": Explanation(
        "inputs refer to each other in a circle",
        "One of them has to stand on its own.",
    ),
    # --- warnings ------------------------------------------------------------------------------------
    "HF0130": Explanation(
        "name found in two places",
        "A variable hides an input of the same name. Write `vars.x` or `input.x` to say which one is meant.",
    ),
    "HF0131": Explanation(
        "name known only at run time",
        "The name is defined nowhere in the workflow, but may be a key of the previous step's output. "
        "Write `output.x` to say so.",
    ),
    "HF0132": Explanation(
        "key has no effect",
        "The key means nothing on this type of step.",
    ),
    "HF0133": Explanation(
        "retry has little effect",
        "A block that is neither pure nor idempotent runs at most once per visit, because a second "
        "attempt might do the work twice. It is tried again only where it says itself that nothing was done "
        "(`NothingDone`). If this block may run twice, say `idempotent: yes` on the step.",
    ),
    "HF0134": Explanation(
        "text that looks like a value",
        "In the short form of `let`, what stands in quotes is literal text: leave the quotes out to have `${…}` "
        "evaluated. In a list or map like `[web1, web2]` a bare word is a text, too, even where a variable has "
        "that name: write `${web1}` for its value, or quote the word to say that it is text.",
    ),
    "HF0135": Explanation(
        "step has not run yet",
        "The step comes later; its output is absent when this step runs.",
    ),
    "HF0136": Explanation(
        "text that looks like a boolean",
        "Only `true` and `false` are booleans. `yes`, `no`, `on` and `off` are texts, also without quotes; keys of the "
        "language that ask for yes or no take them, but data is passed on as it is.",
    ),
    # --- blocks --------------------------------------------------------------------------------------
    "HF0137": Explanation(
        "a circle",
        "Step types that use each other, or nodes of a graph that need each other, would never end or never "
        "begin. Take one of the links away.",
    ),
    "HF0140": Explanation(
        "unknown block input",
        "The block has no parameter of that name.",
    ),
    "HF0141": Explanation(
        "missing block input",
        "The block requires a parameter that the step does not give.",
    ),
    "HF0142": Explanation(
        "wrong block input",
        "The block takes another type of value for that parameter.",
    ),
    # --- inputs --------------------------------------------------------------------------------------
    "HF0150": Explanation(
        "unknown input",
        "The workflow declares its inputs, and this is none of them.",
    ),
    "HF0151": Explanation(
        "missing input",
        "The workflow requires an input that was not given.",
    ),
    "HF0152": Explanation(
        "wrong input",
        "The input cannot be read as the type that the workflow declares.",
    ),
    # --- the function-block notation -----------------------------------------------------------------
    "HF0185": Explanation(
        "`{{ … }}` cannot be read",
        "Between the braces stands a JMESPath expression: `parameters.host`, `context.device.platform == 'ios'`, "
        "`check.result.data.ports[?up].name`. Texts are written 'so', numbers and other JSON in backticks, names "
        "with a dash in double quotes.",
    ),
    "HF0186": Explanation(
        "`{{ … }}` asks for something that is not there",
        "An expression begins with `parameters`, with `context.device`, `context.interface` or "
        "`context.device_group` (the entity at hand), or with the label of a step, followed by `.result.data` or "
        "`.result.success`. Functions are those of JMESPath itself.",
    ),
    "HF0187": Explanation(
        "kept, but not followed yet",
        "The definition says something that Holdfast keeps but does not act upon in this version. Start the "
        "workflow by hand or from your own scheduler.",
    ),
    "HF0188": Explanation(
        "not part of the function-block notation",
        "A definition with `seedEntity`, version numbers or steps with `functionBlock` is read with the keys of that "
        "notation only. What a value may be, and between which limits, is checked when the file is loaded.",
    ),
    "HF0189": Explanation(
        "a schema that says more than inputs can",
        "`parameterSchema` is a JSON Schema of type `object`. Types, defaults, enumerations, descriptions and what "
        "is required are checked at the start; other rules are kept, and are up to the blocks.",
    ),
    # --- while it runs -------------------------------------------------------------------------------
    "HF0160": Explanation(
        "the expression failed",
        "An expression could not be evaluated while the workflow ran: a name or key was absent, or types "
        "did not fit. `??` gives absent values a default.",
    ),
    "HF0161": Explanation(
        "the expression cost too much",
        "Evaluation is limited in steps, and texts and lists in size, so that no workflow can stop the "
        "engine. Do heavy work in a block.",
    ),
    # --- entities ------------------------------------------------------------------------------------
    "HF0751": Explanation(
        "The text is no selector",
        'A selector is an expression without `${…}` over what is known of an entity: `type == "device" && site == '
        '"ams1"`. A bare name is a label, or else a fact; `id`, `type`, `name`, `parent`, `groups`, `labels.X` and '
        "`facts.X` are the entity's own.",
    ),
    # --- entities ------------------------------------------------------------------------------------
    "HF0171": Explanation(
        "block for entities in a workflow without",
        "The block says that it runs on entities of a type, one job for each, and the workflow works on none. Say "
        "`run-on: TYPE` for the workflow or the step, or `run-on: global` for a step that is done once all the same.",
    ),
    "HF0172": Explanation(
        "not a number or percentage of entities",
        "`max-failures` is a number from 0, or 0% to 100%. A batch is at least 1, or more than 0% and at most 100%; "
        "percentages are of all entities and rounded down, but a batch is never empty.",
    ),
    "HF0173": Explanation(
        "shared lock, and a block that is not pure",
        "With `lock: {mode: shared}` others may look at the entities at the same time, so every block has to be pure.",
    ),
    "HF0174": Explanation(
        "run-on is not possible here",
        "`run-on` names a type of entities, or `global`. It belongs on blocks and on steps that have steps inside; "
        "inside of something that is done for each entity everything is about that entity already. A registered type "
        "is done where it is used: say it there.",
    ),
    "HF0175": Explanation(
        "the step is not done for each entity",
        "`steps.ID.results` and `steps.ID.failed` are known of steps that are done for each of many entities. Every "
        "step has `steps.ID.output`.",
    ),
    "HF0176": Explanation(
        "acquire cannot be read",
        "`acquire` is a selector, a map with one of `select`, `ids`, `children`, `parent` and `members`, or a list of "
        "these. `ids` may be an expression over `input`.",
    ),
    "HF0177": Explanation(
        "unknown word in config",
        "The key takes one of a few words; the reference of workflow keys lists them.",
    ),
    "HF0178": Explanation(
        "gate cannot be read",
        "`not-before` is a time like `2030-01-31T22:00:00Z`, `window` is `HH:MM-HH:MM` every day, `after` names "
        "executions, `approval` is the question that is asked, `deadline` a duration.",
    ),
    "HF0179": Explanation(
        "no effect without entities",
        "The key is about the entities of a workflow, and this one works on none.",
    ),
}


def suggest(word: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant, or nothing."""
    plain = word.lower().replace("-", "").replace("_", "")
    if not plain or len(plain) > 64:
        return ""
    best, score = "", 0.0
    enough = 0.6 if len(plain) <= 4 else 0.7
    for candidate in sorted(set(candidates)):
        other = candidate.lower().replace("-", "").replace("_", "")
        matcher = SequenceMatcher(None, plain, other)
        # Upper bounds first: a file of nothing but unknown keys must not take long.
        if matcher.real_quick_ratio() < enough or matcher.quick_ratio() < enough:
            continue
        ratio = matcher.ratio()
        if ratio > score and ratio >= enough:
            best, score = candidate, ratio
    return best


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    found = suggest(word, candidates)
    return f"did you mean `{found}`?" if found else ""


def render(problem: Problem) -> str:
    """The form for people: code, place, source line, caret, help."""
    kind = "warning" if problem.warning else "error"
    out = [f"{kind}[{problem.code}]: {problem.message}"]
    if problem.line:
        number = str(problem.line)
        pad = " " * len(number)
        out.append(f" {pad}--> {problem.file or '<definition>'}:{problem.line}:{problem.column}")
        out.append(f" {pad} |")
        out.append(f" {number} | {problem.source}".rstrip())
        # Tabs keep the caret under its word whatever the terminal makes of them.
        lead = "".join("\t" if char == "\t" else " " for char in problem.source[: problem.column - 1])
        lead = lead.ljust(problem.column - 1)
        out.append(f" {pad} | {lead}{'^' * max(problem.width, 1)} {problem.label}".rstrip())
    else:
        pad = ""
        place = " ".join(part for part in (problem.file, problem.path) if part)
        if place:
            out.append(f"  --> {place}")
        if problem.label:
            out.append(f"   = note: {problem.label}")
    if problem.help:
        first, *rest = problem.help.split("\n")
        out.append(f" {pad} = help: {first}")
        out += [f" {pad}         {line}" for line in rest]
    return "\n".join(out)


def summary(problems: Iterable[Problem]) -> str:
    """`3 errors, 1 warning`."""
    listed = list(problems)
    warnings = sum(problem.warning for problem in listed)
    errors = len(listed) - warnings
    parts = [f"{errors} error{'s' if errors != 1 else ''}"] if errors or not warnings else []
    if warnings:
        parts.append(f"{warnings} warning{'s' if warnings != 1 else ''}")
    return ", ".join(parts)
