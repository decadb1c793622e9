"""Refusals of notification sockets and subscriptions."""

from __future__ import annotations

from orchestrator.problems import Problem


class MessageRefused(Problem):
    """A message on the socket that is malformed or not allowed; the socket is closed."""

    status, code, title = 400, "message_refused", "Message refused"


class TooManyMessages(Problem):
    """The socket exceeded its message rate; it is closed."""

    status, code, title = 429, "too_many_messages", "Too many messages"
