"""The documents are under test: links, command lines, snippets, sessions, and the pages that are generated.

`python -m tests.test_docs` writes the generated reference pages (cli, errors, blocks) anew. What a fence says
after its language decides what happens to it here:

    python              has to compile                 yaml workflow        has to load as a workflow
    python run          is run as well                 yaml workflow file=x, python file=x   is also written to x
    console             `$ holdfast …` has to parse    console run          is run, and its output compared

Files and sessions of one page share one empty folder, in the order of the page.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from holdfast.blocks import Registry
from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.settings import KEYS
from holdfast.core import errors
from holdfast.language import load_workflow
from holdfast.language.problems import PROBLEMS
from holdfast.language.reference import reference as steps_page
from tests.cli.test_errors import VALUES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
ERRORS = ROOT / "src" / "holdfast" / "cli" / "errors.md"
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "src/holdfast/cli/errors.md")
    for path in ROOT.glob(pattern)
)


# --- reading Markdown -------------------------------------------------------------------------------
class Fence(NamedTuple):
    line: int
    #: what stands after the three ticks, word by word
    words: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def file(self) -> str:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), "")


_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.MULTILINE)
_SPAN = re.compile(r"`(?P<text>holdfast [^`]+)`")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences(path: Path) -> list[Fence]:
    text = path.read_text(encoding="utf-8")
    return [
        Fence(
            text.count("\n", 0, found.start()) + 1,
            tuple(found["info"].split()),
            textwrap.dedent(found["body"]),
        )
        for found in _FENCE.finditer(text)
    ]


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    titles = [found["title"] for found in _HEADING.finditer(prose(path))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# --- links ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for found in _LINK.finditer(prose(path)):
        target = found["target"]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(there):
            broken.append(f"{target} (no such heading)")
    assert not broken


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_name_no_machine(path: Path) -> None:
    found = re.findall(r"/(?:work|root|home|tmp)/\S*", path.read_text(encoding="utf-8"))
    assert not found


# --- command lines ----------------------------------------------------------------------------------
#: Where a command ends and the shell begins.
_END = re.compile(r"\s(?:[|;&<>]|2>|#)|[)]|$")
_CALL = re.compile(r"(?:^|[\s(])holdfast (?=[-a-z])")


def calls(line: str) -> Iterator[list[str]]:
    """Command lines of ours in one line of shell."""
    for found in _CALL.finditer(line):
        rest = line[found.end() :]
        quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda part: "q" * len(part[0]), rest)
        end = _END.search(quoted)
        yield shlex.split(rest[: end.start() if end else len(rest)])


def problem_with(words: list[str], *, is_whole: bool) -> str:
    """What is wrong with a command line, read as click would read it but for values. Words in capitals are
    placeholders; in running text (`is_whole` False) arguments may be missing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="holdfast")
    given = list(words)
    while given:
        if isinstance(command, click.Group):
            while given and given[0].startswith("-"):
                option = next((p for p in command.get_params(context) if given[0] in p.opts), None)
                if option is None:
                    return f"there is no option {given[0]}"
                del given[: 1 if option.is_flag else 2]  # type: ignore[attr-defined]
            if not given or given[0].isupper():
                return ""
            found = command.get_command(context, given[0])
            if found is None:
                return f"there is no command {given[0]}"
            context = click.Context(found, info_name=given[0], parent=context)
            command, given = found, given[1:]
            continue
        try:
            _, left, _ = command.make_parser(context).parse_args(list(given))
        except click.UsageError as error:
            return error.format_message()
        needed = [p for p in command.params if isinstance(p, click.Argument) and p.required]
        if left and left != ["…"]:
            return f"too many arguments: {left}"
        if is_whole and needed and "--help" not in given and len(given) < len(needed):
            return f"missing argument {needed[-1].name}"
        return ""
    return ""


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_command_lines_exist(path: Path) -> None:
    wrong = []
    for fence in fences(path):
        if fence.language in ("console", "sh", "bash", ""):
            lines = fence.text.replace("\\\n", " ").splitlines()
            for line in lines:
                is_typed = fence.language in ("sh", "bash") or line.startswith("$ ")
                for words in calls(line.removeprefix("$ ")) if is_typed else ():
                    if problem := problem_with(words, is_whole=True):
                        wrong.append(f"line {fence.line}: holdfast {shlex.join(words)}: {problem}")
    for found in _SPAN.finditer(prose(path)):
        for words in calls(found["text"]):
            if problem := problem_with(words, is_whole=False):
                wrong.append(f"{found['text']}: {problem}")
    assert not wrong


# --- snippets ---------------------------------------------------------------------------------------
def with_fences(*languages: str) -> list[Path]:
    return [path for path in PAGES if any(fence.language in languages for fence in fences(path))]


@pytest.mark.parametrize("path", with_fences("python"), ids=name_of)
def test_python_compiles(path: Path) -> None:
    for fence in fences(path):
        if fence.language == "python":
            ast.parse(fence.text, f"{name_of(path)}:{fence.line}")


@pytest.mark.parametrize("path", with_fences("yaml"), ids=name_of)
def test_workflows_load(path: Path) -> None:
    for fence in fences(path):
        if fence.words[:2] == ("yaml", "workflow"):
            _, _, problems = load_workflow(fence.text, f"{name_of(path)}:{fence.line}")
            assert not problems, problems


def is_run(fence: Fence) -> bool:
    return "run" in fence.words[1:]


@pytest.mark.parametrize("path", [p for p in PAGES if any(map(is_run, fences(p)))], ids=name_of)
def test_what_is_marked_runs_as_shown(path: Path, tmp_path: Path) -> None:
    for fence in fences(path):
        if fence.file:
            (tmp_path / fence.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / fence.file).write_text(fence.text)
        if not is_run(fence):
            continue
        where = f"{name_of(path)}:{fence.line}"
        if fence.language == "python":
            done = _run([sys.executable, "-c", fence.text], tmp_path)
            assert done.returncode == 0, f"{where}\n{done.stdout}"
        else:
            commands, shown = _session(fence.text)
            done = _run(["bash", "-c", commands], tmp_path)
            printed = _blurred(done.stdout)
            missing = [line for line in shown if _blurred(line).rstrip("…") not in printed]
            assert not missing, f"{where}\nmissing: {missing}\nprinted:\n{done.stdout}"


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "USER": "ada",
        "LOGNAME": "ada",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90,
        check=False,
    )  # fmt: skip


def _session(text: str) -> tuple[str, list[str]]:
    """What is typed, and what is shown for it. A line `…` stands for lines left out."""
    typed = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    shown = [line for line in text.splitlines() if line.strip() and not line.startswith("$ ") and line.strip() != "…"]
    return "\n".join(typed), shown


def _blurred(text: str) -> str:
    """A text without what differs from run to run: ids, times, counts, processes, and where lines and columns
    are broken. What stands behind an ellipsis at the end of a line is not compared."""
    line = " ".join(text.split())
    line = re.sub(r"\b[0-9a-f]{8}(?:[0-9a-f]{24})?\b", "ID", line)
    line = re.sub(r"\b\d+(?:\.\d+)?\s?(?:ms|µs|s|m|h)(?:\d+s)?\b", "T", line)
    line = re.sub(r"\d+:\d\d(:\d\d(\.\d+)?)?|\d{4}-\d\d-\d\d", "T", line)
    line = re.sub(r"\b\d+ events?\b", "N events", line)
    line = re.sub(r"up [^,]*,.*?load average: [\d., ]+|http://127\.0\.0\.1:\d+", "", line)
    return re.sub(r"\b(embedded|engine-\d+)\b", "WORKER", line)


# --- generated pages --------------------------------------------------------------------------------
def generated() -> dict[Path, str]:
    return {
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "errors.md": ERRORS.read_text(encoding="utf-8"),
        REFERENCE / "blocks.md": blocks_page(),
    }


@pytest.mark.parametrize("name", ["cli.md", "errors.md", "blocks.md"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    page = REFERENCE / name
    assert page.read_text(encoding="utf-8") == generated()[page], "run `python -m tests.test_docs`"


def test_the_page_of_the_step_language_is_up_to_date() -> None:
    page = (REFERENCE / "steps.md").read_text(encoding="utf-8")
    assert page == steps_page(), "run `python -m holdfast.language.reference`"


def cli_page() -> str:
    lines = [
        "# The command line",
        "",
        "<!-- Generated by `python -m tests.test_docs`; do not edit. -->",
        "",
        "Data goes to stdout; progress and remarks go to stderr. Where stderr is no terminal, progress is one line per",
        "fact and without colours. Of an execution's id the first characters suffice.",
        "",
        "`holdfast -C DIR COMMAND` works as if started in DIR.",
        "",
        "## Options of many commands",
        "",
        "| Option | Meaning |",
        "|---|---|",
        *(f"| {option} | {text} |" for option, text in _COMMON.items()),
        "",
    ]
    for section, commands in COMMANDS.items():
        lines += [f"## {section}", ""]
        for name in commands:
            lines += _command_lines(name, cli.get_command(click.Context(cli), name), click.Context(cli))
    lines += ["## Exit codes", "", "| Code | Means |", "|---|---|", *_exit_codes(), ""]
    return "\n".join(lines)


def _command_lines(name: str, command: click.Command | None, parent: click.Context) -> list[str]:
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    full = f"{parent.info_name} {name}" if parent.info_name else name
    lines = [f"### `{full}`", "", "```", " ".join(["holdfast", full, *pieces]), "```", "", *_help_lines(command), ""]
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            lines += _command_lines(each, command.get_command(context, each), context)
        return lines
    rows = [row for p in command.params if isinstance(p, click.Option) and (row := p.get_help_record(context))]
    own = [(option, " ".join(text.split())) for option, text in rows]
    own = [(option, text) for option, text in own if _COMMON.get(f"`{option}`") != text]
    if own:
        lines += ["| Option | Meaning |", "|---|---|"]
        lines += [f"| `{_cell(option)}` | {_cell(text)} |" for option, text in own]
        lines += [""]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _help_lines(command: click.Command) -> list[str]:
    """The help text; what click is told to leave as it is becomes a block of code."""
    lines: list[str] = []
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b"):
            lines += ["```sh", *textwrap.dedent(part.removeprefix("\b\n")).splitlines(), "```", ""]
        else:
            lines += [*textwrap.wrap(" ".join(part.split()), 110), ""]
    return lines[:-1]


#: Said once, at the head of the page.
_COMMON = {
    "`--server URL`": "A server, e.g. http://127.0.0.1:3030.",
    "`--token TOKEN`": "API token; better in HOLDFAST_TOKEN.",
    "`--store URL`": "The store, if no server is to be asked.",
    "`--traceback`": "Show where in the code an error came from.",
    "`-h, --help`": "Show this message and exit.",
}


def _exit_codes() -> list[str]:
    table = ERRORS.read_text(encoding="utf-8").partition("# Exit codes")[2]
    return [line for line in table.splitlines() if re.match(r"\| \d+ \|", line)]


def blocks_page() -> str:
    lines = [
        "# Built-in blocks",
        "",
        "<!-- Generated by `python -m tests.test_docs`; do not edit. -->",
        "",
        "Every worker offers these unless it is started with `--only-modules`. `holdfast blocks` lists what the",
        "workers of a project offer, your own blocks included. *May repeat* says what happens when the outcome of",
        "an attempt is unknown: a pure or idempotent block is tried again, any other stops the execution.",
        "",
    ]
    blocks = sorted(Registry(), key=lambda block: (block.name.startswith("test."), block.name))
    lines += ["| Block | May repeat | Runs in | |", "|---|---|---|---|"]
    for block in blocks:
        first = block.offer.description.partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| [`{block.name}`](#{_slug(block.name)}) | {_repeats(block)} | {block.isolation} | {first} |")
    lines.append("")
    for block in blocks:
        lines += [f"## {block.name}", "", *_wrapped(block.offer.description), "", *_parameter_lines(block), ""]
    return "\n".join(lines[:-1]) + "\n"


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _wrapped(text: str) -> list[str]:
    return "\n\n".join(
        textwrap.fill(" ".join(part.split()), 110, break_on_hyphens=False) for part in text.split("\n\n")
    ).splitlines()


def _repeats(block: Any) -> str:
    return "pure" if block.offer.pure else "idempotent" if block.offer.idempotent else "no"


def _parameter_lines(block: Any) -> list[str]:
    schema = block.offer.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not properties:
        return ["Takes any input." if schema.get("additionalProperties") else "Takes no input."]
    lines = ["| Input | Type | Default |", "|---|---|---|"]
    for name, of in properties.items():
        default = "required" if name in required else f"`{_json(of.get('default'))}`"
        lines.append(f"| `{name}` | {_type(of)} | {default} |")
    return lines


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(part) for part in schema["anyOf"] if part.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    return str(schema.get("type", "any"))


# --- completeness -----------------------------------------------------------------------------------
def test_every_error_has_a_section() -> None:
    titles = dict(re.findall(r"^## (HF\d{4}) – (.+)$", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.Refused)]
    expected = {c.code: (c.__doc__ or "").strip().splitlines()[0].rstrip(".") for c in classes}
    expected |= {code: explained.title for code, explained in PROBLEMS.items()}
    assert {code: titles.get(code) for code in expected} == expected
    # Failures inside of histories have codes too, and no class.
    assert titles.keys() - expected.keys() <= VALUES


def test_every_setting_is_explained() -> None:
    page = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    for name, key in KEYS.items():
        default = ", ".join(key.default) if isinstance(key.default, list) else str(key.default).removesuffix(".0")
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert key.variable(name) in row, f"{name} has no row"
        assert not default or f"`{default}`" in row, f"the default of {name} is {default}"


def test_every_invariant_that_is_checked_is_in_the_table() -> None:
    source = (ROOT / "src/holdfast/engine/verify.py").read_text(encoding="utf-8")
    page = (REFERENCE / "invariants.md").read_text(encoding="utf-8")
    for code in sorted(set(re.findall(r'"(I-\d+)"', source))):
        row = next((line for line in page.splitlines() if line.startswith(f"| {code} |")), "")
        assert "`verify`" in row, f"{code} is checked by verify, but the table does not say so"
    for path in re.findall(r"`(tests/[\w/]+\.py)", page):
        assert (ROOT / path).exists(), path


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    assert [name for name in names if name not in index] == []
    for name in names:
        text = (ROOT / "docs/decisions" / name).read_text(encoding="utf-8")
        assert {"context", "decision", "consequences"} <= anchors(ROOT / "docs/decisions" / name), name
        assert text.startswith(f"# {name[:4]} "), name


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    # Decisions are listed on a page of their own.
    assert {page for page in pages if page not in text and not page.startswith("decisions/0")} == set()
    assert [page for page in re.findall(r"[\w/-]+\.md", text) if page not in pages] == []


def test_code_map_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src/holdfast").glob("*/__init__.py")]
    assert [name for name in packages if f"`{name}/`" not in text] == []
    modules = re.findall(r"`([a-z]+/[a-z_]+\.py)", text)
    assert [name for name in modules if not ((ROOT / "src/holdfast" / name).exists() or (ROOT / name).exists())] == []


if __name__ == "__main__":
    for target, content in generated().items():
        target.write_text(content, encoding="utf-8")
        print(f"wrote {name_of(target)}")
