"""Ends processes together with their child processes.

Copy with: nothing else.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress


def kill_group(pid: int, *, force: bool = True) -> None:
    """Kill a process group. Processes that have left the group stay.

    pid: the leader of the group, started with `start_new_session`.
    force: False only asks them to end (SIGTERM), except on Windows.
    """
    if sys.platform == "win32":
        line = ["taskkill", "/T", "/F", "/PID", str(pid)]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(line, capture_output=True, timeout=5, check=False)
    else:
        with suppress(OSError):  # an empty group; on macOS, a group of zombies
            os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)
