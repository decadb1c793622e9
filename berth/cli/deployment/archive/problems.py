"""Why an archive cannot be continued or trusted."""

from __future__ import annotations


class ArchiveProblem(Exception):
    """The message says what is wrong and what to do; `code` is stable."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
