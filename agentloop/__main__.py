"""`python -m agentloop`: a chat with a coding agent in the current folder."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
