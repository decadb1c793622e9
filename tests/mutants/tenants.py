"""Mutants of these nouns: tenants, catalogue and audit."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, pages

SCOPES = "tests/api/tenants/test_scopes.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a key needs no scope",
        "tenants",
        "orchestrator/tenants/required_roles.py",
        "        if scope is not None and not covers(principal.scopes, str(scope)):\n",
        "        if False:\n",
        (f"{SCOPES}::test_each_endpoint_needs_its_scope_and_no_other",),
    ),
    Mutant(
        "reading covers writing",
        "tenants",
        "orchestrator/tenants/scopes.py",
        '    return access == Access.READ and f"{noun}:{Access.WRITE}" in held\n',
        '    return f"{noun}:{Access.READ if access == Access.WRITE else Access.WRITE}" in held\n',
        (f"{SCOPES}::test_reading_does_not_cover_writing",),
    ),
    Mutant(
        "a key with scopes makes one without",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        "    require_scopes(caller.scopes, wanted.scopes)\n",
        "",
        (f"{SCOPES}::test_no_key_makes_one_with_wider_scopes",),
    ),
    Mutant(
        "a key with scopes rotates a wider one",
        "tenants",
        "orchestrator/tenants/store/key_changes.py",
        "    require_scopes(held, row.scopes)\n",
        "",
        (f"{SCOPES}::test_a_rotation_keeps_the_scopes_and_no_key_rotates_a_wider_one",),
    ),
    Mutant(
        "a rotation drops the scopes",
        "tenants",
        "orchestrator/tenants/store/key_changes.py",
        "old.owner, old.break_glass, old.scopes)",
        "old.owner, old.break_glass)",
        (f"{SCOPES}::test_a_rotation_keeps_the_scopes_and_no_key_rotates_a_wider_one",),
    ),
    Mutant(
        "an approval makes a key that its approver may not make",
        "tenants",
        "orchestrator/approvals/actions.py",
        "    require_scopes(execution.held, scopes)\n",
        "",
        ("tests/approvals/test_scoped_keys.py::test_an_approver_with_scopes_makes_no_wider_key",),
    ),
    Mutant(
        "a tenant may name another tenant",
        "tenants",
        "orchestrator/http/tenant_scope.py",
        ("    if named not in (None, caller.tenant_id):\n"),
        ("    if named is not None and False:\n"),
        ("tests/api/billing/test_usage.py::test_pages_and_whose",),
    ),
    Mutant(
        "a list has one page",
        "tenants",
        "orchestrator/http/paging.py",
        "    more = len(found) > limit\n",
        "    more = False\n",
        (pages("/api/v1/ssh-keys "),),
    ),
    Mutant(
        "a page begins behind the item that was read ahead",
        "tenants",
        "orchestrator/http/paging.py",
        "cursor_after(kind, place(items[-1]))",
        "cursor_after(kind, place(found[-1]))",
        (pages("/api/v1/ssh-keys "),),
    ),
    Mutant(
        "a list by id does not read ahead",
        "tenants",
        "orchestrator/http/paging.py",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit + 1",
        "place_after(query.cursor, kind, UUID, FIRST_ID), query.limit",
        (pages("/api/v1/ssh-keys "),),
    ),
    Mutant(
        "all callers seal under one key",
        "tenants",
        "orchestrator/http/writes.py",
        "    return Sealer(bearer.strip())\n",
        '    return Sealer("berth")\n',
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "stored secrets are not sealed",
        "tenants",
        "orchestrator/operations/sealing.py",
        (
            "        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, "
            "secret.encode(), None)).decode()\n"
        ),
        "        return secret\n",
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "every sealer has one key",
        "tenants",
        "orchestrator/operations/sealing.py",
        "derive(bearer.encode()))",
        'derive(b"berth"))',
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "an API key is written into the audit",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        '"tenant_id": tenant_id, "prefix": secret.prefix}',
        '"tenant_id": tenant_id, "prefix": secret.key}',
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "two revocations leave a tenant without an admin key",
        "tenants",
        "orchestrator/tenants/store/key_changes.py",
        '    await tx.execute(_LOCK_TENANT, {"tenant_id": tenant_id})\n',
        "",
        ("tests/api/tenants/test_own_keys.py::test_of_two_revocations_of_the_last_two_admin_keys_one_succeeds",),
    ),
    Mutant(
        "a replaced admin key lets the last one be revoked",
        "tenants",
        "orchestrator/tenants/store/key_changes.py",
        " and o.replaced_by is null\n",
        "\n",
        ("tests/api/tenants/test_own_keys.py::test_the_last_live_admin_key_is_not_revoked_by_its_tenant",),
    ),
    Mutant(
        "a tenant rotates another tenant's API key",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        "    scope, secret = caller.tenant_id, Secret()",
        "    scope, secret = None, Secret()",
        ("tests/api/tenants/test_own_keys.py::test_a_tenant_neither_rotates_nor_revokes_a_key_outside_it",),
    ),
    Mutant(
        "a key that rotates itself ends at once",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        "if key_id == caller.id and",
        "if False and",
        ("tests/api/tenants/test_own_keys.py::test_a_key_that_rotates_itself_stays_valid_for_a_retry",),
    ),
    Mutant(
        "a cached API key works after its expiry",
        "tenants",
        "orchestrator/http/authentication.py",
        "principal.ends_at is not None and principal.ends_at <= time.monotonic()",
        "False",
        ("tests/security/test_expiring_keys.py::test_a_cached_key_is_refused_from_its_expiry_on",),
    ),
    Mutant(
        "an expired API key is looked up as live",
        "tenants",
        "orchestrator/tenants/store/api_keys.py",
        "k.expires_at is null or k.expires_at > clock_timestamp()",
        "true",
        ("tests/security/test_expiring_keys.py::test_an_expired_key_is_not_found",),
    ),
    Mutant(
        "an API key ends later than the deployment allows",
        "tenants",
        "orchestrator/tenants/store/api_keys.py",
        "latest is not None and expires_at > latest",
        "False",
        ("tests/security/test_expiring_keys.py::test_a_key_lives_no_longer_than_the_setting_allows",),
    ),
    Mutant(
        "a create's key counts for all tenants",
        "tenants",
        "migrations/schema/allocations.sql",
        "creation_runs_once unique (operation_key, tenant_id)",
        "creation_runs_once unique (operation_key)",
        (
            (
                "tests/schema/test_uniqueness.py::"
                "test_a_row_that_differs_in_one_column_of_the_key_passes[creation_runs_once]"
            ),
        ),
    ),
    Mutant(
        "a list by name does not read ahead",
        "catalogue",
        "orchestrator/http/paging.py",
        'place_after(query.cursor, kind, bounded_text, ""), query.limit + 1',
        'place_after(query.cursor, kind, bounded_text, ""), query.limit',
        (pages("/api/v1/skus "),),
    ),
    Mutant(
        "a price is changed",
        "catalogue",
        "migrations/schema/catalogue.sql",
        "before update or delete on sku_prices",
        "before delete on sku_prices",
        ("tests/schema/test_triggers.py::test_rows_that_never_change_are_neither_changed_nor_deleted",),
    ),
    Mutant(
        "a new price version is not kept",
        "catalogue",
        "migrations/schema/catalogue.sql",
        "after insert or update of price_version on skus",
        "after insert on skus",
        ("tests/schema/test_triggers.py::test_every_price_of_a_sku_is_kept",),
    ),
    Mutant(
        "a forgotten price is zero",
        "catalogue",
        "orchestrator/catalogue/store.py",
        "price_micro_per_gpu_second = coalesce(cast(:price as bigint), old.price_micro_per_gpu_second),",
        "price_micro_per_gpu_second = coalesce(cast(:price as bigint), 0),",
        ("tests/api/test_catalogue.py::test_a_changed_price_is_a_new_version_and_a_forgotten_one_stays",),
    ),
    Mutant(
        "a changed price has no new version",
        "catalogue",
        "orchestrator/catalogue/store.py",
        (
            "        + (coalesce(cast(:price as bigint), old.price_micro_per_gpu_second) <> "
            "old.price_micro_per_gpu_second)::integer,\n"
        ),
        "        + 0,\n",
        ("tests/api/test_catalogue.py::test_a_changed_price_is_a_new_version_and_a_forgotten_one_stays",),
    ),
    Mutant(
        "a default image need not exist",
        "catalogue",
        "orchestrator/catalogue/store.py",
        "        await _require_image(tx, default_image)\n",
        "        pass\n",
        ("tests/api/test_catalogue.py::test_a_sku_must_make_sense",),
    ),
    Mutant(
        "an image's region need not exist",
        "catalogue",
        "orchestrator/catalogue/store.py",
        "        await require_region(tx, region)\n",
        "        pass\n",
        ("tests/api/test_catalogue.py::test_images_are_made_and_retired",),
    ),
    Mutant(
        "an image has any digest",
        "catalogue",
        "migrations/schema/catalogue.sql",
        "check (sha256 ~ '^[0-9a-f]{64}$')",
        "check (true or sha256 ~ '^[0-9a-f]{64}$')",
        (check("images_sha256_check"),),
    ),
    Mutant(
        "entries about every subject are listed",
        "audit",
        "orchestrator/audit/list_store.py",
        '"subject": matching.subject,',
        '"subject": None,',
        ("tests/api/tenants/test_tenants_and_keys.py::test_everything_an_operator_writes_is_audited",),
    ),
    Mutant(
        "an entry lacks its request",
        "audit",
        "orchestrator/audit/store.py",
        '"request_id": request_id}',
        '"request_id": None}',
        ("tests/audit/test_recorder.py::test_a_row_outside_of_operations_has_its_request",),
    ),
    Mutant(
        "a new quota leaves no entry",
        "audit",
        "orchestrator/tenants/commands/tenants.py",
        '        await audit.record(tx, actor, "tenant.set_quota", f"tenants/{tenant_id}", detail, operation.request_id)\n',
        "",
        ("tests/api/tenants/test_tenants_and_keys.py::test_everything_an_operator_writes_is_audited",),
    ),
    Mutant(
        "a forgotten consumer leaves no entry",
        "audit",
        "orchestrator/log/commands.py",
        (
            '        await audit.record(tx, actor, "consumer.forget", f"consumers/{consumer}", detail, operation.request_id)\n'
        ),
        (""),
        ("tests/log/retention/test_consumers.py::test_a_consumer_that_will_not_come_again_is_forgotten_on_the_record",),
    ),
    Mutant(
        "a retried dead letter leaves no entry",
        "audit",
        "orchestrator/log/commands.py",
        (
            "        await audit.record(\n"
            '            tx, actor, "dead_letter.retry", f"dead-letters/{dead_letter_id}", detail, operation.request_id\n'
            "        )\n"
        ),
        (""),
        ("tests/api/test_dead_letters.py::test_a_retry_is_asked_for_once_and_written_down",),
    ),
    Mutant(
        "a resource's change of service leaves no entry",
        "audit",
        "orchestrator/reservations/store/resources.py",
        ('    await audit.record(tx, actor, f"resource.{state}", subject, said, operation.request_id)\n'),
        (""),
        ("tests/api/reservations/test_resource_service.py::test_repeating_changes_and_tells_nothing_but_is_audited",),
    ),
]
