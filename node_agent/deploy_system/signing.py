"""Signs the statement of a wipe that released an allocation, with the key of this deploy system's certificate."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import ValidationError

from node_agent.clock import ServerClock
from node_agent.deploy_system.admission import Admitted
from node_agent.protocol import RESULT_BYTES_MAX
from node_agent.wiping.build import agent_build
from node_agent.wiping.machine_reports import devices_of, machine_of
from node_agent.wiping.statement import WipePredicate, lowest_level, make_statement, sign_statement, verdict_of
from node_agent.wire.deploy_enrolment import DeployResultReport
from node_agent.wire.deploy_tasks import MetalWipeParameters, MetalWipeReport

log = structlog.get_logger("deploy_system")

DRIVER = "redfish"
"""As an inspection names it."""


@dataclass(frozen=True)
class MachineSigner:
    """The key of this start of the deploy system, in memory alone, and its certificate."""

    key_pem: str
    certificate_pem: str
    clock: ServerClock

    def signed(self, task: Admitted, report: DeployResultReport) -> DeployResultReport:
        """The report with a statement, if it is of a completed wipe for an allocation; else as it is.

        A report whose statement cannot be made is sent without one: the allocation then has no wipe certificate.
        """
        body, parameters = task.body, task.parameters
        if body.allocation_id is None or report.result is None or not isinstance(parameters, MetalWipeParameters):
            return report
        try:
            found = MetalWipeReport.model_validate(report.result)
            devices = devices_of(found)
            predicate = WipePredicate(
                allocation_id=body.allocation_id, node_id=body.node_id, node_epoch=body.node_epoch, task_id=body.task_id,
                fence=body.fence, driver=DRIVER, agent=agent_build(), ended_at=self.clock.now(), hard_stopped=None,
                devices=devices, level=lowest_level(devices), verdict=verdict_of(devices),
                machine=machine_of(found, parameters),
            )  # fmt: skip
            statement = make_statement(predicate, report.result)
        except ValidationError as error:  # of a disk that is not proven, say: no statement claims it
            log.error("wipe_statement_not_signed", task=str(body.task_id), why=str(error)[:500])
            return report
        key = load_pem_private_key(self.key_pem.encode(), password=None)
        assert isinstance(key, Ed25519PrivateKey), "the deploy system made its key"
        envelope = sign_statement(statement, key, self.certificate_pem)
        if len(envelope.model_dump_json()) > RESULT_BYTES_MAX:
            log.error("wipe_statement_not_signed", task=str(body.task_id), why=f"larger than {RESULT_BYTES_MAX} bytes")
            return report
        return report.model_copy(update={"wipe_statement": envelope.model_dump(mode="json")})
