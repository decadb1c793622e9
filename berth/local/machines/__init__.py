"""Emulated bare-metal machines: domains of libvirt behind sushy-tools' BMCs, and a stack whose site reaches them."""
