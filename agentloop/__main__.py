"""`python -m agentloop`: a chat with a coding agent in the current folder."""

import sys

if __name__ == "__main__":
    try:
        from .cli.main import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
