"""The interface between `Hooks` and the tools of sub-agents.

Copy with: nothing else.
"""

from typing import Literal


class FiresHooks:
    """An agent that runs hooks. The tools of toolkits/subagent.py call them."""

    async def fire_hooks(
        self, event: Literal["SubagentStart", "SubagentStop"], data: dict[str, object]
    ) -> object:
        """Run the hooks of an event."""
