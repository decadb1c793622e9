"""What is wrong with a machine after the wipe of a release: its node's slots are in quarantine when the units become free."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems.run_rules import NEXT_STEPS, FindingCode
from orchestrator.nodes.deploy_systems.run_store import DeployRun
from orchestrator.nodes.store.out_of_service import take_node_out_of_service
from orchestrator.tenants.principals import Actor

Finding = dict[str, str]
"""`code` and `detail`, as runs, events and the audit have them."""
DETAIL_MAX: Final = 500
REASON_MAX: Final = 200


def finding_of(text: str) -> Finding:
    """From `code: detail`."""
    code, _, detail = text.partition(": ")
    return {"code": code, "detail": detail[:DETAIL_MAX]}


def next_step_of(code: str) -> str | None:
    """What an operator does about it; None for a code of a later version."""
    return NEXT_STEPS[FindingCode(code)] if code in NEXT_STEPS else None


async def quarantine_node(tx: Transaction, run: DeployRun, findings: Sequence[Finding], actor: Actor) -> None:
    """Take every slot of the locked node out of service, with the findings as evidence."""
    codes = ", ".join(dict.fromkeys(one["code"] for one in findings))
    evidence = [{"deploy_run": str(run.id), **one, "next_step": next_step_of(one["code"])} for one in findings]
    await take_node_out_of_service(
        tx, run.node_id, f"{codes}: found at the release of allocation {run.allocation_id}"[:REASON_MAX],
        "\n".join(json.dumps(one, sort_keys=True) for one in evidence), actor, "release",
    )  # fmt: skip
