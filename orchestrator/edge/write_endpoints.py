"""Finds the endpoint of a write by method and path, before the framework routes it and reads the body."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from fastapi.routing import RouteContext
from starlette.routing import compile_path

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Endpoint = Callable[..., Any]


class WriteEndpoints:
    """Endpoints of the routes that are not read. Patterns are compared only with paths of as many segments."""

    def __init__(self, routes: Iterable[RouteContext]) -> None:
        self._exact: dict[tuple[str, str], Endpoint] = {}
        self._patterns: defaultdict[tuple[str, int], list[tuple[re.Pattern[str], Endpoint]]] = defaultdict(list)
        for route in routes:
            assert route.path is not None
            assert route.endpoint is not None
            for method in (route.methods or set()) - SAFE_METHODS:
                if "{" not in route.path:
                    self._exact[method, route.path] = route.endpoint
                    continue
                assert ":path}" not in route.path, "a path parameter with slashes has no number of segments"
                pattern, _, _ = compile_path(route.path)
                self._patterns[method, route.path.count("/")].append((pattern, route.endpoint))

    def endpoint_of(self, method: str, path: str) -> Endpoint | None:
        """The endpoint that the framework will choose; None: no such route."""
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact
        for pattern, endpoint in self._patterns.get((method, path.count("/")), ()):
            if pattern.match(path):
                return endpoint
        return None
