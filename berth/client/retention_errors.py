"""What a request is refused with for what has left the database after its retention."""

from __future__ import annotations

from berth.client.errors import BerthError, Refused


class AuditTruncated(BerthError):
    """Rows after the given sequence are in the archive alone; `extra` holds `first_sequence` and the `hash_before` it."""

    codes = ("audit_truncated",)


class Archived(Refused):
    """The allocation ended and is in the operator's archive; `extra` holds `archived_at`, for operators `segment` too."""

    codes = ("archived",)
