"""The http block against a server on this machine."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.blocks import Cancelled, Context, NothingDone, PermanentFailure
from holdfast.blocks.http import RequestFailed, http_request


class Echo(BaseHTTPRequestHandler):
    #: somebody asked for `/held`, and may have an answer
    is_asked, may_answer = threading.Event(), threading.Event()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        status = 200
        content_type, text = "application/json; charset=utf-8", ""
        if self.path.startswith("/status/"):
            status = int(self.path.rpartition("/")[2])
        if self.path == "/slow":
            time.sleep(1)
        if self.path == "/held":
            self.is_asked.set()
            self.may_answer.wait(20)
        if self.path == "/hang-up":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if self.path == "/text":
            content_type, text = "text/plain; charset=latin-1", "größe"
        else:
            text = json.dumps(
                {"method": self.command, "path": self.path, "body": body, "headers": dict(self.headers.items())}
            )
        encoded = text.encode("latin-1")
        if self.path == "/large":
            encoded = b"x" * (2 * 1024 * 1024 + 1)
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(encoded)))
            self.send_header("X-Two", "1")
            self.send_header("X-Two", "2")
            self.end_headers()
            self.wfile.write(encoded)
        except OSError:
            pass  # the client went away, as some tests want

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def ask(endpoint: str, **more: Any) -> dict[str, Any]:
    return http_request(endpoint, Context("x1", 7, idempotency_key="visit-1"), **more)


def test_a_request_carries_the_idempotency_key(server: str) -> None:
    result = ask(f"{server}/a b?x=1", query={"y": [1, "z"], "q": "ä&"})
    assert result["status_code"] == 200
    assert result["content"]["method"] == "GET"
    assert result["content"]["path"] == "/a%20b?x=1&y=1&y=z&q=%C3%A4%26"
    assert result["content"]["headers"]["Idempotency-Key"] == "visit-1"
    assert json.loads(result["content_text"]) == result["content"]
    assert result["headers"]["x-two"] == ["1", "2"]
    assert result["duration"] > 0


def test_bodies_credentials_and_headers(server: str) -> None:
    sent = ask(server, method="post", body={"a": [1]}, username="u", password="p", headers={"X-N": 1})["content"]
    assert (sent["method"], sent["body"]) == ("POST", '{"a": [1]}')
    assert sent["headers"]["Content-Type"] == "application/json"
    assert sent["headers"]["Authorization"] == "Basic dTpw"
    assert sent["headers"]["X-N"] == "1"
    text = ask(server, method="put", body="plain", headers={"Idempotency-Key": "mine"})["content"]
    assert text["body"] == "plain"
    assert text["headers"]["Idempotency-Key"] == "mine"


def test_text_is_decoded_as_declared(server: str) -> None:
    assert ask(f"{server}/text")["content"] == "größe"


@pytest.mark.parametrize(
    ("status", "wanted", "accepted"),
    [
        (201, None, True),
        (302, None, True),
        (404, None, False),
        (404, 404, True),
        (200, 404, False),
        (250, [200, 299], True),
        (300, [200, 299], False),
        (404, [200, 201, 404], True),
        (500, "any", True),
    ],
)
def test_which_status_codes_are_accepted(server: str, status: int, wanted: Any, accepted: bool) -> None:
    if accepted:
        assert ask(f"{server}/status/{status}", status_code=wanted)["status_code"] == status
    else:
        with pytest.raises(RequestFailed, match=f"status {status}") as caught:
            ask(f"{server}/status/{status}", status_code=wanted)
        assert caught.value.details["status_code"] == status
        assert caught.value.effect is None


def test_a_refused_connection_has_done_nothing() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NothingDone, match="cannot connect"):
        ask(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "endpoint", ["ftp://a/", "file:///etc/passwd", "http://", "http://u:p@localhost/", "http://a:99999/"]
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(NothingDone) as caught:
        ask(endpoint)
    assert caught.value.permanent


def test_headers_cannot_smuggle_lines(server: str) -> None:
    with pytest.raises(NothingDone, match="Invalid header"):
        ask(server, headers={"X": "a\r\nEvil: 1"})


def test_what_fails_after_sending_leaves_the_effect_open(server: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        ask(f"{server}/hang-up", method="post")
    assert caught.value.effect is None
    with pytest.raises(RequestFailed, match="timed out"):
        ask(f"{server}/slow", timeout=0.1)


def test_an_answer_without_end_is_not_read(server: str) -> None:
    with pytest.raises(PermanentFailure, match="longer than"):
        ask(f"{server}/large")


def test_cancel_hangs_up(server: str) -> None:
    ctx = Context()

    def cancel() -> None:
        Echo.is_asked.wait(20)
        ctx.cancel("enough")

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        # It ends while the server still holds its answer back, or else with that answer.
        with pytest.raises(Cancelled, match="enough"):
            http_request(f"{server}/held", ctx, timeout=60)
    finally:
        Echo.may_answer.set()
        thread.join()
