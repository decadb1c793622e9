"""Clears the TPM: tpm2-tools under the lockout or the platform hierarchy; what its properties say afterwards decides."""

from __future__ import annotations

import re
from typing import Final, Literal

from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.steps import Step
from node_agent.wire.deploy_tasks import DeployFailureCode

_DEVICE: Final = "tpmrm0"
_OWNED: Final = ("ownerAuthSet", "endorsementAuthSet", "lockoutAuthSet")


def clear_tpm(host: Host, clearing: Step) -> Literal["cleared", "absent"]:
    """Clear the TPM. Raises WorkFailed with `tpm_not_cleared` if it refuses or is still owned afterwards."""
    if not (host.dev / _DEVICE).exists():
        return "absent"
    tcti = f"device:{host.dev / _DEVICE}"
    said = []
    for hierarchy in ("lockout", "platform"):
        run = host.run(["tpm2_clear", "-T", tcti, "-c", hierarchy[0]], clearing.seconds_left)
        if run.status == 0:
            break
        said.append(f"{hierarchy}: {run.output[-120:]}")
    properties = host.run(["tpm2_getcap", "-T", tcti, "properties-variable"], clearing.seconds_left)
    handles = host.run(["tpm2_getcap", "-T", tcti, "handles-persistent"], clearing.seconds_left)
    if properties.status != 0 or handles.status != 0:
        raise clearing.failed(DeployFailureCode.TPM_NOT_CLEARED, "the TPM does not say what it holds")
    owned = [name for name in _OWNED if not re.search(rf"{name}:\s*0\b", properties.output)]
    # Handles from 0x81800000 on are the platform's, which a clear leaves (TPM 2.0 part 2, §7.2).
    owner_keys = re.findall(r"0x810[0-7][0-9A-Fa-f]{4}\b|0x81[1-7][0-9A-Fa-f]{5}\b", handles.output)
    if owned or owner_keys or len(said) == 2:
        raise clearing.failed(
            DeployFailureCode.TPM_NOT_CLEARED,
            f"still set: {', '.join(owned + owner_keys) or 'unknown'}; {'; '.join(said)}"[:400],
        )
    return "cleared"
