"""How a prepaid balance refuses (docs/billing.md)."""

from __future__ import annotations

from orchestrator.domain.errors import Problem


class BalanceDepleted(Problem):
    """The tenant is prepaid, and its balance is used up; a top-up lifts this."""

    status, code, title, business = 409, "balance_depleted", "Balance depleted", True

    @classmethod
    def of_tenant(cls) -> BalanceDepleted:
        """In the words for whoever wants to begin something."""
        return cls("the prepaid balance is used up; nothing can be begun before it is topped up")


class BalanceInsufficient(Problem):
    """What the tenant runs would be released at once if it became prepaid now; `available_micro_units` tells what it has."""

    status, code, title, business = 409, "balance_insufficient", "Balance insufficient", True


class BalanceOutOfBounds(Problem):
    """The balance would pass what it can hold; `balance_max_micro_units` names it."""

    status, code, title, business = 409, "balance_out_of_bounds", "Balance out of bounds", True
