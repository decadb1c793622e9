"""`berth doctor` names serial numbers that several nodes report, and stops when one node reports each."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.hardware_finding import hardware_finding
from migrations.roles import Role
from tests.databases import as_role
from tests.placement.fleet import Fleet

CONTEST = """
insert into hardware_places (serial, node_id, kind, slots, positions, contested_since)
select %s, id, 'gpu', '{0}', '{p}', clock_timestamp() from nodes
"""


def test_contested_serial_numbers_are_named_until_one_node_reports_each(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    one, other = (str(name) for (name,) in fleet.connection.execute("select name from nodes order by name"))
    as_operator = as_role(database_url, Role.OPERATOR)
    fleet.connection.execute(
        "insert into hardware_places (serial, node_id, kind, slots, positions) select 'ALONE', id, 'disk', '{}', '{sda}'"
        " from nodes limit 1"
    )
    assert hardware_finding(as_operator).verdict == "ok"
    fleet.connection.execute(CONTEST, ("S-0001",))
    found = hardware_finding(as_operator)
    assert (found.subject, found.verdict) == ("hardware", "warning")
    assert found.detail.startswith(f"1 serial numbers are reported by several nodes: gpu S-0001 on {one}, {other};")
    assert "ALONE" not in found.detail
    fleet.connection.execute("update hardware_places set contested_since = null")
    assert hardware_finding(as_operator).verdict == "ok"


def test_at_most_ten_are_named_the_longest_contested_first(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for number in range(12):
            connection.execute(CONTEST, (f"S-{99 - number:04}",))
    detail = hardware_finding(as_role(fleet.url, Role.OPERATOR)).detail
    assert detail.startswith("12 serial numbers")
    assert [f"S-{99 - number:04} on" in detail for number in range(12)] == [True] * 10 + [False] * 2
    assert " and 2 more;" in detail
