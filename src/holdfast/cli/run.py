"""`holdfast run`: one workflow, here and now, with an engine and a worker in this process.

The run is durable from the moment its id is shown: Ctrl-C, a closed terminal or a killed process leave it
to the next engine of the project. Only the result goes to stdout.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.core.errors import BadUsage, DuplicateExecution, Refused, StoreUnavailable, TimedOut
from holdfast.core.views import ExecutionView

from . import serverfile
from .connect import reach_options
from .feed import LOOK, Follower
from .inputs import collect, is_file, load_source, modules_of, published, split_name, with_types
from .options import complete_files, complete_ids, output_option
from .progress import Progress
from .recap import emit, exit_status, recap
from .refusals import INTERRUPTED, TIMED_OUT, show_problems
from .screens import screen_for
from .sessions import GONE, Owner, Session, open_session
from .settings import Settings, shown_path
from .text import bold, dim, plural, say, style, took
from .upon import upon, upon_options

if TYPE_CHECKING:
    from holdfast.language import YamlProgram


@click.command("run", short_help="Run a workflow here and now, durably.")
@click.argument("file", required=False, default="", metavar="FILE|NAME", shell_complete=complete_files)
@click.option("-i", "--input", "inputs", multiple=True, metavar="K=V", help="An input; `K:=JSON` for JSON. Repeatable.")
@click.option("--input-file", default="", metavar="FILE", help="Inputs from a YAML or JSON file; `-` for stdin.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Python module or file with blocks.")
@click.option("--name", default="", help="Which workflow of a file that holds several; the only one is called so.")
@click.option("--key", default="", help="Idempotency key: the same key starts it once.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="Put a label on the execution.")
@upon_options
@click.option("--entity", default="", metavar="ID", help="Where sensors of a workflow live that works on no entities.")
@click.option("--timeout", type=float, default=None, metavar="S", help="Stop waiting after S seconds; it goes on.")
@click.option("--detach", is_flag=True, help="Do not wait: print the id and leave.")
@click.option("--continue", "resume", default="", metavar="ID", help="Go on with an unfinished execution.",
              shell_complete=complete_ids)  # fmt: skip
@click.option("--open", "browser", is_flag=True, help="Open the monitor in a browser.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@output_option(("text", "json"), "text")
@reach_options
def run_command(
    file: str,
    inputs: tuple[str, ...],
    input_file: str,
    modules: tuple[str, ...],
    name: str,
    key: str,
    labels: tuple[str, ...],
    on: tuple[str, ...],
    entities_from: str,
    not_before: str,
    after: tuple[str, ...],
    priority: int | None,
    entity: str,
    timeout: float | None,
    detach: bool,
    resume: str,
    browser: bool,
    quiet: bool,
    output: str,
    server: str,
    token: str,
    store: str,
) -> int:
    """Run a workflow: a YAML file, or the name of a published one.

    Engine and worker are in this process, history in .holdfast/ of the project; blocks come from `-m`, from a
    `blocks.py` beside the file and from installed packages. If another process has the project open, this one
    joins it. Progress goes to stderr, the workflow's output to stdout.

    \b
      holdfast run hello.yaml --input name=Ada
      holdfast run upgrade.yaml -i 'hosts:=["a","b"]' -o json
      holdfast run upgrade.yaml#check        # one of several in a file; otherwise the last
      holdfast run upgrade.yaml --on sw1 --on "type == 'device' && site == 'ams1'"

    """
    if bool(file) == bool(resume):
        raise BadUsage("give a workflow file, the name of a published workflow, or --continue ID")
    from_file = bool(file) and is_file(file)
    name_of_file = split_name(file)[0]
    path = Path(name_of_file) if from_file and name_of_file != "-" else None
    flags = {"server": server, "token": token, "store": store, "modules": modules}
    settings = Settings(flags, start=path.parent if path else None)
    source = with_types(settings, lambda library: load_source(file, name, library)) if from_file else None
    if source is not None and source.warnings and not quiet:
        show_problems(source.warnings)
    # Before anything is opened: a wrong --input must not cost a store.
    given = collect(inputs, input_file, source.program) if source is not None else None
    aim = {"entity": entity, **upon(on, entities_from, not_before, after, priority)}
    asked = Asked(file, key, _labels(labels), timeout, detach, resume, browser, quiet, output)
    log_errors()
    session = open_session(settings, modules_of(settings["modules"], path), slots=0 if detach else None)
    try:
        if source is not None:
            asked.start = {"definition": source.definition, "input": given, **aim}
            program: YamlProgram | None = source.program
        elif resume:
            program = None
        else:
            program = published(session.verbs, file)
            asked.start = {"workflow": file, "input": collect(inputs, input_file, program), **aim}
    except BaseException:
        session.close(0)
        raise
    return Run(asked, settings, session, program).go()


class _Short(logging.Formatter):
    """One line: where in the code something happened is for `--traceback`."""

    def formatException(self, ei: Any) -> str:
        return "".join(traceback.format_exception_only(ei[0], ei[1])).strip()


def log_errors() -> None:
    """What engine and worker have to say, when it matters to whoever waits for a result."""
    handler = logging.StreamHandler()
    wants_all = "--traceback" in sys.argv or bool(os.environ.get("HOLDFAST_TRACEBACK"))
    handler.setFormatter((logging.Formatter if wants_all else _Short)("  %(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if wants_all else logging.ERROR, handlers=[handler], force=True)


class Asked:
    """What the command line asked for."""

    def __init__(
        self,
        file: str,
        key: str = "",
        labels: dict[str, str] | None = None,
        timeout: float | None = None,
        detach: bool = False,
        resume: str = "",
        browser: bool = False,
        quiet: bool = False,
        output: str = "text",
    ) -> None:
        self.file, self.key, self.labels, self.timeout, self.detach = file, key, labels, timeout, detach
        self.resume, self.browser, self.quiet, self.output = resume, browser, quiet, output
        self.start: dict[str, Any] = {}
        #: what to type next is said at the end; not where somebody else does that
        self.tells_next = True


class Run:
    """One run, from its start to its recap."""

    def __init__(self, asked: Asked, settings: Settings, session: Session, program: YamlProgram | None) -> None:
        self.asked = asked
        self.settings = settings
        self.session = session
        self.program = program
        self.began = time.monotonic()
        self.id = ""
        #: log lines that need not be shown
        self.logs = 0
        #: how it ended, once it has
        self.view: ExecutionView | None = None
        self.progress: Progress | None = None

    def go(self) -> int:
        try:
            with _terminable():
                return self._go()
        except KeyboardInterrupt:
            return self._interrupted()
        except BaseException:
            self.session.close(0)
            raise

    def _go(self) -> int:
        asked = self.asked
        self._greet()
        view = self._start()
        self.id = view.id
        if not asked.quiet:
            say(f"  {bold(view.workflow)}  {view.id[:8]}")
            for text in () if view.is_ended else view.waiting:
                say(style(f"  ! {text}", fg="yellow"))
        if self.program is None:
            self.program = _program_of(self.session, self.id)
        if asked.detach:
            return self._detached(view)
        if isinstance(self.session, Owner):
            self.session.serve_soon()
        if asked.browser:
            _open_browser(self.session)
        screen = screen_for(self._progress(), quiet=asked.quiet)
        follower = Follower(self.id, screen, self.logs)
        deadline = None if asked.timeout is None else self.began + asked.timeout
        screen.open()
        try:
            view = self._follow(follower, deadline)
        except TimedOut:
            screen.close()
            return self._timed_out()
        finally:
            screen.close()
        if not asked.quiet:
            recap(view, screen.progress, tells_next=asked.tells_next)
        self.view, self.progress = view, screen.progress
        emit(view, asked.output)
        self._close(exit_status(view))
        return exit_status(view)

    def _progress(self) -> Progress:
        return Progress(self.program, self.id)

    def _close(self, code: int) -> None:
        """The result is out. What our worker does for other executions gets the time it needs: to stop it would
        end them unsafe."""
        if running := self.session.running():
            say(dim(f"  letting {plural(running, 'running job')} of others end (Ctrl-C: leave at once)"))
        try:
            self.session.close(86_400)
        except KeyboardInterrupt:
            self._exit_at_once(code)

    def _exit_at_once(self, code: int) -> NoReturn:
        serverfile.remove(self.settings.folder, os.getpid())
        sys.stdout.flush()
        os._exit(code)

    def _follow(self, follower: Follower, deadline: float | None) -> ExecutionView:
        """Until it has ended, through whichever engine moves it."""
        while True:
            try:
                return follower.until_ended(self.session.verbs, deadline)
            except GONE as gone:
                session = self.session
                if isinstance(session, Owner) and isinstance(gone, StoreUnavailable):
                    # Our engine waits for it, and so do we.
                    follower.tell(gone.message)
                    time.sleep(LOOK)
                    continue
                if isinstance(session, Owner) or self.settings["server"]:
                    raise
                follower.screen.note(f"  the engine at {session.address} is gone; taking over")
                self.session = session.succeed()

    def _greet(self) -> None:
        if self.asked.quiet:
            return
        from holdfast import __version__

        session = self.session
        where = f"store {self.settings.shown_store}" if isinstance(session, Owner) else f"joined {session.address}"
        say(dim(f"  holdfast {__version__} · {where}"))
        if (
            isinstance(session, Owner)
            and not (self.asked.resume or self.asked.detach)
            and (count := session.unfinished)
        ):
            say(dim(f"  continuing {plural(count, 'unfinished execution')} (holdfast ps --status open)"))

    def _start(self) -> ExecutionView:
        asked, verbs = self.asked, self.session.verbs
        if asked.resume:
            return verbs.show(asked.resume)
        from holdfast.engine.engine import new_execution_id

        # Our own id: if the answer is lost on the way, asking again finds the execution instead of a second one.
        id = "" if asked.key else new_execution_id()
        try:
            return verbs.start(**asked.start, key=asked.key, labels=asked.labels or None, id=id)
        except GONE:
            if isinstance(self.session, Owner) or self.settings["server"]:
                raise
            self.session = self.session.succeed()
            try:
                return self.session.verbs.start(**asked.start, key=asked.key, labels=asked.labels or None, id=id)
            except DuplicateExecution:
                return self.session.verbs.show(id)

    # --- leaving before the end ---------------------------------------------------------------------
    def _detached(self, view: ExecutionView) -> int:
        is_owner = isinstance(self.session, Owner)
        self.session.close(0 if is_owner else self.settings["grace"])
        if not self.asked.quiet:
            more = "; it goes on when an engine runs here: holdfast up" if is_owner and not view.is_ended else ""
            say(dim(f"  accepted{more}"))
            say(dim(f"  follow it: holdfast watch {view.id[:8]}"))
        emit(view, self.asked.output, detached=True)
        return 0

    def _timed_out(self) -> int:
        view = self.session.verbs.show(self.id)
        say(f"  {bold('still ' + view.status)} after {took(int((time.monotonic() - self.began) * 1e6))}; it is durable")
        self._leave()
        emit(view, self.asked.output)
        return TIMED_OUT

    def _interrupted(self) -> int:
        if not self.id:
            self.session.close(0)
            say("interrupted; nothing was started")
            return INTERRUPTED
        say()
        try:
            view = self.session.verbs.show(self.id)
        except Refused:
            say(f"  left {self.id[:8]}; it is durable")
            return INTERRUPTED
        say(f"  left {bold(self.id[:8])} as it is: {view.status}, and durable")
        self._leave()
        emit(view, self.asked.output)
        return INTERRUPTED

    def _leave(self) -> None:
        session = self.session
        if isinstance(session, Owner):
            at, modules = "", modules_of(self.settings["modules"], self._path())
            project, here = self.settings.project.resolve(), Path.cwd()
            if project not in (here, *here.parents):
                # From here nobody would find it: as if from there.
                at = f" -C {shown_path(project)}"
                modules = [os.path.relpath(module, project) if "/" in module else module for module in modules]
            said = "".join(f" -m {module}" for module in (modules if at else _shown(modules)))
            say(f"  go on with it:  {bold(f'holdfast{at} run --continue {self.id[:8]}{said}')}")
        else:
            say(f"  it goes on at {session.address}; follow it:  {bold(f'holdfast watch {self.id[:8]}')}")
        if running := session.running():
            limit = f"{self.settings['grace']:g} s at most"
            say(dim(f"  letting {plural(running, 'running job')} end, {limit} (Ctrl-C again: leave at once)"))
        try:
            session.close(self.settings["grace"])
        except KeyboardInterrupt:
            say("  left at once; the next engine finds out about jobs that were running")
            self._exit_at_once(INTERRUPTED)

    def _path(self) -> Path | None:
        file = self.asked.file
        return Path(file) if file and file != "-" and is_file(file) else None


def _program_of(session: Session, id: str) -> YamlProgram | None:
    from holdfast.language import compile_definition

    definition = session.verbs.definition(id)
    return compile_definition(definition) if definition else None


def _shown(modules: list[str]) -> list[str]:
    return [shown_path(Path(module)) if "/" in module else module for module in modules]


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark or not name:
            raise BadUsage(f"--label {pair!r} is not like `name=value`")
        labels[name] = value
    return labels


def _open_browser(session: Session) -> None:
    """On a desktop only: a browser in a terminal would be in the way of what it is to show."""
    import webbrowser

    address = session.address
    if isinstance(session, Owner):
        session.serve()
        address = session.server.login_link() if session.server is not None else ""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.uname().sysname == "Darwin":
        webbrowser.open(address)
    else:
        say(dim(f"  open {address}"))


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and a terminal that is closed end a run as Ctrl-C does: in good order."""

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # The system and the shell both send it; the second is no wish to leave at once.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    # Whoever said `nohup` means it.
    hears = signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    if hears:
        signal.signal(signal.SIGHUP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if hears and signal.getsignal(signal.SIGHUP) == stop:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
