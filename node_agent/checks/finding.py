"""What a check of the host found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One check: whether the host passes, what was found, and what to do if it does not pass."""

    name: str
    passed: bool
    found: str
    remedy: str = ""

    def line(self) -> str:
        """The finding as one line of output."""
        text = f"{'ok' if self.passed else 'FAIL':4}  {self.name}: {self.found}"
        return text if self.passed else f"{text}; {self.remedy}"
