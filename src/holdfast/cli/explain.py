"""`holdfast explain`: what a code, a step type, a key, a status or a verb means; offline, like rustc and kubectl.

Error codes are sections of `errors.md` beside this file; the rest comes from the tables the engine itself uses.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import click

from holdfast.core.errors import UnknownCode

from .connect import traceback_option
from .options import complete_codes, output_option
from .refusals import close_to, dumps
from .text import bold, columns, dim, style, table


class Section(NamedTuple):
    code: str
    title: str
    means: str
    cause: str
    remedy: str


class Topic(NamedTuple):
    name: str
    #: error, step, key, kind (of an error), status, verb, word
    kind: str
    title: str
    lines: tuple[str, ...]


_SECTION = re.compile(
    r"^## (?P<code>HF\d{4}) – (?P<title>[^\n]+)\n\n"
    r"\*\*Means\.\*\* (?P<means>.*?)\n\*\*Usual cause\.\*\* (?P<cause>.*?)\n"
    r"\*\*What to do\.\*\* (?P<remedy>.*?)(?=\n\n(?:#|\Z)|\Z)",
    re.MULTILINE | re.DOTALL,
)


@cache
def sections() -> dict[str, Section]:
    """Every code of errors.md."""
    text = files("holdfast.cli").joinpath("errors.md").read_text(encoding="utf-8")
    return {
        match["code"]: Section(*(" ".join(match[part].split()) for part in Section._fields))
        for match in _SECTION.finditer(text)
    }


#: What people read in lists and messages, and may want to look up.
_WORDS = tuple(
    Topic(name, "word", f"the word `{name}`", (f"means\t{text}", f"see\t{see}"))
    for name, text, see in (
        ("ledger", "every job that changed something outside, or may have, with its effect; the verdict comes from it",
         "holdfast ledger ID"),
        ("effect", "what a job did: NONE, DONE, UNKNOWN (nobody can tell) or UNDONE", "holdfast ledger ID"),
        ("suspect", "of an entity: an execution left it in doubt, and nobody has acknowledged that yet",
         "holdfast entity show ID, holdfast ack"),
        ("quarantine", "of an entity: suspect, and nobody may lock it before somebody acknowledges it "
         "(`config.on-unsafe: quarantine`)", "holdfast entity show ID, holdfast ack"),
        ("fence", "the number under which an execution holds its entities; it only grows, what comes under an older "
         "one counts no more", "holdfast locks"),
        ("verify", "a hook of a block: it looks whether something happened where nobody can tell; also a command that "
         "checks a store", "holdfast blocks, holdfast verify"),
    )
)  # fmt: skip


@cache
def topics() -> tuple[Topic, ...]:
    """Everything that can be explained; `retry` is both a key and a verb."""
    errors = [
        Topic(
            section.code, "error", section.title,
            (f"means\t{section.means}", f"usual cause\t{section.cause}", f"what to do\t{section.remedy}"),
        )
        for section in sections().values()
    ]  # fmt: skip
    return (*errors, *_language(), *_kinds(), *_lifecycle(), *_WORDS)


def _language() -> list[Topic]:
    from holdfast.language import steps
    from holdfast.language.steps import BLOCK_FORMS, COMMON_KEYS, STEP_TYPES, WORKFLOW_KEYS

    found = []
    for kind in STEP_TYPES.values():
        lines = [f"does\t{kind.text}", f"output\t{kind.output}"]
        if kind.shorthand is not None:
            lines.insert(1, f"short form\t{kind.name} {kind.shorthand}".rstrip())
        lines += [f"key `{key.name}`\t{key.text} ({key.takes})" for key in kind.keys]
        if kind.example:
            lines.append(f"example\t- {kind.example}")
        found.append(Topic(kind.name, "step", f"the step `{kind.name}`", tuple(lines)))
    for name, (template, results) in BLOCK_FORMS.items():
        lines = [f"short form\t{name} {template}", f"output\ta map with {', '.join(results)}"]
        found.append(Topic(name, "step", f"the step `{name}`", tuple(lines)))
    for table_, where in (
        (COMMON_KEYS, "a step"), (WORKFLOW_KEYS, "a workflow"), (steps.ACQUIRE_KEYS, "`acquire`"),
        (steps.CONFIG_KEYS, "`config`"), (steps.STRATEGY_KEYS, "`config.execution-strategy`"),
        (steps.ROLLOUT_KEYS, "`config.rollout`"), (steps.ENTITY_LOCK_KEYS, "`config.lock`"),
        (steps.GATE_KEYS, "`gates`"),
    ):  # fmt: skip
        for key in table_:
            lines = [f"means\t{key.text}", f"takes\t{key.takes}", f"on\t{where}"]
            if key.aliases:
                lines.append(f"also\t{', '.join(key.aliases)}")
            found.append(Topic(key.name, "key", f"the key `{key.name}` of {where}", tuple(lines)))
    return found


def _kinds() -> list[Topic]:
    from holdfast.language.kinds import KINDS, OF_BLOCKS, OF_STEPS

    found = []
    for name, text in KINDS.items():
        is_seen = name in OF_STEPS or name in OF_BLOCKS
        seen = "`on-error`, as `error.kind`" if is_seen else "nobody but the history"
        found.append(Topic(name, "kind", f"errors of kind `{name}`", (f"means\t{text}", f"seen by\t{seen}")))
    return found


def _lifecycle() -> list[Topic]:
    from holdfast.core.lifecycle import EDGES, VERBS
    from holdfast.core.model import Status

    found = []
    for status in Status:
        before = [f"{edge.source.name} ({edge.when})" for edge in EDGES if edge.target is status]
        after = [f"{edge.target.name} ({edge.when})" for edge in EDGES if edge.source is status]
        verbs = [verb.name for verb in VERBS.values() if status in verb.allowed]
        lines = [
            f"is\t{'an end' if status.is_ended else 'on the way'}",
            f"comes after\t{', '.join(before[:8]) + (', …' if len(before) > 8 else '') or 'nothing: accepted'}",
            f"leads to\t{', '.join(after) or 'nothing'}",
            f"allows\t{', '.join(verbs) or 'nothing'}",
        ]
        found.append(Topic(status.name, "status", f"the status {status.name}", tuple(lines)))
    for verb in VERBS.values():
        allowed = sorted(verb.allowed)
        lines = [f"does\t{verb.effect}", f"allowed in\t{', '.join(status.name for status in allowed)}"]
        found.append(Topic(verb.name, "verb", f"the verb {verb.name}", tuple(lines)))
    return found


@click.command("explain", short_help="Explain an error code, a step type, a key or a status.")
@click.argument("word", required=False, default="", metavar="[CODE|WORD]", shell_complete=complete_codes)
@output_option(("text", "json"), "text")
@traceback_option
def explain_command(word: str, output: str) -> None:
    """Explain an error code, a step type, a key, a status or a verb. Without a WORD, list them all.

    \b
      holdfast explain HF0311
      holdfast explain retry
      holdfast explain FAILED_UNSAFE
    """
    if not word:
        _index(output)
        return
    found = _find(word)
    if output == "json":
        click.echo(dumps([_plain(topic) for topic in found]))
        return
    click.echo("\n\n".join(_show(topic) for topic in found))


def _plain(topic: Topic) -> dict[str, object]:
    pairs = [line.split("\t", 1) for line in topic.lines]
    return {"name": topic.name, "kind": topic.kind, "title": topic.title, "text": dict(pairs)}


def _find(word: str) -> list[Topic]:
    known = topics()
    plain = word.strip().lower().removeprefix("step.").removeprefix("workflow.")
    if re.fullmatch(r"\d{3,4}", plain):
        plain = "hf" + plain.rjust(4, "0")
    groups = {
        "errors": "error",
        "codes": "error",
        "steps": "step",
        "keys": "key",
        "statuses": "status",
        "verbs": "verb",
    }
    if plain in groups:
        return [topic for topic in known if topic.kind == groups[plain]]
    style_free = plain.replace("_", "-")
    exact = [topic for topic in known if topic.name.lower().replace("_", "-") == style_free]
    if exact:
        return exact
    inside = [topic for topic in known if plain in topic.title.lower()] if len(plain) > 2 else []
    if inside:
        return inside
    close = close_to(plain, [topic.name.lower() for topic in known])
    shown = next((topic.name for topic in known if topic.name.lower() == close), "")
    hint = f"did you mean `{shown}`?" if shown else "`holdfast explain` lists what there is"
    raise UnknownCode(f"nothing is known about `{word}`; {hint}")


def _show(topic: Topic) -> str:
    from textwrap import fill

    head = (
        f"{style(topic.name, bold=True, fg='cyan')}  {bold(topic.title)}"
        if topic.kind == "error"
        else bold(topic.title)
    )
    width = max(len(line.partition("\t")[0]) for line in topic.lines) + 2
    out = [head, ""]
    for line in topic.lines:
        name, _, text = line.partition("\t")
        lead = " " * (width + 2)
        body = fill(
            text,
            columns(98),
            initial_indent=lead,
            subsequent_indent=lead,
            break_long_words=False,
            break_on_hyphens=False,
        )
        out.append(f"  {dim(name.ljust(width))}{body.lstrip()}")
    return "\n".join(out)


def _index(output: str) -> None:
    known = topics()
    if output == "json":
        click.echo(dumps([_plain(topic) for topic in known]))
        return
    parts = []
    for kind, head in (
        ("error", "Errors"),
        ("step", "Steps"),
        ("key", "Keys"),
        ("kind", "Kinds of errors"),
        ("status", "Statuses"),
        ("verb", "Verbs"),
        ("word", "Words"),
    ):
        chosen = [topic for topic in known if topic.kind == kind]
        if kind == "error":
            parts.append(f"{bold(head)}\n" + table((), [[t.name, dim(t.title)] for t in chosen], indent="  "))
        else:
            from textwrap import fill

            names = fill(", ".join(dict.fromkeys(t.name for t in chosen)), columns(98) - 2, break_on_hyphens=False)
            parts.append(f"{bold(head)}\n  " + names.replace("\n", "\n  "))
    click.echo("\n\n".join(parts))
