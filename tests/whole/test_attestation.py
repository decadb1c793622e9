"""An operator attests a node through every process: API, worker, node listener, and an agent with a real TPM (swtpm)."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.client import AttestationUnavailable, Client
from berth.local.options import StackOptions
from berth.local.stack import Stack
from tests.api.nodes.attestation.swtpm import MISSING, WHY_NOT, running_tpm
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, WORKER

NODE = "eu-1-slice-1"


# Quicker, each part alone: tests/nodes/attestations and tests/node_agent/attestation.
@pytest.mark.full
@pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
def test_a_node_with_a_tpm_is_attested_and_one_without_is_refused(tmp_path: Path, server_directory: Path) -> None:
    with running_tpm(tmp_path) as tcti:
        names: list[str] = []
        environment = {"node-api": NODE_API, "worker": WORKER, f"agent {NODE}": {"BERTH_TPM_TCTI": tcti}}
        options = StackOptions(
            server_directory / "attested" / "var", agents=2, wished_port=None, environment=environment
        )
        with Stack(options) as stack, stack.admin() as admin:
            names = [node.name for node in admin.iterate_nodes()]
            assert NODE in names
            found = admin.get_node(NODE)
            assert found.ek_sha256 is not None, "its enrolment has pinned the TPM"
            first = attested(admin, NODE)
            assert first == ("passed", None, [])
            kept = admin.get_node_attestations(found.id).newest
            assert kept is not None
            admin.accept_attestation(found.id, kept.id)
            assert attested(admin, NODE) == ("passed", None, ["pcrs"])
            (other,) = [name for name in names if name != NODE]
            with pytest.raises(AttestationUnavailable) as refused:
                admin.attest_node(admin.get_node(other).id)
            assert refused.value.extra["reason"] == "tpm_not_bound"


def attested(admin: Client, name: str) -> tuple[str | None, str | None, list[str]]:
    """How a new attestation of the node ends, and what it was compared with."""
    node = admin.get_node(name).id
    asked = admin.attest_node(node)

    def newest_is_over() -> bool:
        newest = admin.get_node_attestations(node).newest
        return newest is not None and newest.id == asked.id and newest.verdict is not None

    wait_for(newest_is_over, "the attestation ends")
    newest = admin.get_node_attestations(node).newest
    assert newest is not None
    return newest.verdict, newest.code, newest.compared
