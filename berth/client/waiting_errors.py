"""Errors of waiting for a state."""

from __future__ import annotations

from berth.client.errors import BerthError


class WaitTimeout(BerthError):
    """The state waited for did not come in time; `extra` holds the last answer and its `state`."""

    codes = ("wait_timeout",)


class StateUnreachable(BerthError):
    """It ended in a final state other than those waited for; `extra` holds the last answer and its `state`."""

    codes = ("state_unreachable",)
