"""Which class of an agent handles what, and where it stands.

One wants this once an agent has several mixins. A mixin wraps a method of the classes at its right.
So what an agent does in a seam is the methods of that name, from left to right: this names them,
with the lines where they are.
"""

from agentloop import Agent, AssistantMessage, Loop, Request, ScriptedModel, Session

SEAMS = ["run", "context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]


def explain(agent: type[Loop]) -> None:
    """Print the classes of an agent, and which of them handle each seam."""
    print("From left to right:", *(cls.__name__ for cls in agent.__mro__))
    for seam in SEAMS:
        for cls in agent.__mro__:
            if method := vars(cls).get(seam):
                code = method.__code__
                print(f"{method.__qualname__:24}{code.co_filename}:{code.co_firstlineno}")


class Loud(Loop):
    async def call_model(self, request: Request) -> AssistantMessage:
        print("the model is asked")
        return await super().call_model(request)


class MyAgent(Loud, Session, Agent):
    max_iterations = 50


if __name__ == "__main__":
    explain(MyAgent)
    print(MyAgent(llm=ScriptedModel("Hello.")).run_sync("Say hello."))
