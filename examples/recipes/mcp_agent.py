"""An agent as an MCP server: other programs ask it, and their users decide on its calls.

Use it to offer an agent to MCP clients, such as coding agents. The one tool, `ask`, runs a fork of
the agent. If a call awaits approval or an answer, the server asks the user of the client: "yes"
allows a call, other text denies it. Since MCP 2026-07-28, the client then sends the call again.
`python mcp_agent.py serve` is the server. Needs `pip install 'mcp>=2.3,<3'`.
"""

import asyncio
import sys
from secrets import token_hex
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client, types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from agentloop import Agent, ScriptedModel, ToolCall, call, tool
from agentloop.mixins.approval import Approval


def question(waiting: ToolCall) -> types.ElicitRequestFormParams:
    asked = (waiting.parsed or {}).get("question")
    message = asked or f"Allow {waiting.name}({waiting.arguments})? Answer yes, or why not."
    form = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return types.ElicitRequestFormParams(message=message, requested_schema=form)


def answer(agent: Agent, call_id: str, reply: Any) -> None:
    text = str(reply.content["text"]) if reply.content else "The user declined."
    awaits = agent.conversation.states[call_id].awaits
    if awaits and awaits.stop_reason == "needs_approval":
        agent.decide(call_id, "allow" if text.strip().lower() == "yes" else "deny", text)
    else:
        agent.answer(call_id, text)


def server_of(template: Agent, name: str, description: str) -> MCPServer:
    server, open_runs = MCPServer(name), dict[str, Agent]()

    @server.tool(description=description)
    async def ask(prompt: str, ctx: Context[Any]) -> str | types.InputRequiredResult:
        agent = open_runs.pop(ctx.request_state) if ctx.request_state else template.fork()
        for call_id, reply in (ctx.input_responses or {}).items():
            answer(agent, call_id, reply)
        result = await agent.run(None if ctx.request_state else prompt)
        while result.pending and (ctx.protocol_version or "") < "2026-07-28":
            for waiting in result.pending:
                asked = question(waiting).message, question(waiting).requested_schema
                reply = await ctx.session.elicit_form(*asked, ctx.request_id)
                answer(agent, waiting.id, reply)
            result = await agent.run()
        if not result.pending:
            return result.text
        open_runs[key := token_hex()] = agent
        asks: dict[str, Any] = {
            each.id: types.ElicitRequest(params=question(each)) for each in result.pending
        }
        return types.InputRequiredResult(input_requests=asks, request_state=key)

    return server


@tool("Pay an amount")
def pay(amount: int) -> str:
    return f"paid {amount}"


class Clerk(Approval, Agent): ...


clerk = Clerk(llm=ScriptedModel(call("pay", amount=5), lambda m, t: m[-1].text), tools=[pay])


async def on_question(context: object, params: Any) -> types.ElicitResult:
    print("asked:", params.message)
    return types.ElicitResult(action="accept", content={"text": "yes"})


async def main() -> None:
    this = stdio_client(StdioServerParameters(command=sys.executable, args=[__file__, "serve"]))
    async with Client(this, elicitation_callback=on_question) as client:
        result = await client.call_tool("ask", {"prompt": "Pay the bill."})
        [block] = result.content
        print(isinstance(block, types.TextContent) and block.text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server_of(clerk, "clerk", "Have a bill paid.").run()
    else:
        asyncio.run(main())
