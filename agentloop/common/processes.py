"""Ends processes together with the processes that they have started.

Copy with: nothing else.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress


def kill_group(pid: int, *, force: bool = True) -> None:
    """Kill a process group, or ask it to terminate. A process that left the group escapes.

    pid: the process that was started with `start_new_session`, and so leads the group.
    """
    if sys.platform == "win32":
        line = ["taskkill", "/T", "/F", "/PID", str(pid)]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(line, capture_output=True, timeout=5, check=False)
    else:
        with suppress(OSError):  # the group is empty; macOS: only zombies are left
            os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)
