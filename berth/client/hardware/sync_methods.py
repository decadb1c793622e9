"""Methods of the synchronous client about hardware: topologies, health, quarantines, faults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from berth.client.calls import faults, hardware
from berth.client.calls.call import Call
from berth.client.models import Page

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Runs(Protocol):
    """What a method needs of the client."""

    def run(self, call: Call[Result]) -> Result: ...

    def iterate(self, call: Call[Page[Result]]) -> Iterator[Result]: ...


def _now(make: Callable[Arguments, Call[Result]]) -> Callable[Concatenate[_Runs, Arguments], Result]:
    """A method that makes the call and runs it."""

    @functools.wraps(make)
    def method(self: _Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self.run(make(*args, **kwargs))

    return method


def _each(make: Callable[Arguments, Call[Page[Result]]]) -> Callable[Concatenate[_Runs, Arguments], Iterator[Result]]:
    """A method that yields every item of a list, page by page."""

    @functools.wraps(make)
    def method(self: _Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        return self.iterate(make(*args, **kwargs))

    return method


class HardwareMethods:
    """The paths about hardware as methods."""

    list_quarantines = _now(hardware.list_quarantines)
    iterate_quarantines = _each(hardware.list_quarantines)
    quarantine_slot = _now(hardware.quarantine_slot)
    return_slot = _now(hardware.return_slot)
    get_node_topology = _now(hardware.get_node_topology)
    approve_node = _now(hardware.approve_node)
    get_node_health = _now(hardware.get_node_health)
    list_health_reports = _now(hardware.list_health_reports)
    iterate_health_reports = _each(hardware.list_health_reports)
    report_fault = _now(faults.report_fault)
    list_fault_reports = _now(faults.list_fault_reports)
    iterate_fault_reports = _each(faults.list_fault_reports)
    get_fault_report = _now(faults.get_fault_report)
