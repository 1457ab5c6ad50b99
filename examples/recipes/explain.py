"""The classes of an agent that override each seam, with their source positions.

Use the listing when an agent combines several mixins. A mixin wraps the methods of the classes
after it in the method resolution order. An agent's behavior at a seam therefore consists of the
listed methods, in order.
"""

from agentloop import Agent, AssistantMessage, Loop, Request, ScriptedModel, Session

SEAMS = ["run", "context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]


def explain(agent: type[Loop]) -> None:
    """Print the classes of an agent, and the methods of every seam with their positions."""
    print("Method resolution order:", *(cls.__name__ for cls in agent.__mro__))
    for seam in SEAMS:
        for cls in agent.__mro__:
            if method := vars(cls).get(seam):
                code = method.__code__
                print(f"{method.__qualname__:24}{code.co_filename}:{code.co_firstlineno}")


class Loud(Loop):
    async def call_model(self, request: Request) -> AssistantMessage:
        print("calling the model")
        return await super().call_model(request)


class MyAgent(Loud, Session, Agent):
    max_iterations = 50


if __name__ == "__main__":
    explain(MyAgent)
    print(MyAgent(llm=ScriptedModel("Hello.")).run_sync("Say hello."))
