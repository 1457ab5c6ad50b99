"""The setting that mixins share which hide parts of the log from the model.

Copy with: the core.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import SkipValidation

from ..loop import Loop
from ..tools import Tool


class HidesText(Loop):
    """Names the tool with which the model finds hidden text.

    recall_tool: such a tool. Placeholders and notes name it in requests that offer it.
    """

    recall_tool: Annotated[Tool | None, SkipValidation] = None

    def recall_name(self, tools: Iterable[Tool]) -> str:
        """Return the name of `recall_tool` if it is among these tools, else ""."""
        name = self.recall_tool.name if self.recall_tool else ""
        return name if any(tool.name == name for tool in tools) else ""
