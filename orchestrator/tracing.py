"""Traces (DESIGN §11): one allocation is one trace, from the request through outbox, NATS and workflow to the node's task.

The trace's id is the allocation's correlation id, and its first span's id is the lower half of it. So any process that has
the correlation id, which every event carries, can add spans to the trace; no other context is propagated.
Formats: W3C Trace Context; export by OTLP over HTTP. Without an endpoint nothing is recorded and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Attributes = Mapping[str, str | int | float | bool]
RawHeaders = Iterable[tuple[bytes, bytes]]

FAILED_STATUS = 500
_HALF = (1 << 64) - 1
_beginning: ContextVar[UUID | None] = ContextVar("beginning", default=None)
_tracer: trace.Tracer | None = None


def start_tracing(service: str, endpoint: str | None, sample_ratio: float) -> Callable[[], None]:
    """Export this process's spans as `service` to an OTLP endpoint; answers what sends the last ones and stops.

    `sample_ratio` is the share of allocations that are traced; every process decides alike because the id decides.
    """
    global _tracer
    if endpoint is None:
        return lambda: None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    class StoryIds(RandomIdGenerator):
        """Random ids, but for the first span of a story."""

        def generate_trace_id(self) -> int:
            """The correlation id where a story begins."""
            beginning = _beginning.get()
            return super().generate_trace_id() if beginning is None else beginning.int

        def generate_span_id(self) -> int:
            """The lower half of the correlation id where a story begins."""
            beginning = _beginning.get()
            return super().generate_span_id() if beginning is None else beginning.int & _HALF

    provider = TracerProvider(
        sampler=TraceIdRatioBased(sample_ratio),
        resource=Resource.create({"service.name": f"berth-{service}"}),
        id_generator=StoryIds(),
    )
    exporter = OTLPSpanExporter(endpoint.rstrip("/") + "/v1/traces", timeout=5)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("berth")
    return provider.shutdown


def tracer() -> trace.Tracer | None:
    """What makes spans; None while tracing is off."""
    return _tracer


def traceparent(correlation_id: UUID) -> str:
    """The W3C trace context of a story's first span."""
    return f"00-{correlation_id.hex}-{correlation_id.int & _HALF:016x}-01"


def start_trace(
    correlation_id: UUID, name: str, attributes: Attributes, callers_headers: RawHeaders = ()
) -> AbstractContextManager[Span | None]:
    """The first span of an allocation's trace, linked to the caller's own if it sent one. What it raises marks it."""
    if _tracer is None:
        return nullcontext()
    return _begin(_tracer, correlation_id, name, attributes, callers_headers)


@contextmanager
def _begin(
    maker: trace.Tracer, correlation_id: UUID, name: str, attributes: Attributes, callers_headers: RawHeaders
) -> Iterator[Span]:
    token = _beginning.set(correlation_id)
    try:
        span = maker.start_span(
            name,
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=_links(callers_headers),
        )
    finally:
        _beginning.reset(token)
    with _ending(span):
        yield span


def add_to_story(
    correlation_id: UUID, name: str, attributes: Attributes, *, kind: SpanKind = SpanKind.INTERNAL
) -> AbstractContextManager[Span | None]:
    """A span below the first one of an allocation's trace, whichever process began it; what is called inside is below it."""
    if _tracer is None:
        return nullcontext()
    return _add(_tracer, correlation_id, name, attributes, kind)


@contextmanager
def _add(
    maker: trace.Tracer, correlation_id: UUID, name: str, attributes: Attributes, kind: SpanKind
) -> Iterator[Span]:
    span = maker.start_span(name, context=_below(correlation_id), kind=kind, attributes=attributes)
    with _ending(span), trace.use_span(span, record_exception=False, set_status_on_exception=False):
        yield span


def record_span(correlation_id: UUID, name: str, began: datetime, ended: datetime, attributes: Attributes) -> None:
    """Add what has happened elsewhere between two instants, such as a node's task."""
    if _tracer is None:
        return
    span = _tracer.start_span(
        name, context=_below(correlation_id), attributes=attributes, start_time=_nanoseconds(began)
    )
    span.end(max(_nanoseconds(began), _nanoseconds(ended)))


@contextmanager
def _ending(span: Span) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        code = str(getattr(error, "code", type(error).__name__))
        span.set_attribute("berth.code", code)
        if getattr(error, "status", FAILED_STATUS) >= FAILED_STATUS:  # a refusal is no failure of ours
            span.set_status(Status(StatusCode.ERROR, code))
        raise
    finally:
        span.end()


def _below(correlation_id: UUID) -> Context:
    first = SpanContext(correlation_id.int, correlation_id.int & _HALF, is_remote=True, trace_flags=TraceFlags(1))
    return trace.set_span_in_context(NonRecordingSpan(first))


def _links(callers_headers: RawHeaders) -> list[trace.Link]:
    values = [value.decode("latin-1") for name, value in callers_headers if name == b"traceparent"]
    sent = {"traceparent": values[0]} if values else {}
    context = TraceContextTextMapPropagator().extract(sent)
    caller = trace.get_current_span(context).get_span_context()
    return [trace.Link(caller)] if caller.is_valid else []


def _nanoseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1e9)
