"""Ways in which something can be left of a deleted tenant (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import LAST_EVENT_OF_ACTIVE, planted

LEFT_BEHIND = [
    planted(
        "an archived allocation with rows", "archive", "is archived and still has a timeline",
        "insert into archived_allocations (allocation_id, segment) select {released}, 1;"
        " update archive_segments set deleted = deleted + 1 where sequence = 1",
    ),
    planted(
        "a segment of the archive with another count", "archive", "and 1 are known",
        "update archive_segments set deleted = 7 where sequence = 1",
    ),
    planted(
        "a segment of the archive that is missing", "archive", "is missing",
        "insert into archive_segments (sequence, manifest_sha256, destination, deleted) values (3, repeat('0', 64), 'd', 0)",
    ),
    planted(
        "an archived allocation that the archive does not name", "archive", "and 0 are known",
        "delete from archived_allocations",
    ),
    planted(
        "a tenant deleted with everything that it holds", "tenants", "is deleted and has allocation",
        "update tenants set state = 'deleted', deleted_at = clock_timestamp() where state = 'active'",
    ),
    planted(
        "a live key of a deleted tenant", "tenants", "still has API key",
        "update api_keys set revoked_at = null where tenant_id = {gone}",
    ),
    planted(
        "an SSH key of a deleted tenant", "tenants", "still has SSH key",
        "insert into ssh_keys (tenant_id, name, public_key, fingerprint) values ({gone}, 'late', 'ssh-ed25519 BB', 'late')",
    ),
    planted(
        "a webhook of a deleted tenant", "tenants", "still has webhook",
        "insert into webhooks (id, tenant_id, url, signing, keys, position, versions_max)"
        " select uuidv7(), {gone}, 'https://x', 'hmac', '[]', version, 1 from log_head",
    ),
    planted(
        "a subscription of a deleted tenant", "tenants", "still has subscription",
        "insert into notification_subscriptions (scope, name, version, versions_max, kept_until)"
        " select {gone}, 'late', version, 1, clock_timestamp() from log_head",
    ),
    planted(
        "a retention policy of a deleted tenant", "tenants", "still has retention policy",
        "insert into retention_policies (scope, policy_id, prevent_truncate) select {gone}, 'late', version from log_head",
    ),
    planted(
        "a quota of a deleted tenant", "tenants", "still has quota",
        "insert into tenant_quotas (tenant_id) values ({gone})",
    ),
    planted(
        "a create after the deletion", "tenants P2 P3", "from after its deletion",
        "update log set tenant_id = {gone}, event_type = 'transaction', occurred_at = clock_timestamp()"
        f" where version = {LAST_EVENT_OF_ACTIVE}",
    ),
]  # fmt: skip
