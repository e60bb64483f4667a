"""The worst that can come of each step of a workflow, in sentences. Pure.

It follows what the ledger would do: a failed attempt of a block that is not pure may have got half way, everything that
was done before it has to be undone in reverse order, and nothing is undone beneath what stays. What a block says better
of itself (that nothing was done) only makes it better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .model import JobSpec, Policy
from .program import Outline, Outlined

SAFE, ROLLED_BACK, IF_VERIFIED, WAITS, UNSAFE = "SAFE", "ROLLED_BACK", "IF_VERIFIED", "WAITS", "UNSAFE"


class Worst(msgspec.Struct, frozen=True):
    verdict: str
    #: if it fails for good
    fails: str
    #: if its worker is lost
    lost: str


class _Case(msgspec.Struct, frozen=True):
    """What keeps an effect of a step from being undone."""

    label: str
    #: empty: nothing does
    why: str = ""
    #: only its `verify` can tell whether there is something to undo
    is_doubtful: bool = False
    #: it is about one entity, and others are not held up by it
    is_narrow: bool = False


def judge(outline: Outline, specs: Sequence[JobSpec], policy: Policy, label: Callable[[int], str]) -> list[Worst]:
    """Of each step, in their order."""
    made: list[Worst] = []
    steps = outline.steps
    for at, each in enumerate(steps):
        spec, name = specs[each.spec], label(each.step)
        before = [
            other
            for number, other in enumerate(steps[: each.until])
            if number != at and not any(first <= number < end for first, end in each.excluded)
        ]
        effects = []
        for other in reversed(before):
            # One that failed and was put up with may have got half way, as this one may.
            is_failed = bool(other.handled) or bool(outline.tolerance and other.type)
            effects.append(_left(label(other.step), specs[other.spec], is_failed, other.type))
        own = _left(name, spec, True, each.type)
        verdict, sentence = _verdict(name, own, [case for case in effects if case is not None], policy)
        place = f" on {_a(each.type)}" if each.type else ""
        handled = _handled(each, outline.tolerance)
        made.append(Worst(verdict, f"if `{name}` fails{place}: {sentence}{handled}", _lost(name, spec)))
    return made


def _left(name: str, spec: JobSpec, is_failed: bool, type: str) -> _Case | None:
    """What a step left behind; nothing if that is nothing in any case."""
    is_narrow = type not in ("", "group")
    if spec.pure:
        return None
    if (why := _never(name, spec)) or not is_failed or spec.accepts_unknown:
        return _Case(name, why, is_narrow=is_narrow)
    if spec.has_verify:
        return _Case(name, is_doubtful=True, is_narrow=is_narrow)
    why = f"nobody knows how far `{name}` got: it has no verify, and its rollback has to be sure"
    return _Case(name, why, is_narrow=is_narrow)


def _never(name: str, spec: JobSpec) -> str:
    if spec.is_pivot:
        return f"`{name}` is a point of no return"
    return "" if spec.has_rollback else f"`{name}` has no rollback and is not pure"


def _verdict(name: str, own: _Case | None, before: list[_Case], policy: Policy) -> tuple[str, str]:
    cases = [*([own] if own is not None else []), *before]
    if not cases:
        return SAFE, f"SAFE, because `{name}` and everything before it is pure"
    if policy.rollback == "none":
        left = _listed([case.label for case in cases])
        return UNSAFE, f"UNSAFE, because the workflow says `rollback: none` and {left} may have had an effect"
    stuck = next((case for case in cases if case.why), None)
    doubtful = [case.label for case in cases if case.is_doubtful]
    if stuck is not None:
        beneath = cases[cases.index(stuck) + 1 :]
        there = "there" if stuck.is_narrow else "before it"
        more = f"; what {_listed([case.label for case in beneath])} did {there} stays too" if beneath else ""
        verdict, sentence = UNSAFE, f"UNSAFE, because {stuck.why}{more}"
    elif doubtful:
        verdict = IF_VERIFIED
        sentence = (
            f"rolled back, because {_reason(cases)} and the verify of {_listed(doubtful)} tells what was done; UNSAFE"
            " only if it cannot tell"
        )
    else:
        verdict = ROLLED_BACK
        sentence = f"rolled back, because {_reason(cases)}"
    if policy.rollback == "manual" and any(not case.why for case in cases):
        sentence = f"waits in ERROR with its locks for `holdfast rollback` or `holdfast fail`; then {sentence}"
        return (verdict if verdict == UNSAFE else WAITS), sentence
    return verdict, sentence


def _reason(cases: list[_Case]) -> str:
    names = dict.fromkeys(case.label for case in cases)
    return f"{_listed([*names])} {'has' if len(names) == 1 else 'have'} a rollback"


def _handled(each: Outlined, tolerance: str) -> str:
    if tolerance and each.type and not each.handled:
        return f" (the run goes on until more than {tolerance} of the entities have failed)"
    if each.handled == "continue-on-error":
        return " (the run goes on all the same: `continue-on-error`; this is how it ends if a later step fails)"
    return " (unless its `on-error` handles that)" if each.handled else ""


def _lost(name: str, spec: JobSpec) -> str:
    head = f"if the worker dies in `{name}`: "
    if spec.may_repeat:
        return f"{head}it is done again, because it is {'pure' if spec.pure else 'idempotent'}"
    if spec.has_verify:
        return (
            f"{head}its verify looks what came of it: it is done again if nothing was, goes on if it was, and stops as"
            " UNKNOWN if that cannot be told"
        )
    return f"{head}it stops as UNKNOWN, because it may not run twice and has no verify; then as if it had failed"


def _a(type: str) -> str:
    return f"{'an' if type[:1].lower() in 'aeiou' else 'a'} {type}"


def _listed(labels: Sequence[str]) -> str:
    names = [f"`{name}`" for name in dict.fromkeys(labels)]
    if len(names) > 5:
        return ", ".join(names[:4]) + f" and {len(names) - 4} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
