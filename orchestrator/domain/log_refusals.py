"""What can be refused about versions of the log."""

from __future__ import annotations

from orchestrator.domain.errors import Problem


class VersionNotReached(Problem):
    """The log did not come to the version that the answer was to include, in the time that is waited for it; `version`
    is where it is.
    """

    status, code, title = 409, "version_not_reached", "Version not reached"
    retry_after_seconds = 1


class LogTruncated(Problem):
    """Events after the version named are gone; `first_version` is the lowest that is kept."""

    status, code, title = 410, "log_truncated", "Log truncated"
