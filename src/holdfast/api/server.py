"""The server: uvicorn in a thread and a loop of its own, beside the engine.

It binds loopback unless told otherwise, ends open streams and polls when it stops, and says nothing while all
is well. Heavy imports happen when it starts, not when this file is read.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self

from holdfast.core.errors import BadConfiguration
from holdfast.engine.service import Service

from .app import BODY_BYTES, App
from .auth import Auth, Role
from .page import refused_page
from .routing import make_router

log = logging.getLogger("holdfast.api")

HOST = "127.0.0.1"
PORT = 3030
#: How many ports above the usual one are tried when it is taken and none was asked for.
TRIES = 20


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    def __init__(
        self,
        service: Service,
        host: str = HOST,
        port: int = PORT,
        *,
        fallback: bool = False,
        allow_remote: bool = False,
        attempts: int = 10,
        threads: int = 8,
        max_requests: int = 1024,
        max_streams: int = 256,
        max_body_bytes: int = BODY_BYTES,
        certificate: str = "",
        private_key: str = "",
    ) -> None:
        """`port` 0 lets the system choose. `fallback` takes the next free port when this one is taken."""
        if not allow_remote and not is_loopback(host):
            raise BadConfiguration(
                f"{host} can be reached from other machines; say so (--allow-remote) if that is meant"
            )
        self.host = host
        self.port = port
        self.auth = Auth(service, attempts=attempts)
        self.app = App(
            service,
            self.auth,
            make_router(),
            threads=threads,
            max_requests=max_requests,
            max_streams=max_streams,
            max_body_bytes=max_body_bytes,
            refused_page=refused_page,
        )
        self._fallback = fallback
        self._tls = (certificate, private_key)
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # --- life ----------------------------------------------------------------------------------------
    def start(self, timeout: float = 15.0) -> str:
        """Listen; returns the address. When it returns, requests are answered."""
        import uvicorn

        sock = self._bind()
        self.port = sock.getsockname()[1]
        certificate, private_key = self._tls
        config = uvicorn.Config(
            self.app, lifespan="off", log_config=None, access_log=False, server_header=False, proxy_headers=False,
            http="httptools", ws="none", timeout_keep_alive=75, timeout_graceful_shutdown=1, backlog=512,
            limit_concurrency=self.app.max_requests + self.app.max_streams + 512,
            ssl_certfile=certificate or None, ssl_keyfile=private_key or None,
        )  # fmt: skip
        # uvicorn tells the log about every start, stop and bad request; we say what matters ourselves.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server = uvicorn.Server(config)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sock, ready), name="holdfast-api", daemon=True)
        self._thread.start()
        if not ready.wait(timeout) or self._error is not None:
            raise BadConfiguration(f"the server did not start: {self._error or 'it took too long'}")
        return self.address

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls[0] else 'http'}://{host}:{self.port}"

    def stop(self, timeout: float = 5.0) -> None:
        """End streams and polls, finish what was begun, close. The engine goes on."""
        thread, server = self._thread, self._server
        if thread is None or not thread.is_alive():
            return
        self.app.waiting.call(self.app.close)
        server.should_exit = True
        thread.join(timeout)
        if thread.is_alive():
            server.force_exit = True
            thread.join(2.0)
        self.app.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, sock: socket.socket, ready: threading.Event) -> None:
        import asyncio

        async def serve() -> None:
            self.app.waiting.loop  # noqa: B018 — known before another thread asks for it
            task = asyncio.ensure_future(self._server.serve(sockets=[sock]))
            while not self._server.started and not task.done():  # noqa: ASYNC110 — uvicorn has no event for it
                await asyncio.sleep(0.005)
            ready.set()
            await task

        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(serve())
        except BaseException as error:
            self._error = error
            if not isinstance(error, SystemExit):
                log.exception("the API server ended")
        finally:
            sock.close()
            ready.set()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        ports = [self.port]
        if self._fallback and self.port:
            ports += [*range(self.port + 1, min(self.port + TRIES, 65535) + 1), 0]
        for port in ports:
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((self.host, port))
                sock.listen(512)
                return sock
            except OSError as error:
                sock.close()
                if error.errno == errno.EADDRINUSE and port != ports[-1]:
                    continue
                if error.errno == errno.EADDRINUSE:
                    message = f"port {port} on {self.host} is taken; choose another (--port), or stop who has it"
                    raise BadConfiguration(message) from None
                raise BadConfiguration(f"cannot listen on {self.host}:{port}: {error.strerror}") from None
        raise AssertionError("no port was tried")

    # --- ways in -------------------------------------------------------------------------------------
    def local_token(self, name: str = "local", role: str = "admin") -> str:
        """A token that ends with this server, for the owner's 0600 file."""
        return self.auth.local_token(name, Role[role.upper()])

    def login_link(self, name: str = "local", role: str = "author", execution: str = "") -> str:
        """Opens the page of all executions, or of one, in a browser: once, within five minutes."""
        code = self.auth.login_code(name, Role[role.upper()])
        return f"{self.address}/login?code={code}" + (f"&to=/x/{execution}" if execution else "")


def serve(service: Service, host: str = HOST, port: int = PORT, **options: Any) -> Server:
    """A started server; `stop()` ends it."""
    server = Server(service, host, port, **options)
    server.start()
    return server


def _loop_factory() -> Callable[[], Any] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    factory: Callable[[], Any] = new_event_loop
    return factory
