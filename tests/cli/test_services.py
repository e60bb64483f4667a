"""Blocks that reach other machines, from the command line to the other side and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.services.ssh import SshServer
from tests.services.web import Approvals, Cloud

from .support import EXAMPLES, holdfast

PROVISION = """
name: provision
inputs: {approvals: string, cloud: string}
steps:
  - http ${approvals}/request/infrastructure/vm?size=2
  - let request = ${content.request_id}
  - id: check
    step: http ${approvals}/check
    input: {query: {request_id: "${request}"}, status_code: any}
    idempotent: yes
  - step: fail message denied, ${content.details}
    condition: ${content.completed && !content.approved}
  - http ${cloud}/provision/vm?size=2
  - return: {machine: "${content.provision_id}", completed: "${steps.check.output.content.completed}"}
"""


def test_example_ssh_uptime(tmp_path: Path, ssh_server: SshServer) -> None:
    shutil.copy(EXAMPLES / "ssh-uptime.yaml", tmp_path)
    (ssh_server.root / "bin" / "uptime").write_text("#!/bin/sh\necho ' up 3 days '\n")
    (ssh_server.root / "bin" / "uptime").chmod(0o755)
    where = ["-i", f"machine={ssh_server.endpoint}", "-i", f"key={ssh_server.key}"]
    strange = holdfast("run", "ssh-uptime.yaml", *where, "-i", "known-hosts=none", "-o", "json", cwd=tmp_path)
    assert strange.json["status"] == "FAILED_SAFE"
    assert "accept-new" in strange.json["error"]["message"]
    assert ssh_server.commands == []
    done = holdfast(
        "run", "ssh-uptime.yaml", *where, "-i", f"known-hosts={ssh_server.known_hosts}", "-o", "json", cwd=tmp_path
    )
    assert done.json["output"] == "up 3 days", done
    assert ssh_server.commands == ["uptime"]


def test_a_lost_connection_leaves_the_execution_unsafe(tmp_path: Path, ssh_server: SshServer) -> None:
    (tmp_path / "change.yaml").write_text(
        "name: change\ninputs: {where: map}\nsteps:\n"
        "  - {type: ssh, input: {command: touch changed, endpoint: '${where.endpoint}', key: '${where.key}',\n"
        "     known_hosts_file: '${where.hosts}'}, retry: 5}\n"
    )
    ssh_server.drop_at = "end"
    where = f'{{"endpoint": "{ssh_server.endpoint}", "key": "{ssh_server.key}", "hosts": "{ssh_server.known_hosts}"}}'
    done = holdfast("run", "change.yaml", "-i", f"where:={where}", "-o", "json", cwd=tmp_path)
    assert done.json["status"] == "FAILED_UNSAFE", done
    assert done.code == 3
    assert "nobody can tell what it did" in done.json["error"]["message"]
    assert ssh_server.commands == ["touch changed"], "never sent again"
    job = holdfast("jobs", done.json["id"], "-o", "json", cwd=tmp_path).json[0]
    assert job["effect"] == "UNKNOWN"


def test_requests_carry_a_key_of_their_own(tmp_path: Path, approvals: Approvals, cloud: Cloud) -> None:
    approvals.polls = 0
    (tmp_path / "provision.yaml").write_text(PROVISION)
    where = ["-i", f"approvals={approvals.url}", "-i", f"cloud={cloud.url}"]
    done = holdfast("run", "provision.yaml", *where, "-o", "json", cwd=tmp_path)
    assert done.json["output"] == {"machine": "prov-1", "completed": True}, done
    assert cloud.provisions == 1
    keys = [seen.key for seen in approvals.requests + cloud.requests]
    assert all(done.json["id"] in key for key in keys)
    assert len(set(keys)) == 3


@pytest.mark.parametrize("works", [True, False])
def test_an_answer_that_does_not_come_stops_what_may_not_run_twice(
    tmp_path: Path, approvals: Approvals, cloud: Cloud, works: bool
) -> None:
    approvals.polls = 0
    cloud.drop_next(works=works)
    (tmp_path / "provision.yaml").write_text(PROVISION)
    where = ["-i", f"approvals={approvals.url}", "-i", f"cloud={cloud.url}"]
    done = holdfast("run", "provision.yaml", *where, "-o", "json", cwd=tmp_path)
    assert done.json["status"] == "FAILED_UNSAFE", done
    assert len(cloud.requests) == 1
    assert cloud.provisions == int(works)
