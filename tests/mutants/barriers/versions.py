"""Mutants of what agents and the control plane of two versions say to each other, and of the judge of an upgrade."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROTOCOL = "node_agent/protocol.py"
_FIELDS = "node_agent/wire/fields.py"
_JUDGING = "tests/upgrade/judging.py"
_OF_AGENT = "tests/upgrade/test_newer_control_plane.py"
_BESIDE = "tests/node_agent/versions/test_agents_beside_other_versions.py"
_OF_API = "tests/nodes/heartbeats/test_short_path.py"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"versions: {name}", "agent", path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "messages are closed", _FIELDS, "        known = {name: member for",
        '        raise ValueError("unknown members")\n        known = {name: member for',
        f"{_OF_AGENT}::test_a_task_with_unknown_members_is_performed_as_far_as_it_is_known",
    ),
    _mutant(
        "unknown members are not bounded", _FIELDS, "        value = super().examine(value)\n", "",
        f"{_OF_AGENT}::test_unknown_members_are_bounded",
    ),
    _mutant(
        "the short path counts nothing", "orchestrator/edge/fast_paths/requests.py", ', extra="forbid")', ")",
        f"{_OF_API}::test_a_heartbeat_of_a_newer_agent_is_recorded_without_what_is_unknown_and_that_is_counted",
    ),
    _mutant(
        "needs are passed over", "node_agent/admission.py", "        or body.needs_objection(UNDERSTOOD)\n", "",
        f"{_OF_AGENT}::test_a_task_that_must_be_understood_is_refused_and_the_refusal_is_reported",
    ),
    _mutant(
        "an unknown type is malformed", _PROTOCOL, "    type: Annotated[TaskType, BeforeValidator(_known_type)]\n",
        "    type: TaskType\n", f"{_OF_AGENT}::test_a_task_that_must_be_understood_is_refused_and_the_refusal_is_reported",
    ),
    _mutant(
        "a task of a newer agent is performed after a step back", "node_agent/executor.py",
        "        if lacking is not None and not (", "        if lacking is not None and False and not (",
        f"{_BESIDE}::test_a_task_that_a_newer_agent_had_accepted_is_refused_after_a_step_back",
    ),
    _mutant(
        "a refused code ends the report", "node_agent/reporter.py", "(earlier := _for_earlier(report)) != report:\n",
        "(earlier := report) != report:\n",
        f"{_BESIDE}::test_a_failure_that_an_earlier_control_plane_refuses_is_sent_again_as_a_driver_error",
    ),
    _mutant(
        "an unknown failure code is refused", "node_agent/wire/failures.py", "        if _CODE.fullmatch(code) is None:\n",
        "        if True:\n", f"{_OF_API}::test_a_report_of_a_newer_agent_ends_its_task",
    ),
    _mutant(
        "a lost answer of any version is excused", _JUDGING, "is Outcome.UNKNOWN and any(one.of_release for one in met):\n",
        "is Outcome.UNKNOWN and met:\n",
        "tests/upgrade/test_rolling.py::test_a_request_that_an_upgrade_has_failed_is_found",
    ),
    _mutant(
        "a refused connection is excused at any time", _JUDGING, "        if met and attempt.code == NEVER_SENT:\n",
        "        if attempt.code == NEVER_SENT:\n",
        "tests/upgrade/test_rolling.py::test_a_request_that_an_upgrade_has_failed_is_found",
    ),
]  # fmt: skip
