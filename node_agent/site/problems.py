"""Why a task of a site's agent is not done, for reasons of the agent."""

from __future__ import annotations


class NotDone(Exception):
    """The task fails for a reason of the agent; `code` is stable."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
