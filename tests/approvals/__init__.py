"""Four eyes: requests of operators and their approval by a second one."""
