"""Goes on after a reply that isn't an answer: cut off in its calls, paused, or empty.

Copy with: the core, common/nudge.py.

    class MyAgent(Continuation, Loop): ...            # part of `Agent`
"""

from ..common.nudge import nudge
from ..loop import Loop
from ..messages import AssistantMessage, Result

EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
MAX_INCOMPLETE = 5  # replies in a row that were cut off, or paused, before the run ends


class Continuation(Loop):
    """If a reply isn't an answer, sends another request, a few times.

    A provider pauses after many calls of its own tools, and cuts off a reply at the output limit.
    Calls of such a reply don't run: the model reads why, and makes them again.
    """

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason not in ("completed", "limit:length", "no_progress"):
            return answer
        if answer.stop_reason == "completed":
            if answer.text.strip():
                return answer
            nudge(self, EMPTY_REPLY)
            return None
        replies = [each for each in self.conversation.run if isinstance(each, AssistantMessage)]
        reason = replies[-1].stop_reason if replies else None
        may_continue = reason == "pause" or (reason == "length" and replies[-1].tool_calls)
        newest = [reply.stop_reason for reply in replies[-MAX_INCOMPLETE:]]
        return None if may_continue and newest.count(reason) < MAX_INCOMPLETE else answer
