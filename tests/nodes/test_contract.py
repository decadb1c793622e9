"""The node listener implements its OpenAPI document: generated requests, good and bad, over mTLS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case as AnyCase
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from orchestrator.app import build_services, node_application
from orchestrator.settings import Settings
from tests.nodes.conftest import NodeListener

Case = AnyCase[Any]

EXAMPLES = 4
WAIT = "/node/v1/tasks/wait"
# What no schema can express: which result fits which task, what makes a certificate request good, and what is a key of a TPM.
REFUSALS_OF_WELL_FORMED_REQUESTS = frozenset({"invalid", "malformed"})
DISCRETIONARY = frozenset({"/node/v1/tasks/{task_id}/result", "/node/v1/certificate", "/node/v1/certificate/challenge"})


@dataclass(frozen=True)
class Enrolled:
    """The listener, the files of a node that is enrolled there, and a task of that node."""

    url: str
    certificate: Path
    authority: Path
    task_id: str
    session: requests.Session


@pytest.fixture(scope="module")
def enrolled(listener: NodeListener) -> Iterator[Enrolled]:
    """A node with its certificate and a queued task."""
    (node_id,) = listener.nodes()
    issued, path = listener.certificate(node_id)
    listener.record(node_id, issued)
    with requests.Session() as session:
        session.trust_env = False
        yield Enrolled(listener.url, path, listener.files.ca_certificate, listener.queue_task(node_id), session)


@pytest.fixture(autouse=True)
def former_name_of_the_node_id(request: pytest.FixtureRequest) -> None:
    """Under which schemathesis 4 still looks for it."""
    request.node._nodeid = request.node.nodeid


@pytest.fixture(scope="module", params=[EXAMPLES, pytest.param(10 * EXAMPLES, marks=pytest.mark.full)])
def document(request: pytest.FixtureRequest) -> BaseSchema:
    """The document, ready to generate from: every boundary, and so many random requests for each operation; repeatable.
    Nothing is connected for it.
    """
    application = node_application(build_services(Settings(database_url="postgresql://nowhere")))
    config = SchemathesisConfig.from_dict(
        {
            "generation": {
                "max-examples": request.param,
                "deterministic": True,
                "no-shrink": True,
                "with-security-parameters": False,
            },
            "phases": {"examples": {"enabled": False}},
            "suppress-health-check": ["too_slow"],  # a busy machine says nothing about the document
        }
    )
    return schemathesis.openapi.from_dict(application.openapi(), config=config)


api = schemathesis.pytest.from_fixture("document")


# Long. tests/nodes/test_identity_and_dispatch.py calls these routes in `make test`.
@pytest.mark.full
@api.parametrize()
def test_a_node_meets_what_is_documented(case: Case, enrolled: Enrolled) -> None:
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if case.path == WAIT and positive:
        case.query = {**dict(case.query or {}), "timeout_seconds": 0}  # how long it waits is tested elsewhere
    if positive and "task_id" in case.path_parameters:
        case.path_parameters["task_id"] = enrolled.task_id
    answer = case.call(
        enrolled.url, session=enrolled.session, cert=str(enrolled.certificate), verify=str(enrolled.authority)
    )
    case.validate_response(answer, excluded_checks=[positive_data_acceptance])
    if positive and answer.status_code in (400, 422):
        code = answer.json()["code"]
        assert case.path in DISCRETIONARY, answer.text
        assert code in REFUSALS_OF_WELL_FORMED_REQUESTS, answer.text
