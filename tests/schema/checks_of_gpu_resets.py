"""CHECK constraints of resets of GPUs."""

from __future__ import annotations

from tests.schema.checks import Check, length, whole_or_absent
from tests.support.rows import LATER, NOW, OTHER

_OF_WAIT = {"waits_for": "node", "waits_since": NOW, "waits_until": LATER}
_ENDED = {"ended_at": NOW, "outcome": "failed", "waits_for": None, "waits_since": None, "waits_until": None}
_ISSUED = {"task_id": OTHER, "issued_at": NOW}
_RESET = {**_ENDED, **_ISSUED, "outcome": "reset", "report": "{}"}

CHECKS = {
    "gpu_reset_outcome": Check("node_gpu_resets", ({**_ENDED, "outcome": "unknown"},), ({}, _ENDED, _RESET)),
    "gpu_reset_failure_is_bounded": length("node_gpu_resets", "failure", 0, 500),
    "gpu_reset_names_gpus": Check(
        "node_gpu_resets",
        ({"slots": [], "gpus": []}, {"slots": [0, 1]}, {"slots": [0] * 65, "gpus": ["p"] * 65}),
        ({}, {"slots": [0] * 64, "gpus": ["p"] * 64}),
    ),
    "gpu_reset_task_is_whole": Check("node_gpu_resets", whole_or_absent(_ISSUED), ({}, _ISSUED)),
    "gpu_reset_end_is_whole": Check("node_gpu_resets", ({"ended_at": NOW}, {**_ENDED, "ended_at": None}), ({}, _ENDED)),
    "gpu_reset_waits": Check(
        "node_gpu_resets",
        (
            {"waits_for": None},
            {"waits_until": None},
            {**_ENDED, "waits_for": "node"},
            {**_ENDED, **_OF_WAIT},
            {"waits_for": None, "waits_since": None, "waits_until": None},
        ),
        ({}, _ENDED),
    ),
    "gpu_reset_is_proven": Check(
        "node_gpu_resets",
        tuple({**_ENDED, "outcome": "reset", **more} for more in ({}, _ISSUED, {"report": "{}"})),
        ({}, _ENDED, _RESET),
    ),
}
