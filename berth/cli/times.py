"""Moments as a person types them: RFC 3339, or a date and time of this machine's time zone."""

from __future__ import annotations

from datetime import datetime

from berth.cli.endings import USAGE, Refused


def moment(text: str | None, option: str) -> datetime | None:
    """The moment that an option names, with its zone; None for None. Raises `Refused` for text that names none."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(
            f"{option} is a time such as 2026-03-01T12:00:00Z, not {text!r}", code="usage", exit_code=USAGE
        ) from error
