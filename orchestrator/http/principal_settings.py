"""Settings of the limits of each principal in a process: requests in flight, and rates by class of request."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field, PositiveFloat
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.http.rate_limits import Rates, RequestClass
from orchestrator.http.waiting_requests import WaitingRequests


class PrincipalSettings(BaseSettings):
    """What one tenant, operator's key or node certificate may use of a process."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    principal_in_flight_max: int = Field(
        1_000,
        ge=1,
        description="requests of a tenant, or of an operator's key, served at once; beyond it they get 429",
    )
    principal_endings_in_flight_max: int = Field(
        64, ge=1, description="of these releases, cancels and confirms, beside the others; beyond it they wait"
    )
    requests_waiting_max: int = Field(
        8_000,
        ge=1,
        description="requests that wait for that or a version; beyond it those of the principal with most get 503",
    )
    principal_waiting_max: int = Field(
        4_000, ge=1, description="of these those of one principal; beyond it they get 503"
    )
    node_in_flight_max: int = Field(
        32, ge=1, description="requests of a node's certificate served at once; beyond it 429, and results wait"
    )
    node_connections_max: int = Field(
        64, ge=1, description="connections of the node listener with a node's certificate; beyond it new ones get 503"
    )
    node_connections_per_source_max: int = Field(
        4_096, ge=0, description="connections of the node listener from one address; 0: no bound"
    )
    writes_per_second_max: float = Field(
        5_000.0,
        gt=0,
        description="writes of a tenant, or of an operator's key, in a process; 4 s of them at once; beyond it 429",
    )
    reads_per_second_max: float = Field(5_000.0, gt=0, description="reads of one, in the same way")
    streams_per_second_max: float = Field(500.0, gt=0, description="streams that one opens, in the same way")
    operation_queries_per_second_max: float = Field(
        500.0, gt=0, description="status queries of operations of one, in the same way"
    )
    rates_of_tenants: dict[UUID, dict[RequestClass, PositiveFloat]] = Field(
        {},
        description='rates of single tenants (JSON): `{"<id>": {"write": 9, "read": 9, "stream": 9, "operation_query": 9}}`',
    )
    node_requests_per_second_max: float = Field(
        100.0, gt=0, description="requests of a node's certificate, in the same way"
    )

    def waiting(self) -> WaitingRequests:
        """A table of requests that wait, with these bounds."""
        return WaitingRequests(self.requests_waiting_max, self.principal_waiting_max)

    def rates(self) -> Rates:
        """The rates of a principal without its own."""
        return {
            RequestClass.WRITE: self.writes_per_second_max,
            RequestClass.READ: self.reads_per_second_max,
            RequestClass.STREAM: self.streams_per_second_max,
            RequestClass.OPERATION_QUERY: self.operation_queries_per_second_max,
        }
