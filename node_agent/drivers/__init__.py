"""Drivers: what carries tasks out on a node.

`contract` says what each guarantees, `performing` runs its plans, `choice` picks one. Each driver is a module or a folder
here; tests/drivers checks it from outside.
"""
