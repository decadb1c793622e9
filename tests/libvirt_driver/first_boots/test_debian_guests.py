"""Debian's own cloud-init: a tenant's user data really run, replace nothing of the platform's, and end after readiness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import Connection
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from tests.drivers.debian_harness import DebianHarness
from tests.drivers.in_process import Node, play
from tests.libvirt_driver.first_boots.inventories import ended, first_boot

pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(3600)]

# `users` and `runcmd` replace the lists of the vendor data. The second part has the name that cloud-init would give the
# platform's script.
CONFLICTING = """Content-Type: multipart/mixed; boundary="tenant"
MIME-Version: 1.0

--tenant
Content-Type: text/cloud-config

#cloud-config
users:
- {name: alice, shell: /bin/bash, sudo: 'ALL=(ALL) NOPASSWD:ALL', ssh_authorized_keys: ['@KEY@']}
write_files:
- {path: /etc/tenant-file, content: 'written by user data'}
runcmd:
- [sh, -c, 'until [ -e /home/alice/go-on ]; do sleep 1; done; echo ran >/etc/tenant-runcmd']
--tenant
Content-Type: text/x-shellscript-per-boot

#!/bin/sh
echo boot >>/etc/tenant-boots
--tenant--
"""
FAILING = "#cloud-config\nruncmd:\n- [sh, -c, 'exit 3']\n"


@pytest.fixture
def harness() -> DebianHarness:
    made = DebianHarness()
    if (reason := made.unavailable()) is not None:
        pytest.skip(f"no guest of Debian can run: {reason}")
    return made


async def run(node: Node, connection: Connection, command: str) -> str:
    """Log in, with the host key verified, and run a command."""
    tenant: Any = node.tenant
    said: str = await tenant.run(connection, command)
    return said.strip()


def test_user_data_run_replace_no_part_of_the_platform_and_end_after_the_guest_is_ready(
    harness: DebianHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        key = node.tenant.public_key  # type: ignore[attr-defined]
        order = node.order(user_data=CONFLICTING.replace("@KEY@", key))
        up = await perform(node.driver.provision(order), Unheard())
        alice = up.connection.model_copy(update={"user": "alice"})
        assert await run(node, alice, "cat /etc/tenant-file") == "written by user data"
        assert await first_boot(node, order) == FirstBoot(status=FirstBootStatus.PENDING), "it waits for its tenant"
        assert await run(node, alice, "test -e /etc/tenant-runcmd || echo not yet") == "not yet"
        await run(node, alice, "touch go-on")
        await ended(node, order, FirstBootStatus.DONE)
        assert await run(node, alice, "cat /etc/tenant-runcmd") == "ran"
        log = await run(node, alice, "sudo cat /var/log/cloud-init.log")
        for module in ("write-files", "users-groups", "runcmd", "scripts-user"):
            assert f"config-{module.replace('-', '_')}" in log or f"config-{module}" in log
        assert await run(node, alice, "getent passwd tenant || echo absent") == "absent", (
            "the tenant's users replace it"
        )
        assert int(await run(node, alice, "df --output=size -BM / | tail -n 1 | tr -dc 0-9")) > 3_000, (
            "the root has grown"
        )
        rebooted = await perform(node.verb(order, Verb.REBOOT), Unheard())
        assert rebooted.connection == up.connection
        assert await run(node, alice, "wc -l </etc/tenant-boots") == "2", "scripts of both parts ran at each boot"
        assert (await first_boot(node, order)).status is FirstBootStatus.DONE  # type: ignore[union-attr]

    play(harness, tmp_path, scenario)


def test_user_data_that_fail_are_an_error_of_the_first_boot_and_not_of_the_guest(
    harness: DebianHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = node.order(user_data=FAILING)
        up = await perform(node.driver.provision(order), Unheard())
        await ended(node, order, FirstBootStatus.ERROR)
        assert await run(node, up.connection, "id -un") == "tenant"
        found = await first_boot(node, order)
        assert found is not None
        assert "status: error" in (found.detail or "")

    play(harness, tmp_path, scenario)
