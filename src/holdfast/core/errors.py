"""Refusals: what the caller asked cannot be done, said with a code, a status and a way out.

`Refused` is the caller's business and never retried. `Conflict` is ours: retried inside, never seen.
Every class here has one section in `docs/reference/errors.md`; a test says so. The class docstring's
first line is the title of that section.
"""

from __future__ import annotations

from typing import ClassVar

from .model import Problem


class Refused(Exception):
    """The request was refused."""

    code: ClassVar[str] = "HF0000"
    status: ClassVar[int] = 400
    #: seconds after which trying again makes sense; 0 means it does not
    retry_after: float = 0

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.problems = problems


class Conflict(Exception):
    """Somebody else moved the execution meanwhile; decide again on what is there now."""


# --- files and definitions -------------------------------------------------------------------------
class InvalidDefinition(Refused):
    """The workflow definition has errors."""

    code, status = "HF0100", 422


# --- what was asked for ----------------------------------------------------------------------------
class MalformedRequest(Refused):
    """The request cannot be read."""

    code, status = "HF0200", 400


class InvalidRequest(Refused):
    """The request can be read, but a field is missing or has the wrong type or value."""

    code, status = "HF0201", 422


class UnknownWorkflow(Refused):
    """No workflow of that name is published."""

    code, status = "HF0202", 404


class UnknownEntity(Refused):
    """No entity has that id."""

    code, status = "HF0221", 404


class UnknownLock(Refused):
    """Nobody holds or waits for a lock of that name."""

    code, status = "HF0222", 404


class UnknownSensor(Refused):
    """The entity has no sensor or configuration of that name."""

    code, status = "HF0223", 404


class UnknownExecution(Refused):
    """No execution has that id."""

    code, status = "HF0203", 404


class AmbiguousId(Refused):
    """More than one execution has an id that begins so."""

    code, status = "HF0204", 409


class KeyReused(Refused):
    """The idempotency key was used before, with other content."""

    code, status = "HF0205", 409


class DuplicateExecution(Refused):
    """An execution with that id already exists."""

    code, status = "HF0206", 409


class NoSuchRoute(Refused):
    """There is nothing at that address."""

    code, status = "HF0207", 404


class MethodNotAllowed(Refused):
    """The address exists, but not for that method."""

    code, status = "HF0208", 405


class UnknownBlob(Refused):
    """The value is not stored."""

    code, status = "HF0209", 404


# --- the execution is in the wrong state -----------------------------------------------------------
class WrongStatus(Refused):
    """The verb is not allowed in the status the execution has."""

    code, status = "HF0301", 409


class CannotResume(Refused):
    """The execution cannot carry on where it stands."""

    code, status = "HF0303", 409


class CannotReplay(Refused):
    """There is no waypoint to replay from."""

    code, status = "HF0304", 409


class UnknownStep(Refused):
    """The workflow has no step of that id or number."""

    code, status = "HF0305", 404


class NothingToApprove(Refused):
    """The execution waits for no such approval."""

    code, status = "HF0306", 409


class AmbiguousApproval(Refused):
    """The execution waits for several approvals."""

    code, status = "HF0307", 409


class ExecutionEnded(Refused):
    """The execution has ended; nothing can be sent to it."""

    code, status = "HF0302", 409


class UnsafeUnseen(Refused):
    """The execution ended unsafe, and nobody has acknowledged that."""

    code, status = "HF0331", 409


# --- workers and attempts --------------------------------------------------------------------------
class LockNotHeld(Refused):
    """The execution does not hold that lock any more."""

    code, status = "HF0321", 409


class EntityNotHeld(Refused):
    """Nobody holds that entity, so it can be taken from nobody."""

    code, status = "HF0781", 409


class ChangedHands(Refused):
    """Another execution has had the entities since."""

    code, status = "HF0738", 409


class StaleAttempt(Refused):
    """The attempt was superseded; discard its result."""

    code, status = "HF0401", 409


class ForgedToken(Refused):
    """The attempt token does not belong to that attempt."""

    code, status = "HF0402", 403


class UnknownWorker(Refused):
    """The worker is not registered, or its lease has run out; register again."""

    code, status = "HF0403", 404


class WorkerSuperseded(Refused):
    """A newer incarnation of the worker has registered under the same name."""

    code, status = "HF0404", 409


class StaleExchange(Refused):
    """The exchange number is older than one already answered."""

    code, status = "HF0405", 409


# --- the store -------------------------------------------------------------------------------------
class StoreUnavailable(Refused):
    """The store cannot be reached."""

    code, status = "HF0501", 503
    retry_after = 1


class StoreFull(Refused):
    """There is no space left for the store; nothing was acknowledged."""

    code, status = "HF0502", 507


class StoreReadOnly(Refused):
    """The store cannot be written."""

    code, status = "HF0503", 507


class StoreLocked(Refused):
    """Another engine owns the SQLite file."""

    code, status = "HF0504", 409


class UnsafeStore(Refused):
    """The store would not keep what it acknowledges."""

    code, status = "HF0505", 500


class StoreVersion(Refused):
    """The store was written by another version of Holdfast."""

    code, status = "HF0506", 500


class KeyMismatch(Refused):
    """The store was set up with another server key."""

    code, status = "HF0507", 500


class BadStoreAddress(Refused):
    """The store address cannot be understood."""

    code, status = "HF0508", 400


class StoreDamaged(Refused):
    """What the store holds contradicts itself."""

    code, status = "HF0509", 500


class SyncFailed(Refused):
    """The disk did not confirm what was written; the engine has stopped."""

    code, status = "HF0510", 503


class BadArchive(Refused):
    """The archive cannot be written or read."""

    code, status = "HF0511", 500


# --- who is asking ---------------------------------------------------------------------------------
class Unauthenticated(Refused):
    """No valid token came with the request."""

    code, status = "HF0601", 401


class Forbidden(Refused):
    """The token's role does not allow this."""

    code, status = "HF0602", 403


class TooManyAttempts(Refused):
    """Too many wrong tokens came from that address."""

    code, status = "HF0603", 429
    retry_after = 60


class UnknownToken(Refused):
    """There is no API token with that id."""

    code, status = "HF0604", 404


# --- limits ----------------------------------------------------------------------------------------
class PayloadTooLarge(Refused):
    """A value or a request body is over the limit."""

    code, status = "HF0701", 413


class TooBusy(Refused):
    """More is waiting than the engine will hold in memory."""

    code, status = "HF0702", 429
    retry_after = 1


class SensorTooLarge(Refused):
    """The value of a sensor is longer than the limit."""

    code, status = "HF0721", 413


# --- the inventory ---------------------------------------------------------------------------------
class BadSelector(Refused):
    """The text is no selector."""

    code, status = "HF0751", 422


class EntityMoved(Refused):
    """The entity is not in the version that was expected."""

    code, status = "HF0752", 409


class BadRelation(Refused):
    """What the entity is said to be a part or a member of cannot be."""

    code, status = "HF0753", 422


class EntityNeeded(Refused):
    """The entity cannot be deleted: somebody needs it."""

    code, status = "HF0754", 409


class EntityHeld(Refused):
    """An execution holds the entity exclusively, so nobody else changes it."""

    code, status = "HF0755", 409


class EntityTooLarge(Refused):
    """What is to be known about the entity is too much."""

    code, status = "HF0757", 413


class BadInventory(Refused):
    """The inventory file has errors."""

    code, status = "HF0758", 422


class ShuttingDown(Refused):
    """The engine is shutting down."""

    code, status = "HF0703", 503
    retry_after = 2


class TimedOut(Refused):
    """It did not end within the time given for waiting."""

    code, status = "HF0704", 504


# --- what an execution left behind -------------------------------------------------------------------
class NoteMissing(Refused):
    """An execution left effects behind, and whoever acknowledges that has to say what was done about it."""

    code, status = "HF0741", 422


class NothingToUndo(Refused):
    """Nothing of what the execution left can be undone."""

    code, status = "HF0742", 409


class NothingToRetry(Refused):
    """No entity of the execution failed, was left out or was rolled back."""

    code, status = "HF0745", 409


# --- our own fault -----------------------------------------------------------------------------------
class EngineBug(Refused):
    """The engine hit a bug while deciding this; nothing was changed."""

    code, status = "HF0901", 500


# --- client and command line -----------------------------------------------------------------------
class ServerUnreachable(Refused):
    """No server answers at that address."""

    code, status = "HF0801", 503


class UnknownCode(Refused):
    """There is no error with that code."""

    code, status = "HF0802", 404


class BadUsage(Refused):
    """The command line cannot be understood."""

    code, status = "HF0803", 400


class BadConfiguration(Refused):
    """A configuration value cannot be used."""

    code, status = "HF0804", 400


class BlockModule(Refused):
    """A module with blocks cannot be imported."""

    code, status = "HF0805", 400


class BadBlock(Refused):
    """A block is declared in a way that cannot work."""

    code, status = "HF0806", 400


class MissingPackage(Refused):
    """A block needs a package that is not installed."""

    code, status = "HF0807", 400
