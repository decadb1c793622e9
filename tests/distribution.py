"""How `pytest -n` deals the tests out: file by file, what takes longest first, and what shares a stack to one process.

A long file that begins last keeps one process busy while the others have nothing left to do; the stack of tests/whole
is started by every process that gets a file which uses it, and takes ten seconds of a processor.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]

SHARING = {
    f"tests/whole/test_{name}.py": "the stack of tests/whole"
    for name in ("dying_loops", "failures", "lifecycle", "paused", "reserved", "secrets_in_logs", "traces", "trouble")
}
"""Files that use one fixture which is dear to make, by that fixture."""

SHARED_FOLDERS = ("tests/architecture/",)
"""Folders whose files keep something for each other: here the syntax tree of every module."""

LONGEST_FIRST = (
    *SHARING,
    "tests/upgrade/test_messages.py",
    "tests/sites/updates/",
    "tests/database/replicas/",
    "tests/backup/",
    "tests/sites/consoles/",
    "tests/sites/",
    "tests/switches/",
    "tests/api/test_contract.py",
    "tests/drivers/test_conformance.py",
    "tests/berth/test_stack.py",
    "tests/crashes/test_crashes.py",
    "tests/audit_stream/test_syslog.py",
    "tests/audit_stream/test_crashes.py",
    "tests/database/test_plans.py",
    "tests/campaign/test_planted_bugs",
    "tests/webhooks/test_delivering.py",
    "tests/database/test_row_security.py",
    "tests/berth/test_doctor.py",
    "tests/berth/test_cli.py",
    "tests/consoles/",
    "tests/deploy_system/",
    "tests/mutants/",
    "tests/libvirt_driver/network/",
    "tests/archive/test_bucket.py",
    "tests/deploy/test_restricted_processes.py",
    "tests/worker/",
    "tests/deploy/",
    "tests/drivers/test_plans.py",
    "tests/whole/test_outages.py",
    "tests/api/tenants/test_foreign_ids.py",
    "tests/database/test_audit_plans.py",
    "tests/nodes/heartbeats/",
    "tests/nodes/gpu_resets/",
    "tests/nodes/burn_ins/",
    "tests/nodes/states/",
    "tests/nodes/maintenance_tasks/",
    "tests/maintenance/test_windows.py",
    "tests/forked/",
    "tests/audit_stream/test_nats.py",
    "tests/webhooks/test_sender_process.py",
    "tests/consumers/test_metering.py",
    "tests/verbs/test_deletion_races.py",
    "tests/architecture/",
    "tests/crashes/",
    "tests/security/test_quotas.py",
    "tests/reservations/test_clock_after_locks.py",
    "tests/billing/test_stories.py",
    "tests/outbox_relay/",
    "tests/allocations/test_ends_and_rivals.py",
    "tests/approvals/",
    "tests/rotation/",
    "tests/nodes/test_contract.py",
    "tests/docs/test_references.py",
    "tests/api/operations/test_gate.py",
    "tests/api/test_process.py",
    "tests/cli/",
    "tests/node_agent/",
    "tests/berth/test_verification.py",
    "tests/berth/test_verified_histories.py",
    "tests/client/test_cut_connections.py",
    "tests/reservations/turning_over/",
    "tests/placement/windows/",
)
"""Files, and directories of files, by the time they take; whatever is not named takes less."""


def rank(path: str) -> int:
    """The index of a file in the order of distribution; 0 is first."""
    return next((n for n, named in enumerate(LONGEST_FIRST) if path.startswith(named)), len(LONGEST_FIRST))


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Deals out files in the order of the collection, which `rank` has made, and those that share something together."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        """Without the order by the number of tests, which is the default."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        shared = next((folder for folder in SHARED_FOLDERS if file.startswith(folder)), file)
        return SHARING.get(file, shared)


def import_share() -> None:
    """In a process of xdist: import its share of the test files, before it collects all of them.

    pytest compiles each file that it finds uncompiled, as in a fresh clone: without shares, every process each file.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    if not worker.startswith("gw"):
        return
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    for file in files[int(worker[2:]) :: int(workers)]:
        known = set(sys.modules)
        try:
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        except (Exception, pytest.skip.Exception):  # noqa: BLE001 - whatever it raises
            # It is reported, or skipped, when it is collected: anew, so that nothing of it is half imported.
            for name in set(sys.modules) - known:
                del sys.modules[name]


def mark_cases_that_are_full(items: Sequence[pytest.Item], *, whole: bool) -> None:
    """Mark as full every case of a test with `quick(*ids)` but those that it names.

    `whole`: no single test was asked for. Raises `UsageError` then if a name is that of no case: no case would run.
    """
    named: dict[str, set[str]] = {}
    for item in items:
        quick = item.get_closest_marker("quick")
        if quick is None:
            continue
        case = item.callspec.id  # type: ignore[attr-defined]  # only tests with parameters have the marker
        left = named.setdefault(item.nodeid.partition("[")[0], set(quick.args))
        left.discard(case)
        if case not in quick.args:
            item.add_marker("full")
    unknown = [f"{test}[{name}]" for test, left in named.items() for name in left]
    if whole and unknown:
        raise pytest.UsageError(f"`quick` names what is no case: {', '.join(sorted(unknown))}")
