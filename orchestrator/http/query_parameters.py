"""Query parameters that an endpoint does not know are refused, as unknown fields of bodies are: `?dry_run=true` on a write
that knows no such thing would be done."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic import BaseModel

from orchestrator.problems import Invalid

ERRORS_MAX = 20


def refuse_unknown_parameters(request: Request) -> None:
    """Raise `Invalid` if the query names what this request's endpoint does not take."""
    if not request.query_params:
        return
    known = _known(request.scope["route"].dependant)
    unknown = [] if known is None else [name for name in request.query_params if name not in known]
    if unknown:
        errors = [{"field": name, "message": "this is no parameter of this path"} for name in unknown[:ERRORS_MAX]]
        raise Invalid(f"{unknown[0]}: this is no parameter of this path", errors=errors)


def _known(dependant: Any) -> set[str] | None:
    """The names that an endpoint and what it depends on take; None where a model takes all of them and says so itself."""
    names: set[str] = set()
    for parameter in dependant.query_params:
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return None
        names.add(parameter.alias)
    for inner in dependant.dependencies:
        found = _known(inner)
        if found is None:
            return None
        names |= found
    return names
