"""Kinds of errors: every word that `error.kind` can be, with what it means to whoever handles it.

A test compares this table with every `Failure` that is made anywhere, so that neither can grow without the other.
"""

from __future__ import annotations

#: by steps and their surroundings; `on-error` may handle all of them
OF_STEPS: dict[str, str] = {
    "fail": "a `fail` step",
    "assertion-failed": "an `assert` did not hold",
    "expression-error": "an expression could not be evaluated; `code` says how",
    "no-case": "no case of a `switch` fits",
    "no-such-step": "a computed `goto` or `next` leads nowhere",
    "no-handler": "a computed `goto` or `next` says `exit` outside of a handler",
    "no-waypoint": "a `retry` has nothing to go back to, and what failed may not run twice",
    "retries-exceeded": "a `retry` reached its `limit`; `cause` is the error that it handled",
    "timeout": "a step, a workflow, an attempt or a `retry` took longer than it may",
    "lock-timeout": "waited too long for a lock",
    "deadlock": "lanes waited for each other's locks in a circle; this one was the youngest",
    "requirement-absent": "the `require` of `set-sensor` failed: there is no old value",
    "requirement-failed": "the `require` of `set-sensor` failed; `value` is the old value",
    "nothing-to-wait-for": "the value of a `wait` is absent, and no sensor can change that",
    "rejected": "somebody rejected an `approve`; `value` is the answer",
    "invalid": "parameters of a step type do not fit, or an execution could not be started as it was asked for",
    "value-too-large": "a variable, sensor or output is too large to be kept",
}
#: by blocks and those who run them; `on-error` may handle all of them
OF_BLOCKS: dict[str, str] = {
    "block-error": "the block raised an exception; `type` names it, `value` has its details",
    "outcome-unknown": "it may have happened, may not run twice, and nobody can tell (`HF0311`)",
    "worker-lost": "its worker was lost, again and again, with a job that may run twice",
    "process-died": "the process of the block died",
    "process-not-started": "no process could be started for it; nothing was done",
    "invalid-input": "the block does not take this input; nothing was done",
    "input-too-large": "the input is too large to be kept; nothing was done",
    "unknown-block": "the worker does not have the block; nothing was done",
    "result-too-large": "it did run, but its result is too large to be kept",
    "result-not-sendable": "it did run, but its result cannot be written down",
    "result-refused": "it did run, but the engine refused what the worker said of it",
    "retry-later": "asked to be tried again later, in the history of an attempt only",
}
#: nobody handles these: the lane is being stopped, and only `finally` runs
OF_STOPPING: dict[str, str] = {
    "cancelled": "the execution was cancelled",
    "stopped": "a lane was stopped because of what happened around it",
}
#: ends of an execution that never came to its first step, or lost what it worked upon; no step sees them
OF_ENTITIES: dict[str, str] = {
    "unknown-entity": "it was started on an entity that does not exist",
    "no-entities": "there is no entity to work upon, and the workflow says `require-entities`",
    "acquire-failed": "a block could not say which entities it needs",
    "entity-gone": "an entity was deleted between being found and being locked",
    "suspect-entity": "another execution left an entity in doubt, and the workflow says `require-clean`",
    "changed-hands": "a resumed execution had to wait for its entities, and another one had them before it",
    "lock-conflict": "somebody else has one of the entities, and the workflow says `on-conflict: fail`",
    "lock-lost": "somebody took an entity away from it by force",
    "abandoned": "it was cancelled, and the job did not stop in time (`HF0743`)",
    "gate-timeout": "a gate was not met before its deadline",
    "dependency-failed": "an execution that had to complete before did not",
}
#: ends of an execution that no step sees
OF_THE_ENGINE: dict[str, str] = {
    "inventory": "all steps are through, but what the blocks asked of the inventory cannot be done (`HF0756`)",
    "program-error": "the interpreter tripped over a bug of its own; please report it",
    "not-compensable": "what a job did cannot be undone; in the history of a rollback only",
    "engine-error": "the engine tripped over a bug of its own; please report it",
}
KINDS: dict[str, str] = {**OF_STEPS, **OF_BLOCKS, **OF_STOPPING, **OF_ENTITIES, **OF_THE_ENGINE}
