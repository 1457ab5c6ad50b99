"""What a search for tools has found, as parts of its result: see toolkits/search.py.

Copy with: messages.py and its imports.
"""

from ..messages import TextPart, ToolMessage, frozen


@frozen
class FoundTool(TextPart):
    """A deferred tool that the model may call once it has this part.

    text: the declaration, for models that can't load a tool in the middle of a conversation.
    name: the tool's name, for models that can: their requests have the tool already.
    """

    name: str


def found_tools(message: ToolMessage) -> list[str]:
    """The names of the tools that a result has found."""
    if isinstance(message.content, str):
        return []
    return [part.name for part in message.content if isinstance(part, FoundTool)]
