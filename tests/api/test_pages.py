"""Every list of the OpenAPI document, page by page: the pages together are the whole list, each item once, in its order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.calling import Caller, fresh, new_place, new_region, new_tenant, rent
from tests.api.documents import public_document
from tests.keyvalue.committing import Keys, put
from tests.support.foreign import bearer, stable
from tests.support.public_api import PublicApi

ITEMS = 5
"""Of each list, at least; a page of 1 or 2 then is neither the first nor the last."""
WHOLE = 500
SITE = "0197a5c0-0000-7000-8000-000000000001"


@dataclass(frozen=True)
class Lists:
    """Callers with at least `ITEMS` of everything, and ids for the paths of lists."""

    admin: Caller
    tenant: Caller
    ids: dict[str, str]


FILTERS: dict[str, list[dict[str, str]]] = {
    "/api/v1/allocations": [{}, {"state": "requested"}, {"label": "team=red"}],
    "/api/v1/reservations": [{}, {"state": "hold"}],
    "/api/v1/resources": [{}, {"kind": "node"}, {"kind": "slot"}, {"kind": "registered"}],
    "/api/v1/usage": [{"by": by} for by in ("allocation", "day", "tenant")],
    "/api/v1/webhooks/{webhook_id}/deliveries": [{}, {"state": "pending"}],
    "/api/v1/admin/nodes": [{}, {"state": "active"}],
    "/api/v1/admin/nodes/{node_id}/orphans": [{}, {"every": "true"}],
    "/api/v1/admin/nodes/{node_id}/quarantines": [{}, {"every": "true"}],
    "/api/v1/admin/bmcs": [{}, {"site_id": SITE}],
    "/api/v1/admin/fault-reports": [{}, {"every": "true"}],
    "/api/v1/fault-reports": [{}, {"every": "true"}],
    "/api/v1/admin/hardware": [{}, {"kind": "gpu"}, {"contested": "true"}],
    "/api/v1/admin/repairs": [{"every": "true"}],
    "/api/v1/admin/allocations": [{}, {"state": "requested"}, {"label": "team=red"}],
    "/api/v1/admin/dead-letters": [{}, {"state": "dead"}, {"consumer": "pages"}],
    "/api/v1/admin/audit": [{}, {"subject": "things/pages"}],
}
"""Each list without and with the filters that change its statement."""
FLEET = """
with quarantine as (
    insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by)
    values (%(node)s, 1, (random() * 1e15)::bigint, 'a fault', 'admin:a')
), report as (
    insert into node_health_reports (node_id, reported_at, report, faults)
    values (%(node)s, clock_timestamp(), '{"driver": "sandbox"}', '[]')
), burn_in as (
    insert into node_burn_ins (node_id, slots, requested_by, ended_at, outcome)
    values (%(node)s, '{1}', 'admin:a', clock_timestamp(), 'failed')
), gpu_reset as (
    insert into node_gpu_resets (node_id, slots, gpus, requested_by, ended_at, outcome)
    values (%(node)s, '{1}', '{p}', 'admin:a', clock_timestamp(), 'failed')
), fault as (
    insert into fault_reports (tenant_id, allocation_id, node_id, slots, symptom, evidence, replace, reported_by)
    values (%(tenant)s, uuidv7(), %(node)s, '{1}', 'slow', 'e', false, 'tenant:a')
), place as (
    insert into hardware_places (serial, node_id, kind, slots, positions, contested_since)
    values (left(gen_random_uuid()::text, 30), %(node)s, 'gpu', '{1}', '{p}', clock_timestamp())
), entry as (
    insert into hardware_history (serial, kind, happened, slots, actor, detail)
    values ('PAGES', 'gpu', 'seen', '{}', 'admin:a', 'd')
), repair as (
    insert into hardware_repairs (serial, kind, reason, opened_by, closed_at, closed_by, result)
    values ('PAGES', 'gpu', 'r', 'admin:a', clock_timestamp(), 'admin:a', 'r')
), deploy_system as (
    insert into deploy_systems (node_id, deploy_epoch, token_hash, smbios_uuid, macs, tpm_required, certificate_seconds,
                                permitted_by, expires_at, ended_at, ended_by)
    select %(node)s, coalesce(max(deploy_epoch), 0) + 1, sha256(gen_random_uuid()::text::bytea), gen_random_uuid(), '{m}', false,
           600, 'admin:a', clock_timestamp(), clock_timestamp(), 'superseded'
    from deploy_systems where node_id = %(node)s returning node_id, deploy_epoch
), deploy_task as (
    insert into deploy_tasks (node_id, deploy_epoch, type, parameters, seconds_max, requested_by, ended_at, outcome, failure)
    select node_id, deploy_epoch, 'metal.inspect', '{}', 60, 'admin:a', clock_timestamp(), 'not_run', 'superseded: s'
    from deploy_system
), firmware as (
    insert into firmware_lists (vendor, product, components, changed_by) values ('v', gen_random_uuid()::text, '[]', 'admin:a')
), site as (
    insert into sites (name, recovery_key) values ('pages-' || left(gen_random_uuid()::text, 8), decode(repeat('00', 32), 'hex'))
)
insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)
values (%(node)s, uuidv7(), '{1}', 'operator', clock_timestamp())
"""
"""An item of each list of a node."""
BMCS = """
with site as (
    insert into sites (id, name, recovery_key) values (%(site)s, 'pages', decode(repeat('00', 32), 'hex'))
)
insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)
select id, %(site)s, 'https://192.0.2.7', decode(repeat('00', 32), 'hex'), 'root', 1, 'admin:a' from nodes
"""
"""The BMC of each node."""
OF_OPERATORS = ("/api/v1/admin/", "/api/v1/usage")


def lists_of(document: Any) -> list[str]:
    """The paths of the document that take a cursor."""
    return [
        path
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method == "get" and any(one["name"] == "cursor" for one in operation.get("parameters", ()))
    ]


PATHS = lists_of(public_document())
CASES = [(path, query) for path in PATHS for query in FILTERS.get(path, [{}])]


CANCELLED_WINDOW = """
insert into maintenance_windows (starts_at, ends_at, reason, state, ended_at)
values (clock_timestamp(), clock_timestamp() + interval '1 h', 'pages', 'cancelled', clock_timestamp())
"""

MEMBER = """
insert into tenant_members (id, tenant_id, subject, role, invited_by) values (gen_random_uuid(), %s, 'pages', 'viewer', 'x')
"""


def _add_members(tenant: Caller, database: Any) -> None:
    """An invitation and a member of the tenant."""
    tenant.make("/invitations", {"role": "viewer"})
    database.execute(MEMBER, (tenant.tenant_id,))


@pytest.fixture(scope="module")
def lists(api: PublicApi) -> Lists:
    """More than two pages of each list."""
    admin, database = api.admin, api.database
    tenant, others = new_tenant(admin), [new_tenant(admin) for _ in range(ITEMS)]
    place, *_ = [new_place(admin, database) for _ in range(ITEMS)]
    for _ in range(ITEMS):
        new_region(admin)
        tenant.make("/api-keys", {"name": fresh("key"), "role": "viewer"})
        _add_members(tenant, database)
    for other in others:
        rent(other, new_place(admin, database), labels={"team": "red"})
    made = [rent(tenant, place, labels={"team": "red"})["allocation_id"] for _ in range(ITEMS)]
    seats = [admin.make("/admin/resources", {"id": fresh("seat")})["id"] for _ in range(ITEMS)]
    for seat in seats:
        tenant.make("/reservations", {"resources": [seat], "holder_id": "holder"})
        tenant.make("/webhooks", {"url": "https://hooks.example.com/pages", "types": ["node.offline"]})
    webhook = tenant.get("/webhooks")["items"][0]["id"]
    for number in range(ITEMS):
        tenant.make(f"/webhooks/{webhook}/test")
        Keys(tenant).committed([put(b"key-%d" % number, b"value")])
        database.execute(
            "insert into dead_letters (consumer, version, reason, detail, excerpt, tries, first_at)"
            " values ('pages', %s, 'refused', 'no', '{}', 5, clock_timestamp())",
            (number + 1,),
        )
        database.execute(
            "insert into approvals (action, subject_id, requested_by, requested_role, requested_break_glass, waits_until)"
            " values ('api_key.revoke', uuidv7(), uuidv7(), 'admin', false, clock_timestamp() + interval '1 h')"
        )
        database.execute(CANCELLED_WINDOW)
        database.execute("insert into consumer_positions (consumer, version) values (%s, 0)", (fresh("consumer"),))
        database.execute(
            "insert into notification_subscriptions (scope, name, version, versions_max, kept_until)"
            " values (%s, %s, 0, 1000, clock_timestamp() + interval '1 h')",
            (tenant.tenant_id, fresh("subscription")),
        )
        database.execute(
            "insert into audit (principal_kind, principal_id, action, subject) values ('admin', 'operator', 'pages', %s)",
            ("things/pages",),
        )
        database.execute(
            "insert into allocation_timeline (allocation_id, kind, actor_kind, detail) values (%s, 'note', 'system', 'n')",
            (made[0],),
        )
        database.execute(FLEET, {"node": place.node["id"], "tenant": tenant.tenant_id})
    database.execute(BMCS, {"site": SITE})
    days = [f"{number + 2} days" for number in range(ITEMS)]
    for allocation, since in zip(made, days, strict=True):
        database.execute(
            "update allocations set active_at = clock_timestamp() - %s::interval,"
            " releasing_at = clock_timestamp() - interval '1 day' where id = %s",
            (since, allocation),
        )
    database.execute(
        "update allocations set active_at = clock_timestamp() - interval '2 days',"
        " releasing_at = clock_timestamp() - interval '1 day' where tenant_id = any(%s::uuid[])",
        ([other.tenant_id for other in others],),
    )
    return Lists(
        admin, tenant, {"allocation_id": made[0], "webhook_id": webhook, "node_id": place.node["id"], "serial": "PAGES"}
    )


def page(caller: Caller, path: str, query: dict[str, str]) -> Any:
    """One page."""
    answer = caller.http.get(path, params=query, headers=bearer(caller))
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(("path", "query"), CASES, ids=[f"{path} {query or ''}" for path, query in CASES])
def test_pages_are_the_whole_list(path: str, query: dict[str, str], lists: Lists) -> None:
    caller = lists.admin if path.startswith(OF_OPERATORS) else lists.tenant
    filled = path.format(**lists.ids)
    if path == "/api/v1/usage":  # whose default is the present month
        query = {**query, "from": (datetime.now(UTC) - timedelta(days=30)).isoformat()}
    whole = page(caller, filled, {**query, "limit": str(WHOLE)})
    assert whole["next_cursor"] is None
    assert len(whole["items"]) >= ITEMS, "the list needs more items for this test"
    for limit in (2, len(whole["items"]) - 1, len(whole["items"])):
        found: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            one = page(caller, filled, {**query, "limit": str(limit), **cursor})
            found += one["items"]
            assert len(found) <= len(whole["items"]), "an item twice"
            if one["next_cursor"] is None:
                break
            assert len(one["items"]) == limit, "only the last page may be short"
            cursor = {"cursor": one["next_cursor"]}
        assert stable(found) == stable(whole["items"])
