"""`metal.attest`: the machine's TPM quotes a nonce. Writes nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from node_agent.attestation.attesting import attest
from node_agent.attestation.tpm import Tpm
from node_agent.deploy_system.effects.contract import Host, Progress
from node_agent.deploy_system.effects.steps import step
from node_agent.wire.attestations import AttestationReport, MetalAttestParameters

_DEVICE: Final = "tpmrm0"


def attest_machine(
    host: Host, parameters: MetalAttestParameters, progress: Progress, tcti: str | None = None
) -> AttestationReport:
    """Quote the nonce by the TPM of the machine; a machine without one reports that. `tcti` None: that of its device."""
    with step(host, progress, "attest"):
        device = host.dev / _DEVICE
        if tcti is None and device.exists():
            tcti = f"device:{device}"
        tpm = None if tcti is None else Tpm(tcti, host.scratch, ends_lockout=True)
        return asyncio.run(attest(tpm, parameters.nonce, host))
