"""How reservations and resources are refused: the result codes of AllocDB as problems.

`ok` and `noop` mark successes; `operation_conflict` and `invalid_state` are those of every write (problems.py).
"""

from __future__ import annotations

from orchestrator.problems import Problem


class ResourceNotFound(Problem):
    """A named resource is not registered, or has been retired."""

    status, code, title, business = 404, "resource_not_found", "Resource not found", True


class ResourceBusy(Problem):
    """Somebody has the right to one of the units in that window; `conflicts` names what the caller may know."""

    status, code, title, business = 409, "resource_busy", "Resource busy", True


class ResourceOutOfService(Problem):
    """A named resource is out of service; `reason` says why."""

    status, code, title, business = 409, "resource_out_of_service", "Resource out of service", True


class ResourceNotAllocatable(Problem):
    """What the reservation still holds is registered by operators, and nothing that an allocation could run on."""

    status, code, title, business = 409, "resource_not_allocatable", "Resource not allocatable", True


class TtlOutOfRange(Problem):
    """The TTL is not within the deployment's bounds; `ttl_seconds_max` names the upper one."""

    status, code, title, business = 422, "ttl_out_of_range", "TTL out of range", True


class WindowInvalid(Problem):
    """The window is over, or begins too far away."""

    status, code, title, business = 422, "window_invalid", "Window invalid", True


class SlotOverflow(Problem):
    """A deadline or retirement would lie beyond the representable range."""

    status, code, title, business = 422, "slot_overflow", "Deadline beyond the representable range", True


class ReservationNotFound(Problem):
    """No such reservation of the caller's."""

    status, code, title, business = 404, "reservation_not_found", "Reservation not found", True


class ReservationRetired(Problem):
    """It ended, and its record was kept as long as was promised."""

    status, code, title, business = 410, "reservation_retired", "Reservation retired", True


class HolderMismatch(Problem):
    """The holder named is not the one that holds it."""

    status, code, title, business = 409, "holder_mismatch", "Holder mismatch", True


class ResourceTableFull(Problem):
    """The configured number of registered resources is reached."""

    status, code, title = 503, "resource_table_full", "Resource table full"
    retry_after_seconds = 60


class ReservationTableFull(Problem):
    """The configured number of live reservations is reached."""

    status, code, title = 503, "reservation_table_full", "Reservation table full"
    retry_after_seconds = 60


class ExpirationIndexFull(Problem):
    """The configured number of holds that wait for their deadline is reached."""

    status, code, title = 503, "expiration_index_full", "Expiration index full"
    retry_after_seconds = 60


class OperationTableFull(Problem):
    """There is no room to remember another operation's outcome, so none is begun."""

    status, code, title = 503, "operation_table_full", "Operation table full"
    retry_after_seconds = 60
