"""Runs in the deploy system in place of its loop: asks the test's server what to do, does it, and reports.

It comes into the initramfs by `media.py`, as `node_agent/__main__.py`.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node_agent.deploy_system.effects import lldp
from node_agent.deploy_system.effects.contract import WorkFailed
from node_agent.deploy_system.effects.deploying import deploy
from node_agent.deploy_system.effects.inspecting import inspect
from node_agent.deploy_system.effects.networking import bring_up
from node_agent.deploy_system.effects.rescuing import rescue
from node_agent.deploy_system.effects.tools import real_host, run_tool
from node_agent.deploy_system.effects.wiping import wipe
from node_agent.wire.deploy_medium import DeployMedium, read_medium
from node_agent.wire.deploy_tasks import (
    MetalDeployParameters,
    MetalInspectParameters,
    MetalRescueParameters,
    MetalWipeParameters,
)


def say(text: str) -> None:
    """One line on the console."""
    print(f"GUEST {time.monotonic():.1f} {text}", flush=True)  # noqa: T201


class Server:
    """The test's server."""

    def __init__(self, medium: DeployMedium) -> None:
        self._base = medium.api_url
        self._context = ssl.create_default_context(cadata=medium.ca_pem)
        self._token = medium.token

    def call(self, path: str, document: dict[str, Any]) -> Any:
        """POST and the answer."""
        body = json.dumps({"token": self._token, **document}).encode()
        with urllib.request.urlopen(self._base + path, body, timeout=60, context=self._context) as answer:
            return json.load(answer)

    @contextmanager
    def open_image(self, url: str) -> Iterator[Iterator[bytes]]:
        """The image as it is served."""
        with urllib.request.urlopen(url, timeout=60, context=self._context) as answer:
            yield iter(lambda: answer.read(2**16), b"")


def perform(server: Server, order: dict[str, Any]) -> dict[str, Any]:
    """One task; its report, or its failure."""
    host, kind, document = real_host(), order["kind"], order.get("parameters", {})
    try:
        if kind == "inspect":
            report: Any = inspect(host, MetalInspectParameters.model_validate(document), say_step)
        elif kind == "deploy":
            report = deploy(host, MetalDeployParameters.model_validate(document), say_step, server.open_image)
        elif kind == "wipe":
            report = wipe(host, MetalWipeParameters.model_validate(document), say_step)
        elif kind == "rescue":
            report = rescue(host, MetalRescueParameters.model_validate(document), say_step)
        else:
            done = run_tool(order["command"], 60)
            return {"status": done.status, "output": done.output}
    except WorkFailed as failure:
        return {"code": failure.code, "step": failure.step, "detail": failure.detail}
    answer: dict[str, Any] = json.loads(report.canonical())
    return answer


def say_step(step: str, detail: str) -> None:
    """A step on the console."""
    say(f"{step}: {detail}")


def main() -> int:
    """Until the server has nothing more to do."""
    lldp.LISTEN_SECONDS = 4.0  # type: ignore[misc]  # the test announces every 0.3 s
    medium = read_medium(Path(os.environ["BERTH_DEPLOY_MEDIUM"]).read_bytes())
    say(f"interface {bring_up(real_host(), medium.network)}")
    server = Server(medium)
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    order = server.call("/hello", {"modules": len(sys.modules), "available": memory["MemAvailable"].strip()})
    status = 0
    while order is not None:
        status = 3 if order["kind"] == "rescue" else 0
        try:
            result = perform(server, order)
        except Exception:  # noqa: BLE001 - the test must see it
            result = {"defect": traceback.format_exc()}
        order = server.call("/result", {"result": result})
    return status


if __name__ == "__main__":
    sys.exit(main())
