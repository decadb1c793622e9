"""The key and certificate of a deploy system that a test plays, and what it signs with them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from node_agent.clock import ServerClock
from node_agent.deploy_system.admission import Admitted
from node_agent.deploy_system.signing import MachineSigner
from node_agent.identity import new_key_pem
from node_agent.protocol import TaskBody
from node_agent.wiping.statement import StatementEnvelope, WipeStatement, open_statement, sign_statement
from node_agent.wire.deploy_enrolment import DeployResultReport
from node_agent.wire.deploy_tasks import MetalWipeParameters
from tests.wiping.sites import HOUR, NOW, Site

Statement = dict[str, Any]


@dataclass
class MachineKey:
    """`altered` changes what is signed; `replaced` changes the report with its signed statement before it is sent."""

    site: Site
    altered: Callable[[Statement], Statement] = lambda statement: statement
    replaced: Callable[[DeployResultReport, MachineKey], DeployResultReport] = lambda report, _: report
    pem: str = field(default_factory=new_key_pem)
    certificate: str = ""

    @property
    def key(self) -> Ed25519PrivateKey:
        """The private key."""
        key = load_pem_private_key(self.pem.encode(), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        return key

    @property
    def serial(self) -> str:
        """The serial number of the certificate as the issuer records it."""
        return format(x509.load_pem_x509_certificate(self.certificate.encode()).serial_number, "x")

    def certify(self, run: Any, serial: str) -> None:
        """Give the deploy system of this serial a certificate of the site in place of the one that it has."""
        (epoch,) = run.row("select deploy_epoch from deploy_systems where serial = %s", serial)
        self.certificate = self.site.deploy_certificate(run.node, epoch, self.key, NOW - HOUR, NOW + HOUR)
        issued = "update deploy_systems set serial = %s, pem = %s where serial = %s returning 1"
        run.row(issued, self.serial, self.certificate, serial)

    def signed(self, report: DeployResultReport, body: TaskBody) -> DeployResultReport:
        """The report with the statement that the deploy system signs, as `altered` and `replaced` leave it."""
        clock = ServerClock()
        clock.observe(dt.datetime.now(dt.UTC))
        task = Admitted(body, MetalWipeParameters.model_validate(body.parameters))
        found = MachineSigner(self.pem, self.certificate, clock).signed(task, report)
        if found.wipe_statement is not None:
            stated = open_statement(StatementEnvelope.model_validate(found.wipe_statement)).statement
            changed = self.altered(stated.model_dump(mode="json", by_alias=True))
            found = self.with_statement(found, WipeStatement.model_validate(changed))
        return self.replaced(found, self)

    def with_statement(self, report: DeployResultReport, statement: WipeStatement) -> DeployResultReport:
        """The report with this statement in the key's signature."""
        envelope = sign_statement(statement, self.key, self.certificate).model_dump(mode="json")
        return report.model_copy(update={"wipe_statement": envelope})
