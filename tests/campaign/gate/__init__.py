"""The gate before a release: campaigns with faults and without, each at one seed, until all have passed on the present code."""
