"""A program that dies at one access to the disk, and an agent that dies at one record."""

# The beginning of a program: `kill_at = int(sys.argv[3])` is the number of the point.
MORTAL = '''
import json, os, signal, sys, types
import agentloop.common.store as store

folder, ledger_path, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
points = 0

def point():
    """Kill the process if this is the selected point."""
    global points
    points += 1
    if points == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def around(name):
    real = getattr(os, name)
    def wrapped(*args):
        point()
        if name == "write" and points + 1 == kill_at:
            real(args[0], bytes(args[1])[: len(args[1]) // 2])
        point()
        result = real(*args)
        point()
        return result
    return wrapped

names = ("open", "write", "fsync", "ftruncate")
real = {name: getattr(os, name) for name in dir(os)}
store.os = types.SimpleNamespace(**real | {name: around(name) for name in names})
'''


class Killed(BaseException):
    """The process of an agent was killed."""


def mortal(kind, world):
    """Return a class of agents with a session that die before or after one record.

    world: has `kill_at`, `before`, and `records`, which counts the records of all its agents.
    """

    class Mortal(kind):
        def record(self, record):
            if self.session_file.closed:
                raise Killed
            world.records += 1
            is_last = world.records == world.kill_at
            if not (is_last and world.before):
                super().record(record)
            if is_last:
                self.close()
                raise Killed

    return Mortal
