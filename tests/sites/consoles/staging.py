"""Machines that are rented, each with a stub BMC and its SSH server, on the processes of the stage of sites."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from psycopg.rows import dict_row

from berth.local.servers import free_port
from node_agent.redfish.clock import SystemClock
from orchestrator.allocations.commands.verbs import begin_verb, order_verb
from orchestrator.allocations.states import Verb
from orchestrator.nodes.certificates import load_authority
from orchestrator.operations.execution import Context
from tests.allocations.driving import TENANT, operation, provision, run_with
from tests.allocations.seeding import create_allocation, seed
from tests.deploy_system.stage import INSPECTED, MAC, SMBIOS
from tests.sites.stage import USER, Machine, Site, Stage
from tests.support.bmc.consoles import StubConsole, console_served
from tests.support.bmc.machine import Options, StubMachine
from tests.support.public_api import issuer_settings_over
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

MACHINES_MAX = 64
INSPECTED_MACHINE = """
insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at)
values (%s, %s, %s, cast(%s as jsonb), clock_timestamp())
"""
COMPLETED_RUN = """
insert into deploy_runs (node_id, site_id, kind, step, medium, requested_by, bmc_task_id, ended_at, outcome)
values (%s, %s, 'inspect', 'end', cast(%s as jsonb), 'test', gen_random_uuid(), clock_timestamp(), 'completed')
"""
MEDIUM = {"smbios_uuid": str(SMBIOS), "network": {"mac": MAC, "address": "192.0.2.7/24"}}
OF_SITE = "update node_tasks set deploy_epoch = 0 where allocation_id = %s"


@dataclass
class Rented:
    """A machine in the hands of a tenant."""

    stage: ConsoleSites
    machine: Machine
    console: StubConsole
    allocation: uuid.UUID
    key: str

    @property
    def node_id(self) -> str:
        return self.machine.node_id

    def put(self, site: Site, **more: Any) -> None:
        """The operator registers the BMC, with the host key of its console."""
        site.put_bmc(self.machine, **{"console_host_key": self.console.host_key, **more})

    def pin(self, site: Site, **more: Any) -> None:
        """The operator pins the key that the BMC shows now, or changes `more`; its password stays."""
        body = {
            "site_id": site.id, "url": self.machine.url, "certificate_sha256": self.machine.pin, "username": USER,
            "console_host_key": self.console.host_key, **more,
        }  # fmt: skip
        self.stage.admin.put(f"/admin/nodes/{self.node_id}/bmc", body)

    def note_inspected(self, site: Site) -> None:
        """A run has inspected the machine, so that others can follow."""
        self.stage.execute(INSPECTED_MACHINE, self.node_id, SMBIOS, [MAC], json.dumps(INSPECTED))
        self.stage.execute(COMPLETED_RUN, self.node_id, site.id, json.dumps(MEDIUM))

    def order(self, verb: Verb) -> None:
        """The tenant orders a verb, and its workflow begins."""

        async def work(context: Context) -> None:
            seeded = self.stage.seeded
            await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, self.allocation, verb)
            await begin_verb(context, self.allocation, "verb-1")

        run_with(self.stage.url, work)

    def sessions(self) -> list[dict[str, Any]]:
        return self.stage.rows("select * from console_sessions where allocation_id = %s order by id", self.allocation)

    def ended(self, session_id: str) -> dict[str, Any]:
        """The session's row, once it has ended."""
        found: list[dict[str, Any]] = []

        def over() -> bool:
            found[:] = self.stage.rows(
                "select * from console_sessions where id = %s and ended_at is not null", uuid.UUID(session_id)
            )
            return bool(found)

        wait_for(over, "the end of the session")
        return found[0]

    def is_free(self) -> bool:
        """Whether the BMC has no session."""
        return not self.console.open


class ConsoleSites(Stage):
    """The public process listens for agents too."""

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__(url, directory, free_port())
        self.seeded = seed(url, slice_nodes=1, metal_nodes=MACHINES_MAX)
        self.authority_of_nodes = load_authority(issuer_settings_over(url, directory))
        self._allocation = uuid.uuid4()

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "BERTH_CONSOLE_RECHECK_SECONDS": "0.2", "BERTH_CREDENTIAL_CACHE_SECONDS": "0.1"}

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def execute(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), values)

    def tenant_key(self, tenant_id: uuid.UUID | None = None) -> str:
        """A new key of the tenant, or of another."""
        key = f"berth_{os.urandom(4).hex()}_{os.urandom(32).hex()}"
        self.execute(
            "insert into api_keys (role, access_role, name, prefix, secret_hash, tenant_id)"
            " values ('tenant', 'member', 'test', %s, %s, %s)",
            key[6:14], hashlib.sha256(key.encode()).digest(), tenant_id or self.seeded.tenant_id,
        )  # fmt: skip
        return key

    def node(self) -> str:
        """The node of a new active allocation, which its site has deployed."""

        async def work(context: Context) -> uuid.UUID:
            made = create_allocation(self.url, self.seeded, shape="baremetal")
            await provision(context, self.url, made)
            return made

        self._allocation = run_with(self.url, work)
        self.execute(OF_SITE, self._allocation)
        (row,) = self.rows("select node_id from allocations where id = %s", self._allocation)
        return str(row["node_id"])

    @contextmanager
    def rented(self, site: Site | None = None, **faults: Any) -> Iterator[Rented]:
        """A rented machine, set up at the site if one is given; `faults` of its SSH server."""
        console = StubConsole(StubMachine(SystemClock()), **faults)
        with self.machine(Options(console=console.document)) as machine, self._served(console):
            console.machine = machine.service.machine
            made = Rented(self, machine, console, self._allocation, self.tenant_key())
            if site is not None:
                made.put(site)
            yield made

    @contextmanager
    def _served(self, console: StubConsole) -> Iterator[None]:
        ready: Future[None] = Future()
        ended = asyncio.Event()

        async def serve() -> None:
            async with console_served(console):
                ready.set_result(None)
                await ended.wait()

        served = self.background.start(serve())
        ready.result(WAIT_SECONDS_MAX)
        try:
            yield
        finally:
            self.background.loop.call_soon_threadsafe(ended.set)
            served.result(WAIT_SECONDS_MAX)

    def certificate_of_agent(self, agent_id: str) -> Path:
        """A certificate of an agent of a site, of the node CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        issued = self.authority_of_nodes.issue(key.public_key(), uuid.UUID(agent_id), "site")
        path = self.directory / f"{issued.serial}.pem"
        path.write_text(issued.pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
        self.execute(
            "insert into site_agent_certificates (serial, agent_id, agent_epoch, key_sha256, not_before, not_after)"
            " select %s, id, epoch, %s, %s, %s from site_agents where id = %s",
            issued.serial, issued.key_sha256, issued.not_before, issued.not_after, agent_id,
        )  # fmt: skip
        return path
