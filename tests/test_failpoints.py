"""Failpoints: what the variable says, and that nothing is committed, claimed or pushed without one on each side."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.core.errors import BadConfiguration
from holdfast.failpoints import NAMES, FailpointReached, arm, failpoint
from tests.chaos import plan

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"

#: (file, function) that commits nothing, and why
READS = {
    ("store/sqlite.py", "consistent"): "ends a transaction that only reads",
    ("store/postgres.py", "consistent"): "ends a transaction that only reads",
}


# --- the variable -------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def test_nothing_happens_where_nothing_is_armed() -> None:
    for name in NAMES:
        failpoint(name)
    assert not failpoints.is_armed


def test_it_acts_at_the_hit_it_was_told() -> None:
    arm("engine.push.before:hit=3:raise")
    failpoint("engine.push.before")
    failpoint("engine.push.after")
    failpoint("engine.push.before")
    with pytest.raises(FailpointReached, match=r"engine\.push\.before"):
        failpoint("engine.push.before")
    failpoint("engine.push.before")


def test_several_are_armed_with_commas_and_each_says_that_it_acted(capfd: pytest.CaptureFixture[str]) -> None:
    arm("engine.push.before:log, engine.push.after:hit=2:log,sqlite.begin.before:pause=0.001")
    for name in ("engine.push.before", "engine.push.after", "engine.push.after", "sqlite.begin.before"):
        failpoint(name)
    said = [re.sub(r" pid=\d+$", "", line) for line in capfd.readouterr().err.splitlines()]
    assert said == [
        "failpoint engine.push.before hit=1 log",
        "failpoint engine.push.after hit=2 log",
        "failpoint sqlite.begin.before hit=1 pause",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sqlite.comit.after", "there is no failpoint 'sqlite.comit.after'"),
        ("sqlite.commit.after:hit=0", "'hit=0'"),
        ("sqlite.commit.after:hit=x", "'hit=x'"),
        ("sqlite.commit.after:explode", "'explode'"),
        ("sqlite.commit.after:pause=-1", "'pause=-1'"),
        ("sqlite.commit.after:pause=nan", "'pause=nan'"),
        ("sqlite.commit.after:kill:exit", "two things to do, kill and exit"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        arm(text)
    assert said in caught.value.message
    assert caught.value.code == "HF0804"


@pytest.mark.parametrize(("action", "code"), [("", -9), (":kill", -9), (":exit", failpoints.EXIT_STATUS)])
def test_the_environment_arms_a_process(action: str, code: int) -> None:
    program = "from holdfast.failpoints import failpoint; failpoint('key.before'); failpoint('key.after')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, failpoints.VARIABLE: f"key.after{action}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.startswith("failpoint key.after hit=1 ")


# --- the lint -----------------------------------------------------------------------------------------
class Site:
    """A place that needs a failpoint before and after it."""

    def __init__(self, file: str, function: ast.AST, line: int, what: str) -> None:
        self.file = file
        self.function = function
        self.line = line
        self.what = what

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what} in {getattr(self.function, 'name', 'the module')}"


class Scan(ast.NodeVisitor):
    """The failpoints of one file, and the places that need some."""

    def __init__(self, file: str, source: str) -> None:
        self.file = file
        self.points: list[tuple[str, ast.AST, int]] = []
        self.sites: list[Site] = []
        self.reads: set[tuple[str, str]] = set()
        tree = ast.parse(source)
        self._here: list[ast.AST] = [tree]
        #: names of this module that stand for a statement which commits
        self._statements = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _commits(node.value.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._here.append(node)
        self.generic_visit(node)
        self._here.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            text = ast.unparse(item.context_expr)
            if text.endswith((".transaction()", "._writer")):
                self._need(node.lineno, f"`with {text}` commits")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if ast.unparse(node.target).endswith(".mailbox"):
            self._need(node.lineno, "a push into a mailbox")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        arguments = [argument for argument in node.args if isinstance(argument, ast.Constant | ast.Name)]
        if called == "failpoint":
            assert isinstance(node.args[0], ast.Constant), f"{self.file}:{node.lineno}: its name must stand there"
            self.points.append((str(node.args[0].value), self._here[-1], node.lineno))
        elif called.endswith(".commit") and not called.endswith("waiting.commit"):
            self._need(node.lineno, f"`{called}`")
        elif called.endswith(".execute") and any(self._is_commit(argument) for argument in arguments):
            self._need(node.lineno, "COMMIT")
        elif (
            called.endswith(".execute") and any("wal_checkpoint(" in ast.unparse(a) for a in arguments)
        ) or called.endswith(".wal_checkpoint"):
            self._need(node.lineno, "a checkpoint")
        elif called.endswith((".mailbox.append", ".mailbox.extend")):
            self._need(node.lineno, "a push into a mailbox")
        elif called.endswith("._claim_new"):
            self._need(node.lineno, "a claim")
        elif (verb := re.search(r"_link\.(hello|exchange|goodbye)$", called)) and verb[1] != self._function:
            # A link that passes the same verb on to another link is no end of its own.
            self._need(node.lineno, f"`{called}`")
        elif called == "ask" and self._function == "commit":
            self._need(node.lineno, "a request to the engine")
        self.generic_visit(node)

    def _is_commit(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._statements
        return isinstance(node, ast.Constant) and _commits(node.value)

    @property
    def _function(self) -> str:
        return str(getattr(self._here[-1], "name", ""))

    def _need(self, line: int, what: str) -> None:
        place = (self.file, self._function)
        if place in READS:
            self.reads.add(place)
        else:
            self.sites.append(Site(self.file, self._here[-1], line, what))

    def missing(self) -> list[str]:
        return [str(site) for site in self.sites if not self._is_between(site)]

    def _is_between(self, site: Site) -> bool:
        here = [(name, line) for name, function, line in self.points if function is site.function]
        before = {name.removesuffix(".before") for name, line in here if line < site.line and name.endswith(".before")}
        after = {name.removesuffix(".after") for name, line in here if line > site.line and name.endswith(".after")}
        return bool(before & after)


def _commits(value: object) -> bool:
    return isinstance(value, str) and re.search(r"(^|;\s*)COMMIT\b", value) is not None


SCANS = [Scan(path.relative_to(SOURCE).as_posix(), path.read_text()) for path in sorted(SOURCE.rglob("*.py"))]


def test_every_commit_claim_and_push_is_between_two_failpoints() -> None:
    assert [text for scan in SCANS for text in scan.missing()] == []
    # A lint that no longer recognises what it looks for would find nothing missing.
    assert {(scan.file, site.what) for scan in SCANS for site in scan.sites} >= {
        ("embedded.py", "`transaction.commit`"),
        ("engine/driver.py", "`transaction.commit`"),
        ("engine/turn.py", "a claim"),
        ("engine/turn.py", "a push into a mailbox"),
        ("engine/dispatch.py", "a push into a mailbox"),
        ("store/sqlite.py", "COMMIT"),
        ("store/sqlite.py", "a checkpoint"),
        ("store/sqlite.py", "`with self._writer` commits"),
        ("store/postgres.py", "COMMIT"),
        ("store/postgres.py", "`with connection.transaction()` commits"),
        ("api/waiting.py", "a request to the engine"),
        ("worker/worker.py", "`self._link.exchange`"),
    }
    assert {place for scan in SCANS for place in scan.reads} == READS.keys(), "an exception nobody needs any more"


@pytest.mark.parametrize(
    "line",
    [
        "transaction.commit(batch)",
        "connection.execute('COMMIT')",
        "connection.execute(_COMMIT)",
        "db.execute('PRAGMA wal_checkpoint(TRUNCATE)')",
        "session.mailbox.append(parcel)",
        "session.mailbox += parcels",
        "await self._link.exchange(exchange)",
        "with connection.transaction(): pass",
        "self._claim_new()",
    ],
)
def test_the_lint_finds_what_has_no_pair(line: str) -> None:
    def scan(before: str, after: str) -> list[str]:
        body = "\n".join(f"    {text}" for text in (before, line, after))
        return Scan("x.py", f"_COMMIT = 'SET x = 0; COMMIT'\nasync def work(self):\n{body}\n").missing()

    assert scan("failpoint('a.before')", "failpoint('a.after')") == []
    assert scan("pass", "pass") != []
    assert scan("failpoint('a.before')", "pass") != []
    assert scan("failpoint('a.before')", "failpoint('b.after')") != []
    assert scan("failpoint('a.after')", "failpoint('a.before')") != []


def test_every_name_is_used_once_and_every_pair_is_one() -> None:
    used = [name for scan in SCANS for name, _, _ in scan.points]
    assert sorted(used) == sorted(NAMES)
    for name in NAMES:
        place, _, side = name.rpartition(".")
        assert side in ("before", "written", "after"), name
        assert {f"{place}.before", f"{place}.after"} <= NAMES.keys(), f"half of {place} is missing"


def test_the_campaign_reaches_every_name() -> None:
    reached = [*plan.BIRTH, *plan.WORKING, *plan.CHILD, *plan.LEAVING, *plan.SERVING, *plan.BIRTH_SHARED, *plan.SHARED]
    reached += plan.PURGING
    assert sorted(reached) == sorted(NAMES)


def test_the_page_lists_every_name() -> None:
    page = (ROOT / "docs/reference/failpoints.md").read_text(encoding="utf-8")
    places = {name: scan.file for scan in SCANS for name, _, _ in scan.points}
    listed = re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \| (.+) \|$", page, re.MULTILINE)
    assert listed == [(name, places[name], text) for name, text in NAMES.items()]
