"""Methods of the asynchronous client about hardware: topologies, health, quarantines, faults."""

from __future__ import annotations

from berth.client.calls import faults, hardware
from berth.client.requests.async_methods import each, now


class HardwareMethods:
    """The paths about hardware as methods."""

    list_quarantines = now(hardware.list_quarantines)
    iterate_quarantines = each(hardware.list_quarantines)
    quarantine_slot = now(hardware.quarantine_slot)
    return_slot = now(hardware.return_slot)
    get_node_topology = now(hardware.get_node_topology)
    approve_node = now(hardware.approve_node)
    update_node = now(hardware.update_node)
    get_node_health = now(hardware.get_node_health)
    list_health_reports = now(hardware.list_health_reports)
    iterate_health_reports = each(hardware.list_health_reports)
    report_fault = now(faults.report_fault)
    list_fault_reports = now(faults.list_fault_reports)
    iterate_fault_reports = each(faults.list_fault_reports)
    get_fault_report = now(faults.get_fault_report)
    list_own_fault_reports = now(faults.list_own_fault_reports)
    iterate_own_fault_reports = each(faults.list_own_fault_reports)
    get_own_fault_report = now(faults.get_own_fault_report)
