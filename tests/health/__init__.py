"""Health of active allocations: noticed, announced, ended, credited."""
