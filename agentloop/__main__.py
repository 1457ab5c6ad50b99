"""The command `agentloop` (and `python -m agentloop`): a chat with a coding agent.

Python looks for modules in the current folder first after `-m`; the command does not look there.
"""

import sys

from .cli.main import main


def run() -> int:
    """Run the command, and return its exit status."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
