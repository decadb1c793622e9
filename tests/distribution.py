"""How `pytest -n` deals the tests out: file by file, what takes longest first, and what shares a stack to one process.

A long file that begins last keeps one process busy while the others have nothing left to do; the stack of tests/whole
is started by every process that gets a file which uses it, and takes ten seconds of a processor.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

SHARING = {
    f"tests/whole/test_{name}.py": "the stack of tests/whole"
    for name in ("dying_loops", "failures", "lifecycle", "paused", "reserved", "secrets_in_logs", "traces", "trouble")
}
"""Files that use one fixture which is dear to make, by that fixture."""

LONGEST_FIRST = (
    *SHARING,
    "tests/crashes/test_crashes.py",
    "tests/drivers/test_conformance.py",
    "tests/worker/test_trouble.py",
    "tests/berth/test_stack.py",
    "tests/campaign/test_planted_bugs.py",
    "tests/api/test_contract.py",
    "tests/worker/",
    "tests/api/operations/test_gate.py",
    "tests/api/test_process.py",
    "tests/cli/",
    "tests/node_agent/",
    "tests/outbox_relay/",
    "tests/berth/test_verification.py",
    "tests/client/test_cut_connections.py",
    "tests/nodes/test_contract.py",
    "tests/reservations/turning_over/",
    "tests/placement/windows/",
)
"""Files, and directories of files, by the time they take; whatever is not named takes less."""


def rank(path: str) -> int:
    """The index of a file in the order of distribution; 0 is first."""
    return next((n for n, named in enumerate(LONGEST_FIRST) if path.startswith(named)), len(LONGEST_FIRST))


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Deals out files in the order of the collection, which `rank` has made, and those of `SHARING` together."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        """Without the order by the number of tests, which is the default."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SHARING.get(file, file)
