"""Times on the command line: RFC 3339, or a date and time in this machine's time zone."""

from __future__ import annotations

from datetime import datetime

from berth.cli.endings import USAGE, Refused


def moment(text: str | None, option: str) -> datetime | None:
    """Parse an option's time, with its zone; None for None. Raises `Refused` for text that is not a time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(
            f"{option} must be a time such as 2026-03-01T12:00:00Z, not {text!r}", code="usage", exit_code=USAGE
        ) from error
