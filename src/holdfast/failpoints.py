"""Failpoints: named places where a test can kill, stop or delay this process.

Nothing happens at one unless `HOLDFAST_FAILPOINT` arms it: `name[:hit=N][:kill|:exit|:raise|:pause=SECONDS|:log]`,
several with commas between them. Every commit, claim and push of the source stands between two of them; a lint
says so. It must not know what happens at the places it names.
"""

from __future__ import annotations

import os
import signal
import time

from holdfast.core.errors import BadConfiguration

VARIABLE = "HOLDFAST_FAILPOINT"
#: the status of a process that was told to `exit`
EXIT_STATUS = 70

#: every failpoint there is, in the order of a request's way through the files
NAMES = {
    "key.before": "no file with a server key yet",
    "key.written": "the key is written beside its place, but not in it",
    "key.after": "the key is in its place",
    "fingerprint.before": "the store does not know its key yet",
    "fingerprint.after": "the store knows its key",
    "sqlite.migrate.before": "a migration is about to begin",
    "sqlite.migrate.written": "a migration has run, and is not committed",
    "sqlite.migrate.after": "a migration is committed",
    "postgres.migrate.before": "the missing migrations are about to begin",
    "postgres.migrate.written": "one migration has run, and none is committed",
    "postgres.migrate.after": "the migrations are committed",
    "engine.start.before": "the engine's thread runs, and has not looked at the store",
    "engine.start.after": "the engine knows who died before it, and has written nothing",
    "engine.claim.before": "a batch is decided, and its new jobs belong to nobody",
    "engine.claim.after": "its new jobs are claimed for workers, in memory only",
    "engine.commit.before": "a batch is about to be written",
    "sqlite.begin.before": "a batch is about to be written to SQLite",
    "sqlite.begin.after": "SQLite is locked for a batch, and nothing is written",
    "sqlite.commit.before": "a batch is written to SQLite, and not committed",
    "sqlite.commit.after": "a batch is committed to SQLite, and nobody knows",
    "postgres.begin.before": "a transaction is about to begin on PostgreSQL",
    "postgres.begin.after": "a transaction has begun on PostgreSQL",
    "postgres.commit.before": "a batch is written to PostgreSQL, and not committed",
    "postgres.commit.after": "a batch is committed to PostgreSQL, and nobody knows",
    "engine.commit.after": "a batch is committed, and memory does not show it",
    "engine.push.before": "claims are committed, and no worker's mailbox has them",
    "engine.push.after": "claimed jobs are in mailboxes, and nobody was answered",
    "engine.answer.before": "a commit is done, and none of its callers was answered",
    "engine.answer.after": "all callers of a commit were answered",
    "engine.handout.before": "an answer for a worker is about to be made of its mailbox",
    "engine.handout.after": "the mailbox is empty, and its answer has not left",
    "engine.hello.before": "a worker's hello has arrived",
    "engine.hello.after": "a worker has a session, and its row is not committed",
    "engine.goodbye.before": "a worker's goodbye has arrived",
    "engine.goodbye.after": "a worker's session is closed, and its row is not committed",
    "engine.stop.before": "the engine is about to be told to stop",
    "engine.stop.after": "the engine has stopped, and the store is open",
    "archive.before": "executions are about to be archived, and purged after that",
    "archive.written": "an archive's file is on the disk beside its place, but not in it",
    "archive.after": "an archive's file is in its place, and nothing of it is purged",
    "sqlite.journal.before": "the journal is about to be brought into the database, after a commit",
    "sqlite.journal.after": "the journal is in the database",
    "sqlite.checkpoint.before": "the store is about to be closed with a checkpoint",
    "sqlite.checkpoint.after": "the checkpoint is done, and the file is still owned",
    "api.commit.before": "a request over HTTP is about to be put before the engine",
    "api.commit.after": "the engine has answered a request over HTTP, and its caller knows nothing",
    "worker.hello.before": "a worker is about to say hello",
    "worker.hello.after": "a worker was welcomed",
    "worker.exchange.before": "an exchange is about to be sent",
    "worker.exchange.after": "an exchange was answered, and nothing of the answer is taken",
    "worker.take.before": "new jobs have arrived, and none has begun",
    "worker.take.after": "new jobs were handed to the runner",
    "worker.block.before": "a block is about to run in the worker's loop",
    "worker.block.after": "a block has run in the worker's loop, and its outcome is nowhere",
    "worker.thread.before": "a block is about to run in a thread",
    "worker.thread.after": "a block has run in a thread, and its outcome is nowhere",
    "worker.process.before": "a job is about to be handed to a child process",
    "worker.process.after": "a child process has said the outcome of a job",
    "worker.outbox.before": "an outcome is about to be put into the outbox",
    "worker.outbox.after": "an outcome is in the outbox, and not sent",
    "worker.goodbye.before": "a worker is about to say goodbye",
    "worker.goodbye.after": "a worker has said goodbye",
    "child.ready.before": "a child process has imported its blocks, and has not said so",
    "child.ready.after": "a child process has said that it is ready",
    "child.begin.before": "a child process has a job, and has not said that it begins",
    "child.begin.after": "a child process has said that it begins",
    "child.end.before": "a block has run in a child process, which has not said so",
    "child.end.after": "a child process has said the outcome of its block",
}


class FailpointReached(Exception):
    """What `raise` raises: an error nobody expects, as a bug would be."""


class Arm:
    """What an armed failpoint does, and when."""

    def __init__(self, name: str, action: str, hit: int, seconds: float) -> None:
        self.name = name
        self.action = action
        #: the only time it acts, counted from 1; 0 for every time
        self.hit = hit
        self.seconds = seconds
        self.hits = 0

    def reached(self) -> None:
        self.hits += 1
        if self.hit not in (0, self.hits):
            return
        # Without buffers and locks: this may be the last thing the process does.
        os.write(2, f"failpoint {self.name} hit={self.hits} {self.action} pid={os.getpid()}\n".encode())
        match self.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # the signal is ours, but another thread may be the first to get it
            case "exit":
                os._exit(EXIT_STATUS)
            case "raise":
                raise FailpointReached(self.name)
            case "pause":
                time.sleep(self.seconds)


#: read where even a call would be too much, once per block; everywhere else `failpoint` asks
is_armed = False
_arms: dict[str, Arm] = {}


def failpoint(name: str) -> None:
    """The place of that name has been reached. Costs one look at a global where nothing is armed."""
    if is_armed:
        arm = _arms.get(name)
        if arm is not None:
            arm.reached()


def arm(text: str) -> None:
    """Arm what `text` says, instead of whatever was armed before; nothing if it is empty."""
    global is_armed, _arms
    arms = [_read(part.strip()) for part in text.split(",") if part.strip()]
    _arms = {arm.name: arm for arm in arms}
    is_armed = bool(arms)


def _read(text: str) -> Arm:
    name, *words = text.split(":")
    if name not in NAMES:
        raise BadConfiguration(f"{VARIABLE}: there is no failpoint {name!r}; docs/reference/failpoints.md lists them")
    action, hit, seconds = "", 0, 0.0
    for word in words:
        key, _, value = word.partition("=")
        if key == "hit" and not hit and value.isascii() and value.isdigit() and int(value) > 0:
            hit = int(value)
        elif action:
            raise BadConfiguration(f"{VARIABLE}: {text!r} says two things to do, {action} and {word}")
        elif word in ("kill", "exit", "raise", "log"):
            action = word
        elif key == "pause" and (pause := _seconds(value)) is not None:
            action, seconds = "pause", pause
        else:
            raise BadConfiguration(
                f"{VARIABLE}: {word!r} in {text!r} is not understood; write"
                " name[:hit=N][:kill|:exit|:raise|:pause=SECONDS|:log]"
            )
    return Arm(name, action or "kill", hit, seconds)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 3600 else None


arm(os.environ.get(VARIABLE, ""))
