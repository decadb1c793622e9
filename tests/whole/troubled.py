"""A stack with a proxy before every connection to a server, with deadlines of seconds, and tenants at work."""

from __future__ import annotations

import random
import re
import threading
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg

from berth.cli.deployment.stream_check import check_stream
from berth.client import BerthError, CreatedAllocation
from berth.local.options import StackOptions
from berth.local.processes import ProcessPlan
from berth.local.stack import Stack
from tests.proxy import Proxies
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, Tenant, Whole

LAST_PORT = re.compile(r"(?<=127\.0\.0\.1:)[0-9]+")
SERVERS = {
    "BERTH_DATABASE_URL": "postgres",
    "BERTH_NATS_URL": "nats",
    "BERTH_TEMPORAL_ADDRESS": "temporal",
    "BERTH_NODE_API_URL": "node-api",
}
CONTROL_PLANE = {
    "BERTH_REQUESTED_SECONDS_MAX": "15",
    "BERTH_PROVISION_SECONDS_MAX": "12",
    "BERTH_RELEASE_SECONDS_MAX": "8",
    "BERTH_LOCK_TIMEOUT_SECONDS": "2",
    "BERTH_TRANSACTION_TIMEOUT_SECONDS": "10",
}
WORKER = {
    **CONTROL_PLANE,
    "BERTH_SWEEP_SECONDS": "0.5",
    "BERTH_SWEEP_GRACE_SECONDS": "1",
    "BERTH_RESCUE_PATIENCE_SECONDS": "2",
    "BERTH_RESCUE_SECONDS": "1",
    "BERTH_NODE_SILENT_SECONDS": "6",
    "BERTH_WORKER_ACK_WAIT_SECONDS": "4",
    "BERTH_WORKER_STEP_SECONDS": "2",
    "BERTH_WORKER_STICKY_SECONDS": "1",
    "BERTH_WORKER_POSITION_SECONDS": "0.5",
    "BERTH_WORKER_PULL_HEARTBEAT_SECONDS": "1",
}
RELAY = {"BERTH_RELAY_STEP_BACK_SECONDS": "0.3", "BERTH_RELAY_PUBLISH_TIMEOUT_SECONDS": "2"}
AGENT = {
    "BERTH_AGENT_HEARTBEAT_SECONDS": "1",
    "BERTH_AGENT_WAIT_SECONDS": "5",
    "BERTH_AGENT_READINESS_SECONDS": "8",
}
OF_MODULE = {
    "orchestrator": {**CONTROL_PLANE, **NODE_API}, "worker": WORKER, "outbox_relay": RELAY, "node_agent": AGENT,
}  # fmt: skip


class TroubledStack(Stack):
    """Slice nodes in two regions; `proxies` are named `<process> > <server>`."""

    def __init__(self, directory: Path) -> None:
        self.proxies = Proxies()
        super().__init__(StackOptions(directory, agents=2, wished_port=None))

    def _as_asked(self, plan: ProcessPlan) -> ProcessPlan:
        plan = super()._as_asked(plan)
        environment = {**plan.environment, **OF_MODULE[plan.module]}
        if plan.module == "node_agent":
            environment["BERTH_NODE_API_URL"] = self.endpoints.node_api_url
        for variable, server in SERVERS.items():
            # The orchestrator passes this address on and does not connect with it.
            if variable in environment and not (plan.module == "orchestrator" and server == "node-api"):
                environment[variable] = LAST_PORT.sub(
                    lambda port, server=server: str(  # type: ignore[misc]
                        self.proxies.make(f"{plan.name} > {server}", int(port.group())).port
                    ),
                    environment[variable],
                )
        return replace(plan, environment=environment)

    def _stop(self) -> None:
        super()._stop()
        self.proxies.close()


@dataclass
class Life:
    """One create of a tenant: its key, and what is known of it."""

    key: str
    region: str
    made: CreatedAllocation | None = None
    refused: str | None = None


@dataclass
class Load:
    """Two tenants that create and release until stopped; afterwards every allocation is brought to its end."""

    whole: Whole
    seed: int = 7
    lives: list[tuple[Tenant, Life]] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        """Begin."""
        for number in range(2):
            arguments = (self.whole.tenant(), random.Random(self.seed * 100 + number))
            self._threads.append(threading.Thread(target=self._work, args=arguments))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop creating."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, seconds: float) -> None:
        """Let the load go on for so long."""
        self._stopping.wait(seconds)

    def _work(self, tenant: Tenant, chance: random.Random) -> None:
        tenant.client.exchange.retry_seconds = 1.0
        while not self._stopping.is_set():
            life = Life(uuid.uuid4().hex, chance.choice(["eu-1", "us-1"]))
            self.lives.append((tenant, life))
            self._try(tenant, life)
            self._stopping.wait(chance.uniform(0.3, 0.9))
            if life.made is not None and chance.random() < 0.7:
                try:
                    tenant.client.release_allocation(life.made.allocation_id)
                except BerthError:
                    continue  # `settle` releases what is left

    def _try(self, tenant: Tenant, life: Life) -> None:
        try:
            life.made = tenant.client.create_allocation(
                sku="h100.slice", gpus=1, region=life.region, ssh_key_ids=[tenant.ssh_key_id], idempotency_key=life.key
            )
        except BerthError as error:
            # Unknown, in progress or not asked: the key will tell.
            definite = error.outcome == "not_done" and (error.status or 503) < 500
            life.refused = error.code if definite else None

    def settle(self) -> list[str]:
        """Resolve every create by its key, release everything, wait for the ends; the codes of those that failed."""
        codes = []
        for tenant, life in self.lives:
            tenant.client.exchange.retry_seconds = 30.0
            if life.made is None and life.refused is None:
                self._try(tenant, life)
            assert life.made is not None or life.refused is not None, "a key always has a definite outcome in the end"
            if life.made is not None and tenant.client.get_allocation(life.made.allocation_id).status != "failed":
                tenant.client.release_allocation(life.made.allocation_id)
        for tenant, life in self.lives:
            if life.made is not None:
                ended = tenant.wait(life.made, "released", "failed")
                assert ended.status == "released" or ended.failure is not None, ended
                codes += [ended.failure.code] if ended.failure is not None else []
        return codes


def violations_at_rest(whole: Whole) -> list[str]:
    """The broken promises, after a new allocation passed its whole lifecycle, every unit is free, and NATS has the log."""
    tenant = whole.tenant()
    for region in ("eu-1", "us-1"):
        made = tenant.create(region=region)
        assert tenant.wait(made, "active", "failed").status == "active"
        tenant.client.release_allocation(made.allocation_id)
        tenant.wait(made, "released")
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    wait_for(lambda: _occupied(whole) == 0, "every unit is free")
    endpoints = whole.stack.endpoints
    stream = check_stream(endpoints.database_url, endpoints.nats_url)
    assert stream.kept, stream.violations
    return whole.violations()


def _occupied(whole: Whole) -> int:
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        row = connection.execute("select count(*) from claims where occupied or closed_at is null").fetchone()
    assert row is not None
    return int(row[0])
