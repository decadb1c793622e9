"""The worker: consumes the log, runs one workflow per allocation's provisioning and release, sweeps up what is overdue.

Imports run one way: commands <- activities <- workflows <- consumers. Every activity calls one command; the database's row
is the fact, events and signals are hints that something is worth a look.
"""
