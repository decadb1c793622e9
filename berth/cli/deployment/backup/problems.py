"""Why a backup cannot be taken, trusted or opened."""

from __future__ import annotations

from berth.cli.endings import FAILED, UNREACHABLE


class BackupProblem(Exception):
    """The message says what is wrong and what to do; `code` is stable."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code

    @property
    def exit_code(self) -> int:
        """Of the command that ends with it."""
        return UNREACHABLE if self.code == "backup_server_unreachable" else FAILED
