"""Whether a deploy system may have signed the statement that it sends with the report of a wipe."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wiping.machine_reports import devices_of, evidence_of, machine_of
from node_agent.wiping.statement import StatementEnvelope, StatementRejected, digest_of, open_statement
from node_agent.wire.deploy_tasks import MetalWipeParameters, MetalWipeReport
from node_agent.wire.fields import first_error
from orchestrator.nodes.deploy_systems.task_store import SignedTask

CLOCK_SECONDS_MAX: Final = 60.0
"""By how much the deploy system's idea of our time may be wrong."""


@dataclass(frozen=True, slots=True)
class SigningMachine:
    """The deploy system that reports, and its task. `serial`: of the certificate that it reports with, lower-case hex."""

    node_id: UUID
    deploy_epoch: int
    serial: str
    task_id: UUID

    def objection(self, task: SignedTask, found: BaseModel, statement: JsonObject) -> str | None:
        """What is wrong with the statement of this report, which proves what the task ordered; None: nothing.

        It is about this release, repeats the report, and is signed now with the key of the certificate that reports it.
        """
        if not isinstance(found, MetalWipeReport) or task.released is None:
            return "wipe_statement: the task releases no allocation"
        try:
            opened = open_statement(StatementEnvelope.model_validate(statement))
        except ValidationError as error:
            return f"wipe_statement: {first_error(error)}"
        except StatementRejected as rejected:
            return f"wipe_statement: {rejected.detail}"
        said = opened.predicate
        own = (task.released, self.node_id, task.node_epoch, self.task_id, task.fence)
        if (said.allocation_id, said.node_id, said.node_epoch, said.task_id, said.fence) != own:
            return "wipe_statement: is about another allocation, node, task or fence"
        ordered = MetalWipeParameters.model_validate(task.parameters)
        if ordered.deploy_epoch != self.deploy_epoch or said.machine != machine_of(found, ordered):
            return "wipe_statement: does not repeat the report about the machine"
        if said.devices != devices_of(found) or opened.statement.subject[0].digest.sha256 != digest_of(
            evidence_of(found)
        ):
            return "wipe_statement: does not repeat the report about the disks"
        if format(opened.certificate.serial_number, "x") != self.serial:
            return "wipe_statement: is signed with another certificate than it is reported with"
        allowed = timedelta(seconds=CLOCK_SECONDS_MAX)
        if not task.issued_at - allowed <= said.ended_at <= task.clock + allowed:
            return "wipe_statement: was not signed between the task and its report"
        return None
