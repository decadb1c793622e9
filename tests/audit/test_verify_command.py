"""`berth audit verify`: every change of the chain is found at its first row, by a client that recomputes all hashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from berth.cli.commands import audit
from tests.api.calling import new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]

ROWS = 9
ZEROS = "0" * 64
INSERT = (
    b"insert into audit (principal_kind, principal_id, action, subject, detail)"
    b" values ('system', 'test', 'thing.turn', 'things/' || %s, '{\"n\": 1.5}')"
)
REWRITE = b"""
with recursive chained (sequence, hash) as (
    select 3::bigint, hash::bytea from audit_chain where sequence = 3
    union all
    select c.sequence, sha256(p.hash || convert_to(audit_canonical(c.sequence, c.recorded_at, row(
        c.id, c.at, c.principal_kind, c.principal_id, c.role, c.tenant_id, c.source, c.user_agent, c.action, c.subject,
        c.status, c.code, c.operation_key, c.request_id, c.correlation_id, c.detail)::audit_pending), 'UTF8'))
    from chained p join audit_chain c on c.sequence = p.sequence + 1
)
update audit_chain c set hash = n.hash from chained n where n.sequence = c.sequence and c.sequence > 3
"""
"""The owner of the database computes the chain anew from row 4 on."""
SWAP = (
    "update audit_chain c set (id, at, subject) = (o.id, o.at, o.subject) from audit_chain o"
    " where (c.sequence, o.sequence) in ((4, 5), (5, 4))"
)


@pytest.fixture(autouse=True)
def rows(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least so many rows in the chain, on several pages."""
    monkeypatch.setattr(audit, "PAGE", 4)
    for number in range(ROWS - deployment.count("select count(*) from audit")):
        deployment.database.execute(INSERT, (str(number),))
    while deployment.count("select audit_advance(3)"):
        pass


@contextmanager
def _tampered(deployment: Deployment, *statements: str | bytes) -> Iterator[None]:
    """The owner of the database switches the triggers off and runs the statements; afterwards the rows are as before."""
    database = deployment.database
    database.execute("create temporary table kept as select * from audit_chain")
    database.execute("set session_replication_role = replica")
    try:
        for statement in statements:
            database.execute(statement.encode() if isinstance(statement, str) else statement)
        yield
    finally:
        database.execute("delete from audit_chain")
        database.execute("insert into audit_chain select * from kept")
        database.execute("reset session_replication_role")
        database.execute("drop table kept")


def _hash(deployment: Deployment, sequence: int) -> str:
    row = deployment.database.execute(
        "select encode(hash, 'hex') from audit_chain where sequence = %s", (sequence,)
    ).fetchone()
    assert row is not None
    return str(row[0])


def _broken(shell: Shell, options: str = "") -> tuple[int, str]:
    """The first row that does not hold, and why; the same for people and programs."""
    text, as_json = shell.run(f"audit verify {options}"), shell.run(f"audit verify {options} --output json")
    assert text.exit_code == as_json.exit_code == 1, text.output + as_json.output
    found = json.loads(as_json.stdout)
    assert text.stderr == f"berth: {found['detail']}\n"
    assert found["verified"] is False
    return int(found["sequence"]), str(found["detail"])


def test_the_whole_chain_is_verified_and_its_head_printed(deployment: Deployment) -> None:
    shell = Shell(deployment.address, deployment.admin.key)
    new_tenant(deployment.admin)
    found = shell.json("audit verify")
    last = deployment.count("select count(*) from audit_chain")
    assert found == {
        "verified": True, "checked": last, "first": 1, "last": last, "hash": _hash(deployment, last), "archived_to": 0,
    }  # fmt: skip
    printed = shell.run("audit verify").stdout
    assert printed == f"the chain of the audit holds: {last} rows, 1 to {last}\nhead {last}:{found['hash']}\n"
    Shell(deployment.address, new_tenant(deployment.admin).key).refused("audit verify", "forbidden")


TAMPERED = {
    "a changed row": ("update audit_chain set action = 'thing.leave' where sequence = 6", 6),
    "a changed detail": ("update audit_chain set detail = '{\"n\": 1.51}' where sequence = 6", 6),
    "a changed hash": ("update audit_chain set hash = sha256('x') where sequence = 5", 5),
    "a removed row": ("delete from audit_chain where sequence = 3", 3),
    "a removed beginning": ("delete from audit_chain where sequence < 3", 1),
    "a removed row at the end of a page": ("delete from audit_chain where sequence = 4", 4),
    "a swapped pair": (SWAP, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found_at_its_first_row(deployment: Deployment, name: str) -> None:
    statement, sequence = TAMPERED[name]
    with _tampered(deployment, statement):
        found, why = _broken(Shell(deployment.address, deployment.admin.key))
    assert found == sequence
    assert why.startswith(f"audit row {sequence}: ")


def test_an_empty_chain_holds_unless_rows_are_expected(deployment: Deployment) -> None:
    shell, head = Shell(deployment.address, deployment.admin.key), _hash(deployment, 4)
    with _tampered(deployment, "delete from audit_chain"):
        empty = shell.json("audit verify")
        assert empty == {
            "verified": True, "checked": 0, "first": None, "last": 0, "hash": ZEROS, "archived_to": 0,
        }  # fmt: skip
        assert shell.run("audit verify").stdout == f"the chain of the audit holds: no rows\nhead 0:{ZEROS}\n"
        assert shell.json(f"audit verify --expect-head 0:{ZEROS} --from 0 --expect-hash {ZEROS}") == empty
        assert _broken(shell, f"--expect-head 4:{head}") == (1, "audit row 1: it is missing; row 4 was expected")
        assert _broken(shell, f"--from 4 --expect-hash {head}") == (3, "audit row 3: it is missing")


def test_a_cut_tail_is_found_by_an_expected_head(deployment: Deployment) -> None:
    shell, head = Shell(deployment.address, deployment.admin.key), _hash(deployment, 7)
    assert shell.json(f"audit verify --expect-head 7:{head}")["verified"]
    with _tampered(deployment, "delete from audit_chain where sequence > 5"):
        assert shell.json("audit verify")["last"] == 5
        assert _broken(shell, f"--expect-head 7:{head}")[0] == 6
        assert _broken(shell, f"--from 7 --expect-hash {head}")[0] == 6


def test_a_past_that_was_written_anew_is_found_by_an_earlier_hash(deployment: Deployment) -> None:
    shell, early, late = Shell(deployment.address, deployment.admin.key), _hash(deployment, 2), _hash(deployment, 6)
    resumed = shell.json(f"audit verify --from 6 --expect-hash {late}")
    assert (resumed["first"], resumed["checked"]) == (6, resumed["last"] - 5)
    assert shell.json(f"audit verify --from 1 --expect-hash {_hash(deployment, 1)}")["first"] == 1
    with _tampered(deployment, "update audit_chain set action = 'thing.leave' where sequence = 4", REWRITE):
        assert shell.json("audit verify")["verified"], "the chain holds in itself"
        assert _broken(shell, f"--from 6 --expect-hash {late}")[0] == 6
        assert _broken(shell, f"--from 2 --expect-hash {early} --expect-head 6:{late}")[0] == 6
        assert shell.json(f"audit verify --from 2 --expect-hash {early}")["first"] == 2
    with _tampered(deployment, "update audit_chain set hash = sha256('x') where sequence = 5"):
        assert _broken(shell, f"--from 6 --expect-hash {late}")[0] == 6


@pytest.mark.parametrize(
    "options",
    [
        "--from 3", f"--expect-hash {ZEROS}", "--from 3 --expect-hash 12", "--expect-head 3", "--expect-head 3:12",
        f"--from 3 --expect-hash {ZEROS} --expect-head 2:{ZEROS}",
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(deployment: Deployment, options: str) -> None:
    shell = Shell(deployment.address, deployment.admin.key)
    assert "--" in shell.refused(f"audit verify {options}", "usage", 2)
