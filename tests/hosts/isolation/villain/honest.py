"""Jobs of honest plugins. `target`: `home`, `readable`, `writable` (granted folders), `port`."""

# mypy: ignore-errors

import asyncio
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def threads(target):
    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda number: number * 2, range(100)))


def many_threads(target):
    """More than a few at once."""
    ready = threading.Barrier(17)
    made = [threading.Thread(target=ready.wait) for _ in range(16)]
    for thread in made:
        thread.start()
    ready.wait(10)
    for thread in made:
        thread.join()
    return len(made)


def event_loop(target):
    async def main():
        near, far = socket.socketpair()
        reader, first = await asyncio.open_connection(sock=near)
        _, second = await asyncio.open_connection(sock=far)
        second.write(b"hello\n")
        await second.drain()
        line = await reader.readline()
        slept = await asyncio.to_thread(lambda: "slept")
        first.close()
        second.close()
        return [line.decode(), slept]

    return asyncio.run(main())


def database(target):
    path = os.path.join(target["writable"], "store.db")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (x)")
    with connection:
        connection.executemany("insert into t values (?)", [(n,) for n in range(100)])
    beside = sorted(os.listdir(target["writable"]))
    count = connection.execute("select count(*) from t").fetchone()[0]
    connection.execute("pragma temp_store = file")
    connection.execute("create temp table s as select x from t order by x desc")
    connection.close()
    return {"count": count, "beside": beside}


def temporary_files(target):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a", "b")
        path.mkdir(parents=True)
        (path / "file").write_text("x")
        (path / "file").rename(Path(folder, "file"))
        os.link(Path(folder, "file"), path / "linked")
        os.truncate(path / "linked", 0)
        (path / "linked").chmod(0o600)
        (path / "way").symlink_to("linked")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    return folder.startswith(target["home"])


def own_folder(target):
    return sorted(path.name for path in Path(__file__).parent.iterdir() if path.suffix == ".py")


def granted_folders(target):
    text = Path(target["readable"], "note").read_text()
    folder = Path(target["writable"], "made")
    folder.mkdir()
    (folder / "note").write_text(text)
    (folder / "note").rename(Path(target["writable"], "moved"))
    return Path(target["writable"], "moved").read_text()


def read_is_not_write(target):
    """The errno of a write where only reading is granted."""
    try:
        Path(target["readable"], "new").write_text("x")
    except OSError as error:
        return error.errno
    return 0


def secure_context(target):
    """How many authorities TLS trusts. Without its files there are none, and no error."""
    return len(ssl.create_default_context().get_ca_certs())


def time_zone(target):
    zone = zoneinfo.ZoneInfo("Europe/Helsinki")
    return [zone.key, bool(time.localtime())]


def randomness(target):
    with open("/dev/urandom", "rb") as file:
        return len(file.read(8) + os.urandom(8))


def null_device(target):
    with open(os.devnull, "w") as file:
        file.write("x")
    with open(os.devnull) as file:
        return file.read()


def signals_to_itself(target):
    got = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    return len(got)


def own_priority(target):
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))
    return True


def program(target):
    """A program of the system, and one of the plugin's own."""
    said = subprocess.run(["uname"], capture_output=True, text=True, check=True).stdout
    code = "import json; print(json.dumps(1))"
    own = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [said.strip(), own.stdout.strip()]


def program_that_is_ended(target):
    running = subprocess.Popen(["sleep", "600"])
    running.terminate()
    return running.wait(10)


def connection(target):
    with socket.create_connection(("127.0.0.1", target["port"]), timeout=5) as end:
        return end.recv(16).decode()


def connection_of_a_loop(target):
    async def main():
        reader, writer = await asyncio.open_connection("127.0.0.1", target["port"])
        data = await reader.read(16)
        writer.close()
        return data.decode()

    return asyncio.run(main())


def other_port(target):
    """The errno of a connection to a port that is not granted."""
    try:
        with socket.create_connection(("127.0.0.1", target["other"]), timeout=5):
            return 0
    except OSError as error:
        return error.errno


def server(target):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        far.sendall(b"served")
        return near.recv(16).decode()


def own_memory(target):
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) > 0
