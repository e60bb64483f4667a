"""The approvals and the cloud: what they answer, and how they fail when told to."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.services.web import Approvals, Cloud


def ask(url: str, key: str = "") -> Any:
    request = urllib.request.Request(url, headers={"Idempotency-Key": key} if key else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_a_request_is_approved_after_some_checks(approvals: Approvals) -> None:
    request = ask(f"{approvals.url}/request/infrastructure/vm?size=2")["request_id"]
    checks = [ask(f"{approvals.url}/check?request_id={request}") for _ in range(4)]
    assert [check["completed"] for check in checks] == [False, False, True, True]
    assert checks[2] == {"completed": True, "approved": True, "details": "granted"}
    assert approvals.requests[0].query == {"size": "2"}


def test_a_request_may_be_denied() -> None:
    with Approvals(polls=0, denies=True) as approvals:
        request = ask(f"{approvals.url}/request/infrastructure/vm")["request_id"]
        check = ask(f"{approvals.url}/check?request_id={request}")
    assert check == {"completed": True, "approved": False, "details": "no budget left"}


def test_each_call_makes_a_machine_unless_keys_count(cloud: Cloud) -> None:
    assert ask(f"{cloud.url}/provision/vm", "k")["provision_id"] == "prov-1"
    assert ask(f"{cloud.url}/provision/vm", "k")["provision_id"] == "prov-2"
    assert [ask(f"{cloud.url}/check?provision_id=prov-2")["completed"] for _ in range(3)] == [False, False, True]
    assert ask(f"{cloud.url}/check?provision_id=prov-2")["ip_address"] == "10.0.0.2"
    cloud.deduplicates = True
    assert [ask(f"{cloud.url}/provision/vm", "other")["provision_id"] for _ in range(2)] == ["prov-3", "prov-3"]
    assert cloud.provisions == 3


@pytest.mark.parametrize("works", [True, False])
def test_trouble_comes_as_ordered(cloud: Cloud, works: bool) -> None:
    cloud.fail_next(1, path="/provision", works=works)
    cloud.drop_next(1, path="/provision", works=works)
    with pytest.raises(urllib.error.HTTPError, match="500") as caught:
        ask(f"{cloud.url}/provision/vm")
    caught.value.close()
    with pytest.raises(OSError, match=r"closed|reset"):
        ask(f"{cloud.url}/provision/vm")
    assert cloud.provisions == (2 if works else 0)
    ask(f"{cloud.url}/provision/vm")
    assert cloud.provisions == (3 if works else 1)
    assert len(cloud.requests) == 3


def test_it_runs_as_a_program_until_its_input_closes() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.services.web", "--polls", "0", "--deny"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        where = json.loads(program.stdout.readline())
        request = ask(f"{where['approvals']}/request/infrastructure/vm")["request_id"]
        assert ask(f"{where['approvals']}/check?request_id={request}")["approved"] is False
        assert ask(f"{where['cloud']}/provision/vm") == {"provision_id": "prov-1"}
        program.stdin.close()
        assert program.wait(20) == 0
