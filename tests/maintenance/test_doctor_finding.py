"""`berth doctor` names the allocations' nodes that an active window waits for, and windows that do not start or end."""

from __future__ import annotations

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.maintenance_finding import maintenance_finding
from migrations.roles import Role
from tests.api.calling import Caller, Place, rent
from tests.databases import as_role
from tests.maintenance.windows import commit, sweep
from tests.support.public_api import PublicApi


def finding(api: PublicApi) -> Finding:
    about = api.database.info
    url = f"postgresql://{about.user}:{about.password}@{about.host}:{about.port}/{about.dbname}"
    return maintenance_finding(as_role(url, Role.OPERATOR))


def test_a_window_is_ok_until_it_starts_and_an_allocation_still_holds_its_units(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    rent(tenant, place)
    scheduled = commit(api.admin, place, 1, 2, allocations="notify")
    assert finding(api) == Finding(
        "maintenance", "ok", "1 windows are scheduled or active, none waits for an allocation"
    )
    api.admin.make(f"/admin/maintenance/{scheduled['window_id']}/cancel")
    active = commit(api.admin, place, 0, 2, allocations="notify")
    sweep(api, active["window_id"])
    found = finding(api)
    assert found.verdict == "warning"
    assert f"{place.node['name']} (window {active['window_id']})" in found.detail
    api.admin.make(f"/admin/maintenance/{active['window_id']}/end")
    assert finding(api).verdict == "ok"


def test_an_active_window_that_holds_all_its_units_is_ok(api: PublicApi, place: Place) -> None:
    active = commit(api.admin, place, 0, 2)
    assert sweep(api, active["window_id"])
    assert finding(api).verdict == "ok"


def test_a_window_whose_start_is_late_is_bad(api: PublicApi, place: Place) -> None:
    late = commit(api.admin, place, 1, 2)
    api.database.execute(
        "update maintenance_windows set starts_at = d, waits_until = d from (select clock_timestamp() - interval '2 minutes' d)"
        " where id = %s",
        (late["window_id"],),
    )
    found = finding(api)
    assert found.verdict == "bad"
    assert "of 1 windows is a minute late" in found.detail
