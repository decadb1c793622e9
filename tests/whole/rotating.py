"""The rotation of every key of a local stack that runs, as docs/how-to/rotate-secrets.md describes it, and a load beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from berth.cli.deployment.node_trust import node_trust_findings
from berth.client import Webhook as Subscription
from berth.local.authority import Authority, ensure_authority
from berth.local.secret_files import write_secret
from migrations.roles import Role
from node_agent.key_set import KeySet, read_public_keys, sign_key_set, task_key
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole, logs_in
from tests.webhooks.receivers import Receiver

AGENT = {"BERTH_AGENT_HEARTBEAT_SECONDS": "0.5", "BERTH_AGENT_WAIT_SECONDS": "2"}
CERTIFICATE_SECONDS = 40
"""Agents renew at half of it."""
PROCESSES = ("issuer", "api", "node-api", "worker", "webhooks")


@dataclass(frozen=True)
class Rotation:
    """The keys of a stack, and those that replace them."""

    used: Authority
    old: Authority
    """A copy of what was used before."""
    new: Authority
    issuer_certificate: Path
    issuer_key: Path

    @classmethod
    def prepare(cls, secrets: Path, scratch: Path, trust_domain: str) -> Rotation:
        """Make the keys of a stack that has none yet, and those of later."""
        used = ensure_authority(secrets, trust_domain)
        for name in ("old", "new"):
            (scratch / name).mkdir(mode=0o700)
        for path in secrets.iterdir():
            write_secret(scratch / "old" / path.name, path.read_text())
        old, new = (ensure_authority(scratch / name, trust_domain) for name in ("old", "new"))
        made = cls(used, old, new, secrets / "issuer-ca.pem", secrets / "issuer-ca.key")
        made.issue_with(old)
        return made

    @property
    def issuer_environment(self) -> dict[str, str]:
        """The issuer has one CA, while listeners read every CA that is trusted."""
        return {
            "BERTH_NODE_CA_CERTIFICATE_FILE": str(self.issuer_certificate),
            "BERTH_NODE_CA_KEY_FILE": str(self.issuer_key),
            "BERTH_NODE_CERTIFICATE_SECONDS": str(CERTIFICATE_SECONDS),
        }

    def issue_with(self, authority: Authority) -> None:
        """The issuer signs with its CA from its next start on."""
        write_secret(self.issuer_certificate, authority.ca_certificate.read_text())
        write_secret(self.issuer_key, authority.ca_key.read_text())

    def listen_with(self, authority: Authority) -> None:
        """The listeners have certificates of its CA."""
        for one in ("listener_key", "listener_certificate", "console_key", "console_certificate"):
            write_secret(getattr(self.used, one), getattr(authority, one).read_text())

    def sign_tasks_with(self, authority: Authority) -> None:
        """The worker signs with its key from its next start on."""
        write_secret(self.used.task_signing_key, authority.task_signing_key.read_text())

    def trust(self, *authorities: Authority) -> None:
        """Agents and listeners trust their CAs, keys of tasks and roots."""
        for one in ("ca_certificates", "task_verifying_keys", "root_keys"):
            write_secret(getattr(self.used, one), "".join(getattr(found, one).read_text() for found in authorities))

    def seal_with(self, *authorities: Authority) -> None:
        """Webhook secrets and payloads are sealed under keys of the first, and opened by those of all."""
        for one in ("webhook_keys", "payload_keys"):
            write_secret(getattr(self.used, one), "".join(getattr(found, one).read_text() for found in authorities))

    def sign_key_set(self, serial: int, root: Authority) -> None:
        """What `deploy/sign-key-set` makes of the files that are trusted."""
        key = load_pem_private_key(root.root_key.read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        cas = x509.load_pem_x509_certificates(self.used.ca_certificates.read_bytes())
        present = KeySet(
            serial=serial,
            task_keys=[task_key(one) for one in read_public_keys(self.used.task_verifying_keys)],
            node_cas=[ca.public_bytes(Encoding.PEM).decode() for ca in cas],
        )
        write_secret(self.used.key_set, sign_key_set(present, key).model_dump_json() + "\n")


def findings(whole: Whole) -> dict[str, tuple[str, str]]:
    """What `berth doctor` says of the keys of nodes."""
    url = whole.stack.endpoints.database_url_of(Role.OPERATOR)
    return {one.subject: (one.verdict, one.detail) for one in node_trust_findings(url)}


def wait_for_serial(whole: Whole, serial: int) -> None:
    """Until every node uses the key set of this serial, as the page says."""
    wanted = f"nodes with a certificate use serial {serial}"
    wait_for(
        lambda: findings(whole)["node key sets"][0] == "ok" and wanted in findings(whole)["node key sets"][1],
        f"every node to use serial {serial}",
    )


def identities(whole: Whole) -> list[tuple[str, int, int]]:
    """Each node with its epoch, and how many enrolments it has had."""
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        return connection.execute(
            "select n.name, n.epoch, (select count(*) from enrolment_tokens t where t.node_id = n.id and t.used_at is not null)"
            " from nodes n order by n.name"
        ).fetchall()


@dataclass
class Load:
    """A tenant that rents and returns all the time, and receives what its webhook sends."""

    tenant: Tenant
    receiver: Receiver
    subscription: Subscription
    lives: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Rent and return until the end or a failure."""
        while not self.stopping.is_set():
            self.live_once()

    def live_once(self) -> None:
        """A whole life of an allocation: active, with a login, released, and both reported to the webhook, signed."""
        made = self.tenant.create()
        active = self.tenant.wait(made, "active")
        assert logs_in(active, self.tenant.private_key, "echo here").strip() == "here"
        self.tenant.client.release_allocation(made.allocation_id)
        self.tenant.wait(made, "released")
        wait_for(
            lambda: self._has_received(str(made.allocation_id), "provisioning.active"), "the delivery of the start"
        )
        wait_for(
            lambda: self._has_received(str(made.allocation_id), "provisioning.releasing.completed"),
            "the delivery of the end",
        )
        self.lives += 1

    def _has_received(self, allocation_id: str, kind: str) -> bool:
        for one in list(self.receiver.received):
            text = one.body.decode()
            if allocation_id in text and f'"berth.{kind}"' in text:
                self._verify(text, dict(one.headers))
                return True
        return False

    def _verify(self, text: str, headers: dict[str, str]) -> None:
        assert self.subscription.secret is not None
        try:
            Webhook(self.subscription.secret).verify(text, headers)
        except WebhookVerificationError as error:
            raise AssertionError(f"a delivery has another signature: {headers}") from error


@contextmanager
def load_beside(tenant: Tenant, receiver: Receiver) -> Iterator[Callable[[str], None]]:
    """Run the load; the block gets what waits for a whole life that begins after the call. Raises what failed in it."""
    load = Load(tenant, receiver, tenant.client.create_webhook(url=receiver.url))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(load.run)

        def goes_on(when: str) -> None:
            before = load.lives
            wait_for(lambda: running.done() or load.lives >= before + 2, f"a whole life {when}")
            if running.done():
                running.result()

        try:
            yield goes_on
        finally:
            load.stopping.set()
        running.result()
