"""Serial consoles: a part of the log, and an open one."""
