"""Sweepers: periodic jobs that end waits which no request, event or workflow ended in time (P9).

`table.py` lists them, `runner.py` runs them. Each run is bounded. Any number of workers may run the same sweeper: every
command locks its object and checks it again.
"""
