"""Programs that run in namespaces, as texts."""

from __future__ import annotations

# A client without an address: DISCOVER, OFFER, REQUEST, ACK (RFC 2131). Prints what is acknowledged.
DHCP = """
import json, os, socket, sys, time
mac, client, name = bytes.fromhex(sys.argv[1].replace(":", "")), bytes.fromhex(sys.argv[2]), sys.argv[3].encode()
xid = os.urandom(4)
def total(data):
    found = sum(int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2))
    while found >> 16: found = (found & 0xFFFF) + (found >> 16)
    return (~found & 0xFFFF).to_bytes(2, "big")
def option(code, value): return bytes([code, len(value)]) + value if value else b""
def frame(kind, *options):
    flags = b"\\x80\\0" if sys.argv[4] == "broadcast" else bytes(2)
    body = bytes([1, 1, 6, 0]) + xid + bytes(2) + flags + bytes(16) + mac + bytes(10 + 64 + 128) + bytes.fromhex("63825363")
    body += option(53, bytes([kind])) + option(61, client) + option(12, name) + b"".join(options)
    body += option(55, bytes([1, 3, 6, 12, 15, 26, 119, 51])) + bytes([255])
    body += bytes(max(0, 300 - len(body)) + len(body) % 2)
    packet = (68).to_bytes(2, "big") + (67).to_bytes(2, "big") + (8 + len(body)).to_bytes(2, "big") + bytes(2) + body
    head = bytes([0x45, 0]) + (20 + len(packet)).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, 17, 0, 0]) + bytes(4) + b"\\xff" * 4
    return b"\\xff" * 6 + mac + b"\\x08\\0" + head[:10] + total(head) + head[12:] + packet
def heard(it, kind):
    deadline = time.monotonic() + 2
    while (left := deadline - time.monotonic()) > 0:
        it.settimeout(left)
        try: data = it.recv(2000)
        except TimeoutError: return None
        if data[12:14] != b"\\x08\\0" or data[23] != 17 or data[34:38] != bytes([0, 67, 0, 68]): continue
        if data[:6] not in (mac, b"\\xff" * 6) or data[46:50] != xid: continue
        found, at = {"you": data[58:62], "to": data[30:34]}, 42 + 240
        while at < len(data) and data[at] != 255:
            if data[at] == 0: at += 1; continue
            found[data[at]] = data[at + 2:at + 2 + data[at + 1]]; at += 2 + data[at + 1]
        if found.get(53) == bytes([kind]): return found
def address(data): return ".".join(map(str, data))
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as it:
    it.bind(("eth0", 3))
    it.send(frame(1)); offer = heard(it, 2)
    ack = None
    if offer: it.send(frame(3, option(50, offer["you"]), option(54, offer[54]))); ack = heard(it, 5)
print(json.dumps({} if not ack else {
    "address": address(ack["you"]), "sent to": address(ack["to"]), "mask": address(ack[1]), "router": address(ack[3]),
    "dns": address(ack[6]), "domain": ack[15].decode(), "mtu": int.from_bytes(ack[26], "big"), "name": ack.get(12, b"").decode(),
    "seconds": int.from_bytes(ack[51], "big"), "search": ack[119].hex() if 119 in ack else "",
}))
"""
_QUERY = """
import json, socket, struct, sys
def packed(name): return b"".join(bytes([len(one)]) + one for one in name.encode().split(b".") if one) + b"\\0"
def query(number, name, kind="A"):
    return struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + packed(name) + struct.pack(">2H", {"A": 1, "PTR": 12}[kind], 1)
def unpacked(data, at):
    labels = []
    while data[at]:
        if data[at] >= 192: return ".".join(labels + [unpacked(data, struct.unpack_from(">H", data, at)[0] & 0x3FFF)[0]]), at + 2
        labels.append(data[at + 1:at + 1 + data[at]].decode()); at += 1 + data[at]
    return ".".join(labels), at + 1
"""
DNS = f"""{_QUERY}
name, server, kind, protocol = sys.argv[1:5]
try:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM) as it:
        it.settimeout(2); it.connect((server, 53)); asked = query(7, name, kind)
        it.sendall(len(asked).to_bytes(2, "big") + asked if protocol == "tcp" else asked)
        data = it.recv(4096)
        while protocol == "tcp" and len(data) < 2 + int.from_bytes(data[:2], "big"): data += it.recv(4096)
        data = data[2:] if protocol == "tcp" else data
except OSError:
    print("{{}}"); sys.exit()
(number, flags, questions, count), at, answers = struct.unpack(">4H", data[:8]), 12, []
at = unpacked(data, at)[1] + 4
for _ in range(count):
    _, at = unpacked(data, at); of, _, _, length = struct.unpack_from(">2HIH", data, at); at += 10
    if of == 1: answers.append(".".join(map(str, data[at:at + 4])))
    if of == 12: answers.append(unpacked(data, at)[0])
    at += length
print(json.dumps({{"code": flags & 15, "answers": answers}}))
"""
FLOOD = f"""{_QUERY}
server, wanted = sys.argv[1], int(sys.argv[2]); seen = 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22); it.connect((server, 53))
    for number in range(wanted): it.send(query(number, "web"))
    it.settimeout(1.5)
    try:
        while seen < wanted: it.recv(4096); seen += 1
    except TimeoutError: pass
print(seen)
"""
UPSTREAM = f"""{_QUERY}
import select
seen = []
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.bind(("0.0.0.0", 53)); print("listening", flush=True)
    while True:
        ready = select.select([it, sys.stdin], [], [])[0]
        # Queries first: those that were sent before are in the answer.
        if it in ready:
            data, client = it.recvfrom(4096)
            name, end = unpacked(data, 12); seen.append(name)
            it.sendto(data[:2] + struct.pack(">5H", 0x8180, 1, 1, 0, 0) + data[12:end + 4]
                      + bytes.fromhex("c00c00010001") + struct.pack(">IH4B", 60, 4, 203, 0, 113, 7), client)
        elif not sys.stdin.readline(): break
        else: print(json.dumps(seen), flush=True); seen = []
"""
