"""Tenant networks on one node: a bridge for each network, a tap for each guest, and rules that keep tenants apart.

names     interface names
rules     nftables: what is dropped, accepted, translated; text only
programs  `ip`, `nft` and `conntrack`
links     bridges and taps
uplinks   the ports of bridges that lead to other nodes
span      which guests other nodes have
dhcp      DHCP and DNS for the guests of the node
networks  the whole: brings guests in, takes them out, repairs
"""
