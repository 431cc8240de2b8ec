"""Attacks on files. `target`: `outside` (a folder with `secret`, `victim` and `empty/`), `home`
(the worker's own), `host` (process id of the host), `sibling_home`, `staged`."""

# mypy: ignore-errors

import ctypes
import os
import shutil
import sqlite3

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _read(path):
    with open(path, "rb") as file:
        return file.read(64)


def read_shadow(target):
    return _read("/etc/shadow")


def read_outside(target):
    return _read(f"{target['outside']}/secret")


def list_outside(target):
    return os.listdir(target["outside"])


def read_sibling_home(target):
    return os.listdir(target["sibling_home"])


def read_private_keys(target):
    return os.listdir("/etc/ssl/private")


def read_through_proc_root(target):
    return _read(f"/proc/self/root{target['outside']}/secret")


def read_through_parent_folders(target):
    return _read(f"../../../../../../..{target['outside']}/secret")


def read_through_symlink(target):
    link = f"{target['home']}/link"
    os.symlink(f"{target['outside']}/secret", link)
    try:
        return _read(link)
    finally:
        os.unlink(link)


def read_through_path_handle(target):
    handle = os.open(f"{target['outside']}/secret", os.O_PATH)
    try:
        return _read(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def read_below_folder_handle(target):
    handle = os.open(target["outside"], os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(os.open("secret", os.O_RDONLY, dir_fd=handle))
    finally:
        os.close(handle)
    return "opened"


def read_through_hard_link(target):
    link = f"{target['home']}/hard"
    os.link(f"{target['outside']}/secret", link)
    try:
        return _read(link)
    finally:
        os.unlink(link)


def read_with_sqlite(target):
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("attach ? as other", (f"{target['outside']}/data.db",))
        return connection.execute("select * from other.sqlite_master").fetchall()
    except sqlite3.OperationalError as error:
        raise PermissionError(13, str(error)) from error
    finally:
        connection.close()


def change_working_folder_and_read(target):
    before = os.getcwd()
    os.chdir(target["outside"])
    try:
        return _read("secret")
    finally:
        os.chdir(before)


def read_host_environ(target):
    return _read(f"/proc/{target['host']}/environ")


def read_host_memory(target):
    with open(f"/proc/{target['host']}/mem", "rb", buffering=0) as memory:
        memory.seek(target["address"])
        return memory.read(16)


def write_host_memory(target):
    with open(f"/proc/{target['host']}/mem", "r+b", buffering=0) as memory:
        memory.seek(target["address"])
        data = memory.read(1)
        memory.seek(target["address"])
        memory.write(data)
    return "written"


def read_host_map(target):
    return _read(f"/proc/{target['host']}/maps")


def list_host_descriptors(target):
    return os.listdir(f"/proc/{target['host']}/fd")


def read_host_command_line(target):
    return _read(f"/proc/{target['host']}/cmdline")


def read_disk(target):
    return [name for name in ("vda", "sda", "nvme0n1") if _read(f"/dev/{name}")]


def read_kernel_log(target):
    handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.close(handle)
    return "opened"


def write_outside(target):
    with open(f"{target['outside']}/victim", "r+b") as file:
        file.write(b"X")
    return "written"


def append_outside(target):
    with open(f"{target['outside']}/victim", "ab") as file:
        file.write(b"X")
    return "written"


def create_outside(target):
    with open(f"{target['outside']}/made", "xb"):
        pass
    return "made"


def truncate_by_path(target):
    os.truncate(f"{target['outside']}/victim", 3)
    return "cut"


def truncate_by_open(target):
    os.close(os.open(f"{target['outside']}/victim", os.O_RDONLY | os.O_TRUNC))
    return "cut"


def remove_outside(target):
    os.unlink(f"{target['outside']}/doomed")
    return "gone"


def remove_folder_outside(target):
    os.rmdir(f"{target['outside']}/empty")
    return "gone"


def make_folder_outside(target):
    os.mkdir(f"{target['outside']}/folder")
    return "made"


def symlink_outside(target):
    os.symlink("/", f"{target['outside']}/way")
    return "made"


def fifo_outside(target):
    os.mkfifo(f"{target['outside']}/fifo")
    return "made"


def rename_into_home(target):
    os.rename(f"{target['outside']}/movable", f"{target['home']}/taken")
    os.rename(f"{target['home']}/taken", f"{target['outside']}/movable")
    return "taken"


def rename_over_outside(target):
    mine = f"{target['home']}/mine"
    with open(mine, "w") as file:
        file.write("mine")
    os.rename(mine, f"{target['outside']}/victim")
    return "replaced"


def exchange_with_outside(target):
    mine = f"{target['home']}/mine"
    with open(mine, "w") as file:
        file.write("mine")
    other = f"{target['outside']}/victim"
    _checked(_libc.renameat2(-100, mine.encode(), -100, other.encode(), 2))
    return "exchanged"


def hard_link_outside(target):
    mine = f"{target['home']}/linked"
    with open(mine, "w") as file:
        file.write("mine")
    os.link(mine, f"{target['outside']}/linked")
    return "linked"


def write_through_symlink(target):
    link = f"{target['home']}/way"
    os.symlink(f"{target['outside']}/victim", link)
    try:
        with open(link, "ab") as file:
            file.write(b"X")
    finally:
        os.unlink(link)
    return "written"


def write_in_temporary_folder_of_all(target):
    with open("/tmp/purra-villain-was-here", "w"):
        pass
    os.unlink("/tmp/purra-villain-was-here")
    return "made"


def write_shared_memory_folder(target):
    with open("/dev/shm/purra-villain-was-here", "w"):
        pass
    os.unlink("/dev/shm/purra-villain-was-here")
    return "made"


def replace_what_workers_import(target):
    with open(f"{target['staged']}/purra_sdk/__init__.py", "ab"):
        pass
    return "opened"


def replace_own_code(target):
    with open(__file__, "ab"):
        pass
    return "opened"


def lower_own_oom_score(target):
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    return "lowered"


def make_device(target):
    path = f"{target['home']}/null"
    os.mknod(path, 0o020666, os.makedev(1, 3))
    os.unlink(path)
    return "made"


def copy_tree_outside(target):
    shutil.copytree(target["outside"], f"{target['home']}/copy")
    shutil.rmtree(f"{target['home']}/copy")
    return "copied"
