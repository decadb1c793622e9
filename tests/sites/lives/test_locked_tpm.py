"""A machine whose TPM refuses keys, as its tenant used wrong secrets, boots a deploy system that is admitted all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.redfish.contract import BmcAccess
from tests.sites.emulated import EmulatedStage, access, berth, medium, site, stage
from tests.sites.lives.equipped import Equipped
from tests.sites.renting.emulated_tenancy import put_into_service
from tests.sites.stage import Site

__all__ = ["access", "medium", "site", "stage"]

# Quicker, without a machine: tests/api/nodes/attestation/test_swtpm.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(2400)]


@pytest.fixture
def machine(iron: Equipped) -> str:
    return iron.uuid


def test_a_machine_with_a_tpm_in_lockout_is_inspected(
    stage: EmulatedStage, site: Site, iron: Equipped, access: BmcAccess, tmp_path: Path
) -> None:
    iron.lock_tpm(tmp_path / "factory")
    node = stage.node()
    put_into_service(stage, site, access, node, tmp_path, iron.console)
    bound = "select count(*) from deploy_systems d join node_tpms t using (node_id) where d.node_id = %s"
    assert berth(stage, f"node deploy-system {node}")["machine"]["report"]["topology"]["tpm"] is not None
    assert stage.fleet.one(bound, node) == 1, "it has proven its TPM"
