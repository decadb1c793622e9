"""Faults of one process of ours, one server, or every process of one sort."""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import suppress
from datetime import timedelta

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth.local import secret_files
from node_agent.durable_files import write_durably
from node_agent.identity import IdentityStore
from orchestrator.nodes.certificates import NodeAuthority
from tests.campaign.faults.act import Act
from tests.campaign.faults.probing import accepted_although_expired
from tests.campaign.schedule import ROLL_PREFIX, Fault
from tests.campaign.stage import Stage
from tests.support.waiting import wait_for

RUNS_SECONDS, STANDS_SECONDS = 0.02, 0.18
"""A starved part runs a tenth of the time."""
FSYNC_SECONDS = 0.2
ROLL_SECONDS_MAX = 30.0
FAMILY_SECONDS = 1.0
EXPIRED_SECONDS_AGO = 30


class Kill(Act):
    """SIGKILL."""

    def begin(self) -> None:
        """End it as a crash would."""
        self.stage.kill(self.fault.target)

    def end(self) -> None:
        """Start it. A server may not take its first start: its own children are still ending."""
        self.stage.start(self.fault.target)


class Restart(Kill):
    """An end in order."""

    def begin(self) -> None:
        """Stop the server in order."""
        self.stage.stop(self.fault.target)


class Pause(Act):
    """SIGSTOP: its connections stay open, its clock goes on."""

    def begin(self) -> None:
        """Stop it where it is."""
        self.stage.pause(self.fault.target)

    def end(self) -> None:
        """Let it go on."""
        self.stage.resume(self.fault.target)


class Starve(Act):
    """A processor that others use: the part runs in short slices."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._slice, name=f"starve {fault.target}", daemon=True)

    def begin(self) -> None:
        """Stop it nine tenths of the time."""
        self._thread.start()

    def end(self) -> None:
        """Let it run."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.stage.resume(self.fault.target)

    def _slice(self) -> None:
        # To find its processes takes longer than a slice.
        found, family = -FAMILY_SECONDS, list[psutil.Process]()
        while not self._over.is_set():
            if time.monotonic() - found > FAMILY_SECONDS:
                found, family = time.monotonic(), self.stage.family_of(self.fault.target)
            for seconds, act in ((STANDS_SECONDS, psutil.Process.suspend), (RUNS_SECONDS, psutil.Process.resume)):
                for process in family:
                    with suppress(psutil.NoSuchProcess):
                        act(process)
                self._over.wait(seconds)


class Roll(Act):
    """As an upgrade does: each process of a sort ends in order, starts again and is waited for, one after another."""

    def begin(self) -> None:
        """Replace all. A process that another fault keeps from being ready is left after a while, as a careful operator does."""
        for name in self._names():
            self.stage.terminate(name)
            self.stage.start(name)
            with suppress(AssertionError):
                wait_for(lambda name=name: self.stage.answers(name), f"{name} is ready", ROLL_SECONDS_MAX)  # type: ignore[misc]

    def end(self) -> None:
        """Start what was left behind."""
        for name in self._names():
            self.stage.start(name)

    def _names(self) -> list[str]:
        return list(self.stage.targets.rolls[self.fault.target.removeprefix(ROLL_PREFIX)])


class Clock(Act):
    """The wall clock of one process steps, and steps back."""

    def begin(self) -> None:
        """Step."""
        self.stage.interposed[self.fault.target].set_clock(int(self.fault.detail))

    def end(self) -> None:
        """Step back."""
        self.stage.interposed[self.fault.target].set_clock(0)
        # An agent that a node API with a wrong clock refused five times ends; its service manager starts it again.
        for name in self.stage.targets.agents:
            self.stage.start(name)


class SlowFsync(Act):
    """The disk of one part is slow to make anything durable."""

    def begin(self) -> None:
        """Delay each fsync."""
        self.stage.interposed[self.fault.target].set_fsync(FSYNC_SECONDS)

    def end(self) -> None:
        """Delay none."""
        self.stage.interposed[self.fault.target].set_fsync(0.0)


class Break(Act):
    """A node's driver fails by one of its switches, which are in the database."""

    def begin(self) -> None:
        """Flip the switch."""
        self.stage.set_faults(self.fault.target, {self.fault.detail: "1"})

    def end(self) -> None:
        """Flip it back."""
        self.stage.set_faults(self.fault.target, {})


class Expire(Act):
    """An agent was off for longer than its certificate is valid: it starts with one that has ended, and with a new token."""

    def begin(self) -> None:
        """End the agent, and put an expired certificate and an unused token in its place."""
        name = self.fault.target.removeprefix("agent ")
        self.stage.kill(self.fault.target)
        with self.stage.admin() as admin:
            node = next(node for node in admin.iterate_nodes() if node.name == name)
            token = admin.create_enrolment_token(node.id, hardware_id=node.hardware_id)
        client_pem = self.stage.state.secrets / f"expired-{name}.pem"
        secret_files.write_secret(client_pem, expire_certificate(self.stage, name, node.id))
        # Dates of certificates are evaluated by the listener's wall clock, which another fault may have set back.
        if self.stage.interposed and self.stage.interposed["node-api"].clock_offset_seconds == 0:
            self.observed += accepted_although_expired(client_pem, self.stage.endpoints.node_port)
        secret_files.write_secret(self.stage.state.secrets / f"enrolment-{name}.token", token.token + "\n")

    def end(self) -> None:
        """Start the agent."""
        self.stage.start(self.fault.target)


def expire_certificate(stage: Stage, node: str, node_id: uuid.UUID) -> str:
    """Replace the certificate on a node's disk by one for the same key that ended half a minute ago; return both as PEM."""
    store = IdentityStore(stage.state.agent(node))
    identity = store.load()
    assert identity is not None, f"{node} is enrolled"
    ca = x509.load_pem_x509_certificate(stage.authority.ca_certificate.read_bytes())
    ca_key = load_pem_private_key(stage.authority.ca_key.read_bytes(), password=None)
    key = load_pem_private_key(identity.private_key_pem.encode(), password=None).public_key()
    lifetime = -timedelta(seconds=EXPIRED_SECONDS_AGO).total_seconds()
    authority = NodeAuthority(ca, ca_key, stage.endpoints.trust_domain, lifetime)  # type: ignore[arg-type]
    expired = authority.issue(key, node_id)  # type: ignore[arg-type]
    document = json.loads(identity.model_dump_json())
    document["credentials"]["certificate_pem"] = expired.pem
    write_durably(store.directory / "credentials.json", json.dumps(document).encode())
    return expired.pem + identity.private_key_pem
