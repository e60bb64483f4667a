"""The http block against a server on this machine."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.blocks import Cancelled, Context, NothingDone, PermanentFailure
from holdfast.blocks.http import http_request
from holdfast.blocks.values import encode
from holdfast.blocks.web import RequestFailed
from holdfast.core.model import PAYLOAD_LIMIT, Effect
from tests.services.certificates import make_certificate


class Echo(BaseHTTPRequestHandler):
    #: somebody asked for `/held`, and may have an answer
    is_asked, may_answer = threading.Event(), threading.Event()
    #: where `/away/…` leads
    elsewhere = ""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        status = 200
        content_type, text = "application/json; charset=utf-8", ""
        if self.path.startswith("/status/"):
            status = int(self.path.rpartition("/")[2])
        if self.path.startswith(("/to/", "/away/")):
            status = int(self.path.split("/")[2])
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
        elif self.path.startswith("/say/"):
            kind, _, said = self.path.removeprefix("/say/").partition("/")
            content_type, text = kind.replace("+", "/"), unquote(said, "latin-1")
        else:
            text = json.dumps(
                {"method": self.command, "path": self.path, "body": body, "headers": dict(self.headers.items())}
            )
        encoded = text.encode("latin-1")
        if self.path == "/large":
            encoded = b"x" * (2 * 1024 * 1024 + 1)
        if self.path == "/long":
            encoded = b"x" * (1024 * 1024)
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(encoded)))
            if self.path.startswith("/to/"):
                self.send_header("Location", self.path.removeprefix(f"/to/{status}"))
            elif self.path.startswith("/away/"):
                self.send_header("Location", self.elsewhere)
            self.send_header("X-Two", "1")
            self.send_header("X-Two", "2")
            self.end_headers()
            self.wfile.write(encoded)
        except OSError:
            pass  # the client went away, as some tests want

    do_GET = do_POST = do_PUT = do_HEAD = _answer

    def log_message(self, *args: Any) -> None:
        return


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    httpd.daemon_threads = True
    if tls is not None:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield httpd.server_address[1]
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as port:
        yield f"http://127.0.0.1:{port}"


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
        (250, "200..299", True),
        (300, "200..299", False),
        # Two codes are two codes, as for exit codes; a range is written as one.
        (250, [200, 299], False),
        (299, [200, 299], True),
        (404, {"less-than": 500}, True),
        (500, {"less-than": 500}, False),
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
    with pytest.raises(NothingDone, match="line break"):
        ask(server, headers={"X": "a\r\nEvil: 1"})


def test_what_fails_after_sending_leaves_the_effect_open(server: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        ask(f"{server}/hang-up", method="post")
    assert caught.value.effect is None
    with pytest.raises(RequestFailed, match="timed out"):
        ask(f"{server}/slow", timeout=0.1)


def test_what_is_json_is_parsed_where_the_answer_says_so(server: str) -> None:
    declared = ask(f"{server}/say/application+json/[1]")
    assert (declared["content"], declared["content_json"], declared["content_text"]) == ([1], [1], "[1]")
    silent = ask(f"{server}/say/text+plain/12")
    assert (silent["content"], silent["content_json"]) == ("12", 12)
    broken = ask(f"{server}/say/application+json/{{")
    assert (broken["content"], broken["content_json"]) == ("{", None)
    null = ask(f"{server}/say/application+json;charset=utf-8/null")
    assert (null["content"], null["content_text"]) == (None, "null")


@pytest.mark.parametrize("text", ["NaN", "[" * 150 + "]" * 150, "[" * 3000, "1" + "0" * 30])
def test_json_that_could_not_be_sent_on_stays_text(server: str, text: str) -> None:
    result = ask(f"{server}/say/application+json/{text}")
    assert (result["content"], result["content_json"]) == (text, None)
    assert encode(result)


def test_charset_wins_over_what_the_answer_declares(server: str) -> None:
    assert ask(f"{server}/say/text+plain;charset=utf-8/gr%F6%DFe", charset="latin-1")["content"] == "größe"
    assert ask(f"{server}/say/text+plain;charset=nonsense/ok")["content"] == "ok"
    sent = ask(f"{server}/x", method="post", body="größe", charset="latin-1")["content"]
    assert sent["headers"]["Content-Type"] == "text/plain; charset=iso8859-1"
    assert sent["headers"]["Content-Length"] == "5"
    with pytest.raises(NothingDone, match="no charset `nonsense`"):
        ask(server, charset="nonsense")
    with pytest.raises(NothingDone, match="cannot be written as ascii"):
        ask(server, method="post", body="größe", charset="ascii")


def test_bytes_come_and_go_as_they_are(server: str) -> None:
    binary = ask(f"{server}/say/application+octet-stream/%FF%00%FE")
    assert base64.b64decode(binary["content_bytes"]) == b"\xff\0\xfe"
    assert ask(f"{server}/text")["content_bytes"] is None
    sent = ask(server, method="post", body=b"ab")["content"]
    assert (sent["headers"]["Content-Type"], sent["body"]) == ("application/octet-stream", "ab")


def test_a_long_answer_is_there_once(server: str) -> None:
    result = ask(f"{server}/long")
    assert len(result["content"]) == 1024 * 1024
    assert (result["content_text"], result["content_json"], result["content_bytes"]) == (None, None, None)
    assert encode(result)[1] < PAYLOAD_LIMIT


def test_redirects_are_answers_unless_asked_for(server: str) -> None:
    assert ask(f"{server}/to/302/text")["status_code"] == 302
    assert ask(f"{server}/to/302/text", config={"redirects": "yes"})["content"] == "größe"
    assert ask(f"{server}/to/302/to/302/text", config={"redirects": 2})["status_code"] == 200
    with pytest.raises(RequestFailed, match="leads on after 1 redirects"):
        ask(f"{server}/to/302/to/302/text", config={"redirects": 1})


def test_what_changes_things_is_sent_on_only_if_the_author_says_so(server: str) -> None:
    def post(status: int, **config: Any) -> dict[str, Any]:
        return ask(f"{server}/to/{status}/x", method="post", body={"a": 1}, config=config)

    assert post(307, redirects=True)["status_code"] == 307
    kept = post(307, redirects="all")["content"]
    assert (kept["method"], kept["body"]) == ("POST", '{"a": 1}')
    turned = post(303, laxRedirect=True)["content"]
    assert (turned["method"], turned["body"]) == ("GET", "")
    assert "Content-Type" not in turned["headers"]


def test_credentials_stay_with_their_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as other:
        monkeypatch.setattr(Echo, "elsewhere", f"http://127.0.0.1:{other}/there")
        answer = ask(f"{server}/away/302", username="u", password="p", config={"redirects": True})
    assert answer["content"]["path"] == "/there"
    assert "Authorization" not in answer["content"]["headers"]
    here = ask(f"{server}/to/302/here", username="u", password="p", config={"redirects": True})
    assert "Authorization" in here["content"]["headers"]


def test_after_the_first_request_nothing_is_certain(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(Echo, "elsewhere", f"http://127.0.0.1:{free.getsockname()[1]}/")
        with pytest.raises(RequestFailed, match="cannot connect") as caught:
            ask(f"{server}/away/307", method="post", config={"redirects": "all"})
    assert caught.value.effect is None


def test_certificates_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with serving(tls) as port:
        endpoint = f"127.0.0.1:{port}/text"  # https, because nothing else is said
        with pytest.raises(NothingDone, match="ca-file") as caught:
            ask(endpoint)
        assert caught.value.permanent
        assert ask(endpoint, config={"trust-all": True})["content"] == "größe"
        assert ask(endpoint, config={"ca_file": str(certificate)})["content"] == "größe"
        with pytest.raises(NothingDone, match="cannot be used"):
            ask(endpoint, config={"ca-file": str(tmp_path / "missing")})


@pytest.mark.parametrize(
    "config", [{"redirects": -1}, {"redirects": "some"}, {"trust": True}, {"trustSelfSigned": True}]
)
def test_config_is_strict(server: str, config: dict[str, Any]) -> None:
    with pytest.raises(NothingDone) as caught:
        ask(server, config=config)
    assert caught.value.permanent


def test_secrets_are_resolved_here_and_never_shown(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASS", "p")
    monkeypatch.setenv("BROKEN", "hidden\n")
    monkeypatch.setenv("HOLDFAST_SERVER_KEY", "hidden")
    headers = ask(server, username="u", password="secret://env/PASS", headers={"X-Key": "secret://env/PASS"})
    assert headers["content"]["headers"]["Authorization"] == "Basic dTpw"
    assert headers["content"]["headers"]["X-Key"] == "p"
    for reference in ("secret://env/BROKEN", "secret://env/HOLDFAST_SERVER_KEY", "secret://env/NOT_SET", "secret://x"):
        with pytest.raises(NothingDone) as caught:
            ask(server, headers={"X-Key": reference})
        assert "hidden" not in "".join(traceback.format_exception(caught.value))


def test_timeouts_may_be_text(server: str) -> None:
    assert ask(f"{server}/text", timeout="10s")["status_code"] == 200
    for timeout in ("soon", 0, -1):
        with pytest.raises(NothingDone, match="timeout"):
            ask(server, timeout=timeout)


def test_what_is_cancelled_before_it_was_sent_has_done_nothing(server: str) -> None:
    ctx = Context()
    ctx.cancel("enough")
    with pytest.raises(Cancelled) as caught:
        http_request(f"{server}/x", ctx)
    assert caught.value.effect is Effect.NONE


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
