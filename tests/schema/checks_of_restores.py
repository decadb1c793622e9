"""What each CHECK of the tables of restores refuses, and what it lets pass."""

from __future__ import annotations

from tests.schema.checks import Check
from tests.support.rows import HASH, NOW

_EXPORTED = {"exported_at": NOW, "export_events": 0, "export_sha256": HASH}

CHECKS = {
    "restore_export": Check(
        "restores",
        (
            {"exported_at": NOW},
            {"export_events": 1, "export_sha256": HASH},
            {"exported_at": NOW, "export_events": 1},
            {**_EXPORTED, "export_events": -1},
            {**_EXPORTED, "export_sha256": b"short"},
        ),
        ({}, _EXPORTED),
    ),
    "restore_without_export": Check(
        "restores", ({"without_export": ""}, {**_EXPORTED, "without_export": "why"}), ({"without_export": "why"},)
    ),
    "restore_replay_kind": Check("restore_replays", ({"kind": "create"},), ({"kind": "cancel"},)),
    "restore_replay_version": Check("restore_replays", ({"version": 0},), ({"version": 1},)),
    "restore_replay_done": Check(
        "restore_replays", ({"done_at": NOW}, {"outcome": "done"}), ({"done_at": NOW, "outcome": "noop"},)
    ),
    "restore_head": Check("restores", ({"head_version": -1},), ({"head_version": 0},)),
}
