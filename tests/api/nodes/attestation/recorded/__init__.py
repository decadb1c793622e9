"""A session recorded from swtpm; SOURCE says how."""
