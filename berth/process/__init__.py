"""What every process of Berth shares: logs, metrics port, crash points, backoff, settings, server addresses.

It imports nothing of the project. The relay and the agent import no other package.
"""
