"""`python -m tests.fuzz --count 100000 --seed 7 --jobs 2`: documents and expressions at random.

None may crash, none may cost more than 100 ms of CPU, and at least a tenth must be valid. What goes wrong is made
small and saved in `corpus/`, which the test suite replays. `--one SEED/NUMBER` shows one input.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import multiprocessing
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .inputs import Input, make
from .judge import failure_of, judge, shrunk

CORPUS = Path(__file__).parent / "corpus"
#: inputs between two words of a job
SLICE = 1000


@dataclass
class Tally:
    inputs: int = 0
    valid: int = 0
    documents: int = 0
    valid_documents: int = 0
    played: int = 0
    cpu: float = 0.0
    worst: tuple[float, str] = (0.0, "")
    over: Counter[int] = field(default_factory=Counter)
    #: what went wrong → the first input
    wrong: dict[str, str] = field(default_factory=dict)
    wrongs: int = 0

    def add(self, other: Tally) -> None:
        for name in ("inputs", "valid", "documents", "valid_documents", "played", "cpu", "wrongs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst = max(self.worst, other.worst)
        self.over += other.over
        for what, where in other.wrong.items():
            self.wrong.setdefault(what, where)


def look(seed: int, numbers: range, *, is_timed: bool = True) -> Tally:
    tally = Tally()
    began = time.process_time()
    for number in numbers:
        given = make(seed, number)
        tally.inputs += 1
        tally.documents += given.kind == "document"
        try:
            verdict = judge(given, is_timed=is_timed)
        except Exception:
            tally.wrongs += 1
            tally.wrong.setdefault(failure_of(given) or "only once", f"{given.seed}\n{traceback.format_exc(limit=-3)}")
            continue
        tally.valid += verdict.compiles
        tally.valid_documents += verdict.compiles and given.kind == "document"
        tally.played += verdict.plays
        tally.worst = max(tally.worst, (verdict.cost, given.seed))
        for limit in (1, 10, 25, 50):
            tally.over[limit] += verdict.cost > limit
    tally.cpu = time.process_time() - began
    return tally


def _job(work: tuple[int, int, int]) -> Tally:
    gc.freeze()
    seed, first, count = work
    return look(seed, range(first, first + count))


def save(given: Input) -> Path:
    CORPUS.mkdir(exist_ok=True)
    name = hashlib.blake2b(repr(given).encode(), digest_size=5).hexdigest()
    path = CORPUS / f"{given.kind}-{name}.json"
    path.write_text(json.dumps(given._asdict(), indent=1, ensure_ascii=True) + "\n")
    return path


def told(tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "inputs": tally.inputs,
        "valid": round(tally.valid / max(1, tally.inputs), 3),
        "documents": tally.documents,
        "valid_documents": round(tally.valid_documents / max(1, tally.documents), 3),
        "played": tally.played,
        "wrong": tally.wrongs,
        "per_s": round(tally.inputs / max(seconds, 1e-9)),
        "cpu_ms": round(tally.cpu / max(1, tally.inputs) * 1000, 2),
        "worst_ms": round(tally.worst[0], 1),
        "worst": tally.worst[1],
        "over_ms": {str(limit): count for limit, count in sorted(tally.over.items()) if count},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--one", default="", help="SEED/NUMBER: show this input and what becomes of it")
    options = parser.parse_args()
    if options.one:
        seed, number = options.one.split("/")
        given = make(int(seed), int(number))
        print(given.kind, given.text, sep="\n")
        print(judge(given, always_play=True))
        return 0
    began = time.monotonic()
    tally = Tally()
    last = options.first + options.count
    work = [(options.seed, at, min(SLICE, last - at)) for at in range(options.first, last, SLICE)]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=50) as pool:
        for done, part in enumerate(pool.imap_unordered(_job, work), 1):
            fresh = {what: where for what, where in part.wrong.items() if what not in tally.wrong}
            tally.add(part)
            for what, where in fresh.items():
                print(f"WRONG {what}\n{where}", flush=True)
            if done % 20 == 0:
                print(json.dumps(told(tally, time.monotonic() - began)), flush=True)
    for where in tally.wrong.values():
        seed, number = where.split("\n")[0].split("/")
        print("saved", save(shrunk(make(int(seed), int(number)))).relative_to(CORPUS.parent))
    print(json.dumps(told(tally, time.monotonic() - began)))
    if tally.valid * 10 < tally.inputs:
        print("less than a tenth is valid, so too little was tried")
        return 1
    return 1 if tally.wrongs else 0
