"""Mutants of nodes without an agent, which are online as long as their BMC answers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STORE = "orchestrator/sites/store/liveness.py"
USES = "orchestrator/nodes/deploy_systems/uses.py"
TESTS = "tests/sites/test_bmc_liveness.py"
RENTING = "tests/sites/renting/test_agents_and_silence.py"
LEASE = (f"{TESTS}::test_without_the_lease_nothing_is_shown_or_recorded",)
SERVES = (f"{TESTS}::test_an_inspected_machine_serves_while_its_bmc_answers",)
RULES = (f"{TESTS}::test_a_node_without_an_agent_needs_slots_and_a_pool_of_such_nodes",)
AGENTS_OWN = (f"{TESTS}::test_a_node_whose_agent_has_enrolled_stays_its_agents",)
HELD = (
    "      and s.lease_agent = a.id and s.lease_run = :run_id and s.lease_fence = :lease_fence"
    " and s.lease_until > clock_timestamp()\n"
)

STATES = "  and n.state not in ('registered', 'retired')\n"
TURNS = (
    "  and n.online <> coalesce(b.answered_at > clock_timestamp() - make_interval(secs => :silent_seconds), false)\n"
    "returning"
)

MUTANTS: list[Mutant] = [
    Mutant(
        "bmc liveness: an agent without the lease reports",
        "nodes",
        STORE,
        HELD + "    for share of s",
        "    for share of s",
        LEASE,
    ),
    Mutant(
        "bmc liveness: an agent without the lease learns the BMCs",
        "nodes",
        STORE,
        HELD + "), page as (",
        "), page as (",
        LEASE,
    ),
    Mutant(
        "bmc liveness: an agent reports about BMCs of other sites",
        "nodes",
        STORE,
        "join node_bmcs b on b.site_id = h.id and b.node_id = any (cast(:answered",
        "join node_bmcs b on b.node_id = any (cast(:answered",
        (f"{TESTS}::test_an_agent_reports_about_its_site_alone_and_waits_for_no_lock",),
    ),
    Mutant(
        "bmc liveness: a report waits for a lock",
        "nodes",
        STORE,
        "    for no key update of b skip locked\n), not_answered",
        "    for no key update of b\n), not_answered",
        (f"{TESTS}::test_an_agent_reports_about_its_site_alone_and_waits_for_no_lock",),
    ),
    Mutant(
        "bmc liveness: silence counts as an answer",
        "nodes",
        STORE,
        "    update node_bmcs set silent_because = (cast",
        "    update node_bmcs set answered_at = clock_timestamp(), silent_because = (cast",
        (f"{TESTS}::test_silence_is_explained_until_the_bmc_answers_again",),
    ),
    Mutant(
        "bmc liveness: a node with an agent is turned by its BMC",
        "nodes",
        STORE,
        "where n.id = :node_id and b.node_id = n.id and n.driver = 'redfish' and n.enrolled_at is null\n",
        "where n.id = :node_id and b.node_id = n.id\n",
        AGENTS_OWN,
    ),
    Mutant(
        "bmc liveness: a retired node comes online",
        "nodes",
        STORE,
        STATES + TURNS,
        TURNS,
        (f"{TESTS}::test_a_node_that_lost_its_bmc_is_offline_and_a_retired_one_stays_so",),
    ),
    Mutant(
        "bmc liveness: a node without a BMC stays online",
        "nodes",
        "orchestrator/sites/commands/bmcs.py",
        "        turned = await set_offline_without_bmc(tx, node_id)\n",
        "        turned = None\n",
        (f"{TESTS}::test_a_node_that_lost_its_bmc_is_offline_and_a_retired_one_stays_so",),
    ),
    Mutant(
        "agentless: a machine that was not inspected serves",
        "nodes",
        USES,
        "        if state is NodeState.REGISTERED:",
        "        if False:",
        SERVES,
    ),
    Mutant(
        "agentless: a node joins a pool of nodes with agents",
        "nodes",
        USES,
        "    if found.pool_driver not in (None, REDFISH):",
        "    if False:",
        RULES,
    ),
    Mutant(
        "agentless: a machine that its site has never started serves",
        "nodes",
        USES,
        "    if await run_store.read_completed_medium(tx, node_id) is None:",
        "    if False:",
        RULES,
    ),
    Mutant(
        "agentless: a node without slots serves",
        "nodes",
        USES,
        "    if not found.profile.slot_count:",
        "    if False:",
        RULES,
    ),
    Mutant(
        "agentless: an inspection takes a node from its agent",
        "nodes",
        "orchestrator/nodes/deploy_systems/agentless_store.py",
        "where id = :node_id and enrolled_at is null and driver",
        "where id = :node_id and driver",
        AGENTS_OWN,
    ),
    Mutant(
        "agentless: an agent says that it has none",
        "nodes",
        "orchestrator/tasks/store/heartbeats.py",
        "driver not in RESERVED_DRIVERS and (driver not in SANDBOX_DRIVERS or sandbox_allowed)",
        "driver not in SANDBOX_DRIVERS or sandbox_allowed",
        ("tests/security/test_sandbox_drivers.py::test_no_agent_says_that_its_node_has_none",),
    ),
    Mutant(
        "agentless: a silent BMC degrades the allocation",
        "allocations",
        "orchestrator/allocations/store/health.py",
        "  and (n.driver is distinct from 'redfish' or n.enrolled_at is not null) and exists (",
        "  and exists (",
        (f"{RENTING}::test_a_silent_bmc_says_nothing_about_the_allocation",),
    ),
    Mutant(
        "agentless: an agent takes over a rented machine",
        "nodes",
        "orchestrator/nodes/commands/enrolment.py",
        "    await require_enrollable(tx, node_id)\n    proof",
        "    proof",
        (f"{RENTING}::test_no_agent_enrols_while_a_site_works_on_the_machine_or_a_tenant_has_it",),
    ),
    Mutant(
        "agentless: an agent that enrolled releases what a site has deployed",
        "tasks",
        "orchestrator/tasks/store/site_tasks.py",
        "    exists (select from node_tasks t where t.allocation_id = :allocation_id and t.deploy_epoch = 0)\n    or ",
        "    ",
        (f"{RENTING}::test_no_agent_enrols_while_a_site_works_on_the_machine_or_a_tenant_has_it",),
    ),
    Mutant(
        "agentless: a node whose agent enrolled stays online",
        "nodes",
        "orchestrator/nodes/commands/enrolment.py",
        "    await give_up_agentless(tx, node_id)\n",
        "",
        (f"{RENTING}::test_a_node_whose_agent_enrols_is_offline_until_its_first_heartbeat",),
    ),
    Mutant(
        "bmc liveness: an answer of before counts for another BMC",
        "nodes",
        STORE,
        "b.node_id = any (cast(:answered as uuid[])) and b.changed_at < :listed_at",
        "b.node_id = any (cast(:answered as uuid[]))",
        (f"{TESTS}::test_an_answer_of_before_a_change_does_not_count_for_the_new_bmc",),
    ),
    Mutant(
        "agentless: an inspection opens a machine after a restore",
        "nodes",
        "orchestrator/nodes/commands/deploy_tasks.py",
        "    elif known.type is TaskType.METAL_WIPE:\n",
        "    if known.type in (TaskType.METAL_WIPE, TaskType.METAL_INSPECT):\n",
        (f"{TESTS}::test_after_a_restore_a_wipe_alone_opens_a_machine_again",),
    ),
    Mutant(
        "bmc liveness: another machine's certificate is an answer",
        "agent",
        "node_agent/site/bmc_liveness.py",
        '    except CertificateChanged:\n        return "bmc_certificate_changed"\n',
        "    except CertificateChanged:\n        return None\n",
        (f"{TESTS}::test_what_counts_as_an_answer_of_a_bmc",),
    ),
    Mutant(
        "bmc liveness: the second page of a round is not asked",
        "agent",
        "node_agent/site/bmc_liveness.py",
        "return page.machines[-1].node_id if len(page.machines) == MACHINES_MAX else None",
        "return None",
        (f"{TESTS}::test_agents_ask_every_bmc_of_the_site_and_nodes_follow",),
    ),
]
