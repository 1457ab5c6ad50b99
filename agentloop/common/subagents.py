"""The interface of sub-agents to other modules: their records, and the hooks of their parent.

Copy with: history_change.py and its imports.
"""

from dataclasses import field
from typing import Literal

from ..history_change import HistoryChange
from ..messages import JSON, CallEntry, Mark, frozen


@frozen
class SubAgentRecord(CallEntry):
    """A record of a sub-agent's log, in the log of its parent.

    call_id: the parent's call that runs the sub-agent.
    agent: the name of the sub-agent.
    record: the record as returned by `to_dict` in common/records.py.
    """

    agent: str
    record: JSON = field(hash=False, repr=False)

    def after_change(self, change: HistoryChange) -> Mark | None:
        texts = {str(self.record.get(name)) for name in ("content", "text")}
        return None if texts & change.deleted_texts else CallEntry.after_change(self, change)


class FiresHooks:
    """An agent with hooks, which toolkits/subagent.py runs before and after a sub-agent."""

    async def fire_hooks(
        self, event: Literal["SubagentStart", "SubagentStop"], data: dict[str, object]
    ) -> object:
        """Execute the hooks of an event."""
