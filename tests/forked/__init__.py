"""Processes of ours that tests start without waiting for the interpreter and its imports: forks of a process that has them."""
