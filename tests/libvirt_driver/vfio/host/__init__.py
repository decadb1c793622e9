"""A virtual node with an emulated IOMMU, and what is checked on it."""
