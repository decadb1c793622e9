"""DHCP and DNS in tenant networks, with dnsmasq and guests in network namespaces."""
