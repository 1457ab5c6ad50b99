"""The ledger, and the faults that happen to the process that pays.

The ledger is memory that all processes of a benchmark share, so it survives SIGKILL and a full
disk, and writing it is no write of the program. Each entry is a line:

    effect Ada      the money has moved
    returned Ada    the tool has returned its receipt
    request         the model's server has received a request
    after           the fault is over: the program continues
"""

import mmap
import os
import re
import resource
import signal
import sqlite3
import struct
import sys
import threading

ORDER = [["Ada"], ["Ben", "Cleo"], ["Dan"], ["Eve"]]  # the calls of one reply run in parallel
NAMES = [name for turn in ORDER for name in turn]
PROMPT = "Pay the five invoices."
DELEGATE = "Let the clerk pay the five invoices."
GO_ON = "Go on, please."
NOTE = "Cleo has to wait until Monday."  # the reason of a denial

memory = mmap.mmap(-1, 1 << 20)  # shared with every process that is forked from this one
HEAD = struct.Struct("<6i")  # used bytes, port, request that fails, request that kills, pid, writes
adding = threading.Lock()


class Fault:
    """What happens to this process, and when. The numbers count from 1; 0 means never."""

    kill_before = 0  # the nth effect
    kill_after = 0
    kill_at_write = 0
    full_disk_at = 0  # from the nth effect on
    is_watching = False  # whether writes count: not those that open or create a database

    @classmethod
    def disarm(cls):
        cls.kill_before = cls.kill_after = cls.kill_at_write = cls.full_disk_at = 0
        cls.is_watching = False


def clear(fail=0, kill=0):
    _, port, *_ = HEAD.unpack_from(memory)
    HEAD.pack_into(memory, 0, 0, port, fail, kill, 0, 0)
    Fault.disarm()


def field(at, value=None):
    """Read or set a field of the shared memory, by its place in HEAD."""
    if value is not None:
        struct.pack_into("<i", memory, 4 * at, value)
    return struct.unpack_from("<i", memory, 4 * at)[0]


def add(line):
    with adding:
        start = HEAD.size + field(0)
        data = f"{line}\n".encode()
        memory[start : start + len(data)] = data
        field(0, start + len(data) - HEAD.size)  # last: a killed process leaves no part of a line


def lines():
    return memory[HEAD.size : HEAD.size + field(0)].decode().splitlines()


def base_url():
    return f"http://127.0.0.1:{field(1)}/v1"


def folder():
    """The folder for the program's files."""
    return os.environ["SURVIVAL_FOLDER"]


# ---- the tools


def move_money(name):
    number = sum(line.startswith("effect") for line in lines()) + 1
    if number == Fault.kill_before:
        os.kill(os.getpid(), signal.SIGKILL)
    add(f"effect {name}")
    if number == Fault.kill_after:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == Fault.full_disk_at:
        fill_disk()


def receipt(name):
    add(f"returned {name}")
    return f"receipt R-{name}"


def look_up(name):
    paid = f"effect {name}" in lines()
    return f"receipt R-{name}" if paid else f"{name}: not paid"


# ---- the disk


def fill_disk():
    """From now on, every write to a file fails: a limit on the size of files is a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def free_disk():
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


FILES = ("FileIO", "BufferedWriter", "BufferedRandom", "TextIOWrapper")
CALLS = re.compile("^(write|fsync|fdatasync|replace|rename|ftruncate|pwrite)$")
READS = re.compile(r"\W*(SELECT|PRAGMA|BEGIN|EXPLAIN)", re.IGNORECASE)  # statements of SQL


def is_write(function):
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if type(owner).__name__ in FILES:
        return name in ("write", "truncate") and owner not in (sys.stdout, sys.stderr)
    return type(owner).__name__ == "module" and owner.__name__ == "posix" and CALLS.match(name)


def watch_writes():
    """Count the writes of this process, and die just before the one that `Fault` names.

    A write is a call that writes to a file, or a statement of SQLite that writes.
    """

    def count():
        if not Fault.is_watching:
            return
        field(5, field(5) + 1)
        if field(5) == Fault.kill_at_write:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_calls(frame, event, function):
        if event == "c_call" and is_write(function):
            count()

    def watch_statement(statement):
        if not READS.match(statement):
            count()

    def connect(*arguments, **settings):
        connection = original(*arguments, **settings)
        connection.set_trace_callback(watch_statement)
        return connection

    original = sqlite3.connect
    sqlite3.connect = sqlite3.dbapi2.connect = connect
    threading.setprofile(watch_calls)
    sys.setprofile(watch_calls)
