"""The API implements its OpenAPI document: generated requests, good and bad, against a real process.

Whatever the document allows is not refused as malformed, whatever it forbids is refused, no answer has a status, a content
type or a shape that the document does not list, and nothing is ever a 5xx.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import requests
import schemathesis
from hypothesis import strategies
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case as AnyCase
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from berth.local.servers import LocalPostgres
from orchestrator.tenants.roles import OperatorRole, TenantRole
from tests.api.calling import Caller, insert_admin_key, new_place, new_tenant, rent, signing_request, ssh_key
from tests.api.documents import public_document
from tests.api.processes import public_process
from tests.databases import copied_database

REFUSALS_OF_WELL_FORMED_REQUESTS = {
    "invalid_cursor": "a cursor is bound to the list that returned it; its pattern is in the schema",
    "ssh_key_not_found": "which SSH keys exist",
    "image_unavailable": "which images exist and fit the SKU",
    "operation_conflict": "which request used the key before",
    "ttl_out_of_range": "a deployment may set BERTH_HOLD_SECONDS_MAX below the documented maximum",
    "window_invalid": "the time of the request, and two times compared",
    "maintenance_window_invalid": "the same",
    "maintenance_task_invalid": "the same, and which members belong together",
    "slot_overflow": "a deadline beyond the year 9999 follows from the time of the request",
    "range_invalid": "two keys or times compared",
    "version_missing": "a precondition without a version needs the transaction's `read_version`",
    "version_in_future": "which version is the newest",
}
"""Codes with which a schema-valid request may be refused as unfit, and what the schema cannot express."""
# Nor that one number must not be larger than another, or a time not to come.
CROSS_FIELD_RULES = (
    "half_slots must not be larger than slot_count",
    "give slot_count or slots_from_topology",
    "half_slots needs slot_count",
    "is at least first_tenant_vlan",
    "is none of the tenants' VLANs",
    "names a port or a MAC twice",
    "since: it lies in the future",
    f"a tenant's role is one of {', '.join(TenantRole)}",
    f"an operator's role is one of {', '.join(OperatorRole)}; a tenant's key needs tenant_id",
    "the ready message needs cloud-init: readiness is ssh or tcp_port without it",
    "readiness_port belongs to readiness tcp_port, which needs one",
    "fabric_manager_version must equal gpu_driver_version: the fabric manager accepts no other driver",
    "a size of guests belongs to shape gpu_slice: bare metal has the whole machine",
    "only one of ek_sha256, ek_certificate and forget_tpm may be given",
    "is not a readable certificate in PEM",
    "break_glass is for operators' keys; leave out tenant_id",
    "expires_at is past; name a later time",
    "deadline must lie within the next 366 days",
    "at_deadline needs a deadline",
    "send address or half_slots",  # `{"half_slots": null}` fits the schema and changes nothing
    "address must be an IPv4 or IPv6 address with its prefix length, and gateway a neighbour within it",
    "send name, labels or ends_at",  # `{"name": null}` fits the schema and changes nothing
)


@dataclass(frozen=True)
class Extent:
    """How many random requests are made for each operation, and whether each boundary of its schema is tried as well."""

    examples: int
    boundaries: bool


pytestmark = pytest.mark.timeout(600)

FORMATS = {
    "openssh-public-key": strategies.builds(ssh_key),
    "pkcs10-pem": strategies.builds(signing_request),
    "webhook-url": strategies.integers(0, 9).map(lambda n: f"https://hooks.example.com/{n}"),
}
for _name, _strategy in FORMATS.items():
    schemathesis.openapi.format(_name, _strategy)


Case = AnyCase[Any]


@dataclass(frozen=True)
class Contract:
    """A running API with something in it."""

    url: str
    admin_key: str
    tenant_key: str
    existing: dict[str, str]
    session: requests.Session


@pytest.fixture(scope="module")
def contract(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Contract]:
    """One process and one database for the module."""
    settings = {"BERTH_MIN_VERSION_SECONDS_MAX": "0"}  # a generated version may never be written
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path_factory.mktemp("contract"), settings) as http,
    ):
        key = insert_admin_key(url)
        admin = Caller(http, key)
        tenant = new_tenant(admin)
        with psycopg.connect(url, autocommit=True) as database:
            place = new_place(admin, database)
        hold = {"resources": [f"slot:{place.node['id']}:7"], "holder_id": "holder"}
        existing = {
            "allocation_id": rent(tenant, place, name="mine", labels={"team": "red"})["allocation_id"],
            "key_id": tenant.get("/ssh-keys")["items"][0]["id"],
            "reservation_id": tenant.make("/reservations", hold)["reservation_id"],
            "resource_id": admin.make("/admin/resources", {"id": "seat-1"})["id"],
            "node": place.node["name"],
            "node_id": place.node["id"],
            "tenant_id": new_tenant(admin).tenant_id or "",
            "webhook_id": tenant.make("/webhooks", {"url": "https://hooks.example.com/0"})["id"],
        }
        with requests.Session() as session:
            session.trust_env = False  # or the whole environment is looked through for proxies before each request
            yield Contract(str(http.base_url), key, tenant.key or "", existing, session)


@pytest.fixture(autouse=True)
def former_name_of_the_node_id(request: pytest.FixtureRequest) -> None:
    """Under which schemathesis 4 still looks for it."""
    request.node._nodeid = request.node.nodeid


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Extent(1, boundaries=False), id="some"),
        pytest.param(Extent(1, boundaries=True), id="boundaries", marks=pytest.mark.full),
        pytest.param(Extent(20, boundaries=True), id="many", marks=pytest.mark.full),
    ],
)
def document(request: pytest.FixtureRequest) -> BaseSchema:
    """The document, ready to generate from; repeatable. Nothing is connected for it.

    A fixture, because drawing up the cases takes seconds, which only the process that runs them should spend.
    """
    config = SchemathesisConfig.from_dict(
        {
            "generation": {
                "max-examples": request.param.examples,
                "deterministic": True,
                "no-shrink": True,
                "with-security-parameters": False,
            },
            "phases": {"examples": {"enabled": False}, "coverage": {"enabled": request.param.boundaries}},
            "suppress-health-check": ["too_slow"],  # a busy machine says nothing about the document
        }
    )
    return schemathesis.openapi.from_dict(without_patterns_of_formats(public_document()), config=config)


def without_patterns_of_formats(value: Any) -> Any:
    """A copy of the document; schemathesis would generate from the pattern and ignore the generator of the format."""
    if isinstance(value, list):
        return [without_patterns_of_formats(member) for member in value]
    if not isinstance(value, dict):
        return value
    dropped = "pattern" if value.get("format") in tuple(FORMATS) else None
    return {name: without_patterns_of_formats(member) for name, member in value.items() if name != dropped}


api = schemathesis.pytest.from_fixture("document").exclude(path="/v1/subscribe")  # it has no end
api_of_tenants = api.exclude(path_regex="/admin/")
api_of_operators = api.include(path_regex="/admin/")


def check(case: Case, contract: Contract, key: str) -> list[str]:
    """Each answer that contradicts what the request is: to one, and to a good one once more about something that exists."""
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    contradicting = call(case, contract, key, positive=positive)
    known = {name: contract.existing[name] for name in case.path_parameters if name in contract.existing}
    if positive and known and case.method != "DELETE":
        case.path_parameters.update(known)
        contradicting += call(case, contract, key, positive=True)
    return contradicting


def call(case: Case, contract: Contract, key: str, *, positive: bool) -> list[str]:
    """Send it and hold the answer against the document; the answer, if it refuses a well-formed request as malformed."""
    headers = {"authorization": f"Bearer {key}"}
    answer = case.call(contract.url, session=contract.session, headers=headers)
    excluded: list[Any] = [positive_data_acceptance]
    if answer.status_code in (413, 431):
        excluded.append(negative_data_rejection)  # what is beyond the size limits is not held against its schema
    case.validate_response(answer, headers=headers, excluded_checks=excluded)
    if positive and answer.status_code in (400, 422):
        refusal = answer.json()
        crossed = refusal["code"] == "invalid" and refusal["detail"].endswith(CROSS_FIELD_RULES)
        if refusal["code"] not in REFUSALS_OF_WELL_FORMED_REQUESTS and not crossed:
            return [answer.text]
    return []


@api_of_operators.parametrize()
def test_an_operator_meets_what_is_documented(case: Case, contract: Contract) -> None:
    assert check(case, contract, contract.admin_key) == []


@api_of_tenants.parametrize()
def test_a_tenant_meets_what_is_documented(case: Case, contract: Contract) -> None:
    assert check(case, contract, contract.tenant_key) == []


@pytest.mark.full
@api_of_tenants.parametrize()
def test_an_operator_meets_what_is_documented_for_tenants(case: Case, contract: Contract) -> None:
    assert check(case, contract, contract.admin_key) == []
