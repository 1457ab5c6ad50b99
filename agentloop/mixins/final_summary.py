"""If a run is out of turns, it ends with the model's summary of its work.

Copy with: the core.

    class MyAgent(FinalSummary, Loop): ...            # part of `Agent`
    result = await MyAgent(llm=llm, tools=tools, max_iterations=5).run("Look for the cause.")
    result.text                                       # what was done, and what's left
"""

from dataclasses import replace

from ..loop import Loop
from ..messages import Result, UserMessage
from ..model import Request

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Summarize the completed work, the findings and the remaining tasks."
)


class FinalSummary(Loop):
    """Asks for a summary after `max_iterations` turns. Calls in the reply don't run."""

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        out_of_turns = UserMessage(OUT_OF_TURNS, "note")
        if answer and self.messages[-2:-1] == (out_of_turns,):  # a kill came before the RunEnd
            return replace(answer, stop_reason="max_iterations")
        if answer is None or answer.stop_reason != "max_iterations":
            return answer
        self.add(out_of_turns)
        # with the tools of the last request: the provider's cache holds their declarations
        reply = await self.call_model(Request(await self.context(), self.turn_tools()))
        if reply.tool_calls:
            reply = replace(reply, tool_calls=(), raw=None)
        self.add(reply)
        return replace(answer, text=reply.text)
