"""What can be refused about versions of the log."""

from __future__ import annotations

from orchestrator.problems import Problem


class VersionNotReached(Problem):
    """The log did not come to the version that the answer was to include, in the time that is waited for it; `version`
    is where it is.
    """

    status, code, title = 409, "version_not_reached", "Version not reached"
    retry_after_seconds = 1


class LogTruncated(Problem):
    """Events after the version named are gone; `first_version` is the lowest that is kept."""

    status, code, title = 410, "log_truncated", "Log truncated"


class RetentionOutOfBounds(Problem):
    """A tenant's policy would hold more of the log than a tenant may; `prevent_truncate_min` is the lowest it may name."""

    status, code, title, business = 409, "retention_out_of_bounds", "Retention out of bounds", True


class RetentionPoliciesFull(Problem):
    """There are as many policies as there may be."""

    status, code, title, business = 409, "retention_policies_full", "Retention policies full", True


class SubscriptionsFull(Problem):
    """There are as many named subscriptions of notifications as there may be."""

    status, code, title = 409, "subscriptions_full", "Subscriptions full"


class UpgradeRequired(Problem):
    """The path speaks WebSocket, and the request asked for no upgrade to it."""

    status, code, title = 426, "upgrade_required", "Upgrade required"


class MessageRefused(Problem):
    """A message on the socket that means nothing, or that may not be sent now; the socket is closed."""

    status, code, title = 400, "message_refused", "Message refused"


class TooManyMessages(Problem):
    """More messages a second than a socket may send; it is closed."""

    status, code, title = 429, "too_many_messages", "Too many messages"
