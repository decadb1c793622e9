"""What `berth doctor` says during a rotation of the keys of nodes: when every agent has a key set, when a CA may be removed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from berth.cli.deployment.node_trust import node_trust_findings
from migrations.roles import Role
from tests.allocations.seeding import seed
from tests.databases import as_role

OLD, NEW = "ab" * 32, "cd" * 32
_CERTIFICATE = """
insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after, revoked_at, authority_key_sha256)
select %(serial)s, id, epoch + %(epochs)s, sha256('key'), now() - interval '1 hour', now() + make_interval(secs => %(seconds)s),
    case when %(revoked)s then now() end, decode(%(ca)s, 'hex')
from nodes where name = %(node)s
"""


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """Three nodes without certificates."""
    seed(database_url, slice_nodes=3)
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def names(database: psycopg.Connection) -> list[str]:
    """The nodes."""
    return [str(name) for (name,) in database.execute("select name from nodes order by name").fetchall()]


def certify(
    database: psycopg.Connection,
    node: str,
    ca: str | None,
    *,
    seconds: float = 3600,
    revoked: bool = False,
    epochs: int = 0,
) -> None:
    """A certificate of the node under this CA."""
    (count,) = database.execute("select count(*) from node_certificates").fetchone() or (0,)
    values = {"serial": f"{count:x}", "node": node, "ca": ca, "seconds": seconds, "revoked": revoked, "epochs": epochs}
    database.execute(_CERTIFICATE, values)


def found(database_url: str) -> dict[str, tuple[str, str]]:
    """Verdict and detail by subject, as the operator's role reads them."""
    return {one.subject: (one.verdict, one.detail) for one in node_trust_findings(as_role(database_url, Role.OPERATOR))}


def test_a_fleet_without_certificates(database_url: str, database: psycopg.Connection) -> None:
    assert found(database_url) == {
        "node key sets": ("ok", "no node has reported one"), "node CAs": ("ok", "no certificate is valid"),
    }  # fmt: skip


def test_nodes_without_the_newest_key_set_are_named_while_they_have_a_certificate(
    database_url: str, database: psycopg.Connection
) -> None:
    first, second, third = names(database)
    for node in (first, second):
        certify(database, node, OLD)
    certify(database, third, OLD, seconds=-1)
    database.execute("update nodes set key_set_serial = 4 where name = %s", (first,))
    assert found(database_url)["node key sets"] == (
        "warning", f"1 of 2 nodes with a certificate use serial 4; not yet: {second}",
    )  # fmt: skip
    database.execute("update nodes set key_set_serial = 3 where name = %s", (second,))
    assert found(database_url)["node key sets"][0] == "warning"
    database.execute("update nodes set key_set_serial = 4 where name = %s", (second,))
    assert found(database_url)["node key sets"] == ("ok", "2 of 2 nodes with a certificate use serial 4")


def test_a_refused_key_set_is_bad(database_url: str, database: psycopg.Connection) -> None:
    first, *_ = names(database)
    certify(database, first, OLD)
    database.execute("update nodes set key_set_serial = 1, key_set_refusal = 'unknown_root' where name = %s", (first,))
    verdict, detail = found(database_url)["refused key sets"]
    assert (verdict, f"{first}: unknown_root" in detail) == ("bad", True)


def test_a_ca_is_named_until_its_last_certificate_is_over(database_url: str, database: psycopg.Connection) -> None:
    first, second, third = names(database)
    certify(database, first, OLD)
    certify(database, first, NEW)
    certify(database, second, NEW)
    certify(database, third, None)
    verdict, detail = found(database_url)["node CAs"]
    assert verdict == "ok"
    assert f"{OLD[:16]} signed 1 valid certificates of 1 nodes" in detail
    assert f"{NEW[:16]} signed 2 valid certificates of 2 nodes" in detail
    assert "unknown (earlier version) signed 1 valid" in detail
    database.execute(
        "update node_certificates set not_after = now() where authority_key_sha256 = decode(%s, 'hex')", (OLD,)
    )
    certify(database, first, OLD, revoked=True)
    certify(database, first, OLD, epochs=-1)
    assert OLD[:16] not in found(database_url)["node CAs"][1]
