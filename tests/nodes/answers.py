"""Stored answers of commands, read."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.operations.store.operations import Answer


def body_of(answer: Answer) -> dict[str, Any]:
    """The document."""
    return dict(json.loads(answer.body))


def refusal_of(answer: Answer) -> tuple[int, str, str | None]:
    """Status, code and state of a refusal."""
    content = body_of(answer)
    return answer.status, content["code"], content.get("state")
