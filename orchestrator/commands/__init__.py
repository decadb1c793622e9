"""One verb per file, one transaction per call. This listing is the list of what can be done."""
