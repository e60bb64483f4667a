"""Counters and gauges as Prometheus reads them. Text, no package."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.core.model import Actor
from holdfast.core.version import VERSION as __version__

from .app import App

Sample = tuple[Mapping[str, str], float]
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

#: attribute of the committer's counters → (metric, help)
_COUNTERS = {
    "commits": ("commits_total", "Commits that wrote something."),
    "items": ("items_total", "Requests that went through commits; divided by commits: how many share one."),
    "events": ("events_total", "Events appended to histories."),
    "executions_started": ("executions_started_total", "Executions accepted."),
    "executions_ended": ("executions_ended_total", "Executions that reached an end, each time they did."),
    "executions_revived": ("executions_revived_total", "Executions that were resumed or replayed."),
    "executions_purged": ("executions_purged_total", "Executions purged: their retention was over, or somebody asked."),
    "executions_archived": ("executions_archived_total", "Executions archived before they were purged."),
    "jobs_claimed": ("jobs_claimed_total", "Attempts handed to workers."),
    "refused": ("refused_total", "Requests that were refused when decided."),
    "stale_results": ("stale_results_total", "Results of attempts that had been given up."),
    "conflicts": ("conflicts_total", "Commits decided again because another engine was faster."),
}


def exposition(app: App, actor: Actor) -> str:
    service, engine = app.service, app.service.engine
    lines: list[str] = []

    def add(name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        lines.append(f"# HELP holdfast_{name} {help}")
        lines.append(f"# TYPE holdfast_{name} {kind}")
        for labels, value in samples:
            inner = ",".join(f'{key}="{text.translate(_ESCAPED)}"' for key, text in labels.items())
            lines.append(f"holdfast_{name}{'{' + inner + '}' if inner else ''} {_number(value)}")

    counters = engine.committer.counters
    add("info", "gauge", "The server.", [({"version": __version__, "store": service.store.kind}, 1)])
    for field, (name, help) in _COUNTERS.items():
        add(name, "counter", help, [({}, getattr(counters, field))])
    add("largest_batch", "gauge", "Most requests that one commit carried.", [({}, counters.largest_batch)])
    add("pending", "gauge", "Requests that wait for a commit.", [({}, engine.pending)])
    add("cached_executions", "gauge", "States in memory.", [({}, len(engine.committer.cache))])
    add("engine_up", "gauge", "Whether the engine's thread lives.", [({}, engine.is_alive)])

    queues = service.queues()
    places = [({"queue": q.queue, "block": q.block}, q) for q in queues]
    add("queue_waiting", "gauge", "Jobs nobody has claimed.", [(at, q.waiting) for at, q in places])
    add("queue_claimed", "gauge", "Jobs in workers' hands.", [(at, q.claimed) for at, q in places])
    add("queue_oldest_seconds", "gauge", "How long the oldest job has waited.", [(at, q.oldest) for at, q in places])

    workers = service.workers()
    states = Counter(worker.state for worker in workers)
    known = ("online", "draining", "unreachable", "offline")
    add("workers", "gauge", "Workers by state.", [({"state": s}, states[s]) for s in known])
    online = [worker for worker in workers if worker.state == "online"]
    add("slots", "gauge", "Slots of workers online.", [({}, sum(w.slots for w in online))])
    add("slots_busy", "gauge", "Of these, busy.", [({}, sum(w.busy for w in online))])

    with service.store.reading() as queries:
        counts = queries.status_counts(actor.tenant)
    by_status = [({"status": status.name}, n) for status, n in sorted(counts.items())]
    add("executions", "gauge", "Executions of this tenant by status.", by_status)

    wal = _size(service.store, "-wal")
    if wal is not None:
        add("wal_bytes", "gauge", "Size of SQLite's write-ahead log.", [({}, wal)])
        add("store_bytes", "gauge", "Size of the SQLite file.", [({}, _size(service.store, "") or 0)])

    answered = [({"code": str(code)}, n) for code, n in sorted(app.answered.items())]
    add("http_requests_total", "counter", "Requests answered, by status.", answered)
    add("http_open_requests", "gauge", "Requests being worked on.", [({}, app.requests)])
    add("http_body_bytes", "gauge", "Bodies of these requests, as far as they are counted.", [({}, app.body_bytes)])
    add("http_open_streams", "gauge", "Live feeds.", [({}, app.streams)])
    add("uptime_seconds", "gauge", "Since the API came up.", [({}, round(time.monotonic() - app.started_at, 3))])
    add("process_cpu_seconds_total", "counter", "CPU time of this process.", [({}, round(time.process_time(), 3))])
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _size(store: Any, suffix: str) -> int | None:
    path = getattr(store, "path", None)
    if path is None:
        return None
    try:
        return os.stat(f"{path}{suffix}").st_size
    except OSError:
        return 0
