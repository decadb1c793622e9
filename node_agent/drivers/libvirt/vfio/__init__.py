"""GPUs of the host in guests: bound to vfio-pci, checked by IOMMU group, reset and given back."""
