"""The life of a node's deploy systems over the real commands, in any order, against a model of what must count."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from berth.local.authority import ensure_authority
from node_agent.wire.deploy_enrolment import DeployHello, DeployResultReport
from node_agent.wire.deploy_medium import MediumNetwork, read_medium
from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.nodes.commands.deploy_enrolment import (
    DeployEnrolment,
    enrol_deploy_system,
    presented_key,
    record_deploy_hello,
)
from orchestrator.nodes.commands.deploy_issuance import issue_pending_deploy_systems
from orchestrator.nodes.commands.deploy_systems import (
    DeployOrder,
    permit_deploy_system,
    request_inspection,
    revoke_deploy_system,
)
from orchestrator.nodes.commands.deploy_tasks import (
    Advanced,
    accept_deploy_result,
    advance_deploy_task,
    lease_deploy_task,
)
from orchestrator.nodes.deploy_systems.queries import find_deploy_system, require_deploy_standing
from orchestrator.nodes.deploy_systems.rules import Addresses, Presented
from orchestrator.operations.execution import Context
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import make_context
from tests.api.calling import signing_request
from tests.deploy_system.stage import HELLO, INSPECTED, MAC, SMBIOS
from tests.nodes.answers import body_of
from tests.placement.fleet import ADD_NODES, Fleet

Done = TypeVar("Done")

SEALER = Sealer("key")
ADDRESSES = Addresses("https://public.example", "ca", "https://node.example", 1)
ORDER = DeployOrder(MediumNetwork(mac=MAC, address="192.0.2.7/24"), SMBIOS, (), False, 900, 1_800)
KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
REQUESTS = [signing_request(key) for key in KEYS]
DIGESTS = [presented_key(request) for request in REQUESTS]
positions = st.sampled_from([0, 0, 0, 1, 2])  # the newest permission is the one that counts


@dataclass
class Known:
    """A permission as the model knows it. `key`: of the first use; `is_over`: of its certificate, before that of its token."""

    epoch: int
    token: str
    key: int | None = None
    ended: str | None = None
    is_signed: bool = False
    is_over: bool = False
    serial: str = ""
    said_hello: bool = False

    @property
    def state(self) -> str:
        """As operators see it."""
        if self.ended is not None:
            return self.ended
        if self.is_over:
            return "expired"
        if self.is_signed:
            return "started" if self.said_hello else "enrolled"
        return "permitted" if self.key is None else "enrolling"

    @property
    def refusal(self) -> str | None:
        """Why its certificate does not count; None: it does."""
        if not self.is_signed:
            return "unauthenticated"
        return self.ended or ("expired" if self.is_over else None)


@dataclass
class Task:
    """The task that was requested last. `id` and `fence`: once it is signed."""

    epoch: int
    id: uuid.UUID | None = None
    fence: int = 0
    is_reported: bool = False
    is_open: bool = True


@dataclass
class Place:
    """A database, the CA of deploy systems, and the one loop of all examples."""

    fleet: Fleet
    authority: NodeAuthority
    runner: asyncio.Runner
    context: Context

    def run(self, work: Awaitable[Done]) -> Done | str:
        """The result, or the reason or the code of the refusal."""

        async def outcome() -> Done | str:
            try:
                done = await work
                return str(body_of(done)["code"]) if isinstance(done, Answer) and done.status >= 400 else done
            except Problem as problem:
                return str(problem.extra.get("reason") or problem.code)

        return self.runner.run(outcome())


async def _context(url: str) -> Context:
    return make_context(url, pool_size=2).for_platform()


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Iterator[Place]:
    files = ensure_authority(tmp_path, "berth.local")
    key = load_pem_private_key(files.deploy_ca_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(files.deploy_ca_certificate.read_bytes())
    with asyncio.Runner() as runner:
        context = runner.run(_context(database_url))
        yield Place(Fleet(database_url), NodeAuthority(certificate, key, "berth.local", 60.0), runner, context)
        runner.run(context.database.close())


@dataclass
class Life:
    """One node, and the model of its deploy systems."""

    node: uuid.UUID
    permissions: list[Known] = field(default_factory=list)
    task: Task | None = None

    def end(self, reason: str) -> None:
        """The open permission ends with its task."""
        newest = self.permissions[-1]
        newest.ended = newest.ended or reason
        if self.task is not None:
            self.task.is_open = False


class Stories(RuleBasedStateMachine):
    """Whatever comes in whatever order, the newest permission alone counts, for one key, until its end."""

    place: Place
    reached: set[str]

    @initialize()
    def begin(self) -> None:
        """A node that no example has used before."""
        self.place.fleet.connection.execute(ADD_NODES, (1, "baremetal"))
        row = self.place.fleet.connection.execute(
            "update nodes set state = 'cordoned' where unit_base = (select max(unit_base) from nodes) returning id"
        ).fetchone()
        assert row is not None
        self.life = Life(row[0])
        self.fence = 0

    def teardown(self) -> None:
        """The next example begins with nothing to sign."""
        self.place.run(issue_pending_deploy_systems(self.place.context.database, self.place.authority))

    def _one(self, position: int) -> Known | None:
        """A permission, the newest first."""
        return None if position >= len(self.life.permissions) else self.life.permissions[-1 - position]

    @rule()
    def permit(self) -> None:
        """A new permission ends the one before it."""
        made: Any = self.place.run(
            permit_deploy_system(self.place.context, admin_operation(), ADMIN, SEALER, self.life.node, ORDER, ADDRESSES)
        )
        medium = read_medium(SEALER.open(body_of(made)["medium"]).encode())
        if self.life.permissions:
            self.life.end("superseded")
        self.life.permissions.append(Known(medium.deploy_epoch, medium.token))
        assert [one.epoch for one in self.life.permissions] == list(range(1, len(self.life.permissions) + 1))

    @rule()
    def revoke(self) -> None:
        """An operator ends the open permission."""
        done: Any = self.place.run(revoke_deploy_system(self.place.context, admin_operation(), ADMIN, self.life.node))
        if self.life.permissions and self.life.permissions[-1].ended is None:
            assert done.status == 204
            self.life.end("revoked")
        else:
            assert done == "no_deploy_system"

    @rule(position=positions, key=st.integers(0, 1))
    def enrol(self, position: int, key: int) -> None:
        """A machine presents a token with one of two keys; the request is recorded, and the issuer signs later."""
        one = self._one(position)
        if one is None:
            return
        presented = Presented(one.epoch, SMBIOS, [MAC], DIGESTS[key])
        wanted = DeployEnrolment(one.token, presented, REQUESTS[key], None, uuid.uuid4().hex)
        found: Any = self.place.run(enrol_deploy_system(self.place.context, wanted, wait_seconds_max=0))
        if one.ended is not None:
            assert found == one.ended
        elif one.key not in (None, key):
            assert found == "used"
        elif one.is_over:
            assert found == "expired"
        elif one.is_signed:
            serial = x509.load_pem_x509_certificate(found.certificate_pem.encode()).serial_number
            assert format(serial, "x") == one.serial, "the same certificate each time"
        else:
            assert found == "certificate_pending"
            one.key = key

    @rule()
    def issue(self) -> None:
        """The issuer signs what is pending, once."""
        pending = [one for one in self.life.permissions if one.key is not None and not one.is_signed and not one.ended]
        decided = self.place.run(issue_pending_deploy_systems(self.place.context.database, self.place.authority))
        assert decided == len(pending)
        for one in pending:
            one.is_signed, one.is_over = True, False
            found = self.place.fleet.one(
                "select serial from deploy_systems where node_id = %s and deploy_epoch = %s", self.life.node, one.epoch
            )
            one.serial = str(found)

    @rule(position=positions)
    def expire(self, position: int) -> None:
        """The time of a certificate ends; before it is signed, that of the token."""
        one = self._one(position)
        if one is not None:
            column = "not_after" if one.is_signed else "expires_at"
            self.place.fleet.connection.execute(
                f"update deploy_systems set {column} = clock_timestamp() where node_id = %s and deploy_epoch = %s".encode(),
                (self.life.node, one.epoch),
            )
            one.is_over = True

    def _standing(self, one: Known) -> Any:
        """What a call with its certificate meets first."""
        standing = self.place.run(
            require_deploy_standing(self.place.context.database, self.life.node, one.epoch, one.serial or "0")
        )
        assert (standing if isinstance(standing, str) else None) == one.refusal
        return standing

    @rule(position=positions)
    def hello(self, position: int) -> None:
        """A deploy system starts, or says hello again."""
        one = self._one(position)
        if one is not None and not isinstance(standing := self._standing(one), str):
            hello = DeployHello.model_validate(HELLO)
            self.place.run(record_deploy_hello(self.place.context, standing, hello, uuid.uuid4().hex))
            one.said_hello = True

    @rule()
    def inspect(self) -> None:
        """An operator requests an inspection."""
        made: Any = self.place.run(
            request_inspection(self.place.context, admin_operation(), ADMIN, self.life.node, power_off=True)
        )
        newest = self._one(0)
        if newest is None or newest.state in ("expired", "superseded", "revoked"):
            assert made == "no_deploy_system"
        elif self.life.task is not None and self.life.task.is_open:
            assert made == "invalid_state"
        else:
            assert made.status == 200
            self.life.task = Task(newest.epoch)

    @rule()
    def advance(self) -> None:
        """A worker signs or concludes the open task."""
        advanced = self.place.run(advance_deploy_task(self.place.context, self.life.node))
        task, newest = self.life.task, self._one(0)
        if task is None or newest is None or not task.is_open:
            assert advanced is None
        elif task.id is not None:
            assert advanced == (Advanced.COMPLETED if task.is_reported else None)
            task.is_open = not task.is_reported
        elif newest.is_signed and newest.is_over:
            assert advanced == Advanced.NOT_RUN
            task.is_open = False
        elif newest.state == "started":
            assert advanced == Advanced.ISSUED
            row = self.place.fleet.connection.execute(
                "select id, fence from node_tasks where node_id = %s and state = 'queued'", (self.life.node,)
            ).fetchone()
            assert row is not None
            task.id, task.fence = row
            assert task.fence > self.fence, "fences rise"
            self.fence = task.fence
        else:
            assert advanced is None

    @rule(position=positions)
    def lease(self, position: int) -> None:
        """A deploy system gets its live task each time, and never that of another one."""
        one, task = self._one(position), self.life.task
        if one is not None and not isinstance(standing := self._standing(one), str):
            leased: Any = self.place.run(lease_deploy_task(self.place.context, standing, one.serial, []))
            is_live = task is not None and task.is_open and not task.is_reported and task.epoch == one.epoch
            assert [found.task_id for found in leased] == ([task.id] if task and task.id and is_live else [])

    @rule(position=positions, is_stale=st.booleans())
    def report(self, position: int, is_stale: bool) -> None:
        """A deploy system reports the task that was signed last, also under an older fence, and also that of another one."""
        one, task = self._one(position), self.life.task
        if one is None or task is None or task.id is None:
            return
        report = DeployResultReport(fence=task.fence - is_stale, outcome="completed", result=INSPECTED)
        answer: Any = self.place.run(
            accept_deploy_result(self.place.context, self.life.node, one.epoch, one.serial or "0", task.id, report)
        )
        if one.refusal is not None:
            assert answer == one.refusal
        elif one.epoch != task.epoch:
            assert answer == "not_found"
        elif is_stale:
            assert (answer.applied, answer.reason) == (False, "superseded")
        else:
            assert (answer.applied, answer.reason) == (
                not task.is_reported,
                "already_applied" if task.is_reported else None,
            )
            task.is_reported = True

    @rule(key=st.integers(0, 1))
    def boot(self, key: int) -> None:
        """A machine starts as it should, which single steps in any order seldom come to."""
        self.permit()
        self.enrol(0, key)
        self.issue()
        self.hello(0)
        self.is_shown_as_it_is()

    @rule()
    def order(self) -> None:
        """An inspection is requested, signed and leased."""
        self.inspect()
        self.advance()
        self.lease(0)

    @invariant()
    def is_shown_as_it_is(self) -> None:
        """Operators see the state of the newest permission."""
        shown: Any = self.place.run(find_deploy_system(self.place.context.database, self.life.node))
        newest = self._one(0)
        self.reached |= set() if newest is None else {newest.state}
        assert (shown if isinstance(shown, str) else shown["state"]) == (
            "not_found" if newest is None else newest.state
        )


# Long. tests/deploy_system/test_admission.py has the permissions one by one.
@pytest.mark.full
@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
def test_whatever_the_order_the_newest_permission_alone_counts(place: Place, examples: int) -> None:
    class Here(Stories):
        pass

    Here.place, Here.reached = place, set()
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=examples < 100,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert {"permitted", "started", "revoked"} <= Here.reached, "the stories must lead somewhere"
