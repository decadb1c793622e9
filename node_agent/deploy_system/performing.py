"""Performs a task by the functions of `work`, in a thread, and makes its report. Errors become named failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import httpx
import structlog

from berth.process.json_objects import JsonObject
from node_agent.deploy_system.admission import Admitted
from node_agent.deploy_system.connection import server_context
from node_agent.deploy_system.effects.contract import Host, Interrupted, Progress, WorkFailed
from node_agent.protocol import RESULT_BYTES_MAX, TaskType
from node_agent.wire.deploy_enrolment import DeployResultReport, DeployTaskFailure
from node_agent.wire.deploy_tasks import DeployFailureCode, MetalWipeReport

log = structlog.get_logger("deploy_system")

IMAGE_SECONDS_MAX: Final = 60.0
"""Without a byte of an image."""


class Report(Protocol):
    """A report of a task."""

    def canonical(self) -> bytes:
        """The JSON of the report."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> JsonObject:
        """The report as JSON values."""


Work = Callable[[Host, Any, Progress], Report]


def work_of_machine(ca_pem: str) -> Mapping[TaskType, Work]:
    """The functions that perform each task on this machine. Images come over TLS that trusts the CA of the medium."""
    from node_agent.deploy_system.effects.attesting import attest_machine
    from node_agent.deploy_system.effects.deploying import deploy
    from node_agent.deploy_system.effects.inspecting import inspect
    from node_agent.deploy_system.effects.rescuing import rescue
    from node_agent.deploy_system.effects.wiping import wipe

    def open_image(url: str, /) -> AbstractContextManager[Iterator[bytes]]:
        return _open_image(url, ca_pem)

    return {
        TaskType.METAL_INSPECT: inspect,
        TaskType.METAL_DEPLOY: lambda host, parameters, progress: deploy(host, parameters, progress, open_image),
        TaskType.METAL_WIPE: wipe,
        TaskType.METAL_RESCUE: rescue,
        TaskType.METAL_ATTEST: attest_machine,
    }


@contextmanager
def _open_image(url: str, ca_pem: str) -> Iterator[Iterator[bytes]]:
    """The bytes of an image as they are served. Raises OSError."""
    try:
        with (
            httpx.Client(verify=server_context([ca_pem]), trust_env=False, timeout=IMAGE_SECONDS_MAX) as client,
            client.stream("GET", url, follow_redirects=False) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise OSError(f"{url} answered {response.status_code}")
            yield _pieces(response)
    except httpx.HTTPError as error:
        raise OSError(f"{url}: {str(error) or type(error).__name__}") from error


def _pieces(response: httpx.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_raw()
    except httpx.HTTPError as error:
        raise OSError(str(error) or type(error).__name__) from error


async def perform(host: Host, work: Mapping[TaskType, Work], task: Admitted) -> DeployResultReport:
    """The report of the task. Raises Interrupted after `host.stopped` was set."""
    fence = task.body.fence

    def progress(step: str, detail: str) -> None:
        log.info("step", task=str(task.body.task_id), step=step, detail=detail[:500])

    try:
        found = await asyncio.to_thread(work[task.body.type], host, task.parameters, progress)
    except Interrupted:
        raise
    except WorkFailed as failure:
        said = f"{failure.step}: {failure.detail}; {failure.next_step}"
        return failed(fence, DeployFailureCode(failure.code), said, failure.evidence)
    except Exception as error:
        log.error("defect", exc_info=error)
        return failed(fence, DeployFailureCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
    report = DeployResultReport(
        fence=fence, outcome="completed", result=found.model_dump(mode="json", exclude_none=True)
    )
    size = len(report.model_dump_json())
    if size > RESULT_BYTES_MAX:
        return failed(
            fence, DeployFailureCode.INTERNAL_ERROR, f"the report has {size} bytes, at most {RESULT_BYTES_MAX}"
        )
    return report


def failed(
    fence: int, code: DeployFailureCode, detail: str, evidence: MetalWipeReport | None = None
) -> DeployResultReport:
    """The report of a failed task, with what a wipe has done before."""
    printable = "".join(character for character in detail if character != "\0")[:2_000]
    return DeployResultReport(
        fence=fence, outcome="failed", failure=DeployTaskFailure(code=code, detail=printable),
        evidence=None if evidence is None else evidence.model_dump(mode="json", exclude_none=True),
    )  # fmt: skip
