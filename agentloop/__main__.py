"""The command `agentloop` (and `python -m agentloop`): a chat with a coding agent.

Python looks for modules in the current folder first after `-m`; the command does not look there.
"""

import sys

from .cli.main import main as run

if __name__ == "__main__":
    sys.exit(run())
