"""The refusal of a plain request to a path of WebSockets."""

from __future__ import annotations

from orchestrator.problems import Problem


class UpgradeRequired(Problem):
    """The path requires a WebSocket upgrade, and the request asked for none."""

    status, code, title = 426, "upgrade_required", "Upgrade required"
