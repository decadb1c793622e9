"""Serves sample answers of vendors' BMCs, read only: what a client makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

SAMPLES = Path(__file__).parents[2] / "redfish" / "samples"


def sample(name: str) -> dict[str, Any]:
    """The sample `folder/name` as JSON."""
    data: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text())
    return data


class SampleTransport(httpx.AsyncBaseTransport):
    """Answers GET of each path with its sample, a login as the samples' BMC does, anything else with 404."""

    def __init__(
        self, resources: dict[str, dict[str, Any]], login: str | None = "services/session_creation_headers"
    ) -> None:
        self.resources = {path.rstrip("/"): data for path, data in resources.items()}
        self.requests: list[str] = []
        self._login = login

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if request.method == "POST" and request.url.path.endswith("/Sessions") and self._login is not None:
            headers = {k: v for k, v in sample(self._login).items() if k in ("X-Auth-Token", "Location", "ETag")}
            return httpx.Response(201, headers=headers, stream=body_of(sample("services/session")))
        data = self.resources.get(request.url.path.rstrip("/"))
        if request.method != "GET" or data is None:
            return httpx.Response(404, stream=body_of({}))
        return httpx.Response(200, stream=body_of(data))


def body_of(data: object) -> httpx.ByteStream:
    return httpx.ByteStream(json.dumps(data).encode())
