"""Answers an attestation on demand: a quote over the nonce, the PCRs that it covers, the event log's digest, firmware versions.

Never raises for what it finds: a node without a TPM, or one whose TPM does not answer, reports that.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

import structlog

from node_agent.attestation.tpm import Tpm, TpmFailed
from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.firmware import read_firmware
from node_agent.discovery.reading import Gaps, printable
from node_agent.wire.attestations import AttestationProof, AttestationReport, EventLogDigest
from node_agent.wire.deploy_tasks import DETAIL_MAX, FirmwareVersion

log = structlog.get_logger("node_agent.attestation")

ANSWER_SECONDS_MAX: Final = 240.0
EVENT_LOG: Final = "kernel/security/tpm0/binary_bios_measurements"
EVENT_LOG_BYTES_MAX: Final = 16 * 1024 * 1024


async def attest(tpm: Tpm | None, nonce: str, host: Host, seconds_max: float = ANSWER_SECONDS_MAX) -> AttestationReport:
    """Quote the nonce (hex), and read what the quote does not cover. The TPM has `seconds_max`, less than its task."""
    gaps = Gaps()
    firmware, event_log = await asyncio.to_thread(_read, host, gaps)
    proof: AttestationProof | None = None
    failure, detail = None, ""
    if tpm is None:
        failure, detail = "tpm_absent", "no TPM is configured (BERTH_TPM_TCTI), or the machine has none"
    else:
        try:
            async with asyncio.timeout(seconds_max):
                proof = await tpm.attest(bytes.fromhex(nonce))
        except TimeoutError:
            failure, detail = "tpm_failed", f"the TPM did not answer within {seconds_max:g} s"
        except (TpmFailed, OSError, ValueError) as error:
            failure, detail = "tpm_failed", str(error)
    report = AttestationReport.model_validate(
        {
            "proof": proof and proof.model_dump(), "failure": failure, "detail": printable(detail)[:DETAIL_MAX],
            "event_log": event_log and event_log.model_dump(),
            "firmware": None if firmware is None else [one.model_dump() for one in firmware],
            "gaps": [gap.model_dump() for gap in gaps.all()],
        }
    )  # fmt: skip
    log.info("attested", failure=failure, event_log=event_log is not None)
    return report


def _read(host: Host, gaps: Gaps) -> tuple[list[FirmwareVersion] | None, EventLogDigest | None]:
    try:
        firmware: list[FirmwareVersion] | None = read_firmware(host, gaps)
    except OSError as error:
        gaps.add("firmware", f"cannot be read: {error.strerror}")
        firmware = None
    return firmware, _event_log(host.sys / EVENT_LOG, gaps)


def _event_log(path: Path, gaps: Gaps) -> EventLogDigest | None:
    """Its digest and size; None if there is none, or if it is longer than what is read."""
    try:
        with path.open("rb") as file:
            content = file.read(EVENT_LOG_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        gaps.add("event_log", f"cannot be read: {error.strerror}")
        return None
    if len(content) > EVENT_LOG_BYTES_MAX:
        gaps.add("event_log", f"is longer than {EVENT_LOG_BYTES_MAX} bytes")
        return None
    return EventLogDigest(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
