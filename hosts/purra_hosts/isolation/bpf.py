"""Seccomp filters as data, and their assembly into the bytes that the kernel takes. Pure.

A filter is a list of rules, each about one system call. What no rule speaks of is allowed; a rule
denies outright, or unless its checks on the arguments hold. Only the low 32 bits of an argument are
looked at: every argument checked here is an `int` or `unsigned int` to the kernel, which ignores
the others as well.

The program is a plain chain, one comparison per rule. A binary search would save some 20 ns on the
few calls whose arguments are looked at; the kernel answers all others from a bitmap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from purra_hosts.isolation.syscalls import Machine

__all__ = ["Bits", "Check", "NoneOf", "OneOf", "Rule", "When", "assemble"]

WHOLE: Final = 0xFFFFFFFF
_LIMIT: Final = 4096
"""Instructions that the kernel takes."""
_BRANCH: Final = 255
"""Instructions that a conditional jump can skip."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_BITS = 0x15, 0x35, 0x45
_AT_NUMBER, _AT_MACHINE, _AT_ARGUMENTS = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ENOSYS: Final = 38
_X32: Final = 0x40000000
"""Set in the number of a call of the x32 ABI, which would pass by all rules for x86_64."""

_Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class OneOf:
    """The argument, masked, must be one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = WHOLE


@dataclass(frozen=True, slots=True)
class NoneOf:
    """The argument must be none of `values`."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bits:
    """Of `bits` in the argument none may be set, or with `needed` one must be."""

    argument: int
    bits: int
    needed: bool = False


@dataclass(frozen=True, slots=True)
class When:
    """`checks` apply if the argument is `value`."""

    argument: int
    value: int
    checks: tuple[OneOf | NoneOf | Bits, ...]


Check = OneOf | NoneOf | Bits | When


@dataclass(frozen=True, slots=True)
class Rule:
    """The system call of that name fails with `errno`, unless there are checks and all hold.

    A name that the machine does not have is passed over.
    """

    name: str
    errno: int
    checks: tuple[Check, ...] = ()


def assemble(rules: Iterable[Rule], machine: Machine) -> bytes:
    """The filter's program: instructions of 8 bytes, in the byte order of this machine.

    A call of another architecture kills the process: there its numbers mean something else. A call
    that is newer than the table of numbers does not exist (ENOSYS), for nobody has looked at it.
    Raises `ValueError` for two rules about one call, and for a program that is too long.
    """
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _AT_MACHINE),
        (_IF_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_IF_AT_LEAST, 0, 1, machine.newest + 1),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
    ]
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            raise ValueError(f"two rules about {rule.name}")
        seen.add(rule.name)
        if rule.name in machine.numbers:
            program += _rule(rule, machine.numbers[rule.name])
    program.append((_RETURN, 0, 0, _ALLOW))
    if len(program) > _LIMIT:
        raise ValueError(f"a filter of {len(program)} instructions, more than {_LIMIT}")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _rule(rule: Rule, number: int) -> list[_Instruction]:
    body = [instruction for check in rule.checks for instruction in _check(check, rule.errno)]
    body.append((_RETURN, 0, 0, _ALLOW if rule.checks else _ERRNO | rule.errno))
    return [(_IF_EQUAL, 0, _skipping(body), number), *body]


def _check(check: Check, errno: int) -> Iterator[_Instruction]:
    """Returns from the filter if the check fails, and goes on after it if it holds."""
    yield (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * check.argument)
    denied = (_RETURN, 0, 0, _ERRNO | errno)
    if isinstance(check, OneOf):
        if check.mask != WHOLE:
            yield (_AND, 0, 0, check.mask)
        for left in range(len(check.values), 0, -1):
            yield (_IF_EQUAL, left, 0, check.values[-left])
        yield denied
    elif isinstance(check, NoneOf):
        for value in check.values:
            yield (_IF_EQUAL, 0, 1, value)
            yield denied
    elif isinstance(check, Bits):
        yield (_IF_BITS, int(check.needed), int(not check.needed), check.bits)
        yield denied
    else:
        inner = [instruction for part in check.checks for instruction in _check(part, errno)]
        yield (_IF_EQUAL, 0, _skipping(inner), check.value)
        yield from inner


def _skipping(body: Sequence[_Instruction]) -> int:
    if len(body) > _BRANCH:
        raise ValueError(f"a rule of {len(body)} instructions, more than {_BRANCH}")
    return len(body)
