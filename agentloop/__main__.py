"""The command `agentloop` (and `python -m agentloop`): see cli/main.py.

`python -m` imports modules from the current directory first; the command ignores this directory.
"""

import sys

from .cli.main import main as run

if __name__ == "__main__":
    sys.exit(run())
