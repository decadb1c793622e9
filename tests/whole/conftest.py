"""A whole stack, as a person runs it: real servers, every process, agents on a pretended fleet."""

from tests.support.whole_stack import collector, tenant, whole

__all__ = ["collector", "tenant", "whole"]
