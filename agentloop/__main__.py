"""The command `agentloop` (and `python -m agentloop`): a chat with a coding agent."""

import signal
import sys


def run() -> int:
    """Runs the command, and returns its exit status."""
    try:
        from .cli.main import main

        signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
