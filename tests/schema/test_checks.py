"""Each CHECK constraint refuses what it forbids, by its own name, and accepts what is at its bound."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.schema import (
    checks_of_allocations,
    checks_of_burn_ins,
    checks_of_catalogue,
    checks_of_consoles,
    checks_of_drains,
    checks_of_faults,
    checks_of_gpu_resets,
    checks_of_hardware,
    checks_of_maintenance_tasks,
    checks_of_networks,
    checks_of_platform,
    checks_of_restores,
)
from tests.schema.catalog import check_constraints
from tests.schema.metal import checks_of_attestations, checks_of_deploy_systems, checks_of_ports, checks_of_sites
from tests.schema.tenants import checks_of_members
from tests.support.rows import insert

CHECKS = {
    **checks_of_allocations.CHECKS,
    **checks_of_members.CHECKS,
    **checks_of_platform.CHECKS,
    **checks_of_restores.CHECKS,
    **checks_of_faults.CHECKS,
    **checks_of_hardware.CHECKS,
    **checks_of_maintenance_tasks.CHECKS,
    **checks_of_burn_ins.CHECKS,
    **checks_of_consoles.CHECKS,
    **checks_of_drains.CHECKS,
    **checks_of_deploy_systems.CHECKS,
    **checks_of_attestations.CHECKS,
    **checks_of_gpu_resets.CHECKS,
    **checks_of_catalogue.GUEST_SIZES,
    **checks_of_networks.CHECKS,
    **checks_of_sites.CHECKS,
    **checks_of_ports.CHECKS,
}


def test_every_check_constraint_has_cases(session: psycopg.Connection[Any]) -> None:
    assert set(CHECKS) == check_constraints(session)


@pytest.mark.parametrize("name", CHECKS)
def test_check_refuses_what_it_forbids(schema: psycopg.Connection[Any], name: str) -> None:
    for row in CHECKS[name].refused:
        with pytest.raises(psycopg.errors.CheckViolation) as refused, schema.transaction():
            insert(schema, CHECKS[name].table, **row)
        assert refused.value.diag.constraint_name == name, row


@pytest.mark.parametrize("name", CHECKS)
def test_check_accepts_its_bound(schema: psycopg.Connection[Any], name: str) -> None:
    for row in CHECKS[name].accepted:
        with schema.transaction(force_rollback=True):
            assert insert(schema, CHECKS[name].table, **row) == 1
