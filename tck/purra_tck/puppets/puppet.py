"""A plugin with no will of its own: it hands every byte on, and does what the kit tells it.

Runs in the plugin's process by `python -I -S`, beside a socket named `kit`. It knows no frames:
what comes in on the channel goes to the kit, what the kit sends goes out on the channel. So the kit
decides about every byte, while the process, its signals and its descriptors are real.

    to the kit      u32 size, one letter, payload:  H facts, D bytes from the channel,
                    E the channel has ended, A bytes are on the channel (count), R a result
    from the kit    u32 size, one letter, payload:  W bytes for the channel, C a command

Facts, commands and results are Python literals; `json` would take as long to load as all the rest.
"""

# mypy: ignore-errors

import _socket
import os
import select
import sys

__all__ = ["Puppet"]

READ_BYTES = 256 * 1024
GHOST = """
import os, sys, time
channel, mark, late = int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])
end = time.monotonic() + 60
while not os.path.exists(mark + ".go") and time.monotonic() < end:
    time.sleep(0.001)
try:
    os.write(channel, late)
except OSError:
    pass
os.close(os.open(mark, os.O_CREAT))
"""


class Puppet:
    """The process. `do_...` is what the kit may command."""

    def __init__(self, channel, folder):
        """`channel`: a descriptor. `folder`: where the socket named `kit` is."""
        self.channel = channel
        facts = self.facts()
        os.set_blocking(channel, False)
        self.kit = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.kit.connect(os.path.join(folder, "kit"))
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.deaf = False
        self.stays = False
        self.tell(b"H", repr(facts).encode())

    def facts(self):
        """What it finds at its start."""
        inherited = [self.kind_of(int(fd)) for fd in sorted(os.listdir("/proc/self/fd"), key=int)]
        os.set_inheritable(self.channel, False)
        umask = os.umask(0)
        os.umask(umask)
        with open("/proc/self/environ", "rb") as file:
            environ = file.read()
        with open("/proc/self/cmdline", "rb") as file:
            cmdline = file.read()
        return {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "sid": os.getsid(0),
            "env": dict(os.environ),
            "environ": environ,
            "cmdline": cmdline,
            "cwd": os.getcwd(),
            "umask": umask,
            "descriptors": inherited,
        }

    def leave(self, status):
        """Ends, at once."""
        os._exit(status)

    @staticmethod
    def kind_of(fd):
        try:
            return (fd, os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            return (fd, "")  # the one that the listing itself had open

    def tell(self, letter, payload=b""):
        self.kit.sendall(len(payload).to_bytes(4, "big") + letter + payload)

    def run(self):
        poll = select.poll()
        while True:
            events = {self.kit.fileno(): select.POLLIN}
            if self.channel >= 0:
                wanted = (0 if self.deaf else select.POLLIN) | (
                    select.POLLOUT if self.outbox else 0
                )
                if wanted:
                    events[self.channel] = wanted
            for fd in list(events):
                poll.register(fd, events[fd])
            ready = dict(poll.poll())
            for fd in events:
                poll.unregister(fd)
            if self.kit.fileno() in ready:
                self.hear()
            if self.channel in ready:
                state = ready[self.channel]
                if state & select.POLLOUT:
                    self.write()
                if state & (select.POLLIN | select.POLLHUP | select.POLLERR) and not self.deaf:
                    self.read()

    def read(self):
        if self.channel < 0:
            return
        try:
            data = os.read(self.channel, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.tell(b"D", data)
        else:
            self.tell(b"E")
            self.deaf = True
            if not self.stays:
                self.leave(0)

    def write(self):
        try:
            count = os.write(self.channel, self.outbox)
        except BlockingIOError:
            return
        except OSError:
            count = len(self.outbox)  # nobody reads any more; the kit sees the end by itself
        del self.outbox[:count]
        self.tell(b"A", str(count).encode())

    def hear(self):
        data = self.kit.recv(READ_BYTES)
        if not data:
            self.leave(0)
        self.inbox += data
        while len(self.inbox) >= 5:
            size = int.from_bytes(self.inbox[:4], "big")
            if len(self.inbox) < 5 + size:
                return
            letter, payload = self.inbox[4:5], bytes(self.inbox[5 : 5 + size])
            del self.inbox[: 5 + size]
            if letter == b"W":
                self.outbox += payload
                if self.channel >= 0:
                    self.write()
            else:
                name, arguments = eval(payload, {"__builtins__": {}})
                result = getattr(self, "do_" + name)(**arguments)
                self.tell(b"R", repr(result).encode())

    # What the kit may command.

    def do_exit(self, status):
        self.leave(status)

    def do_signal(self, number):
        os.kill(os.getpid(), number)

    def do_close(self):
        os.close(self.channel)
        self.channel = -1

    def do_shut(self, how):
        """0: no more reading, 1: no more writing, 2: neither."""
        channel = _socket.socket(fileno=os.dup(self.channel))
        channel.shutdown(how)
        channel.close()

    def do_deaf(self, deaf=True):
        self.deaf = deaf

    def do_stay(self):
        """From now on the end of the channel is no reason to end."""
        self.stays = True

    def do_ignore(self, number):
        import signal

        signal.signal(number, signal.SIG_IGN)

    def do_obey(self, number, path):
        """Makes `path` and ends when that signal comes."""
        import signal

        def end(*_):
            self.do_make(path)
            self.leave(0)

        signal.signal(number, end)

    def do_write(self, fd, data, times=1):
        """Blocks until all of it is out."""
        count = 0
        for _ in range(times):
            view = memoryview(data)
            while view:
                done = os.write(fd, view)
                view = view[done:]
                count += done
        return count

    def do_print(self, text):
        print(text, flush=True)

    def do_fork(self, session=False, silent=True, ignore=False):
        """A child that stays for a minute; its number."""
        ready, tell = os.pipe()
        pid = os.fork()
        if pid:
            os.close(tell)
            os.read(ready, 1)  # it has a session of its own now, if it is to have one
            os.close(ready)
            return pid
        import time

        if session:
            os.setsid()
        if ignore:
            self.do_ignore(15)
        if silent:
            os.close(1)
            os.close(2)
        for fd in (self.kit.fileno(), self.channel, ready, tell):
            os.close(fd)
        time.sleep(60)
        os._exit(0)

    def do_haunt(self, mark, late):
        """A program of its own, without a mark of where it comes from, that holds the channel: once
        this process is dead and `mark` + ".go" is there, it writes `late` and makes `mark`.
        """
        ready, tell = os.pipe()
        pid = os.fork()
        if pid:
            os.close(tell)
            os.read(ready, 1)
            os.close(ready)
            return pid
        os.setsid()
        os.set_inheritable(self.channel, True)
        arguments = [str(self.channel), mark, late.hex()]
        return os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", GHOST, *arguments], {})

    def do_open_files(self, most):
        """How many descriptors can be opened, and the errno that ends it."""
        opened = []
        number = 0
        for _ in range(most):
            try:
                opened.append(os.open("/dev/null", os.O_RDONLY))
            except OSError as error:
                number = error.errno
                break
        for fd in opened:
            os.close(fd)
        return len(opened), number

    def do_allocate(self, size):
        """Touches `size` bytes; how many it got."""
        try:
            block = bytearray(size)
        except MemoryError:
            return 0
        self.block = block
        return len(block)

    def do_spin(self):
        while True:
            pass

    def do_limits(self):
        import resource

        names = ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_DATA", "RLIMIT_CPU")
        return {name: resource.getrlimit(getattr(resource, name)) for name in names}

    def do_make(self, path, mode=0o600):
        with open(path, "w") as file:
            file.write("made by the puppet")
        return oct(os.stat(path).st_mode)

    def do_stat(self, path):
        found = os.stat(path)
        return {"mode": found.st_mode & 0o7777, "uid": found.st_uid}


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    here = os.path.dirname(os.path.abspath(__file__))
    Puppet(int(os.environ["PURRA_FD"]), here).run()
