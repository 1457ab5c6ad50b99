"""Termination of processes together with their child processes.

Copy with: nothing else.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress


def kill_group(pid: int, *, force: bool = True) -> None:
    """Kill or terminate a process group. A process that left the group escapes.

    pid: a process started with `start_new_session`, which leads its group.
    """
    if sys.platform == "win32":
        line = ["taskkill", "/T", "/F", "/PID", str(pid)]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(line, capture_output=True, timeout=5, check=False)
    else:
        with suppress(OSError):  # empty group; on macOS: only zombies are left
            os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)
