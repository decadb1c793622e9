"""Refusals about versions of the log and retention policies."""

from __future__ import annotations

from orchestrator.problems import Problem


class VersionNotReached(Problem):
    """The log did not reach the requested version within the wait; `version` is its head."""

    status, code, title = 409, "version_not_reached", "Version not reached"
    retry_after_seconds = 1


class LogTruncated(Problem):
    """Events after the named version have been dropped; `first_version` is the lowest kept version."""

    status, code, title = 410, "log_truncated", "Log truncated"


class RetentionOutOfBounds(Problem):
    """A tenant's policy would keep more of the log than allowed; `prevent_truncate_min` is the lowest version allowed."""

    status, code, title, business = 409, "retention_out_of_bounds", "Retention out of bounds", True


class VersionInFuture(Problem):
    """The log has not reached the named version; `version` is its head."""

    status, code, title = 400, "version_in_future", "Version in future"


class LeaderUnaccepted(Problem):
    """The log was written under another PostgreSQL timeline, and an operator has not accepted this one yet."""

    status, code, title = 503, "leader_unaccepted", "Leader unaccepted"
    retry_after_seconds = 5
