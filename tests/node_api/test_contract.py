"""The node listener's OpenAPI document tells the truth: generated requests, good and bad, over mTLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case as AnyCase
from schemathesis.specs.openapi.checks import positive_data_acceptance

from orchestrator.app import build_services, node_application
from orchestrator.settings import Settings
from tests.node_api.conftest import NodeListener

Case = AnyCase[Any]

EXAMPLES_MAX = 10
WAIT = "/node/v1/tasks/wait"
# What no schema can express: which result fits which task, and what makes a certificate request a good one.
REFUSALS_OF_WELL_FORMED_REQUESTS = frozenset({"invalid", "malformed"})
DISCRETIONARY = frozenset({"/node/v1/tasks/{task_id}/result", "/node/v1/certificate"})


@dataclass(frozen=True)
class Enrolled:
    """The listener, and the files of a node that is enrolled there, with a task of its own."""

    url: str
    certificate: Path
    authority: Path
    task_id: str


@pytest.fixture(scope="module")
def enrolled(listener: NodeListener) -> Enrolled:
    """A node with its certificate and a queued task."""
    (node_id,) = listener.nodes()
    issued, path = listener.certificate(node_id)
    listener.record(node_id, issued)
    return Enrolled(listener.url, path, listener.files.ca_certificate, listener.queue_task(node_id))


generation = {"max-examples": EXAMPLES_MAX, "deterministic": True, "no-shrink": True, "with-security-parameters": False}
api = schemathesis.openapi.from_dict(
    node_application(build_services(Settings(database_url="postgresql://nowhere"))).openapi(),
    config=SchemathesisConfig.from_dict(
        {
            "generation": generation,
            "phases": {"examples": {"enabled": False}},
            "suppress-health-check": ["too_slow"],  # a busy machine says nothing about the document
        }
    ),
)


@api.parametrize()
def test_a_node_meets_what_is_documented(case: Case, enrolled: Enrolled) -> None:
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if case.path == WAIT and positive:
        case.query = {**dict(case.query or {}), "timeout_seconds": 0}  # how long it waits is tested elsewhere
    if positive and "task_id" in case.path_parameters:
        case.path_parameters["task_id"] = enrolled.task_id
    answer = case.call(enrolled.url, cert=str(enrolled.certificate), verify=str(enrolled.authority))
    case.validate_response(answer, excluded_checks=[positive_data_acceptance])
    if positive and answer.status_code in (400, 422):
        code = answer.json()["code"]
        assert case.path in DISCRETIONARY, answer.text
        assert code in REFUSALS_OF_WELL_FORMED_REQUESTS, answer.text
