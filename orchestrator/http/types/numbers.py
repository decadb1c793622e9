"""Bounded integers of responses, so that the OpenAPI document states the range of every number."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from berth.process.json_objects import JsonObject
from orchestrator.http.fields import INT32_MAX

INT64_MAX: Final = 2**63 - 1
INT64_DOCUMENTED: Final[JsonObject] = {"maximum": 2**63 - 1024, "format": "int64"}
"""Numbers in the document are doubles; this is the largest double below 2^63."""

QUERY_INT64_MAX: Final = 2**63 - 1024
"""A bound of a query's number: what the document can state exactly."""

Count = Annotated[int, Field(ge=0, le=INT32_MAX)]
BigCount = Annotated[int, Field(ge=0, le=INT64_MAX, json_schema_extra=INT64_DOCUMENTED)]
SignedAmount = Annotated[int, Field(ge=-(2**63), le=INT64_MAX, json_schema_extra=INT64_DOCUMENTED)]
Port = Annotated[int, Field(ge=1, le=65_535)]
HttpStatus = Annotated[int, Field(ge=100, le=599)]
