"""The worker's part of sites: tasks about BMCs, and gauges."""
