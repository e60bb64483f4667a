"""Where the server listens, how it starts and how it stops."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.api.server import Server, serve
from holdfast.core.errors import BadConfiguration

from .support import LONG, House, house


def test_it_binds_loopback_unless_told_otherwise(home: House) -> None:
    everywhere = "0.0.0.0"  # noqa: S104
    for host in (everywhere, "::", "192.0.2.1", "example.org"):
        with pytest.raises(BadConfiguration, match="other machines"):
            Server(home.service, host)
    Server(home.service, everywhere, allow_remote=True)
    for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        Server(home.service, host)


def test_a_taken_port_is_said_or_gone_around(home: House) -> None:
    taken = home.server.port
    with pytest.raises(BadConfiguration, match=f"port {taken} on 127.0.0.1 is taken"):
        Server(home.service, port=taken).start()
    other = serve(home.service, port=taken, fallback=True)
    try:
        assert other.port != taken
        with socket.create_connection(("127.0.0.1", other.port)):
            pass
    finally:
        other.stop()


def test_a_host_that_is_not_ours_is_said(home: House) -> None:
    with pytest.raises(BadConfiguration, match="cannot listen"):
        Server(home.service, "192.0.2.1", 0, allow_remote=True).start()


def test_it_waits_for_nobody_when_it_stops_and_stops_only_once(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        id = home.start(LONG)
        held = [socket.create_connection(("127.0.0.1", home.server.port)) for _ in range(5)]
        request = (
            f"GET /api/v1/executions/{id}?wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {home.admin}\r\n\r\n"
        )
        held[0].sendall(request.encode())
        held[1].sendall(b"POST /api/v1/executions HTTP/1.1\r\nHost: x\r\nContent-Le")
        time.sleep(0.2)
        home.stop_server()
        assert held[0].recv(20).startswith(b"HTTP/1.1 200")
        home.server.stop()
        for sock in held:
            sock.close()
        home.service.cancel(home.holdfast.actor, id)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", home.server.port))


def test_the_log_is_quiet(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with house(tmp_path) as home:
        home.ask("GET", "/api/v1/version")
        home.ask("GET", "/nothing")
        with socket.create_connection(("127.0.0.1", home.server.port)) as sock:
            sock.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            sock.recv(100)
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
    assert capfd.readouterr() == ("", "")


def test_nothing_heavy_comes_with_the_client() -> None:
    heavy = {
        "starlette",
        "uvicorn",
        "asyncio",
        "http.client",
        "yaml",
        "apsw",
        "ssl",
        "click",
        "rich",
        "holdfast.engine",
    }
    code = "import sys, holdfast.client; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)
