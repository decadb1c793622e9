"""`berth.process`: backoff within its bounds, and a health server that answers GET and HEAD and names a taken port."""

from __future__ import annotations

import json

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from berth.process.backoff import Backoff, jittered
from berth.process.health_server import CannotListen, serve_health


def test_backoff_doubles_to_its_bound_and_starts_again_after_a_success() -> None:
    backoff = Backoff(first_seconds=0.1, most_seconds=0.5)
    for step in (0.1, 0.2, 0.4, 0.5, 0.5):
        assert step / 2 <= backoff.next_seconds() <= step
    backoff.reset()
    assert backoff.next_seconds() <= 0.1
    assert Backoff(first_seconds=3.0, most_seconds=1.0).next_seconds() <= 1.0
    assert all(8 <= jittered(10) <= 12 for _ in range(100))


def test_the_health_server_serves_metrics_and_state() -> None:
    registry, state = CollectorRegistry(), {"ok": True, "detail": "x"}
    Counter("things", "Things", registry=registry).inc()
    with serve_health("127.0.0.1", 0, registry, lambda: state) as port:
        at = f"http://127.0.0.1:{port}"
        assert "things_total 1.0" in httpx.get(f"{at}/metrics").text
        answer = httpx.get(f"{at}/ok?probe=1")
        assert (answer.status_code, answer.json()) == (200, state)
        head = httpx.head(f"{at}/ok")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) == len(json.dumps(state))
        state["ok"] = False
        assert httpx.get(f"{at}/ok").status_code == 503
        assert httpx.get(f"{at}/other").status_code == 404
        with (
            pytest.raises(CannotListen, match=rf"^cannot listen on 127\.0\.0\.1:{port} for metrics: "),
            serve_health("127.0.0.1", port, registry, lambda: state),
        ):
            pass
    with serve_health("127.0.0.1", None, registry, lambda: state) as no_port:
        assert no_port is None
