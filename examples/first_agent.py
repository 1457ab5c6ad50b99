"""The first agent: it reads, writes and edits files in a folder, and runs commands.

    python examples/first_agent.py                     demo: fixes the failing test of a project
    python examples/first_agent.py FOLDER "your task"  with OPENAI_API_KEY or OPENAI_BASE_URL set

The agent runs every command of the model and asks nobody: use a folder that you can lose.
"""

import argparse
import asyncio
import os
import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

from loopback import loopback
from scripted_project import SCRIPT, make_project

from agentloop import (
    Agent,
    ChatOpenAI,
    Depends,
    ModelError,
    TextEvent,
    ToolCallEvent,
    ToolError,
    ToolResultEvent,
    tool,
)


def folder() -> Path:
    raise LookupError("override this dependency with the working folder")


Folder = Annotated[Path, Depends(folder)]


@tool("Read a file in the folder")
def read(path: str, root: Folder) -> str:
    return inside(root, path).read_text(encoding="utf-8")


@tool("Write a file in the folder")
def write(path: str, text: str, root: Folder) -> str:
    inside(root, path).write_text(text, encoding="utf-8")
    return f"wrote {len(text)} characters"


@tool("Replace a text that occurs exactly once in a file")
def edit(path: str, old: str, new: str, root: Folder) -> str:
    text = read(path, root)
    if text.count(old) != 1:
        raise ToolError(f"the old text occurs {text.count(old)} times in {path}, not once")
    return write(path, text.replace(old, new), root)


@tool("Run a shell command in the folder", timeout=60, parallel=False)
def run(command: str, root: Folder) -> str:
    done = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True)
    return f"{done.stdout}{done.stderr}(exit status {done.returncode})"


def inside(root: Path, path: str) -> Path:
    if not (full := (root / path).resolve()).is_relative_to(root.resolve()):
        raise ToolError(f"{path} is outside the folder")
    return full


async def work(root: Path, task: str, model: str, base_url: str | None) -> None:
    agent = Agent(
        llm=ChatOpenAI(model, base_url=base_url),
        tools=[read, write, edit, run],
        system_prompt="You are a careful programmer. Run the tests before you finish.",
        dependency_overrides={folder: lambda: root},
    )
    async for event in agent.query_stream(task):
        match event:
            case ToolCallEvent(tool=name, args=args):
                print(f"> {name} {args}")
            case ToolResultEvent(tool=name, result=result):
                print(f"  {name}: " + result.strip().replace("\n", "\n  "))
            case TextEvent(content=text):
                print(text)
            case _:
                pass
    print(f"({agent.usage.input_tokens} tokens in, {agent.usage.output_tokens} out)")


def main() -> None:
    options = argparse.ArgumentParser(description="An agent that works in a folder.")
    options.add_argument("folder", nargs="?", type=Path, help="working folder of the agent")
    options.add_argument("task", nargs="?", default="Make the failing test pass.")
    options.add_argument("--model", default="gpt-5.4-mini")
    arguments = options.parse_args()
    base_url = os.environ.get("OPENAI_BASE_URL")
    if arguments.folder or base_url or os.environ.get("OPENAI_API_KEY"):
        if not (arguments.folder and arguments.folder.is_dir()):
            options.error(f"no such folder: {arguments.folder or 'none named'}; pass a folder")
        server: AbstractContextManager[str | None] = nullcontext(base_url)
    else:
        print("OPENAI_API_KEY and OPENAI_BASE_URL are not set: a local server replays a script as")
        print("the model. HTTP, tools, files and test runs are real.")
        arguments.folder = make_project()
        server = loopback(SCRIPT)
    with server as base_url:
        try:
            asyncio.run(work(arguments.folder, arguments.task, arguments.model, base_url))
        except (ModelError, ValueError) as error:
            raise SystemExit(f"{type(error).__name__}: {error}") from None
    print(f"The folder: {arguments.folder}")


if __name__ == "__main__":
    main()
