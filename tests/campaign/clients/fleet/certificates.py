"""A node's certificate as a thief would have it: copied from the agent's directory, and used as long as it is accepted."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from uuid import UUID

import httpx
from cryptography import x509

from node_agent.identity import new_key_pem, request_pem
from tests.campaign.fleet_history import CertificateUse
from tests.campaign.history import History

REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
USE_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class StolenCertificate:
    """A copy of certificate and key. `ca`: the CA of the node listener at `url`."""

    node_id: UUID
    serial: str
    context: ssl.SSLContext
    url: str

    @classmethod
    def copy(cls, node_id: UUID, agent_directory: Path, ca: Path, url: str) -> StolenCertificate | None:
        """A copy of the identity in use; None while the agent has none, or is replacing it."""
        file = agent_directory / "identity" / "client.pem"
        context = ssl.create_default_context(cafile=str(ca))
        try:
            certificate = x509.load_pem_x509_certificate(file.read_bytes())
            context.load_cert_chain(file)
        except (OSError, ValueError):
            return None
        return cls(node_id, format(certificate.serial_number, "x"), context, url)

    async def use(self, history: History, *, to_renew: bool = False) -> None:
        """Read the key set and ask for tasks; `to_renew`: ask for its successor too. What gets no answer is not noted."""
        async with httpx.AsyncClient(base_url=self.url, verify=self.context, timeout=USE_SECONDS_MAX) as client:
            requests = [
                client.build_request("GET", "/node/v1/key-set"),
                client.build_request("GET", "/node/v1/tasks/wait", params={"timeout_seconds": 0}),
            ]
            if to_renew:
                wanted = {"csr_pem": request_pem(new_key_pem())}
                requests.append(client.build_request("POST", "/node/v1/certificate", json=wanted))
            for request in requests if to_renew else requests[:1]:
                asked = time.monotonic()
                try:
                    answer = await client.send(request)
                except httpx.HTTPError:
                    history.count_read("certificate no_answer")
                    continue
                history.count_read(f"certificate {answer.status_code}")
                if answer.status_code in REFUSED or answer.is_success:
                    history.fleet.uses.append(
                        CertificateUse(
                            self.node_id, self.serial, request.url.path, asked, time.monotonic(), answer.is_success
                        )
                    )
