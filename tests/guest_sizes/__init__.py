"""Sizes of guests: stated by SKUs, checked against nodes, carried by tasks."""
