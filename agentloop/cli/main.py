"""`python -m agentloop`: its arguments, and the search for a model."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from .terminal import BOLD, DIM, RED, Log, Terminal, safe

if TYPE_CHECKING:
    from ..models.openai import ChatOpenAI

DEFAULT_MODEL = "gpt-5-mini"  # at OpenAI; of other servers, the first that they list
PORTS = {11434: "Ollama", 8080: "llama.cpp", 1234: "LM Studio", 8000: "vLLM"}
PROBE_SECONDS = 1.5
MAX_LISTING = 1_000_000  # bytes of a server's list of models

EPILOG = """\
the model: --base-url or OPENAI_BASE_URL names any server that speaks Chat Completions; with only
OPENAI_API_KEY set it is OpenAI's; with neither, a local server on a usual port is looked for.

what is piped in is the prompt, or is added to --prompt. Commands, writes and edits are then denied
(nobody can be asked), unless --yes allows them all.

exit status: 0 answered (or left a chat), 1 the model failed or ended early, 2 wrong usage or no
model, 130 interrupted."""
NO_MODEL = """\
There is no model to talk to. Each of these gives one:
  OPENAI_API_KEY=...      in the environment: a model of OpenAI
  OPENAI_BASE_URL=...     or --base-url: any server that speaks Chat Completions
  a local server          on its usual port is found by itself: {servers}
Without a model there is a demo, in which the model is a script: python -m agentloop demo"""


class Unusable(Exception):
    """There is no model; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit status."""
    options = parser().parse_args(argv)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the encoding cannot carry
    try:
        if options.command == "demo":
            from .demo import demo

            return demo(Terminal(sys.stdout))
        return chat(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it
        return 1
    except Exception:
        print(safe(traceback.format_exc()), file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentloop",
        description="A chat with a coding agent that works in the current folder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", help="the model's name (default: the first that the server lists)")
    add("--base-url", metavar="URL", help="of the server, such as http://localhost:11434/v1")
    add("--prompt", metavar="TEXT", help="answer this, and exit")
    add("--yes", action="store_true", help="allow all commands, writes and edits, unasked")
    add("--ports", help=argparse.SUPPRESS, type=_ports, default=PORTS)  # for tests
    commands = parser.add_subparsers(dest="command", metavar="", title="other than a chat")
    commands.add_parser("demo", help="an agent mends a small project; its model is a script")
    return parser


def _ports(text: str) -> dict[int, str]:
    return {int(port): "a server" for port in text.split(",") if port}


def chat(options: argparse.Namespace) -> int:
    """A conversation, or one answer if there is a prompt already."""
    prompt: str | None = options.prompt
    if not (sys.stdin and sys.stdin.isatty()):
        piped = sys.stdin.read() if sys.stdin else ""
        prompt = "\n\n".join(filter(str.strip, [prompt or "", piped]))
    once = prompt is not None
    # The answer goes to stdout; all the rest too if that is a screen, else to stderr.
    on_screen = sys.stdout.isatty() or not once
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    if prompt is not None and not prompt.strip():
        terminal.say("There is nothing to answer: the prompt is empty.", RED)
        return 2
    try:
        llm, where = choose(options.model, options.base_url, options.ports)
    except Unusable as error:
        terminal.say(str(error), RED)
        return 2
    except LookupError:
        return without_a_model(terminal, options.ports, ask=not once)

    from .chat import Chat

    with Chat(llm, Path.cwd(), terminal, yes=options.yes, shows_text=on_screen) as conversation:
        if prompt is None:
            terminal.say(f"{llm.model} at {where}, in {Path.cwd()}", BOLD)
            note = "Commands, writes and edits run unasked." if options.yes else ""
            terminal.say(f"{note} Ctrl-C stops an answer, /help says more.".strip(), DIM)
            return conversation.talk()
        result = conversation.answer(prompt)
        if result and not on_screen:
            print(safe(result.text), flush=True)
    if result is None:
        return 1
    return {"completed": 0, "done": 0, "interrupted": 130}.get(result.stop_reason, 1)


def without_a_model(terminal: Terminal, ports: Mapping[int, str], ask: bool) -> int:
    """Says which ways there are to get a model, and offers the demo."""
    terminal.say(NO_MODEL.format(servers=", ".join(f"{n} ({p})" for p, n in ports.items())))
    if ask and terminal.asks and terminal.ask("See the demo now? y/n > ") in ("y", "yes"):
        from .demo import demo

        return demo(terminal)
    return 2


# ---- the search for a model


class Listing(NamedTuple):
    """What a server that was found calls itself, and its models."""

    name: str
    base_url: str
    models: list[str]


def choose(
    model: str | None, base_url: str | None, ports: Mapping[int, str] = PORTS
) -> tuple[ChatOpenAI, str]:
    """The model to talk to, and where it is. LookupError: there is none; Unusable: and why."""
    base_url = base_url or os.environ.get("OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY")
    if base_url:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise Unusable(f"{base_url!r} is no base URL, such as http://localhost:11434/v1")
        if not model:
            listed = asyncio.run(listings({base_url: "the server"}, key))
            model = first_model(listed[0].models) if listed else None
        if not model:
            raise Unusable(f"{_place(base_url)} lists no models: name one with --model")
        return model_at(model, base_url), _place(base_url)
    if key:
        return model_at(model or DEFAULT_MODEL, None), "api.openai.com"
    urls = {f"http://127.0.0.1:{port}/v1": name for port, name in ports.items()}
    servers = asyncio.run(listings(urls, None))
    for found in sorted(servers, key=lambda server: model not in server.models):
        if name := model or first_model(found.models):
            place = _place(found.base_url)
            return model_at(name, found.base_url), f"{found.name} ({place})"
    raise LookupError("no model")


def _place(base_url: str) -> str:
    return urlsplit(base_url).netloc.rpartition("@")[2]


def first_model(models: Sequence[str]) -> str | None:
    """The first that is not there for embeddings."""
    return next((name for name in models if "embed" not in name.lower()), None)


async def listings(urls: Mapping[str, str], key: str | None) -> list[Listing]:
    """The models of those servers that answer, asked all at once, and soon."""
    asked = [_listing(name, url, key) for url, name in urls.items()]
    found = await asyncio.gather(*asked)
    return [listing for listing in found if listing]


async def _listing(name: str, url: str, key: str | None) -> Listing | None:
    import httpx

    headers = {"accept-encoding": "identity"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    body = b""
    with suppress(httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError):
        async with (
            asyncio.timeout(PROBE_SECONDS if _is_local(url) else 10 * PROBE_SECONDS),
            httpx.AsyncClient(trust_env=not _is_local(url)) as client,
            client.stream("GET", url.rstrip("/") + "/models", headers=headers) as response,
        ):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_LISTING:
                    return None
        if response.status_code == 200 and (models := _names(body)):
            return Listing(name, url, models)
    return None


def _names(body: bytes) -> list[str]:
    """The models in a listing. ValueError: it is none, as with other programs on these ports."""
    from ..models.http import obj, objects

    data = objects(obj(json.loads(body)).get("data"))
    return [item["id"] for item in data if isinstance(item.get("id"), str) and item["id"]]


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def model_at(model: str, base_url: str | None, key: str | None = None) -> ChatOpenAI:
    """A model at a server. One on this machine is not asked through a proxy."""
    from ..models.openai import ChatOpenAI

    client = None
    if base_url and _is_local(base_url):
        import httpx

        client = httpx.AsyncClient(trust_env=False)
    return ChatOpenAI(model, base_url=base_url or "", api_key=key, client=client)
