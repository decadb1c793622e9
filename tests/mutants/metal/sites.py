"""Mutants of sites, their leases and the sealed passwords of BMCs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

COMMANDS = "orchestrator/sites/commands"
RULES = "tests/sites/test_rules.py"
IDENTITY = "tests/sites/test_identity.py"
WITHOUT_THE_LEASE = (f"{IDENTITY}::test_without_the_lease_nothing_is_handed_out_stored_or_accepted",)
EACH_STEP = ("tests/sites/test_killed_rotations.py::test_no_password_is_lost_at_any_step[killed_at]",)
SEALED = (f"{RULES}::test_a_sealed_password_opens_for_its_recipient_and_purpose_alone",)

MUTANTS: list[Mutant] = [
    Mutant(
        "sites: a lease never ends by the holder's clock",
        "agent",
        "node_agent/site/lease.py",
        "        if self.fence != fence or self.seconds_left() <= 0:",
        "        if self.fence != fence:",
        (f"{RULES}::test_a_lease_ends_by_the_holders_own_clock",),
    ),
    Mutant(
        "sites: a request is sent after the lease",
        "agent",
        "node_agent/site/bmcs.py",
        "        self._guard()\n        request",
        "        request",
        (f"{RULES}::test_no_request_reaches_a_bmc_after_the_lease",),
    ),
    Mutant(
        "sites: a request is sent over a connection that took longer than the lease",
        "agent",
        "node_agent/site/bmcs.py",
        "        if event.endswith(_BEFORE_SENDING):",
        "        if False:",
        ("tests/sites/test_admission.py::test_nothing_is_sent_when_the_lease_ends_while_the_connection_is_made",),
    ),
    Mutant(
        "sites: a password is stored for a key that its recipient no longer has",
        "nodes",
        f"{COMMANDS}/reports.py",
        "allowed = {one for one, key in present.items() if named.get(one) == key.hex()}",
        "allowed = set(present)",
        ("tests/sites/test_leases.py::test_a_password_is_not_stored_for_a_key_that_its_recipient_no_longer_has",),
    ),
    Mutant(
        "sites: an agent takes a task of another site",
        "agent",
        "node_agent/site/admission.py",
        "    if parameters.site_id != trust.site_id:",
        "    if False:",
        ("tests/sites/test_admission.py::test_what_is_not_proven_to_be_of_this_site_is_never_answered[wrong_site]",),
    ),
    Mutant(
        "sites: an agent of another site stores and reports",
        "nodes",
        f"{COMMANDS}/reports.py",
        "None if found is None or found.site_id != site_id else",
        "None if found is None else",
        (f"{IDENTITY}::test_an_agent_of_another_site_and_a_copy_get_nothing",),
    ),
    Mutant(
        "sites: a sealed password is not bound to its node",
        "agent",
        "berth/process/sealed_passwords.py",
        "str(self.site_id), str(self.node_id), str(self.generation)",
        "str(self.site_id), str(self.generation)",
        SEALED,
    ),
    Mutant(
        "sites: a sealed password is not bound to its generation",
        "agent",
        "berth/process/sealed_passwords.py",
        "str(self.node_id), str(self.generation), str(recipient)",
        "str(self.node_id), str(recipient)",
        SEALED,
    ),
    Mutant(
        "sites: a copy of an agent shares its lease",
        "nodes",
        "orchestrator/sites/rules.py",
        "(self.agent, self.run) == (agent, run)",
        "self.agent == agent",
        (f"{RULES}::test_one_process_holds_the_lease_until_it_ends",),
    ),
    Mutant(
        "sites: a password is stored without a copy for recovery",
        "nodes",
        "orchestrator/sites/rules.py",
        "return {site_id, sender} <= set(recipients)",
        "return {sender} <= set(recipients)",
        (f"{RULES}::test_a_password_is_sealed_to_the_sender_the_recovery_key_and_agents_of_the_site_alone",),
    ),
    Mutant(
        "sites: a change of hands keeps the fence",
        "nodes",
        f"{COMMANDS}/leases.py",
        "        fence = lease.fence if is_mine else lease.fence + 1",
        "        fence = lease.fence",
        WITHOUT_THE_LEASE,
    ),
    Mutant(
        "sites: a report without the lease counts",
        "nodes",
        f"{COMMANDS}/reports.py",
        "        if not locked.leased:\n",
        "        if False:\n",
        WITHOUT_THE_LEASE,
    ),
    Mutant(
        "sites: a password is stored without the lease",
        "nodes",
        f"{COMMANDS}/reports.py",
        "        if not locked.leased or task.outcome is not None",
        "        if task.outcome is not None",
        WITHOUT_THE_LEASE,
    ),
    Mutant(
        "sites: the token of an agent is not used up",
        "nodes",
        f"{COMMANDS}/agents.py",
        "await enrolment.consume_token(tx, agent_id, token_hash, hardware_id, _AGENT)",
        "True",
        (f"{IDENTITY}::test_a_token_is_used_once_and_its_repetition_is_answered_alike",),
    ),
    Mutant(
        "sites: certificates of a revoked agent count again with its next invitation",
        "nodes",
        f"{COMMANDS}/agents.py",
        "revoked = await certificates.revoke_certificates(tx, agent_id, reason, _AGENT)",
        "revoked = 0",
        (f"{IDENTITY}::test_what_no_longer_counts_is_refused_at_once[revoked]",),
    ),
    Mutant(
        "sites: a rotation forgets the present password when the next one is stored",
        "nodes",
        f"{COMMANDS}/reports.py",
        "            await bmcs.store_sealed(tx, bmc.node_id, wanted, body.sealed)\n",
        "            await bmcs.store_sealed(tx, bmc.node_id, wanted, body.sealed)\n"
        "            await bmcs.forget_other_passwords(tx, bmc.node_id, wanted)\n",
        EACH_STEP,
    ),
    Mutant(
        "sites: a stored password is not one that later tasks try",
        "nodes",
        f"{COMMANDS}/reports.py",
        "            await bmcs.set_pending(tx, bmc.node_id, wanted)\n",
        "",
        EACH_STEP,
    ),
    Mutant(
        "sites: the BMC receives a password that is stored nowhere",
        "agent",
        "node_agent/site/effects.py",
        "            generation, new = await self._stored_new(order, current.generation + 1)",
        "            generation, new = current.generation + 1, new_password()",
        EACH_STEP,
    ),
    Mutant(
        "sites: two processes that ask at once both get the lease",
        "nodes",
        "orchestrator/sites/store/sites.py",
        "where a.id = :agent_id) for no key update of s",
        "where a.id = :agent_id)",
        ("tests/sites/test_leases.py::test_one_of_many_processes_gets_a_free_lease_and_copies_of_it_get_nothing",),
    ),
    Mutant(
        "sites: the gauges of a removed site stay",
        "worker",
        "worker/sites/sweeping.py",
        "        gauge.clear()\n",
        "        pass\n",
        ("tests/sites/test_metrics.py::test_the_workers_metrics_follow_the_database",),
    ),
]
