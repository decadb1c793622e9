"""`berth doctor` names sites with BMCs whose lease no agent holds."""

from __future__ import annotations

from berth.cli.deployment.site_finding import site_finding
from migrations.roles import Role
from tests.databases import as_role
from tests.placement.fleet import Fleet

SITES = """
insert into sites (name, recovery_key)
select 'site-' || n, decode(repeat('11', 32), 'hex') from generate_series(10, 10 + %s) n
"""
BMCS = """
insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)
select n.id, s.id, 'https://192.0.2.7', decode(repeat('ab', 32), 'hex'), 'root', 1, 'test'
from (select id, row_number() over (order by id) as number from nodes) n
join (select id, row_number() over (order by name) as number from sites) s on s.number = n.number
"""
HOLD = """
update sites s set lease_fence = 1, lease_run = gen_random_uuid(), lease_until = clock_timestamp() + make_interval(secs => %s),
    lease_agent = a.id from site_agents a where a.site_id = s.id and s.name = 'site-10'
"""


def test_sites_with_bmcs_and_without_an_agent_are_named(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=12)
    as_operator = as_role(database_url, Role.OPERATOR)
    fleet.connection.execute(SITES, (0,))
    fleet.connection.execute("insert into site_agents (site_id, name) select id, 'a' from sites")
    assert site_finding(as_operator).verdict == "ok", "a site without a BMC needs no agent"
    fleet.connection.execute(BMCS)
    found = site_finding(as_operator)
    assert (found.subject, found.verdict) == ("sites", "warning")
    assert found.detail.startswith("no agent holds the lease of site-10 (1 BMCs): ")
    fleet.connection.execute(HOLD, (60,))
    assert site_finding(as_operator).verdict == "ok"
    fleet.connection.execute(HOLD, (-1,))
    assert site_finding(as_operator).verdict == "warning"


def test_at_most_ten_are_named(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=12)
    fleet.connection.execute(SITES, (11,))
    fleet.connection.execute(BMCS)
    detail = site_finding(as_role(database_url, Role.OPERATOR)).detail
    assert [f"site-{10 + number} (1 BMCs)" in detail for number in range(12)] == [True] * 10 + [False] * 2
    assert " and 2 more: " in detail
