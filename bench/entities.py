"""What entities cost: CPU and memory of a fleet ten times as large, how long its locks keep others waiting, and what
is read to grant one of many."""

from __future__ import annotations

import resource
import statistics
import tempfile
import threading
import time
from itertools import pairwise
from typing import Any

from holdfast.core.inventory import Imported
from holdfast.store.address import open_store

from . import blocks
from .measure import calibrate, data_folder, emit, percentile
from .topologies import Subject, opened
from .workloads import NOOP, sequence

STEPS = 3
#: seconds the other execution runs undisturbed, before and after
ALONE = 1.5
ALL = 'type == "device"'
FEW = f'{ALL} && size == "few"'

_PARALLEL = {"execution-strategy": {"parallel": True}}
_UPGRADE = "bench.upgrade"
#: what is done for each entity, and how it ends
FLEETS: dict[str, tuple[dict[str, Any], str]] = {
    "barrier": ({"steps": [NOOP] * STEPS}, "COMPLETED"),
    "lanes": ({"steps": [NOOP] * STEPS, "config": _PARALLEL}, "COMPLETED"),
    "hooks": ({"steps": [_UPGRADE] * STEPS}, "COMPLETED"),
    "tolerated": (
        {"steps": [{"step": _UPGRADE, "input": {"fail": "all"}}], "config": {"max-failures": "100%"}},
        "COMPLETED",
    ),
    "rollback": (
        {"steps": [_UPGRADE, {"step": _UPGRADE, "input": {"fail": "device-000000"}}], "config": {"rollback": "auto"}},
        "FAILED_SAFE",
    ),
}


def fleet(kind: str) -> dict[str, Any]:
    return {"name": f"fleet-{kind}", "run-on": "device", **FLEETS[kind][0]}


def holding() -> dict[str, Any]:
    """Locks its entities and does nothing until it is told to end."""
    return {"name": "holding", "run-on": "device", "steps": ["wait-signal end"]}


def fill(subject: Subject, few: int, many: int) -> None:
    rows = [
        Imported(f"device-{n:06}", "device", labels={"size": "few" if n < few else "many"}, facts={"image": "1.2.2"})
        for n in range(many)
    ]
    holdfast = subject.holdfast
    assert holdfast is not None
    holdfast.service.import_entities(holdfast.actor, "bench", rows)


def _run(subject: Subject, workflow: str, select: str, status: str) -> int:
    """Its number of jobs."""
    holdfast = subject.holdfast
    assert holdfast is not None
    view = holdfast.service.start(holdfast.actor, workflow=workflow, select=[select])
    if not view.is_ended:
        view = holdfast.service.wait(holdfast.actor, view.id)
    if view.status != status:
        raise RuntimeError(f"{view.id} {view.status}")
    return view.progress.total


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fleets(topology: str, postgres: str, few: int) -> None:
    """On one store: the key that opens it is that of one engine."""
    many = few * 10
    with opened(topology, postgres) as subject:
        fill(subject, few, many)
        marginal(subject, 1 if postgres else 3, few, many)
        stall(subject, 5, many)


def marginal(subject: Subject, repeat: int, few: int, many: int) -> None:
    """Process CPU per job with many entities, against that with few; as many jobs on both sides."""
    for kind, (_, status) in FLEETS.items():
        workflow = subject.client.publish(fleet(kind))
        _run(subject, workflow, FEW, status)  # compiled, and every statement prepared
        ratios, costs, seconds = [], [], []
        for _ in range(repeat):
            cost = []
            for select, runs in ((FEW, many // few), (ALL, 1)):
                used, began = time.process_time(), time.perf_counter()
                jobs = sum(_run(subject, workflow, select, status) for _ in range(runs))
                cost.append((time.process_time() - used) / jobs)
                seconds.append(time.perf_counter() - began)
            ratios.append(cost[1] / cost[0])
            costs.append((cost[0] * 1e3, cost[1] * 1e3))
        kops, syncs = calibrate()
        emit(
            subject.peer, "marginal-entities", kind=kind, few=few, many=many, jobs=jobs, repeat=repeat,
            cpu_ms_per_job_few=statistics.median(c[0] for c in costs),
            cpu_ms_per_job_many=statistics.median(c[1] for c in costs),
            seconds=statistics.median(seconds[1::2]), ratio=statistics.median(ratios), ratio_min=min(ratios),
            ratio_max=max(ratios), peak_mb=peak_mb(), cal_kops=kops, cal_fsync=syncs,
        )  # fmt: skip


# --- others, meanwhile -------------------------------------------------------------------------------
class Neighbour:
    """An execution of many small steps, each a commit of its own, and the gaps between them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go, name="neighbour", daemon=True)

    def __enter__(self) -> Neighbour:
        blocks.ticks.clear()
        self.subject.client.publish(_STEPS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _go(self) -> None:
        while not self._is_over.is_set():
            self.subject.client.run_one(_STEPS)

    def gaps(self, since: float, until: float) -> list[float]:
        """Seconds between the steps around and within that time."""
        ticks = list(blocks.ticks)
        return [later - first for first, later in pairwise(ticks) if later > since and first < until]


_STEPS = sequence(1000, "bench.tick") | {"name": "neighbour"}


def _cpu_of(subject: Subject, workflow: str) -> tuple[float, float]:
    """Seconds of CPU that the engine's thread uses to grant all locks, and to take them back, while nothing else
    happens: what others wait for on a machine that has nothing else to do."""
    holdfast = subject.holdfast
    assert holdfast is not None
    (thread,) = [each for each in threading.enumerate() if each.name == "holdfast-committer"]
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    began = time.clock_gettime(clock)
    view = holdfast.service.start(holdfast.actor, workflow=workflow, select=[ALL])
    granted = time.clock_gettime(clock)
    holdfast.service.signal(holdfast.actor, view.id, "end")
    holdfast.service.wait(holdfast.actor, view.id)
    return granted - began, time.clock_gettime(clock) - granted


def stall(subject: Subject, repeat: int, many: int) -> None:
    """The longest gap between two commits of another execution: alone, and while locks on so many entities are
    granted, or given back, in one commit."""
    holdfast = subject.holdfast
    assert holdfast is not None
    service, actor = holdfast.service, holdfast.actor
    workflow = subject.client.publish(holding())
    cpu = [_cpu_of(subject, workflow) for _ in range(repeat)]
    longest: dict[str, list[float]] = {"alone": [], "grant": [], "end": []}
    typical: list[float] = []
    with Neighbour(subject) as neighbour:
        time.sleep(ALONE / 3)
        for _ in range(repeat):
            began = time.perf_counter()
            time.sleep(ALONE)
            alone = neighbour.gaps(began, time.perf_counter())
            typical.append(percentile(alone, 0.5))
            longest["alone"].append(max(alone))
            began = time.perf_counter()
            view = service.start(actor, workflow=workflow, select=[ALL])
            time.sleep(ALONE / 10)
            longest["grant"].append(max(neighbour.gaps(began, time.perf_counter())))
            if view.status != "RUNNING":
                raise RuntimeError(f"{view.id} {view.status}")
            began = time.perf_counter()
            service.signal(actor, view.id, "end")
            ended = service.wait(actor, view.id)
            time.sleep(ALONE / 10)
            longest["end"].append(max(neighbour.gaps(began, time.perf_counter())))
            if ended.status != "COMPLETED":
                raise RuntimeError(f"{view.id} {ended.status}")
    kops, syncs = calibrate()
    emit(
        subject.peer, "entity-stall", entities=many, repeat=repeat,
        grant_cpu_ms=statistics.median(c[0] for c in cpu) * 1e3,
        end_cpu_ms=statistics.median(c[1] for c in cpu) * 1e3,
        gap_ms=statistics.median(typical) * 1e3, alone_ms=statistics.median(longest["alone"]) * 1e3,
        grant_ms=statistics.median(longest["grant"]) * 1e3, grant_ms_max=max(longest["grant"]) * 1e3,
        end_ms=statistics.median(longest["end"]) * 1e3, end_ms_max=max(longest["end"]) * 1e3,
        stall_ms=statistics.median(map(max, longest["grant"], longest["end"])) * 1e3,
        cal_kops=kops, cal_fsync=syncs,
    )  # fmt: skip


# --- one of many -------------------------------------------------------------------------------------
def grants(topology: str, postgres: str, many: int) -> None:
    """What the store does to give an entity back and grant it to the one execution that waits for it, while few or
    many others wait for entities of their own. SQLite: steps of its machine; PostgreSQL: rows fetched."""
    from tests.engine.test_entity_turns import Locks, Meter, cost_of_a_grant, wait_in_pairs

    few = 10
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        store = open_store(postgres or f"sqlite:///{name}/bench.db", engine_id="bench")
        try:
            hand = Locks(store, *(f"e{n:04}" for n in range(many + 2)))
            meter = Meter(store)
            wait_in_pairs(hand, range(few + 2))
            first = cost_of_a_grant(hand, meter, 0, 1)
            wait_in_pairs(hand, range(few + 2, many + 2))
            last = cost_of_a_grant(hand, meter, many // 2)
        finally:
            store.close()
    emit(
        f"holdfast-{topology}", "entity-grants", few=few, many=many, unit="rows" if postgres else "VM steps",
        reads_few=first, reads_many=last, ratio=last / first,
    )  # fmt: skip
