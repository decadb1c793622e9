"""Names of the audited actions, by route, and the objects that they concern. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Audited:
    """What a request does: the action, and kind and id of its object; the kind alone where the action makes the object."""

    action: str
    subject: str


ACTIONS: Final = {
    "POST /api/v1/allocations": "allocation.create",
    "POST /api/v1/allocations/{allocation_id}/release": "allocation.release",
    "POST /api/v1/allocations/{allocation_id}/reboot": "allocation.reboot",
    "POST /api/v1/allocations/{allocation_id}/stop": "allocation.stop",
    "POST /api/v1/allocations/{allocation_id}/start": "allocation.start",
    "POST /api/v1/allocations/{allocation_id}/rebuild": "allocation.rebuild",
    "POST /api/v1/allocations/{allocation_id}/rescue": "allocation.rescue",
    "POST /api/v1/allocations/{allocation_id}/report-fault": "allocation.report_fault",
    "PATCH /api/v1/allocations/{allocation_id}": "allocation.update",
    "POST /api/v1/reservations": "reservation.hold",
    "POST /api/v1/reservations/{reservation_id}/confirm": "reservation.confirm",
    "POST /api/v1/reservations/{reservation_id}/cancel": "reservation.cancel",
    "POST /api/v1/ssh-keys": "ssh_key.create",
    "DELETE /api/v1/ssh-keys/{key_id}": "ssh_key.delete",
    "POST /api/v1/api-keys": "api_key.create",
    "POST /api/v1/api-keys/{key_id}/rotate": "api_key.rotate",
    "DELETE /api/v1/api-keys/{key_id}": "api_key.revoke",
    "POST /api/v1/invitations": "invitation.create",
    "DELETE /api/v1/invitations/{invitation_id}": "invitation.revoke",
    "PATCH /api/v1/members/{member_id}": "member.set_role",
    "DELETE /api/v1/members/{member_id}": "member.remove",
    "POST /api/v1/webhooks": "webhook.create",
    "PATCH /api/v1/webhooks/{webhook_id}": "webhook.change",
    "DELETE /api/v1/webhooks/{webhook_id}": "webhook.delete",
    "POST /api/v1/webhooks/{webhook_id}/rotate": "webhook.rotate",
    "POST /api/v1/webhooks/{webhook_id}/test": "webhook.test",
    "POST /api/v1/webhooks/{webhook_id}/replay": "webhook.replay",
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{number}/replay": "webhook.replay_delivery",
    "POST /api/v1/admin/tenants": "tenant.create",
    "PATCH /api/v1/admin/tenants/{tenant_id}": "tenant.change_state",
    "DELETE /api/v1/admin/tenants/{tenant_id}": "tenant.delete",
    "PUT /api/v1/admin/tenants/{tenant_id}/quota": "tenant.set_quota",
    "PUT /api/v1/admin/tenants/{tenant_id}/balance": "balance.set_policy",
    "POST /api/v1/admin/tenants/{tenant_id}/top-ups": "balance.top_up",
    "POST /api/v1/admin/tenants/{tenant_id}/withdrawals": "balance.withdrawal",
    "POST /api/v1/admin/api-keys": "api_key.create",
    "POST /api/v1/admin/api-keys/{key_id}/rotate": "api_key.rotate",
    "DELETE /api/v1/admin/api-keys/{key_id}": "api_key.revoke",
    "PUT /api/v1/admin/regions/{name}": "region.put",
    "PUT /api/v1/admin/skus/{name}": "sku.put",
    "PUT /api/v1/admin/images/{name}": "image.put",
    "DELETE /api/v1/admin/images/{name}": "image.delete",
    "POST /api/v1/admin/nodes": "node.create",
    "PATCH /api/v1/admin/nodes/{node}": "node.update",
    "POST /api/v1/admin/nodes/{node_id}/enrolment-token": "node.create_enrolment_token",
    "POST /api/v1/admin/nodes/{node_id}/cordon": "node.cordon",
    "POST /api/v1/admin/nodes/{node_id}/uncordon": "node.uncordon",
    "POST /api/v1/admin/nodes/{node_id}/drain": "node.drain",
    "POST /api/v1/admin/nodes/{node_id}/retire": "node.retire",
    "POST /api/v1/admin/nodes/{node_id}/approve": "node.approve",
    "PUT /api/v1/admin/nodes/{node_id}/attestation": "node.set_attestation",
    "PUT /api/v1/admin/pools/{pool_id}/attestation": "pool.set_attestation",
    "POST /api/v1/admin/nodes/{node_id}/certificates/revoke": "node.revoke_certificates",
    "POST /api/v1/admin/nodes/{node_id}/burn-in": "node.burn_in",
    "DELETE /api/v1/admin/nodes/{node_id}/deploy-system": "node.revoke_deploy_system",
    "POST /api/v1/admin/nodes/{node_id}/deploy-system": "node.permit_deploy_system",
    "POST /api/v1/admin/nodes/{node_id}/deploy-system/inspect": "node.request_deploy_task",
    "POST /api/v1/admin/nodes/{node_id}/slots/{slot_index}/gpu-reset": "node.gpu_reset",
    "POST /api/v1/admin/nodes/{node_id}/slots/{slot_index}/quarantine": "node.slot_quarantine",
    "POST /api/v1/admin/nodes/{node_id}/slots/{slot_index}/return": "node.slot_return",
    "POST /api/v1/admin/nodes/{node_id}/bmc/reset": "node.bmc_reset",
    "PUT /api/v1/admin/sites/{site_id}/segments": "site.put_segments",
    "PUT /api/v1/admin/nodes/{node_id}/ports": "node.put_ports",
    "POST /api/v1/admin/nodes/{node_id}/ports/move": "node.move_ports",
    "POST /api/v1/admin/nodes/{node_id}/attestation": "node.attest",
    "POST /api/v1/admin/nodes/{node_id}/attestation/accept": "node.accept_attestation",
    "PUT /api/v1/admin/firmware-lists": "firmware_list.put",
    "DELETE /api/v1/admin/firmware-lists/{list_id}": "firmware_list.delete",
    "POST /api/v1/admin/sites": "site.create",
    "DELETE /api/v1/admin/sites/{site_id}": "site.remove",
    "POST /api/v1/admin/sites/{site_id}/agents": "site.invite_agent",
    "POST /api/v1/admin/sites/{site_id}/agents/{agent_id}/revoke": "site.revoke_agent",
    "PUT /api/v1/admin/nodes/{node_id}/bmc": "node.put_bmc",
    "DELETE /api/v1/admin/nodes/{node_id}/bmc": "node.remove_bmc",
    "POST /api/v1/admin/nodes/{node_id}/bmc/look": "node.bmc_look",
    "POST /api/v1/admin/nodes/{node_id}/bmc/rotate": "node.bmc_rotate",
    "POST /api/v1/admin/nodes/{node_id}/bmc/reseal": "node.bmc_reseal",
    "POST /api/v1/admin/nodes/{node_id}/bmc/power": "node.bmc_power",
    "POST /api/v1/admin/nodes/{node_id}/deploy-system/run": "node.request_deploy_run",
    "POST /api/v1/admin/nodes/{node_id}/deploy-system/run/stop": "node.stop_deploy_run",
    "POST /api/v1/admin/nodes/{node_id}/adoption": "node.adopt_machine",
    "POST /api/v1/admin/repairs": "repair.open",
    "POST /api/v1/admin/repairs/{repair_id}/close": "repair.close",
    "POST /api/v1/admin/nodes/{node_id}/orphans/{orphan_id}/adopt": "node.orphan_adopted",
    "POST /api/v1/admin/nodes/{node_id}/orphans/{orphan_id}/destroy": "node.orphan_destroy",
    "POST /api/v1/admin/resources": "resource.create",
    "POST /api/v1/admin/resources/{resource_id}/out-of-service": "resource.out_of_service",
    "POST /api/v1/admin/resources/{resource_id}/in-service": "resource.in_service",
    "POST /api/v1/admin/allocations/{allocation_id}/force-release": "allocation.force_release",
    "POST /api/v1/admin/allocations/{allocation_id}/force-cleanup": "allocation.force_cleanup",
    "POST /api/v1/admin/approvals/{approval_id}/approve": "approval.approve",
    "POST /api/v1/admin/approvals/{approval_id}/reject": "approval.reject",
    "POST /api/v1/admin/approvals/{approval_id}/withdraw": "approval.withdraw",
    "POST /api/v1/admin/maintenance": "maintenance.commit",
    "POST /api/v1/admin/maintenance/{window_id}/cancel": "maintenance.cancel",
    "POST /api/v1/admin/maintenance/{window_id}/end": "maintenance.end",
    "POST /api/v1/admin/dead-letters/{dead_letter_id}/retry": "dead_letter.retry",
    "POST /api/v1/admin/dead-letters/{dead_letter_id}/discard": "dead_letter.discard",
    "POST /api/v1/admin/consumers/{consumer}/forget": "consumer.forget",
    "PUT /v1/retention/{policy_id}": "retention.put",
    "DELETE /v1/retention/{policy_id}": "retention.delete",
    "POST /v1/commit": "transaction.commit",
    "DELETE /api/v1/notifications/subscriptions/{name}": "subscription.delete",
}
"""The action of each write by method and path."""
FENCE: Final = Audited("operation.fence", "operations")
"""A query of an unused key, which fences the key."""
_PREFIXES = ("/api/v1/admin/", "/api/v1/", "/v1/", "/")
_SUBJECT_LENGTH_MAX = 200
_SUBJECTS = {"POST /v1/commit": "transactions"}
_PARENTS = frozenset({"notifications"})


@dataclass(frozen=True, slots=True)
class _Template:
    parts: tuple[str, ...]
    action: str

    def matches(self, parts: list[str]) -> bool:
        return all(own == part or own[0] == "{" for own, part in zip(self.parts, parts, strict=True))


def _templates() -> dict[tuple[str, int], list[_Template]]:
    found: dict[tuple[str, int], list[_Template]] = {}
    for route, action in ACTIONS.items():
        method, path = route.split(" ")
        parts = tuple(path.split("/")[1:])
        found.setdefault((method, len(parts)), []).append(_Template(parts, action))
    return found


_TEMPLATES: Final = _templates()
_PLAIN: Final = {
    tuple(route.split(" ")): Audited(action, subject)
    for route, action in ACTIONS.items()
    if "{" not in route
    for subject in [_SUBJECTS.get(route) or route.rsplit("/", 1)[1]]
}


def audited_action(method: str, path: str) -> Audited:
    """The action of a request and its object. Reads are `<kind>.read`; what no route serves is `unknown`."""
    plain = _PLAIN.get((method, path))
    if plain is not None:
        return plain
    parts = path.split("/")[1:]
    subject = _subject(path)
    for template in _TEMPLATES.get((method, len(parts)), ()):
        if all(parts) and template.matches(parts):
            return Audited(template.action, subject)
    if method == "GET":
        return Audited(f"{subject.partition('/')[0].replace('-', '_').removesuffix('s')}.read", subject)
    return Audited(UNKNOWN, subject)


def _subject(path: str) -> str:
    """Kind and, where the path names one, id of the object."""
    prefix = next(prefix for prefix in _PREFIXES if path.startswith(prefix))
    parts = path[len(prefix) :].split("/")
    if parts[0] in _PARENTS and len(parts) > 1:
        del parts[0]
    subject = "/".join(parts[:2])[:_SUBJECT_LENGTH_MAX]
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in subject)[:_SUBJECT_LENGTH_MAX]
