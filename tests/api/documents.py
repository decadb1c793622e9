"""The OpenAPI documents, made once for each pytest process. They are shared: read them only."""

from __future__ import annotations

import functools
from typing import Any

from orchestrator.app import build_services, node_application, public_application
from orchestrator.settings import Settings


@functools.cache
def public_document() -> dict[str, Any]:
    """The document of the public listener. Nothing is connected for it."""
    return public_application(build_services(Settings(database_url="postgresql://nowhere"))).openapi()


@functools.cache
def node_document() -> dict[str, Any]:
    """The document of the node listener. Nothing is connected for it."""
    return node_application(build_services(Settings(database_url="postgresql://nowhere"))).openapi()
