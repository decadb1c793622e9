"""Nodes: the fleet, its enrolment, certificates, inventories and orphans."""
