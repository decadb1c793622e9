"""The table of sweepers. docs/reference/sweepers.md shows it to operators; a test compares the two."""

from __future__ import annotations

from functools import partial

from orchestrator.audit.commands import chain_audit
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.nodes.commands.burn_ins import BurnInPolicy
from orchestrator.nodes.commands.probes import ProbePolicy
from orchestrator.operations.execution import Context
from worker.consoles.sweeping import issue_consoles, sweep_consoles
from worker.consumers.dead_letter_retries import retry_dead_letters
from worker.deploy_systems.sweeping import sweep_deploy_runs, sweep_deploy_tasks
from worker.restores.sweeping import sweep_replays
from worker.settings import Settings
from worker.sites.attesting import sweep_attestations
from worker.sites.sweeping import measure_sites, sweep_bmc_liveness, sweep_bmc_tasks, sweep_firmware_updates
from worker.sweepers.allocation_ends import announce_ends, release_ended
from worker.sweepers.approvals import sweep_approvals
from worker.sweepers.balances import sweep_balances
from worker.sweepers.burn_ins import sweep_burn_ins, sweep_gpu_resets
from worker.sweepers.census import set_census_gauges
from worker.sweepers.expired_tasks import expire_overdue_tasks
from worker.sweepers.faults import sweep_faults
from worker.sweepers.hardware import sweep_hardware
from worker.sweepers.health import sweep_health
from worker.sweepers.log_truncation import truncate_oldest_partition
from worker.sweepers.lost_workflows import WorkflowRescuer
from worker.sweepers.maintenance import DrainSweeper, sweep_maintenance, sweep_maintenance_tasks
from worker.sweepers.metering_lag import measure_metering_lag
from worker.sweepers.offline_nodes import mark_silent_nodes_offline
from worker.sweepers.overdue_allocations import rescue_overdue_allocations
from worker.sweepers.probes import sweep_probes
from worker.sweepers.reconciliation import InventoryReconciler, advance_orphans
from worker.sweepers.reservation_starter import ReservationStarter
from worker.sweepers.reservations import sweep_overdue_holds, sweep_retired_reservations, sweep_windows_over
from worker.sweepers.retention import sweep_deleted_keys, sweep_left_vlans, sweep_operations
from worker.sweepers.sweeper import Sweeper
from worker.sweepers.topologies import sweep_topologies
from worker.workflows.starting import WorkflowStarter

CATALOGUE_CACHE_SECONDS = 1.0


def make_sweepers(context: Context, workflows: WorkflowStarter, settings: Settings) -> list[Sweeper]:
    """Every sweeper of the worker, in the order in which one round runs them."""
    return [
        *_deadline_sweepers(context, settings),
        *_rescue_sweepers(context, workflows, settings),
        *_retention_sweepers(context, settings),
        *_measuring_sweepers(context, settings),
    ]


def make_prompt_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers that a person waits for. They run beside the others, so that a long round delays none of them."""
    issue = partial(issue_consoles, context, settings.console_dial_seconds, settings.sweep_batch_max)
    return [
        Sweeper("console_tasks", settings.console_issue_seconds, issue, "console sessions whose task is not issued")
    ]


def _deadline_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers that act at a time which a tenant or the catalogue chose."""
    every, batch = settings.sweep_seconds, settings.sweep_batch_max
    starter = ReservationStarter(context, CatalogueCache(context.database, CATALOGUE_CACHE_SECONDS), batch)
    return [
        Sweeper("balances", every, partial(sweep_balances, context, batch), "prepaid balances due for evaluation"),
        # Before the starts: the end of a window quarantines slots whose reset is open, and no start may use them first.
        Sweeper(
            "maintenance",
            every,
            partial(sweep_maintenance, context, settings.maintenance_retention_seconds, batch),
            "maintenance windows whose start or end has come, and ended ones past their retention",
        ),
        Sweeper(
            "maintenance_tasks",
            every,
            partial(sweep_maintenance_tasks, context, settings.probe_thresholds, batch),
            "tasks of maintenance windows that can begin or are over",
        ),
        Sweeper(
            "drains",
            every,
            DrainSweeper(context, batch).run,
            "drains that are complete or overdue, and allocations that these release",
        ),
        Sweeper(
            "restore_replays",
            every,
            partial(sweep_replays, context, batch),
            "allocations and reservations that were ended in the lost interval of a restore",
        ),
        Sweeper("ended_allocations", every, partial(release_ended, context, batch), "allocations past their `ends_at`"),
        Sweeper("due_starts", every, starter.start_due, "confirmed reservations whose start time has come"),
        Sweeper("late_starts", every, starter.start_late, "reservations whose start was postponed"),
        Sweeper(
            "stranded_reservations",
            every,
            starter.move_stranded,
            "claims of begun reservations on nodes out of service",
        ),
        Sweeper("units_to_start", every, starter.start_waiting, "allocations whose units have become free"),
        Sweeper(
            "ending_notices", every, partial(announce_ends, context, batch), "allocations about to end, unannounced"
        ),
        Sweeper("overdue_holds", every, partial(sweep_overdue_holds, context, batch), "holds past their deadline"),
        Sweeper(
            "windows_over", every, partial(sweep_windows_over, context, batch), "confirmed windows that passed unused"
        ),
    ]


def _rescue_sweepers(context: Context, workflows: WorkflowStarter, settings: Settings) -> list[Sweeper]:
    """Sweepers that end a wait because a process, server or node did not."""
    every, batch, grace = settings.sweep_seconds, settings.sweep_batch_max, settings.sweep_grace_seconds
    rescuer = WorkflowRescuer(
        context, workflows, consumer=settings.worker_consumer_name, patience_seconds=settings.rescue_patience_seconds,
        limit=batch,
    )  # fmt: skip
    reconciler = InventoryReconciler(
        context, nodes_max=settings.reconcile_nodes_max, limit=batch, inventories_min=settings.missing_inventories_min
    )
    rescue_overdue = partial(rescue_overdue_allocations, context, workflows, grace, batch)
    mark_offline = partial(mark_silent_nodes_offline, context, settings.node_silent_seconds, batch)
    retry_letters = partial(
        retry_dead_letters, context, workflows, settings.worker_consumer_name, batch,
        settings.worker_dead_letter_retention_seconds,
    )  # fmt: skip
    return [
        Sweeper("overdue_allocations", every, rescue_overdue, "allocations past the deadline of their wait"),
        Sweeper(
            "expired_tasks", every, partial(expire_overdue_tasks, context, grace, batch), "tasks past their expiry"
        ),
        Sweeper(
            "lost_workflows", settings.rescue_seconds, rescuer.run, "waits whose workflow is gone or missed a signal"
        ),
        Sweeper(
            "temporal_store",
            settings.temporal_store_seconds,
            rescuer.check_store,
            "waits of all workflows of a Temporal that lost its store",
        ),
        Sweeper("orphans", every, partial(advance_orphans, context, batch), "orphans about which an operator decided"),
        Sweeper(
            "inventories",
            settings.reconcile_seconds,
            reconciler.run,
            "differences between nodes' inventories and claims",
        ),
        *_hardware_sweepers(context, settings),
        Sweeper("offline_nodes", every, mark_offline, "nodes that stopped sending heartbeats"),
        Sweeper(
            "health",
            every,
            partial(sweep_health, context, batch),
            "allocations of offline nodes, and unhealthy ones past the deadline of their health",
        ),
        Sweeper(
            "fault_reports",
            every,
            partial(sweep_faults, context, settings.fault_retention_seconds, batch),
            "replacements of faulty allocations that have ended, and fault reports past their retention",
        ),
        Sweeper(
            "consoles",
            every,
            partial(
                sweep_consoles, context, settings.console_silent_seconds, settings.console_retention_seconds, batch
            ),
            "console sessions whose process is gone or did not end them in time, and ended ones past their retention",
        ),
        Sweeper("dead_letters", every, retry_letters, "dead letters whose retry an operator ordered"),
    ]


def _hardware_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers that issue and conclude tasks about nodes as such."""
    every, batch = settings.sweep_seconds, settings.sweep_batch_max
    return [
        Sweeper(
            "topologies",
            # Its queries read every node: 0.1 s at 50,000 of them, and no discovery is urgent.
            settings.topologies_seconds,
            partial(sweep_topologies, context, settings.topology_discover_seconds, batch),
            "discoveries that are due or whose task has ended",
        ),
        Sweeper(
            "probes",
            settings.probes_seconds,
            partial(sweep_probes, context, _probe_policy(settings), batch),
            "health probes that are due or whose task has ended",
        ),
        Sweeper(
            "burn_ins",
            every,
            partial(sweep_burn_ins, context, _burn_in_policy(settings), batch),
            "burn-ins that were requested or whose task has ended",
        ),
        Sweeper(
            "gpu_resets",
            every,
            partial(sweep_gpu_resets, context, settings.probe_history_max, batch),
            "resets of GPUs that were requested or whose task has ended",
        ),
        Sweeper(
            "attestations",
            every,
            partial(sweep_attestations, context, settings.attestation_failure, batch),
            "attestations on demand that were requested or whose answer has come",
        ),
        *_site_sweepers(context, settings),
    ]


def _site_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers of tasks that agents of sites and deploy systems perform."""
    every, batch = settings.sweep_seconds, settings.sweep_batch_max
    return [
        Sweeper(
            "bmc_tasks",
            every,
            partial(sweep_bmc_tasks, context, batch),
            "tasks about BMCs that can be signed, or that no agent reported in time",
        ),
        Sweeper(
            "firmware_updates",
            every,
            partial(sweep_firmware_updates, context, batch),
            "updates of firmware of maintenance windows that can begin or are over",
        ),
        Sweeper(
            "bmc_liveness",
            every,
            partial(sweep_bmc_liveness, context, settings.bmc_silent_seconds, batch),
            "nodes without an agent whose BMC answers again, or was silent for too long",
        ),
        Sweeper(
            "deploy_tasks",
            every,
            partial(sweep_deploy_tasks, context, batch),
            "tasks of deploy systems that were requested or whose task has ended",
        ),
        Sweeper(
            "deploy_runs",
            every,
            partial(sweep_deploy_runs, context, batch),
            "runs of deploy systems whose step has ended, and tasks of allocations that wait for one",
        ),
    ]


def _probe_policy(settings: Settings) -> ProbePolicy:
    return ProbePolicy(settings.probe_seconds, settings.probe_history_max, settings.probe_thresholds)


def _burn_in_policy(settings: Settings) -> BurnInPolicy:
    return BurnInPolicy(settings.burn_in_seconds_max, settings.probe_history_max, settings.burn_in_return)


def _retention_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers that delete what was kept long enough, and the one that chains the audit."""
    every, batch = settings.sweep_seconds, settings.sweep_batch_max
    truncate = partial(truncate_oldest_partition, context, settings.log_age_seconds_min, settings.log_versions_min)
    return [
        Sweeper("audit", every, partial(chain_audit, context), "audit rows that are not in the chain yet"),
        Sweeper(
            "retired_reservations", every, partial(sweep_retired_reservations, context, batch),
            "ended reservations past their retention",
        ),
        Sweeper(
            "approvals", every, partial(sweep_approvals, context, settings.approval_retention_seconds, batch),
            "requests that no second operator approved in time, and ended ones past their retention",
        ),
        Sweeper(
            "hardware_history",
            settings.topologies_seconds,
            partial(sweep_hardware, context, settings.hardware_retention_seconds, batch),
            "entries of the history of hardware, and closed repairs, past their retention",
        ),
        Sweeper(
            "left_vlans",
            # It reads every node of a region, and a quarantine is long.
            settings.topologies_seconds,
            partial(sweep_left_vlans, context, settings.network_vlan_quarantine_seconds, batch),
            "quarantines of VLANs that tenant networks left: those that begin, and those that are over",
        ),
        Sweeper("operations", every, partial(sweep_operations, context), "operation records past their retention"),
        Sweeper(
            "deleted_keys", every, partial(sweep_deleted_keys, context), "tombstones of deleted keys, keys of deleted tenants"
        ),
        Sweeper("log", settings.log_truncation_seconds, truncate, "log partitions that no cursor needs"),
    ]  # fmt: skip


def _measuring_sweepers(context: Context, settings: Settings) -> list[Sweeper]:
    """Sweepers that only set gauges."""
    return [
        Sweeper("metering_lag", settings.sweep_seconds, partial(measure_metering_lag, context), "nothing; sets gauges"),
        Sweeper("sites", settings.census_seconds, partial(measure_sites, context), "nothing; sets gauges"),
        Sweeper("census", settings.census_seconds, partial(set_census_gauges, context), "nothing; sets gauges"),
    ]
