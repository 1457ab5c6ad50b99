"""The shared setting of mixins that hide parts of the conversation from the model.

Copy with: the core.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import SkipValidation

from ..loop import Loop
from ..tools import Tool


class HidesText(Loop):
    """Base class of mixins that hide text.

    recall_tool: a tool that finds hidden text. Placeholders and notes refer to the tool in requests
        that offer it.
    """

    recall_tool: Annotated[Tool | None, SkipValidation] = None

    def recall_name(self, tools: Iterable[Tool]) -> str:
        """Return the name of `recall_tool` if these tools contain it, otherwise ""."""
        name = self.recall_tool.name if self.recall_tool else ""
        return name if any(tool.name == name for tool in tools) else ""
