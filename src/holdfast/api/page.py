"""A small page for people without a terminal: executions, and one execution live. The monitor will replace it.

Made on the server; every text that somebody else wrote is escaped. No inline script or style, nothing from
elsewhere: the content security policy allows only this server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from holdfast.core.errors import AmbiguousId, InvalidRequest, NoSuchRoute, Refused, Unauthenticated, UnknownExecution
from holdfast.core.ids import short
from holdfast.core.model import Status
from holdfast.core.views import ExecutionView, JobView, LogView, seconds

from .auth import COOKIE, SESSION_LIFE, Role
from .bodies import LoginQuery
from .routes import Call, Nothing, Reply, Table

routes = Table("page")
HTML = "text/html; charset=utf-8"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}
_SHOWN_JOBS, _SHOWN_LINES = 200, 200
_PAGE = re.compile(r"/(x/[0-9a-f]{1,32})?")
_KINDS = {"COMPLETED": "good", "FAILED_SAFE": "bad", "FAILED_UNSAFE": "worse", "CANCELLED": "off"}
_TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@routes.add("GET", "/", role=Role.VIEWER, media=HTML)
def home(call: Call[Nothing, None]) -> Reply:
    """The newest executions, as a page."""
    found = call.service.executions(call.actor, limit=50)
    rows = [
        f'<tr><td><a href="/x/{view.id}">{short(view.id)}</a></td><td>{escape(view.workflow)}</td>'
        f"<td>{_status(view.status)}</td><td>{view.progress.done}/{view.progress.total}</td>"
        f"<td>{_ago(view.created_at)}</td><td>{_took(view)}</td></tr>"
        for view in found
    ]
    head = ("execution", "workflow", "status", "jobs", "started", "took")
    body = _table(head, rows) if rows else "<p>No executions yet. Try <code>holdfast run FILE</code>.</p>"
    return _page("Executions", f"<h1>Executions</h1>{body}")


@routes.add("GET", "/x/{id}", role=Role.VIEWER, media=HTML, refusals=(UnknownExecution, AmbiguousId))
def execution(call: Call[Nothing, None]) -> Reply:
    """One execution, as a page."""
    id = call.id
    view = call.service.show(call.actor, id)
    done, total = view.progress.done, view.progress.total
    parts = [
        f"<h1>{escape(view.workflow)} <small>{short(view.id)}</small> {_status(view.status)}</h1>",
        f'<p class="about">started {_ago(view.created_at)} by {escape(view.started_by)}, '
        f"{_took(view)}; {done} of {total} jobs done</p>",
        f'<progress max="{max(total, 1)}" value="{done}"></progress>',
    ]
    if view.error is not None:
        place = f" at step <b>{escape(view.error.step)}</b>" if view.error.step else ""
        code = f" <code>{escape(view.error.code)}</code>" if view.error.code else ""
        parts.append(
            f'<p class="error"><b>{escape(view.error.kind)}</b>{place}: {escape(view.error.message)}{code}</p>'
        )
    if view.residue:
        parts.append(f'<p class="error">Effects of jobs {", ".join(map(str, view.residue))} remain.</p>')
    if view.waiting:
        parts.append("<h2>Why it waits</h2><ul>" + "".join(f"<li>{escape(w)}</li>" for w in view.waiting) + "</ul>")
    parts.append(_jobs(call.service.jobs(call.actor, id)))
    parts.append(_log(call.service.logs(call.actor, id, limit=2000)[-_SHOWN_LINES:]))
    if view.output is not None:
        parts.append(f"<h2>Output</h2><pre>{escape(_json(view.output))}</pre>")
    live = "" if view.is_ended else f' data-live="/api/v1/executions/{view.id}/events/stream?after={view.events}"'
    return _page(f"{view.workflow} {view.status}", "".join(parts), live)


@routes.add("GET", "/login", role=Role.PUBLIC, query=LoginQuery, media=HTML, status=303)
async def login(call: Call[LoginQuery, None]) -> Reply:
    """Take a one-time code for a session cookie and go to the page."""
    if not _PAGE.fullmatch(call.query.to):
        raise InvalidRequest("to: is the address of a page here, `/` or `/x/ID`")
    client = call.scope.get("client")
    row, text = call.app.auth.redeem(call.query.code, client[0] if client else "")
    await call.app.waiting.commit(lambda reply: call.service.engine.put_tokens([row], reply))
    secure = "; Secure" if call.scope.get("scheme") == "https" else ""
    cookie = f"{COOKIE}={text}; Path=/; Max-Age={SESSION_LIFE}; HttpOnly; SameSite=Strict{secure}"
    headers = {"location": call.query.to, "set-cookie": cookie, **HEADERS}
    return Reply(data=b"", status=303, media=HTML, headers=headers)


@routes.add("GET", "/static/{name}", role=Role.PUBLIC, media="text/css")
def static(call: Call[Nothing, None]) -> Reply:
    """The page's own style and script."""
    name = call.path["name"]
    if name not in _TYPES:
        raise NoSuchRoute("there is no such file")
    data = _files.get(name)
    if data is None:
        data = _files[name] = files("holdfast.api").joinpath("static", name).read_bytes()
    return Reply(data=data, media=_TYPES[name], headers={"cache-control": "no-cache"})


_files: dict[str, bytes] = {}


def refused_page(refused: Refused) -> Reply:
    """A refusal for people: asked for a page, they get one."""
    hint = ""
    if isinstance(refused, Unauthenticated):
        hint = "<p>Open the login link that <code>holdfast up</code> prints, or ask for a new one.</p>"
    body = f"<h1>{refused.code}</h1><p>{escape(refused.message)}</p>{hint}"
    reply = _page(refused.code, body)
    reply.status = refused.status
    return reply


# --- pieces ----------------------------------------------------------------------------------------
def _page(title: str, body: str, live: str = "") -> Reply:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · Holdfast</title>"
        '<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/page.css">'
        '<script src="/static/page.js" defer></script></head>'
        f'<body><header><a href="/">Holdfast</a></header><main{live}>{body}</main></body></html>'
    )
    return Reply(data=html.encode("utf-8", "replace"), media=HTML, headers=dict(HEADERS))


def _table(head: Iterable[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _status(name: str) -> str:
    is_ended = Status[name].is_ended
    kind = _KINDS.get(name.removesuffix("_ACK"), "off" if is_ended else "on")
    return f'<span class="status {kind}">{escape(name.replace("_", " ").lower())}</span>'


def _jobs(jobs: list[JobView]) -> str:
    if not jobs:
        return ""
    rows = [
        f"<tr><td>{job.job}</td><td>{escape(job.step)}</td><td>{escape(job.block)}</td>"
        f'<td><span class="job {job.status.lower()}">{job.status.lower()}</span></td><td>{job.attempt}</td>'
        f"<td>{escape(job.worker)}</td><td>{escape(job.error.message) if job.error else ''}</td></tr>"
        for job in jobs[-_SHOWN_JOBS:]
    ]
    more = f"<p>the last {_SHOWN_JOBS} of {len(jobs)}</p>" if len(jobs) > _SHOWN_JOBS else ""
    return "<h2>Jobs</h2>" + more + _table(("job", "step", "block", "status", "attempt", "worker", "error"), rows)


def _log(lines: list[LogView]) -> str:
    if not lines:
        return ""
    text = "\n".join(
        f'<span class="{line.level.lower()}">{_clock(line.at)} {escape(line.step)}</span> {escape(line.message)}'
        for line in lines
    )
    return f"<h2>Log</h2><pre>{text}</pre>"


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()[:20_000]


def _clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%H:%M:%S")


def _ago(us: int) -> str:
    text = datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f'<time datetime="{text}Z">{text}</time>'


def _took(view: ExecutionView) -> str:
    return seconds((view.ended_at or view.updated_at) - view.created_at)
