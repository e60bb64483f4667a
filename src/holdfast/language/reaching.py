"""Which entities a step is done for now, and how far each has come: types, batches of a rollout, who is left out.

What an entity has come to during a call lies in `Run.progress`, over what the state says; `Op.SUBJECT` makes it so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import Op
from holdfast.core.subjects import OUT, Progress, Subject, order_of

from .compiled import Step
from .evaluate import ABSENT
from .rollout import batch_sizes
from .scope import LaneScope
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

#: the batch at hand, from 1: a variable of the workflow's lane, under a name that nobody can write
BATCH = "rollout.batch"
_RANKS = {"device": 0, "interface": 1, "group": 3}


# --- how far -----------------------------------------------------------------------------------------
def progress_of(run: Run, subject: Subject) -> Progress:
    return run.progress.get(subject.index, subject.progress)


def note(run: Run, walk: Walk, index: int, progress: Progress) -> None:
    if run.state.out or run.failed_subjects:
        run.failed_subjects -= progress_of(run, run.state.subjects[index]) in OUT
    run.progress[index] = progress
    walk.put(Op.SUBJECT, index, int(progress))


def note_failed(run: Run, walk: Walk, index: int, reason: str, step: Step) -> None:
    run.failed_subjects += progress_of(run, run.state.subjects[index]) not in OUT
    run.progress[index] = Progress.FAILED
    walk.put(Op.SUBJECT, index, int(Progress.FAILED), reason, index, step.index)


def note_all(run: Run, walk: Walk, indices: Iterable[int], progress: Progress) -> None:
    for first, last in ranges_of(indices):
        walk.put(Op.SUBJECT, first, int(progress), "", last)
        run.progress.update(dict.fromkeys(range(first, last + 1), progress))


def count_of(subjects: Mapping[int, Subject], types: Iterable[str]) -> int:
    """How many there are of these types. Those of a type lie side by side, so nobody goes through all of them: it is
    asked at every failure of one of many."""
    places = range(len(subjects))
    total = 0
    for type in types:
        place = order_of(type, "")[:2]
        first = bisect_left(places, place, key=lambda index: order_of(subjects[index].type, "")[:2])
        total += bisect_right(places, place, first, key=lambda index: order_of(subjects[index].type, "")[:2]) - first
    return total


def ranges_of(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as first and last of each stretch."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def all_of(targets: Sequence[Any]) -> Iterator[int]:
    """The subjects that are targets of a fan."""
    for at in range(1, len(targets), 2):
        yield from range(targets[at], targets[at + 1] + 1)


def nth(targets: Sequence[Any], number: int) -> int:
    """The subject that is the target of that number."""
    for at in range(1, len(targets), 2):
        size = targets[at + 1] - targets[at] + 1
        if number < size:
            return int(targets[at]) + number
        number -= size
    raise IndexError(number)


# --- in scope ----------------------------------------------------------------------------------------
def _is_out(run: Run, subject: Subject) -> bool:
    """Failed or lost, itself or what it is a part of."""
    if progress_of(run, subject) in OUT:
        return True
    whole = _whole(run, subject)
    return whole is not None and progress_of(run, whole) in OUT


def _whole(run: Run, subject: Subject) -> Subject | None:
    """What it is a part of, where that is worked upon too."""
    if not subject.within:
        return None
    if run.wholes is None:
        subjects = run.state.subjects.values()
        wanted = {each.within for each in subjects}
        run.wholes = {each.id: each for each in subjects if each.id in wanted}
    return run.wholes.get(subject.within)


def in_scope(run: Run, walk: LaneScope, type: str = "") -> list[int]:
    """Subjects of that type, or of any that steps are done for, in the batch at hand, without those that are out."""
    subjects = run.state.subjects
    types = {type} if type else run.workflow.types_upon
    is_in = _batch(run, walk)
    return [
        index
        for index in range(len(subjects))
        if (subject := subjects[index]).type in types and is_in(subject) and not _is_out(run, subject)
    ]


def seed_type(run: Run) -> str:
    """Of what a rollout makes batches; the others follow what they are parts of."""
    plan = run.workflow.plan
    assert plan is not None
    if plan.run_on in run.workflow.types_upon:
        return plan.run_on
    there = {subject.type for subject in run.state.subjects.values()}
    known = sorted(run.workflow.types_upon & there, key=lambda type: (_RANKS.get(type, 2), type))
    return known[0] if known else ""


def _seeds(run: Run) -> list[int]:
    type = seed_type(run)
    return [index for index in range(len(run.state.subjects)) if run.state.subjects[index].type == type]


def batch_count(run: Run) -> int:
    plan = run.workflow.plan
    assert plan is not None
    return max(1, len(batch_sizes(plan.batches, len(_seeds(run)))))


def _batch(run: Run, walk: LaneScope) -> Callable[[Subject], bool]:
    """Whether an entity is in the batch at hand. Parts go with their whole; of what is no part of a seed, groups are
    in the first batch, and everything else, about which nothing is known, in the last."""
    plan = run.workflow.plan
    number = walk.variable(BATCH) if plan is not None and plan.batches else ABSENT
    if plan is None or number is ABSENT:
        return lambda subject: True
    seeds = _seeds(run)
    before = batch_sizes(plan.batches, len(seeds))
    start = sum(before[: number - 1])
    ours = frozenset(seeds[start : start + before[number - 1]]) if number <= len(before) else frozenset()
    seed, last = seed_type(run), len(before)

    def is_in(subject: Subject) -> bool:
        found = subject if subject.type == seed else _whole(run, subject)
        if found is not None and found.type == seed:
            return found.index in ours
        return bool(number == (1 if subject.type == "group" else last))

    return is_in


def ids_in_scope(run: Run, walk: LaneScope) -> list[str]:
    own = walk.upon()
    return [own] if own else [run.state.subjects[index].id for index in in_scope(run, walk)]


# --- batches -----------------------------------------------------------------------------------------
def batches(run: Run, walk: Walk, step: Step) -> bool:
    """The rollout goes through its body once for each batch, in the lane of the workflow itself."""
    number = walk.variable(BATCH)
    number = 1 if number is ABSENT or number >= batch_count(run) else number + 1
    walk.set(BATCH, number)
    walk.push(step.index, 0)
    return True


def has_more(walk: Walk) -> bool:
    """Whether there is a batch after this one."""
    number = walk.variable(BATCH)
    return number is not ABSENT and int(number) < batch_count(walk.run)


def start_of(run: Run, walk: Walk) -> tuple[int, int]:
    """Depth and position of the first step: in a rollout, of the batch at hand, which has passed its gate."""
    plan, frames = run.workflow.plan, walk.frames
    if plan is None or len(frames) < 2 or frames[1].scope < 0 or run.workflow.steps[frames[1].scope].kind != "batches":
        return 0, 0
    return 1, 1 if plan.gate >= 0 else 0


# --- going back, and the end -------------------------------------------------------------------------
def rewound(run: Run, walk: Walk) -> None:
    """Replayed: what comes now is done again for all, but not for who failed before that."""
    rank = run.workflow.rank
    here = rank(walk.here().index) if walk.position < len(walk.body) else 0
    for index, subject in run.state.subjects.items():
        is_back = subject.progress is Progress.FAILED and rank(subject.step) >= here
        if is_back or subject.progress is Progress.DONE:
            note(run, walk, index, Progress.REACHED)


def completed(run: Run, walk: Walk) -> None:
    """The workflow has come to its end: whoever was reached has passed all that is for it."""
    subjects, now = run.state.subjects, run.progress
    left = [i for i in range(len(subjects)) if now.get(i, subjects[i].progress) is Progress.REACHED]
    note_all(run, walk, left, Progress.DONE)
