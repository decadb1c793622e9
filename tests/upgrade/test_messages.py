"""Processes of the last release and of the present code read each other's events, tasks, results and heartbeats."""

from __future__ import annotations

import pytest

from tests.upgrade.messages import Schema, closed, schemas_of, unread
from tests.upgrade.release import unpack_release

FROM_AGENT = (
    "Heartbeat", "HeldInventory", "SpanReport", "FirstBoot", "ResultReport", "ProgressReport", "EnrolRequest",
    "CertificateRequest", "Connection",
)  # fmt: skip
REPORTS = (
    "ProvisionResult", "ReleaseResult", "VerbResult", "Topology", "HealthReport", "BurnInReport", "GpuResetReport",
    "MaintenancePluginReport", "ConsoleReport", "TaskFailure",
)  # fmt: skip
"""What a `ResultReport` carries."""
TO_AGENT = (
    "WaitAnswer", "HandedOutTask", "Envelope", "TaskBody", "ProvisionParameters", "ReleaseParameters", "VerbParameters",
    "RebuildParameters", "ImageParameters", "NetworkOrder", "GuestSize", "HeartbeatAnswer", "SpanAnswer", "ResultAnswer",
    "Credentials", "VerifyingKey",
)  # fmt: skip

Schemas = dict[str, dict[str, Schema]]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    """The schemas of the last release."""
    return schemas_of(unpack_release(tmp_path_factory.mktemp("release")))


@pytest.fixture(scope="module")
def present() -> Schemas:
    """The schemas of this code."""
    return schemas_of({})


def test_consumers_of_the_release_read_present_events(release: Schemas, present: Schemas) -> None:
    gone = release["events"].keys() - present["events"].keys()
    assert gone == set(), "the log has them, and consumers wait for them"
    for event_type, promised in release["events"].items():
        assert list(unread(present["events"][event_type], promised, event_type)) == []


def test_present_consumers_read_what_the_release_has_written(release: Schemas, present: Schemas) -> None:
    """The log keeps events of the release: a member may be new, and nothing that was there may have another type."""
    for event_type, written in release["events"].items():
        found = [why for why in unread(written, present["events"][event_type], event_type) if "demanded" not in why]
        assert found == []


@pytest.mark.parametrize("name", [*FROM_AGENT, *REPORTS])
def test_the_control_plane_reads_what_an_agent_of_the_release_sends(
    release: Schemas, present: Schemas, name: str
) -> None:
    assert list(unread(release["messages"][name], present["messages"][name], name)) == []


SENT_AGAIN = {f'{member}/code: "disk_pool_short" is not known' for member in ("TaskFailure", "ResultReport/failure")}
"""Codes that an agent sends as `driver_error` once a control plane has refused them (test_newer_agents.py)."""


@pytest.mark.parametrize("name", [*FROM_AGENT, *REPORTS])
def test_the_control_plane_of_the_release_reads_what_a_present_agent_sends(
    release: Schemas, present: Schemas, name: str
) -> None:
    found = unread(present["messages"][name], release["messages"][name], name)
    assert [why for why in found if why not in SENT_AGAIN] == []


@pytest.mark.parametrize("name", TO_AGENT)
def test_a_present_agent_reads_what_the_control_plane_of_the_release_sends(
    release: Schemas, present: Schemas, name: str
) -> None:
    assert list(unread(release["messages"][name], present["messages"][name], name)) == []


@pytest.mark.parametrize("name", [*FROM_AGENT, *REPORTS, *TO_AGENT])
def test_each_message_is_open_to_what_a_later_version_adds(present: Schemas, name: str) -> None:
    assert list(closed(present["messages"][name], name)) == []


OF_A_FEATURE = {"NetworkOrder/names is not known", "NetworkOrder/vlan is not known", "TaskBody/needs is not known"}
"""Members that only an agent whose heartbeat names their feature receives (test_names.py and test_vlans.py of tests/networks;
`needs` is left out where a task has none)."""


@pytest.mark.parametrize("name", TO_AGENT)
def test_an_agent_of_the_release_reads_what_the_control_plane_sends(
    release: Schemas, present: Schemas, name: str
) -> None:
    found = list(unread(present["messages"][name], release["messages"][name], name))
    # A type that the release does not know is no message that changed: its agents refuse such a task.
    assert [why for why in found if not why.startswith("TaskBody/type: ") and why not in OF_A_FEATURE] == []


def test_every_message_is_of_one_direction(present: Schemas) -> None:
    inside = {"Phase", "HeldAllocation", "Signature"}
    of_protocol = {name for name, schema in present["messages"].items() if schema["of_protocol"]}
    assert of_protocol - inside - {*FROM_AGENT, *REPORTS, *TO_AGENT} == set()


OLD: Schema = {
    "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (OLD, []),
        ({**OLD, "required": ["a", "b"]}, []),
        ({**OLD, "required": []}, ["/a is demanded and may be missing"]),
        ({**OLD, "properties": {**OLD["properties"], "c": {"type": "string"}}}, ["/c is not known"]),
        ({**OLD, "properties": {"a": {"type": ["string", "null"]}}}, ["/a: null is not known"]),
        ({**OLD, "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "z"]}}}, ['/b: "z" is not known']),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "integer"}}},
         ["/a: integer is not known"]),
    ],
)  # fmt: skip
def test_a_difference_that_a_reader_refuses_is_found(sent: Schema, why: list[str]) -> None:
    assert list(unread(sent, OLD)) == why
