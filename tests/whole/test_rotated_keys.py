"""Every key is replaced while everything runs: no request, task, delivery or login is lost, and no node enrols again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from berth.local.options import StackOptions
from berth.local.stack import Stack
from berth.local.state import StateDirectory
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, WORKER, Whole
from tests.webhooks.receivers import receiving
from tests.whole.rotating import AGENT, PROCESSES, Rotation, findings, identities, load_beside, wait_for_serial

NODES = ("eu-1-slice-1", "us-1-slice-1")
AGENTS = tuple(f"agent {node}" for node in NODES)
TRUST_DOMAIN = "berth.local"


@pytest.fixture
def directory(server_directory: Path) -> Path:
    """Beside the servers of the tests."""
    made = server_directory / "rotated-keys"
    made.mkdir()
    return made


@pytest.fixture
def rotation(directory: Path) -> Rotation:
    """The keys of the stack before it starts."""
    state = StateDirectory(directory / "var")
    state.prepare()
    return Rotation.prepare(state.secrets, directory, TRUST_DOMAIN)


@pytest.fixture
def whole(directory: Path, rotation: Rotation) -> Iterator[Whole]:
    """A stack with these keys and certificates of nodes that are renewed soon."""
    environment = {
        "node-api": NODE_API, "worker": WORKER, "issuer": rotation.issuer_environment, **dict.fromkeys(AGENTS, AGENT)
    }  # fmt: skip
    options = StackOptions(
        directory / "var", agents=2, wished_port=None, environment=environment, trust_domain=TRUST_DOMAIN
    )
    with Stack(options) as stack:
        yield Whole(stack)


def restart(whole: Whole, *names: str) -> None:
    """Kill and start processes, one after the other."""
    for name in names:
        whole.kill(name)
        whole.start(name)


def ca_named(path: Path) -> str:
    """A CA, as `berth doctor` names it."""
    key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()[:16]


@pytest.mark.full
def test_every_key_is_rotated_while_everything_runs(whole: Whole, rotation: Rotation) -> None:
    old, new = rotation.old, rotation.new
    before = identities(whole)
    with receiving() as (receiver,), load_beside(whole.tenant(), receiver) as goes_on:
        goes_on("before the rotation")

        rotation.trust(old, new)
        rotation.seal_with(old, new)
        rotation.sign_key_set(2, old)
        restart(whole, *AGENTS, "api", "webhooks", "worker")
        wait_for_serial(whole, 2)
        goes_on("while both are trusted and the old keys are used")

        rotation.issue_with(new)
        rotation.listen_with(new)
        rotation.sign_tasks_with(new)
        rotation.seal_with(new, old)
        rotation.sign_key_set(3, new)
        restart(whole, *PROCESSES)
        wait_for_serial(whole, 3)
        goes_on("with the new keys")
        wait_for(
            lambda: ca_named(old.ca_certificate) not in findings(whole)["node CAs"][1], "no certificate of the old CA"
        )
        assert ca_named(new.ca_certificate) in findings(whole)["node CAs"][1]

        rotation.trust(new)
        rotation.seal_with(new)
        rotation.sign_key_set(4, new)
        restart(whole, *AGENTS, *PROCESSES)
        wait_for_serial(whole, 4)
        goes_on("without the old keys")
    assert identities(whole) == before, "no node has enrolled again"
    assert whole.violations() == []
    logs = [child.log.read_text() for child in whole.stack._children if child.name in AGENTS]
    assert len(logs) == len(AGENTS)
    assert not [log for log in logs if "envelope_rejected" in log or "key_set_refused" in log]
