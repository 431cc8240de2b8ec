"""Attacks by way of sockets. `target`: `tcp`, `udp` (ports of the host on 127.0.0.1), `path`,
`dgram_path` (its UNIX sockets), `abstract`, `dgram_abstract` (names of abstract ones)."""

# mypy: ignore-errors

import ctypes
import os
import platform
import socket

_libc = ctypes.CDLL(None, use_errno=True)
_HERE = "127.0.0.1"
_MSG_FASTOPEN = 0x20000000
_IPPROTO_MPTCP = 262


def _connected(address, *kind):
    with socket.socket(*kind) as end:
        end.settimeout(2)
        end.connect(address)
    return "connected"


def tcp(target):
    return _connected((_HERE, target["tcp"]), socket.AF_INET, socket.SOCK_STREAM)


def tcp_over_ipv6(target):
    return _connected((f"::ffff:{_HERE}", target["tcp"]), socket.AF_INET6, socket.SOCK_STREAM)


def tcp_fastopen(target):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        end.sendto(b"x", _MSG_FASTOPEN, (_HERE, target["tcp"]))
    return "sent"


def tcp_fastopen_message(target):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        end.sendmsg([b"x"], (), _MSG_FASTOPEN, (_HERE, target["tcp"]))
    return "sent"


def mptcp(target):
    address = (_HERE, target["tcp"])
    return _connected(address, socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP)


def udp(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"x", (_HERE, target["udp"]))
    return "sent"


def udp_connected(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect((_HERE, target["udp"]))
        end.send(b"x")
    return "sent"


def unix_path(target):
    return _connected(target["path"], socket.AF_UNIX, socket.SOCK_STREAM)


def unix_abstract(target):
    return _connected(target["abstract"].encode(), socket.AF_UNIX, socket.SOCK_STREAM)


def unix_datagram(target):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.sendto(b"x", target["dgram_path"])
    return "sent"


def pair_to_unix_path(target):
    """One end of a datagram pair can send to any path."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        near.sendto(b"x", target["dgram_path"])
    return "sent"


def raw_pair_to_unix_path(target):
    """To UNIX sockets, RAW is another word for DGRAM."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    with near, far:
        near.sendto(b"x", target["dgram_path"])
    return "sent"


def pair_to_unix_abstract(target):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        near.sendto(b"x", target["dgram_abstract"].encode())
    return "sent"


def sequenced_pair_to_unix_path(target):
    """Must reach nobody but the other end, also where it is allowed."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        near.sendto(b"x", target["dgram_path"])
        if far.recv(10) == b"x":
            raise PermissionError(1, "it went to the other end")
    return "sent"


def standard_stream_as_socket(target):
    """The descriptors that every worker has."""
    for number in range(3):
        with socket.socket(fileno=os.dup(number)) as end:
            end.connect((_HERE, target["tcp"]))
    return "connected"


def listen(target):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        end.bind((_HERE, 0))
        end.listen()
    return "listening"


def listen_unbound(target):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        end.listen()
    return "listening"


def netlink(target):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as end:
        end.bind((0, 0))
    return "listening to the kernel's events"


def packets(target):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)):
        return "listening to all packets"


def raw_packets(target):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "a raw socket"


def kernel_crypto(target):
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET):
        return "a socket of the kernel's cryptography"


def io_uring(target):
    parameters = ctypes.create_string_buffer(120)
    result = _libc.syscall(425, 4, parameters)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(result)
    return "a ring that makes sockets"


def x32_numbers(target):
    """The same calls under other numbers."""
    if platform.machine() != "x86_64":
        raise OSError(38, "only there")
    result = _libc.syscall(0x40000000 | 41, 2, 1, 0)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "a socket"
