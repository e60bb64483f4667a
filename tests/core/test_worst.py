"""The worst case that a plan names is the worst case that rollback really comes to."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from holdfast.core import ledger as ledgers
from holdfast.core import undoing
from holdfast.core.ledger import Entry
from holdfast.core.model import Effect, JobKind, Policy, Undo
from holdfast.core.program import Outline, Outlined
from holdfast.core.subjects import Subject
from holdfast.core.worst import judge
from tests.core.hooked import SPECS

NAMES = list(SPECS)
ALL = [SPECS[name] for name in NAMES]
DEVICES = ("sw1", "sw2", "sw3")


def outline(*steps: str, tolerance: str = "") -> Outline:
    """Steps as `block` or `block@type`, one after the other."""
    found = []
    for at, text in enumerate(steps):
        block, _, type = text.partition("@")
        found.append(Outlined(at, NAMES.index(block), type, until=at))
    return Outline(tuple(found), frozenset(each.type for each in found if each.type), tolerance=tolerance)


def judged(*steps: str, rollback: str = "auto", tolerance: str = "") -> list[tuple[str, str]]:
    names = [text.partition("@")[0] for text in steps]
    policy = Policy(rollback=rollback)
    found = judge(outline(*steps, tolerance=tolerance), ALL, policy, lambda step: names[step])
    return [(worst.verdict, worst.fails) for worst in found]


# --- what rollback really does -------------------------------------------------------------------------
def rolled_back(steps: list[str], failing: int, can_tell: bool) -> tuple[int, ...]:
    """Jobs whose effect is left when that step fails half way on one entity, after everything before it was done."""
    ledger: dict[int, Entry] = {}
    job = 0
    for at, text in enumerate(steps[: failing + 1]):
        block, _, type = text.partition("@")
        for entity in DEVICES if type else ("",):
            job += 1
            if SPECS[block].pure:
                continue
            effect = Effect.DONE
            if at == failing and entity in ("", DEVICES[0]):
                is_told = can_tell and SPECS[block].has_verify
                effect = Effect.DONE if is_told else Effect.UNKNOWN
            ledger[job] = Entry(job, at, NAMES.index(block), 1, effect, entity=entity)
    subjects = {n: Subject(n, id, "device") for n, id in enumerate(DEVICES)}
    first = undoing.link(ledger, subjects)
    walk = undoing.Walk(ledger, ALL, undoing.Standing(), 1000)
    walk.begin(first)
    for scheduled in walk.events:  # grows while hooks end
        kind = getattr(scheduled, "kind", None)
        if kind is JobKind.ROLLBACK:
            about = ledger[scheduled.about]  # type: ignore[union-attr]
            walk.settled(about.job, Undo.UNDONE)
            about.effect, about.undo = Effect.UNDONE, Undo.UNDONE
    return ledgers.residue(ledger)


blocks = st.sampled_from(NAMES)
texts = st.builds(lambda block, type: f"{block}@{type}" if type else block, blocks, st.sampled_from(["", "device"]))


@settings(max_examples=400)
@given(st.lists(texts, min_size=1, max_size=5))
def test_the_verdict_is_what_rollback_comes_to(steps: list[str]) -> None:
    for failing, (verdict, sentence) in enumerate(judged(*steps)):
        event(verdict)
        left = rolled_back(steps, failing, can_tell=False)
        if verdict in ("SAFE", "ROLLED_BACK"):
            assert not left, sentence
        elif verdict == "IF_VERIFIED":
            assert left, sentence
            assert not rolled_back(steps, failing, can_tell=True), sentence
        else:
            assert verdict == "UNSAFE"
            assert left, sentence
            assert rolled_back(steps, failing, can_tell=True), sentence
        assert (verdict == "SAFE") == all(SPECS[text.partition("@")[0]].pure for text in steps[: failing + 1])


# --- the words -----------------------------------------------------------------------------------------
def test_what_cannot_be_undone_is_named_with_its_reason() -> None:
    (verdict, text), *_ = judged("plain")
    assert (verdict, text) == ("UNSAFE", "if `plain` fails: UNSAFE, because `plain` has no rollback and is not pure")
    assert judged("undo-any@device", "pivot@device", "pure@device")[2] == (
        "UNSAFE",
        "if `pure` fails on a device: UNSAFE, because `pivot` is a point of no return; what `undo-any` did there stays"
        " too",
    )
    assert judged("undo")[0] == (
        "UNSAFE",
        "if `undo` fails: UNSAFE, because nobody knows how far `undo` got: it has no verify, and its rollback has to be"
        " sure",
    )


def test_what_can_be_undone_is_said_with_its_reason() -> None:
    assert judged("pure@device") == [
        ("SAFE", "if `pure` fails on a device: SAFE, because `pure` and everything before it is pure")
    ]
    assert judged("undo", "undo-any")[1] == (
        "ROLLED_BACK",
        "if `undo-any` fails: rolled back, because `undo-any` and `undo` have a rollback",
    )
    verdict, text = judged("undo", "both")[1]
    assert verdict == "IF_VERIFIED"
    assert "the verify of `both` tells what was done" in text


def test_the_rollback_mode_counts() -> None:
    verdict, text = judged("undo-any", rollback="none")[0]
    assert (verdict, "`rollback: none`" in text) == ("UNSAFE", True)
    verdict, text = judged("undo-any", rollback="manual")[0]
    assert (verdict, "`holdfast rollback`" in text) == ("WAITS", True)
    assert judged("plain", rollback="manual")[0][0] == "UNSAFE"
    verdict, text = judged("plain", "undo-any", rollback="manual")[1]
    assert (verdict, "waits in ERROR" in text) == ("UNSAFE", True)
    assert judged("pure", rollback="none")[0][0] == "SAFE"


def test_what_failed_before_and_was_put_up_with_is_in_doubt() -> None:
    assert judged("undo@device", "pure@device")[1][0] == "ROLLED_BACK"
    verdict, text = judged("undo@device", "pure@device", tolerance="2")[1]
    assert verdict == "UNSAFE"
    assert "more than 2 of the entities have failed" in text


def test_a_worker_that_dies() -> None:
    def lost(block: str) -> str:
        return judge(outline(block), ALL, Policy(), lambda step: block)[0].lost

    assert lost("pure").endswith("it is done again, because it is pure")
    assert lost("idem").endswith("it is done again, because it is idempotent")
    assert "its verify looks what came of it" in lost("look")
    assert "stops as UNKNOWN" in lost("plain")


def test_ways_that_exclude_each_other_do_not_count() -> None:
    steps = (Outlined(0, NAMES.index("plain"), why="`if` decides"),
             Outlined(1, NAMES.index("undo-any"), why="`if` decides", until=1, excluded=((0, 1),)))  # fmt: skip
    found = judge(Outline(steps), ALL, Policy(), str)
    assert [worst.verdict for worst in found] == ["UNSAFE", "ROLLED_BACK"]
