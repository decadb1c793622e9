"""Mutants of drivers and of what performs their plans."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SANDBOX = "node_agent/drivers/sandbox"
PLANS = "tests/drivers/test_plans.py"
TWICE = (f"{PLANS}::test_a_phase_that_runs_again_at_once_changes_nothing[sandbox]",)
VERBS = (f"{PLANS}::test_verbs_keep_the_claim_and_only_rebuild_discards_the_disk[sandbox]",)
PROGRESS = ("tests/node_agent/test_progress_of_phases.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "driver: a release writes before it removes",
        "agent",
        f"{SANDBOX}/records.py",
        "            self.record_file.rename(self.releasing_file)",
        "            write_durably(self.releasing_file, self.record_file.read_bytes())",
        ("tests/drivers/test_conformance.py::test_withstands_a_full_disk[sandbox]",),
    ),
    Mutant(
        "driver: a lease replaces another",
        "agent",
        f"{SANDBOX}/leases.py",
        "            path.hardlink_to(aside)",
        "            aside.rename(path)",
        (f"{PLANS}::test_one_of_two_orders_for_a_slot_meets_the_lease_of_the_other[sandbox]",),
    ),
    Mutant(
        "driver: a lease is made in place",
        "agent",
        f"{SANDBOX}/leases.py",
        "        aside = self._aside(slot)\n        try:\n            with aside.open",
        "        aside = path\n        try:\n            with aside.open",
        (f"{PLANS}::test_one_of_two_orders_for_a_slot_meets_the_lease_of_the_other[sandbox]",),
    ),
    Mutant(
        "driver: starts of a guest are identified by directory",
        "agent",
        f"{SANDBOX}/launching.py",
        'boot = self._boots.get(event["boot"])',
        'boot = next((b for b in self._boots.values() if str(b.path) == event["path"]), None)',
        ("tests/drivers/test_sandbox_starts.py",),
    ),
    Mutant(
        "driver: a repeated boot starts a second guest",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "if self._boot_under_way is None or not alive(self._directory):",
        "if True:",
        TWICE,
    ),
    Mutant(
        "driver: a repeated phase makes another host key",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "        if self._host_key:\n",
        "        if False:\n",
        TWICE,
    ),
    Mutant(
        "driver: remains of the older fence are kept",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "        if self._directory.exists():\n            await self._node.remove",
        "        if False:\n            await self._node.remove",
        (f"{PLANS}::test_the_newer_fence_replaces_what_is_there[sandbox]",),
    ),
    Mutant(
        "driver: what is stopped is started again",
        "agent",
        f"{SANDBOX}/verbs.py",
        '"stopped" if verb is Verb.STOP else "running"',
        '"running"',
        VERBS,
    ),
    Mutant(
        "driver: rebuild keeps the directory",
        "agent",
        f"{SANDBOX}/release.py",
        "        gone = await in_thread(partial(wipe, self._directory.path))\n        if self._directory.exists():",
        '        gone = await in_thread(partial(wipe, self._directory.path / "nothing"))\n        if False:',
        VERBS,
    ),
    Mutant(
        "driver: a dead guest counts as running",
        "agent",
        f"{SANDBOX}/inventory.py",
        'if record.state == "running" and not alive(directory):',
        "if False:",
        (f"{PLANS}::test_a_guest_that_dies_is_reported_and_comes_back[sandbox]",),
    ),
    Mutant(
        "driver: a release of nothing proves a device",
        "agent",
        f"{SANDBOX}/release.py",
        '[proof.model_dump(mode="json")] if self._was_there else []',
        '[proof.model_dump(mode="json")]',
        ("tests/drivers/test_conformance.py::test_conforms[sandbox-releases_what_never_existed]",),
    ),
    Mutant(
        "driver: a device that is not proven wiped is released",
        "agent",
        "node_agent/effects.py",
        "result.leases_released and not unproven:",
        "result.leases_released:",
        PROGRESS,
    ),
    Mutant(
        "driver: shares of a phase are reported without bound",
        "agent",
        "node_agent/effects.py",
        " or self._reports >= PROGRESS_REPORTS_MAX",
        "",
        PROGRESS,
    ),
    Mutant(
        "driver: shares of a phase are reported every ten seconds",
        "agent",
        "node_agent/effects.py",
        "        self._pause *= 2\n",
        "",
        PROGRESS,
    ),
]
