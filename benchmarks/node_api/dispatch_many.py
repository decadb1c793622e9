"""As `dispatch`, with 10,000 nodes waiting."""

from benchmarks.node_api.dispatch import run_many as run

__all__ = ["run"]
