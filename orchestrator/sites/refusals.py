"""Refusals of sites."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orchestrator.problems import Problem


class SealingOutdated(Problem):
    """The password is not sealed to the recipients of the site as the next generation; the refusal names both."""

    status, code, title, business = 409, "sealing_outdated", "Sealing outdated", True

    @classmethod
    def to(cls, generation: int, recipients: Iterable[UUID]) -> SealingOutdated:
        """The refusal, where this generation must be sealed to these recipients."""
        wanted = sorted(str(one) for one in recipients)
        return cls(
            f"seal the password as generation {generation} to the {len(wanted)} recipients that are named, and send it again",
            generation=generation,
            recipients=wanted,
        )


class SiteInUse(Problem):
    """Agents that are not revoked, or BMCs, belong to the site; `agents` and `machines` count them."""

    status, code, title, business = 409, "site_in_use", "Site in use", True

    @classmethod
    def by(cls, agents: int, machines: int) -> SiteInUse:
        """The refusal for a site with so many of each."""
        return cls(
            f"{agents} agents of the site are not revoked and {machines} BMCs belong to it; revoke and remove them first",
            agents=agents,
            machines=machines,
        )


class NotAdoptable(Problem):
    """A machine that runs already cannot be adopted as it is; `reason` is one word."""

    status, code, title, business = 409, "machine_not_adoptable", "Machine not adoptable", True

    @classmethod
    def because(cls, reason: str, detail: str) -> NotAdoptable:
        """The refusal with its reason."""
        return cls(detail, reason=reason)
