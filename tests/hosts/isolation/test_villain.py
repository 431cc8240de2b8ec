"""The malicious plugin: everything it tries, with every grant, as root and as nobody.

What the level `standard` does not claim, and so is not tried here: metadata of files (that they
are there, their modes and times), a share of the processor, a full disk.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.hosts.isolation.running import IDENTITIES, arena, findings, need_standard

STOPPED: Final = {"stopped"}
PROCESSES: Final = frozenset(
    {
        "become_program",
        "clone",
        "fork",
        "fork_bomb",
        "run_from_memory",
        "run_program",
        "shell",
        "spawn_program",
        "clear_tie_to_host",
    }
)
"""What the grant `subprocess` is."""
NETWORK: Final = frozenset(
    {
        "listen",
        "listen_unbound",
        "mptcp",
        "tcp",
        "tcp_fastopen",
        "tcp_fastopen_message",
        "tcp_over_ipv6",
        "udp",
        "udp_connected",
    }
)
"""What the grant of any network is."""
GRANTS: Final[dict[str, tuple[dict[str, Any], frozenset[str]]]] = {
    "nothing": ({}, frozenset()),
    "a port": ({"network": ["localhost:9"]}, frozenset()),
    "any network": ({"network": "any"}, NETWORK),
    "programs": ({"subprocess": True}, PROCESSES),
    "programs and network": (
        {"network": "any", "subprocess": True},
        NETWORK | PROCESSES | {"connect_from_a_child"},
    ),
}
"""Grants -> the attacks that they allow, and no other."""
ANYWHERE: Final = frozenset(
    {
        "append_outside",
        "become_program",
        "change_working_folder_and_read",
        "clear_tie_to_host",
        "clone",
        "copy_tree_outside",
        "create_outside",
        "fifo_outside",
        "fork",
        "fork_bomb",
        "hard_link_outside",
        "let_the_kernel_signal",
        "limit_of_host",
        "list_host_descriptors",
        "list_outside",
        "listen",
        "listen_unbound",
        "make_folder_outside",
        "pair_to_unix_abstract",
        "pair_to_unix_path",
        "priority_of_host",
        "processors_of_host",
        "raw_pair_to_unix_path",
        "read_below_folder_handle",
        "read_host_command_line",
        "read_host_environ",
        "read_outside",
        "read_outside_in_a_child",
        "read_sibling_home",
        "read_through_hard_link",
        "read_through_parent_folders",
        "read_through_path_handle",
        "read_through_proc_root",
        "read_through_symlink",
        "read_with_sqlite",
        "remove_folder_outside",
        "remove_outside",
        "rename_into_home",
        "rename_over_outside",
        "replace_what_workers_import",
        "run_program",
        "scheduling_of_host",
        "shell",
        "signal_by_thread_number",
        "signal_group_of_host",
        "signal_host",
        "signal_host_from_a_child",
        "signal_sibling",
        "signal_thread_of_host",
        "signal_with_value",
        "spawn_program",
        "symlink_outside",
        "tcp",
        "truncate_by_open",
        "truncate_by_path",
        "udp",
        "udp_connected",
        "unix_abstract",
        "unix_datagram",
        "unix_path",
        "write_in_temporary_folder_of_all",
        "write_outside",
        "write_through_symlink",
    }
)
"""Attacks that get through without a jail on any Linux, for any user."""


def _answers(outcomes: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: outcome for name, outcome in outcomes.items() if kind in outcome}


@pytest.mark.parametrize("who", IDENTITIES)
@pytest.mark.parametrize("granted", GRANTS)
def test_nothing_gets_through_but_what_is_granted(who: str, granted: str) -> None:
    """K82, PLG-28, protocol, isolation, standard; LIM-003, LIM-005, LIM-006: reading, writing,
    sockets, signals, tracing, processes, namespaces, what is inherited, limits. Both workers
    outlive all of it."""
    need_standard()
    grants, allowed = GRANTS[granted]
    told = arena(who, "assault", "standard", grants)
    outcomes = told["outcomes"]
    assert _answers(outcomes, "failed") == {}
    # Granted is not "must work": an old kernel may lack MPTCP, an odd one FASTOPEN.
    through = _answers(outcomes, "evidence") | _answers(outcomes, "damage")
    assert {name: how for name, how in through.items() if name not in allowed} == {}
    assert told["alive"]
    for axis in ("fs", "net", "exec", "ipc"):
        assert told["isolation"][axis].startswith(("enforced", "granted")), axis


@pytest.mark.parametrize("who", IDENTITIES)
def test_the_attacks_are_real(who: str) -> None:
    """The control: without a jail they do get through, so what stops them is the jail."""
    told = arena(who, "assault", "none", {})
    outcomes = told["outcomes"]
    assert _answers(outcomes, "failed") == {}
    through = _answers(outcomes, "evidence").keys()
    assert ANYWHERE - through == set()
    assert outcomes.keys() >= ANYWHERE | PROCESSES | NETWORK
    for axis in ("fs", "net", "exec", "ipc"):
        assert told["isolation"][axis] == "none"


@pytest.mark.parametrize("who", IDENTITIES)
def test_what_nobody_gets_at_any_level(who: str) -> None:
    """PLG-18, LIM-001, LIM-003, LIM-005, LIM-006: nothing is inherited, and limits come from
    outside."""
    outcomes = arena(who, "assault", "none", {})["outcomes"]
    for name in (
        "inherited_descriptor",
        "inherited_environment",
        "inherited_sockets",
        "leave_group",
        "more_descriptors_than_granted",
        "more_memory_than_granted",
    ):
        assert set(outcomes[name]) - {"errno"} == STOPPED, name


def test_the_probe_and_the_workers_agree() -> None:
    """Achieved is what was probed: neither more nor less."""
    found = findings()
    told = arena("myself", "labour", ["own_memory"], "standard" if not _short() else "none", {})
    isolation = told["own_memory"]["isolation"]
    if _short():
        pytest.skip(f"standard cannot be had here: {found.no_landlock or found.no_seccomp}")
    assert isolation["fs"] == f"enforced: landlock-{found.landlock}"


def _short() -> bool:
    found = findings()
    return bool(found.no_landlock or found.no_seccomp)
