"""Which function enters which kind of step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import again, entering, entities, fanout, reaching, sharing
from .compiled import Step
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

Enter = Callable[["Run", Walk, Step], bool]
ENTER: dict[str, Enter] = {
    "let": entering.let,
    "clear-variable": entering.clear_variable,
    "transform": entering.transform,
    "load": entering.block,
    "wait": sharing.wait,
    "no-op": entering.nothing,
    "label": entering.nothing,
    "log": entering.log,
    "sleep": entering.sleep,
    "fail": entering.fail,
    "return": entering.return_,
    "goto": entering.goto,
    "if": entering.if_,
    "switch": entering.switch,
    "subworkflow": entering.subworkflow,
    "settings": entering.settings,
    "workflow": fanout.once,
    "each": fanout.each,
    "foreach": fanout.each,
    "use": fanout.once,
    "invoke": fanout.once,
    "retry": again.retry,
    "set-sensor": lambda run, walk, step: sharing.set_value(run, walk, step, "sensor"),
    "clear-sensor": lambda run, walk, step: sharing.clear_value(run, walk, step, "sensor"),
    "set-config": lambda run, walk, step: sharing.set_value(run, walk, step, "config"),
    "clear-config": lambda run, walk, step: sharing.clear_value(run, walk, step, "config"),
    "block": entering.block,
    "approve": entering.approve,
    "signal": entering.signal,
    "wait-signal": entering.wait_signal,
    "parallel": fanout.branches,
    "graph": fanout.branches,
    "entities": entities.each,
    "batches": reaching.batches,
}
