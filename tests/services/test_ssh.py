"""The machine to log in to: its apt-get bears witness, so that a test can prove what overlapped."""

from __future__ import annotations

import asyncio

from holdfast.blocks import Context
from holdfast.blocks.ssh import ssh
from tests.services.ssh import SshServer


async def install(server: SshServer, package: str) -> None:
    await ssh(f"sudo apt-get install -y {package}", Context(), **server.parameters)


def test_installs_one_after_the_other_do_not_overlap(ssh_server: SshServer) -> None:
    async def main() -> None:
        await install(ssh_server, "a")
        await install(ssh_server, "b c")

    asyncio.run(main())
    assert [run.packages for run in ssh_server.installs()] == ["a", "b,c"]
    assert ssh_server.overlaps() == []


def test_installs_at_the_same_time_are_seen_to_overlap(ssh_server: SshServer) -> None:
    (ssh_server.root / "bin" / "sleep").write_text(
        # Both have begun before either goes on, whatever the machine is busy with.
        '#!/bin/sh\nuntil [ $(grep -c start "$APT_WITNESS") = 2 ]; do /bin/sleep 0.01; done\n'
    )
    (ssh_server.root / "bin" / "sleep").chmod(0o755)

    async def main() -> None:
        await asyncio.gather(install(ssh_server, "a"), install(ssh_server, "b"))

    asyncio.run(main())
    assert len(ssh_server.overlaps()) == 1


def test_an_install_that_was_cut_off_counts_as_under_way(ssh_server: SshServer) -> None:
    ssh_server.witness.write_text("start a 1\nstart b 2\nend b 2\n")
    assert ssh_server.overlaps() == [("a", "b")]
