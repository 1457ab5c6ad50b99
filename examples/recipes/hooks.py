"""Hooks: functions that observe the actions of an agent and may change or deny them.

Use hooks to enforce rules of an organization independently of the prompt.
"""

import asyncio
from typing import Any

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.hooks import Hook, Hooks


def no_push(data: dict[str, Any]) -> dict[str, Any] | None:
    if "push" not in data["tool_input"]["command"]:
        return None
    return {"decision": "deny", "reason": "Pushing is not allowed."}


def quietly(data: dict[str, Any]) -> dict[str, Any]:
    return {"updatedInput": {"command": f"{data['tool_input']['command']} --quiet"}}


class Developer(Hooks, Agent):
    hooks = (
        Hook("PreToolUse", quietly, "bash"),
        Hook("PreToolUse", no_push, "bash"),
        Hook("Stop", lambda data: print("Final answer:", data["last_assistant_message"])),
        Hook("SessionEnd", lambda data: print("Good bye.")),
    )


@tool
def bash(command: str) -> str:
    """Run a command."""
    return f"$ {command}"


async def main() -> None:
    script = call("bash", command="git fetch"), call("bash", command="git push"), "Fetched."
    developer = Developer(llm=ScriptedModel(*script), tools=[bash])
    await developer.run("Fetch and push.")
    await developer.fire_hooks("SessionEnd", {})
    print(*[message.text for message in developer.messages if message.text], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
