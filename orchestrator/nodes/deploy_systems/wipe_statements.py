"""Whether a deploy system may have signed the statement that it sends with the report of a wipe."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from cryptography import x509
from pydantic import BaseModel, ValidationError

from node_agent.protocol import RESULT_BYTES_MAX
from node_agent.wiping.machine_reports import devices_of, machine_of
from node_agent.wiping.statement import OpenedStatement, StatementEnvelope, StatementRejected, digest_of, open_statement
from node_agent.wire.deploy_enrolment import DeployResultReport
from node_agent.wire.deploy_tasks import MetalWipeParameters, MetalWipeReport
from node_agent.wire.fields import first_error
from orchestrator.nodes.deploy_systems.task_store import SignedTask


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a statement is dropped: a stable word, and a sentence. The report that it came with counts all the same."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class SigningMachine:
    """The deploy system that reports, and its task."""

    node_id: UUID
    deploy_epoch: int
    task_id: UUID

    def objection(self, task: SignedTask, found: BaseModel, report: DeployResultReport) -> Objection | None:
        """What is wrong with the statement of this report, which proves what the task ordered and was read as `found`.

        None: nothing. It is about this release, repeats the report as it was received, and is signed with the key of the very
        certificate that was issued to the deploy system. No clock is compared: `ended_at` is within the certificate's time.
        """
        if not isinstance(found, MetalWipeReport) or task.released is None:
            return Objection("no_release", "the task releases no allocation")
        if len(report.model_dump_json(include={"wipe_statement"})) > RESULT_BYTES_MAX:
            return Objection("too_large", f"a wipe statement is at most {RESULT_BYTES_MAX} bytes")
        try:
            opened = open_statement(StatementEnvelope.model_validate(report.wipe_statement))
            return self._difference(task, found, report, opened)
        except ValidationError as error:
            return Objection("malformed", first_error(error))
        except StatementRejected as rejected:
            return Objection(rejected.reason, rejected.detail)

    def _difference(
        self, task: SignedTask, found: MetalWipeReport, report: DeployResultReport, opened: OpenedStatement
    ) -> Objection | None:
        said = opened.predicate
        own = (task.released, self.node_id, task.node_epoch, self.task_id, task.fence)
        if (said.allocation_id, said.node_id, said.node_epoch, said.task_id, said.fence) != own:
            return Objection("other_task", "it is about another allocation, node, task or fence")
        ordered = MetalWipeParameters.model_validate(task.parameters)
        if ordered.deploy_epoch != self.deploy_epoch or said.machine != machine_of(found, ordered):
            return Objection("other_machine", "it does not repeat the report about the machine")
        if said.devices != devices_of(found) or opened.evidence_sha256 != digest_of(report.result):
            return Objection("other_disks", "it does not repeat the report about the disks")
        if opened.certificate != x509.load_pem_x509_certificate(task.certificate_pem.encode()):
            return Objection("other_certificate", "it is signed with another certificate than the deploy system has")
        return None
