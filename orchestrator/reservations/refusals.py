"""Refusals of reservations and resources: the result codes of AllocDB as problems.

The codes `ok` and `noop` mark successes; `operation_conflict` and `invalid_state` are in problems.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from orchestrator.problems import Problem


class ResourceNotFound(Problem):
    """A named resource is not registered, or has been retired."""

    status, code, title, business = 404, "resource_not_found", "Resource not found", True

    @classmethod
    def named(cls, names: Sequence[str]) -> Self:
        """The refusal for these names; `resources` lists them all."""
        return cls(f"there is no resource {names[0]!r}; GET /api/v1/resources lists them", resources=list(names))


class ResourceBusy(Problem):
    """Another claim has one of the units in that window; `conflicts` lists those of the caller's tenant."""

    status, code, title, business = 409, "resource_busy", "Resource busy", True

    @classmethod
    def in_window(cls, conflicts: Sequence[str]) -> Self:
        """The refusal for a window that overlaps other claims."""
        return cls(
            "at least one of these units is claimed in this window; choose other units or another window",
            conflicts=list(conflicts),
        )


class ResourceOutOfService(Problem):
    """A named resource is out of service; `reason` is the operator's."""

    status, code, title, business = 409, "resource_out_of_service", "Resource out of service", True

    @classmethod
    def named(cls, names: Sequence[str], reason: str) -> Self:
        """The refusal for these names; `resources` lists them all."""
        return cls(f"{names[0]} is out of service: {reason}", reason=reason, resources=list(names))


class ResourceNotAllocatable(Problem):
    """The reservation holds only registered resources, on which no allocation can run."""

    status, code, title, business = 409, "resource_not_allocatable", "Resource not allocatable", True


class TtlOutOfRange(Problem):
    """The TTL is outside of the deployment's bounds; `ttl_seconds_max` is the upper bound."""

    status, code, title, business = 422, "ttl_out_of_range", "TTL out of range", True


class WindowInvalid(Problem):
    """The window is in the past, reversed, too long, or begins too far in the future."""

    status, code, title, business = 422, "window_invalid", "Window invalid", True


class ReservationNotFound(Problem):
    """The tenant has no reservation with this id."""

    status, code, title, business = 404, "reservation_not_found", "Reservation not found", True


class ReservationRetired(Problem):
    """The reservation ended, and its record was deleted after the retention."""

    status, code, title, business = 410, "reservation_retired", "Reservation retired", True


class HolderMismatch(Problem):
    """`holder_id` is not that of the reservation."""

    status, code, title, business = 409, "holder_mismatch", "Holder mismatch", True

    @classmethod
    def of_reservation(cls) -> Self:
        """The refusal, which does not disclose the holder."""
        return cls("holder_id is not the holder of this reservation; send the holder_id that the hold was made with")


class ResourceTableFull(Problem):
    """The limit of registered resources is reached."""

    status, code, title = 503, "resource_table_full", "Resource table full"
    retry_after_seconds = 60


class ReservationTableFull(Problem):
    """The limit of live reservations is reached."""

    status, code, title = 503, "reservation_table_full", "Reservation table full"
    retry_after_seconds = 60


class ExpirationIndexFull(Problem):
    """The limit of holds is reached."""

    status, code, title = 503, "expiration_index_full", "Expiration index full"
    retry_after_seconds = 60
