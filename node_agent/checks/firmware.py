"""UEFI for guests: where this host keeps OVMF, and what a host without it cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from node_agent.checks.finding import Code, Finding

# Debian and Ubuntu, their earlier releases, Red Hat and Fedora.
_PLACES = (
    ("usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("usr/share/OVMF/OVMF_CODE.fd", "usr/share/OVMF/OVMF_VARS.fd"),
    ("usr/share/edk2/ovmf/OVMF_CODE.fd", "usr/share/edk2/ovmf/OVMF_VARS.fd"),
)


@dataclass(frozen=True)
class Ovmf:
    """The firmware's code, which guests share, and the variables that a new guest begins with."""

    code: Path
    variables: Path


def find_ovmf(root: Path = Path("/")) -> Ovmf | None:
    """The first pair that is there; None: no guest of this host boots by UEFI."""
    for code, variables in _PLACES:
        found = Ovmf(root / code, root / variables)
        if found.code.is_file() and found.variables.is_file():
            return found
    return None


def check_ovmf(root: Path) -> Finding:
    """Check that guests can boot by UEFI."""
    found = find_ovmf(root)
    if found is None:
        remedy = "install the package ovmf; without it images with firmware uefi are refused"
        return Finding("ovmf", "there is no OVMF below /usr/share", Code.OVMF_ABSENT, remedy)
    return Finding("ovmf", f"guests boot by UEFI with {found.code}")
