"""Small HTTP services on real sockets and private ports: a file server, approvals, and a cloud that provisions.

Each answers in threads of its own, remembers every request, and can be told to fail or to hang up. Run as a
program (`python -m tests.services.web`) it prints the addresses and serves until its standard input closes.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

#: a status and what to send with it, as JSON
Reply = tuple[int, Any]


@dataclass(slots=True, frozen=True)
class Seen:
    """One request as it came in, also if it was then failed or cut off."""

    method: str
    path: str
    query: dict[str, str]
    body: str
    headers: dict[str, str]

    @property
    def key(self) -> str:
        """The idempotency key it carried."""
        return self.headers.get("idempotency-key", "")


@dataclass(slots=True)
class _Trouble:
    count: int
    #: answer with this instead; 0 to hang up
    status: int
    #: whether the work is done all the same, so that only the answer is lost
    works: bool
    path: str


class WebService:
    """Serves `pages`; subclasses answer in `reply`. Use it as a context manager, or call `close()`."""

    def __init__(self) -> None:
        #: path → content type and bytes
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.requests: list[Seen] = []
        self._troubles: list[_Trouble] = []
        #: held while a request is answered, so that counts are exact
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.service = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """`127.0.0.1:port`, for endpoints that say the scheme themselves."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # -- trouble ------------------------------------------------------------------------------------

    def fail_next(self, count: int = 1, *, status: int = 500, works: bool = False, path: str = "") -> None:
        """Answer the next requests (to paths that begin with `path`) with an error. `works`: after doing the work."""
        with self.lock:
            self._troubles.append(_Trouble(count, status, works, path))

    def drop_next(self, count: int = 1, *, works: bool = False, path: str = "") -> None:
        """Hang up on the next requests without an answer. `works`: after doing what they asked for."""
        self.fail_next(count, status=0, works=works, path=path)

    # -- answers ------------------------------------------------------------------------------------

    def reply(self, seen: Seen) -> Reply | tuple[str, bytes] | None:
        """What is answered; nothing for 404. Called under the lock."""
        return self.pages.get(seen.path)

    def handle(self, seen: Seen) -> Reply | tuple[str, bytes] | Literal["hang up"] | None:
        with self.lock:
            self.requests.append(seen)
            trouble = next((one for one in self._troubles if one.count and seen.path.startswith(one.path)), None)
            if trouble is None:
                return self.reply(seen)
            trouble.count -= 1
            if trouble.works:
                self.reply(seen)
            return (trouble.status, {"error": "failed as asked"}) if trouble.status else "hang up"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    service: WebService

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that was killed in the middle is what some tests are about.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, parts.path, dict(parse_qsl(parts.query)), body, headers)
        reply = self.server.service.handle(seen)
        if reply == "hang up":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, kind, content = 404, "application/json", b'{"error": "there is no such thing"}'
        if isinstance(reply, tuple):
            first, second = reply
            if isinstance(first, int):
                status, content = first, json.dumps(second).encode()
            else:
                status, kind, content = 200, first, second
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, *args: Any) -> None:
        return


@dataclass(slots=True)
class _Case:
    details: dict[str, str]
    polls: int = 0
    #: what the service made of it, once
    made: dict[str, str] = field(default_factory=dict)


class Approvals(WebService):
    """`/request/…` → `{request_id}`; `/check?request_id=` → `{completed, approved, details}`, completed after
    `polls` checks, and approved unless it `denies`."""

    def __init__(self, *, polls: int = 2, denies: bool = False, details: str = "") -> None:
        #: checks that say "not yet" before the one that says yes or no
        self.polls = polls
        self.denies = denies
        self.details = details or ("no budget left" if denies else "granted")
        self.cases: dict[str, _Case] = {}
        super().__init__()

    def reply(self, seen: Seen) -> Reply | tuple[str, bytes] | None:
        if seen.path.startswith("/request/"):
            request = f"req-{len(self.cases) + 1}"
            self.cases[request] = _Case(seen.query)
            return 200, {"request_id": request}
        if seen.path == "/check":
            case = self.cases.get(seen.query.get("request_id", ""))
            if case is None:
                return 404, {"error": "there is no such request"}
            case.polls += 1
            if case.polls <= self.polls:
                return 200, {"completed": False, "approved": False, "details": "waiting for somebody"}
            return 200, {"completed": True, "approved": not self.denies, "details": self.details}
        return super().reply(seen)


class Cloud(WebService):
    """`/provision/vm` → `{provision_id}`, a new machine for each call; `/check?provision_id=` → `{completed, id,
    ip_address}`, completed after `polls` checks. `deduplicates`: one machine per idempotency key."""

    def __init__(self, *, polls: int = 2, deduplicates: bool = False) -> None:
        self.polls = polls
        self.deduplicates = deduplicates
        self.machines: dict[str, _Case] = {}
        self._by_key: dict[str, str] = {}
        super().__init__()

    @property
    def provisions(self) -> int:
        """Machines that exist by now: what the world has to show for all the calls."""
        with self.lock:
            return len(self.machines)

    def reply(self, seen: Seen) -> Reply | tuple[str, bytes] | None:
        if seen.path.startswith("/provision/"):
            known = self._by_key.get(seen.key) if self.deduplicates and seen.key else None
            if known is None:
                number = len(self.machines) + 1
                known = f"prov-{number}"
                self.machines[known] = _Case(seen.query, made={"id": f"vm-{number}", "ip_address": f"10.0.0.{number}"})
                self._by_key.setdefault(seen.key, known)
            return 200, {"provision_id": known}
        if seen.path == "/check":
            case = self.machines.get(seen.query.get("provision_id", ""))
            if case is None:
                return 404, {"error": "there is no such machine"}
            case.polls += 1
            if case.polls <= self.polls:
                return 200, {"completed": False, "id": None, "ip_address": None}
            return 200, {"completed": True, **case.made}
        return super().reply(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve approvals and a cloud until standard input closes.")
    parser.add_argument("--polls", type=int, default=2, help="checks that say `not yet`")
    parser.add_argument("--deny", action="store_true", help="deny every request")
    chosen = parser.parse_args()
    with Approvals(polls=chosen.polls, denies=chosen.deny) as approvals, Cloud(polls=chosen.polls) as cloud:
        print(json.dumps({"approvals": approvals.url, "cloud": cloud.url}), flush=True)
        try:
            sys.stdin.buffer.read()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
