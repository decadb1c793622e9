"""One file per revision, named after what it brings."""
