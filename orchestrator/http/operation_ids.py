"""Names of operations in the OpenAPI document (`create_allocation`), derived from method and path. Pure."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^/(api/v1/admin|api/v1|node/v1|site/v1|v1)(?=/)")
_PARAMETER = re.compile(r"^\{.*\}$")
_VERBS = {"get": "get", "post": "create", "put": "put", "patch": "update", "delete": "delete"}
_NAMED = {
    ("get", "/ok"): "check_health",
    ("get", "/live"): "check_liveness",
    ("get", "/asyncapi.json"): "read_asyncapi",
    ("get", "/v1/version"): "get_version",
    ("get", "/v1/status"): "get_commit_status",
    ("get", "/v1/subscribe"): "subscribe",
    ("post", "/v1/commit"): "commit_transaction",
    ("get", "/v1/kv"): "list_keys",
    ("get", "/v1/kv/{key}"): "get_key",
    ("get", "/v1/retention"): "list_retention_policies",
    ("get", "/v1/retention/{policy_id}"): "get_retention_policy",
    ("put", "/v1/retention/{policy_id}"): "put_retention_policy",
    ("delete", "/v1/retention/{policy_id}"): "delete_retention_policy",
    ("get", "/api/v1/me"): "get_me",
    ("get", "/api/v1/usage"): "list_usage",
    ("get", "/api/v1/availability"): "list_availability",
    ("get", "/api/v1/balance"): "get_balance",
    ("get", "/api/v1/admin/audit"): "admin_list_audit_entries",
    ("get", "/api/v1/audit"): "list_audit_entries",
    ("get", "/api/v1/admin/allocations/{allocation_id}"): "admin_get_allocation",
    ("get", "/api/v1/admin/allocations/{allocation_id}/devices"): "admin_get_allocation_devices",
    ("get", "/api/v1/admin/hardware"): "admin_list_hardware",
    ("get", "/api/v1/admin/hardware/{serial}/history"): "admin_list_hardware_history",
    ("get", "/api/v1/admin/maintenance"): "admin_list_maintenance_windows",
    ("get", "/api/v1/admin/maintenance/plan"): "admin_plan_maintenance",
    ("get", "/api/v1/admin/maintenance/{window_id}"): "admin_get_maintenance_window",
    ("post", "/api/v1/admin/maintenance"): "admin_commit_maintenance",
    ("post", "/api/v1/reservations"): "hold_reservation",
    ("post", "/api/v1/nodes/enroll"): "enroll_node",
    ("post", "/api/v1/deploy-systems/enroll"): "enroll_deploy_system",
    ("post", "/api/v1/deploy-systems/enroll/challenge"): "challenge_deploy_system",
    ("post", "/api/v1/admin/nodes/{node_id}/deploy-system"): "permit_deploy_system",
    ("delete", "/api/v1/admin/nodes/{node_id}/deploy-system"): "revoke_deploy_system",
    ("get", "/api/v1/admin/nodes/{node_id}/deploy-system"): "get_deploy_system",
    ("post", "/api/v1/admin/nodes/{node_id}/deploy-system/inspect"): "inspect_machine",
    ("get", "/api/v1/admin/nodes/{node_id}/deploy-system/tasks"): "list_deploy_tasks",
    ("post", "/deploy/v1/hello"): "report_deploy_hello",
    ("get", "/deploy/v1/tasks/wait"): "wait_for_deploy_task",
    ("post", "/deploy/v1/tasks/{task_id}/result"): "report_deploy_result",
    ("post", "/api/v1/nodes/enroll/challenge"): "challenge_enrolling_node",
    ("put", "/api/v1/admin/nodes/{node_id}/attestation"): "admin_put_node_attestation",
    ("put", "/api/v1/admin/pools/{pool_id}/attestation"): "admin_put_pool_attestation",
    ("post", "/api/v1/webhooks/{webhook_id}/replay"): "replay_webhook_deliveries",
    ("post", "/api/v1/admin/nodes/{node_id}/certificates/revoke"): "admin_revoke_node_certificates",
    ("put", "/api/v1/admin/firmware-lists"): "admin_put_firmware_list",
    ("post", "/api/v1/sites/enroll"): "enroll_site_agent",
    ("post", "/api/v1/admin/sites/{site_id}/agents"): "admin_invite_site_agent",
    ("post", "/api/v1/admin/sites/{site_id}/agents/{agent_id}/revoke"): "admin_revoke_site_agent",
    ("get", "/api/v1/admin/nodes/{node_id}/bmc"): "admin_get_node_bmc",
    ("put", "/api/v1/admin/nodes/{node_id}/bmc"): "admin_put_node_bmc",
    ("delete", "/api/v1/admin/nodes/{node_id}/bmc"): "admin_delete_node_bmc",
    ("post", "/api/v1/admin/nodes/{node_id}/bmc/look"): "admin_look_at_node_bmc",
    ("post", "/api/v1/admin/nodes/{node_id}/bmc/rotate"): "admin_rotate_node_bmc",
    ("post", "/api/v1/admin/nodes/{node_id}/bmc/reseal"): "admin_reseal_node_bmc",
    ("post", "/api/v1/admin/nodes/{node_id}/bmc/power"): "admin_switch_node_bmc",
    ("get", "/api/v1/admin/sites/{site_id}/segments"): "admin_get_site_segments",
    ("put", "/api/v1/admin/sites/{site_id}/segments"): "admin_put_site_segments",
    ("get", "/api/v1/admin/nodes/{node_id}/ports"): "admin_get_node_ports",
    ("put", "/api/v1/admin/nodes/{node_id}/ports"): "admin_put_node_ports",
    ("post", "/api/v1/admin/nodes/{node_id}/ports/move"): "admin_move_node_ports",
    ("get", "/api/v1/admin/nodes/{node_id}/deploy-system/run"): "admin_get_deploy_run",
    ("post", "/api/v1/admin/nodes/{node_id}/deploy-system/run"): "admin_run_deploy_system",
    ("post", "/api/v1/admin/nodes/{node_id}/deploy-system/run/stop"): "admin_stop_deploy_run",
    ("post", "/api/v1/admin/nodes/{node_id}/adoption"): "admin_adopt_machine",
    ("get", "/api/v1/admin/nodes/{node_id}/adoption"): "admin_get_adoption",
    ("post", "/site/v1/certificate"): "renew_site_certificate",
    ("get", "/site/v1/key-set"): "get_site_key_set",
    ("post", "/site/v1/lease"): "take_site_lease",
    ("get", "/site/v1/tasks/wait"): "wait_for_site_tasks",
    ("post", "/site/v1/tasks/{task_id}/password"): "store_bmc_password",
    ("post", "/site/v1/tasks/{task_id}/result"): "report_bmc_task",
    ("get", "/node/v1/tasks/wait"): "wait_for_tasks",
    ("post", "/node/v1/heartbeat"): "report_heartbeat",
    ("post", "/node/v1/certificate"): "renew_certificate",
    ("post", "/node/v1/certificate/challenge"): "challenge_renewing_node",
    ("get", "/node/v1/key-set"): "get_key_set",
    ("post", "/node/v1/tasks/{task_id}/result"): "report_task_result",
    ("post", "/node/v1/tasks/{task_id}/progress"): "report_task_progress",
}
"""Paths whose last part is not the name of a collection."""
_ACTIONS = frozenset(
    {
        "adopt", "approve", "cancel", "close", "confirm", "cordon", "destroy", "discard", "drain", "end",
        "force-cleanup", "force-release",
        "forget", "in-service", "out-of-service", "reject", "release", "replay", "retire", "retry", "rotate", "test", "uncordon",
        "withdraw",
    }
)  # fmt: skip


def operation_id(method: str, path: str) -> str:
    """The operation's name: verb and noun, `admin_` before those of operators.

    A collection is listed or created in, an item is got, put, updated or deleted, an action is done to its item.
    """
    named = _NAMED.get((method, path))
    if named is not None:
        return named
    parts = _PREFIX.sub("", path).strip("/").split("/")
    prefix = "admin_" if path.startswith("/api/v1/admin/") else ""
    nouns = [part for part in parts if not _PARAMETER.match(part)]
    if nouns[-1] in _ACTIONS:
        return f"{prefix}{nouns[-1]}_{_joined(nouns[:-1])}".replace("-", "_")
    on_item = bool(_PARAMETER.match(parts[-1])) or nouns[-1].removesuffix("s") == nouns[-1]
    if method == "get" and not on_item:
        return f"{prefix}list_{_joined(nouns, plural=True)}".replace("-", "_")
    return f"{prefix}{_VERBS[method]}_{_joined(nouns)}".replace("-", "_")


def _joined(nouns: list[str], *, plural: bool = False) -> str:
    """The nouns of a path as one: those before the last one are singular."""
    singular = [_singular(noun) for noun in nouns]
    return "_".join([*singular[:-1], nouns[-1] if plural else singular[-1]])


def _singular(noun: str) -> str:
    return noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
