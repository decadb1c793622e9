"""Messages for settings that cannot be read."""

from __future__ import annotations

from pydantic import ValidationError


def describe_wrong_settings(error: ValidationError) -> str:
    """Return one sentence that names each wrong `BERTH_*` variable and the reason, without its value."""
    wrong = "; ".join(f"BERTH_{'_'.join(map(str, found['loc'])).upper()}: {found['msg']}" for found in error.errors())
    return f"these settings are missing or wrong: {wrong}"
