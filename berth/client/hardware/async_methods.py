"""Methods of the asynchronous client about hardware: topologies, health, burn-ins, quarantines, faults, serial numbers."""

from __future__ import annotations

from berth.client.calls import consoles, faults, hardware, pieces, pools
from berth.client.requests.async_methods import each, now


class HardwareMethods:
    """The paths about hardware as methods."""

    list_quarantines = now(hardware.list_quarantines)
    iterate_quarantines = each(hardware.list_quarantines)
    quarantine_slot = now(hardware.quarantine_slot)
    return_slot = now(hardware.return_slot)
    request_burn_in = now(hardware.request_burn_in)
    list_burn_ins = now(hardware.list_burn_ins)
    iterate_burn_ins = each(hardware.list_burn_ins)
    request_gpu_reset = now(hardware.request_gpu_reset)
    list_gpu_resets = now(hardware.list_gpu_resets)
    iterate_gpu_resets = each(hardware.list_gpu_resets)
    get_node_topology = now(hardware.get_node_topology)
    approve_node = now(hardware.approve_node)
    update_node = now(hardware.update_node)
    get_node_health = now(hardware.get_node_health)
    get_allocation_devices = now(hardware.get_allocation_devices)
    list_health_reports = now(hardware.list_health_reports)
    iterate_health_reports = each(hardware.list_health_reports)
    read_console_log = now(consoles.read_console_log)
    report_fault = now(faults.report_fault)
    list_fault_reports = now(faults.list_fault_reports)
    iterate_fault_reports = each(faults.list_fault_reports)
    get_fault_report = now(faults.get_fault_report)
    list_own_fault_reports = now(faults.list_own_fault_reports)
    iterate_own_fault_reports = each(faults.list_own_fault_reports)
    get_own_fault_report = now(faults.get_own_fault_report)
    list_pools = now(pools.list_pools)
    iterate_pools = each(pools.list_pools)
    set_pool_attestation = now(pools.set_pool_attestation)
    list_hardware = now(pieces.list_hardware)
    iterate_hardware = each(pieces.list_hardware)
    get_hardware = now(pieces.get_hardware)
    list_hardware_history = now(pieces.list_hardware_history)
    iterate_hardware_history = each(pieces.list_hardware_history)
    list_repairs = now(pieces.list_repairs)
    iterate_repairs = each(pieces.list_repairs)
    get_repair = now(pieces.get_repair)
    open_repair = now(pieces.open_repair)
    close_repair = now(pieces.close_repair)
