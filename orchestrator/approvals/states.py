"""States of an approval, the actions that need one, and the roles that request and approve each. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from orchestrator.tenants.roles import FLEET, OPERATOR_ADMINS, OperatorRoles


class ApprovalState(StrEnum):
    """Pending, or how the wait ended; those are final."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class ApprovalAction(StrEnum):
    """An action that needs a second operator; the name is that of its audit row. Keys: those of operators alone."""

    FORCE_CLEANUP = "allocation.force_cleanup"
    CREATE_KEY = "api_key.create"
    REVOKE_KEY = "api_key.revoke"
    ROTATE_KEY = "api_key.rotate"

    @property
    def subject(self) -> str:
        """The kind of the action's object."""
        return "allocations" if self is ApprovalAction.FORCE_CLEANUP else "api-keys"


ROLES: Final[dict[ApprovalAction, OperatorRoles]] = {
    ApprovalAction.FORCE_CLEANUP: FLEET,
    ApprovalAction.CREATE_KEY: OPERATOR_ADMINS,
    ApprovalAction.REVOKE_KEY: OPERATOR_ADMINS,
    ApprovalAction.ROTATE_KEY: OPERATOR_ADMINS,
}
"""The roles of operators that request, approve and reject each action."""
APPROVERS: Final[OperatorRoles] = frozenset().union(*ROLES.values())
"""The roles that decide about some action."""
