"""`python -m agentloop`: its arguments, and the search for a model."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from .. import ChatAnthropic, ChatGoogle, ChatOpenAI, SessionLocked, __version__
from ..models.dumps import dump_to
from ..models.http import LOOPBACK, HTTPModel, loaded, obj, objects, text_in
from . import bundle, explain, replay, view
from .chat import Chat
from .terminal import BOLD, DIM, RED, Log, Terminal, safe

DEFAULT_MODELS = {  # of another server at --base-url, it is the first that it lists
    "openai": "gpt-5-mini",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-flash-latest",
}
KEYS = {"ANTHROPIC_API_KEY": "anthropic", "GOOGLE_API_KEY": "google", "GEMINI_API_KEY": "google"}
PORTS = {11434: "Ollama", 8080: "llama.cpp", 1234: "LM Studio", 8000: "vLLM"}
PROBE_SECONDS = 1.5

WAYS = f"""\
  OPENAI_BASE_URL    or --base-url: any server that speaks Chat Completions
  OPENAI_API_KEY     a model of OpenAI: {DEFAULT_MODELS["openai"]}, or --model
  ANTHROPIC_API_KEY  a model of Anthropic: {DEFAULT_MODELS["anthropic"]}, or --model
  GOOGLE_API_KEY     or GEMINI_API_KEY: a model of Google: {DEFAULT_MODELS["google"]}, or --model
  a local server     on its usual port: """ + ", ".join(f"{n} ({p})" for p, n in PORTS.items())
EPILOG = f"""\
the model is the first of these that there is, unless --provider says whose it is:
{WAYS}

what is piped in is the prompt, or is added to --prompt. Commands, writes and edits are then denied
(nobody can be asked), unless --yes allows them all.

exit status: 0 answered (or left a chat), 1 the model failed or ended early, 2 wrong usage or no
model, 130 interrupted."""
PROBLEMS: dict[type[Exception], str] = {
    FileNotFoundError: "The current folder does not exist any more: go to another.",
    SessionLocked: "Session {0!r} is open in another terminal: leave that chat (/exit), or choose "
    "another --session name.",
}
NO_OPENAI = "--provider openai needs OPENAI_API_KEY, --base-url, or a local server."
NO_MODEL = f"""\
There is no model to talk to. Each of these gives one:
{WAYS}
Without a model there is a demo, in which the model is a script: python -m agentloop demo"""


class NoModel(Exception):
    """None was named and none was found."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit status."""
    options = parser().parse_args(argv)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the encoding cannot carry
    try:
        commands = {"demo": demo, "bundle": bundle.run, "explain": explain.run}
        commands |= {"replay": replay.run, "view": view.run}
        return commands.get(options.command, chat)(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it
        return 1
    except Exception:
        print(safe(traceback.format_exc()), file=sys.stderr)
        return 1


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        better = r"there is no command \1; for a question use --prompt"
        super().error(re.sub(r"argument COMMAND: invalid choice: (.*) \(.*", better, message))


def parser() -> Parser:
    parser = Parser(
        prog="python -m agentloop",
        description="A chat with a coding agent that works in the current folder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--provider", choices=DEFAULT_MODELS, help="whose API to speak")
    add("--model", help="the model's name")
    add("--base-url", metavar="URL", help="of a server, such as http://localhost:11434/v1")
    kept = "~/.agentloop/sessions/NAME.jsonl, the same from any folder, and go on with it next time"
    add("--session", metavar="NAME", help=f"keep the conversation in {kept}")
    add("--prompt", metavar="TEXT", help="answer this, and exit")
    add("--yes", action="store_true", help="allow all commands, writes and edits, unasked")
    add("--dump", metavar="FOLDER", help="write each request's and answer's body there, keyless")
    add("--version", action="version", version=f"agentloop {__version__}")
    add("--ports", help=argparse.SUPPRESS, type=json.loads, default=PORTS)  # for tests
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="other than a chat")
    what = "an agent mends a project; its model is a script"
    shown = commands.add_parser("demo", help=what, description=f"A demo: {what}.")
    add = shown.add_argument
    add("--wire", choices=DEFAULT_MODELS, default="openai", help="whose API to speak")
    add("--kill", action="store_true", help="kill it as it pays a pretend bill; that is paid once")
    what = "write the core and the parts of your choice as one file that is yours"
    bundle.add_arguments(commands.add_parser("bundle", help=what, description=f"Bundle: {what}."))
    what = "print which class of an agent handles what, and where it is"
    shown = commands.add_parser("explain", help=what, description=f"Explain: {what}.")
    shown.add_argument("agent", metavar="MODULE:CLASS", help="such as my_module:MyAgent")
    what = "step through a session, print it as a test, or go on live from one of its turns"
    shown = commands.add_parser("replay", help=what, description=f"Replay: {what}.")
    replay.add_options(shown, list(DEFAULT_MODELS))
    what = "write a page to look into a session with"
    view.add_options(commands.add_parser("view", help=what, description=f"View: {what}."))
    return parser


def demo(options: argparse.Namespace) -> int:
    from . import demo, kill

    if options.kill:
        return kill.kill_demo(Terminal(sys.stdout), options.wire)
    return demo.demo(Terminal(sys.stdout), options.wire, options.dump)


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
    try:
        here = Path.cwd()
        llm, where = choose(options.provider, options.model, options.base_url, options.ports)
        llm.dump = dump_to(options.dump) if options.dump else None
        if prompt is not None and not prompt.strip():
            raise ValueError("There is nothing to answer: the prompt is empty.")
        conversation = Chat(
            llm, here, terminal, yes=options.yes, shows_text=on_screen, session=options.session
        )
    except NoModel:
        terminal.say(NO_OPENAI if options.provider else NO_MODEL)
        if not once and terminal.asks and terminal.ask("Play the demo? [y/N] > ") in ("y", "yes"):
            return demo(parser().parse_args(["demo"]))
        return 2
    except (SessionLocked, OSError, ValueError) as error:
        problem = PROBLEMS.get(type(error), "{1}").format(options.session, error)
        problem = problem.replace("api_key=, or GOOGLE", "GEMINI_API_KEY or GOOGLE")
        terminal.say(problem.replace("api_key=, or ", ""), RED)
        return 2
    with conversation:
        terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        if options.session:
            terminal.say(conversation.kept(), DIM)
        if prompt is None:
            note = "Commands, writes, edits run unasked. " * options.yes
            terminal.say(f"{note}Ctrl-C stops an answer, /help says more.", DIM)
            status = conversation.talk()
            conversation.sum_up()
            return status
        result = conversation.answer(prompt)
        if result and not on_screen:
            print(safe(result.text), flush=True)
        conversation.sum_up()
    reason = result.stop_reason if result else "error"
    return {"completed": 0, "done": 0, "interrupted": 130}.get(reason, 1)


def choose(
    provider: str | None, model: str | None, base_url: str | None, ports: Mapping[Any, str] = PORTS
) -> tuple[HTTPModel, str]:
    """The model to talk to, and where it is. ValueError: it cannot be, and why. NoModel."""
    at_openai = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")
    key = next(filter(os.environ.get, KEYS), None)
    why = ""
    if key and not (provider or at_openai):
        provider, why = KEYS[key], f" (there is {key})"
    provider = provider or "openai"
    if provider != "openai" or at_openai:
        llm = model_at(provider, model or DEFAULT_MODELS[provider], base_url)
        where = urlsplit(llm.base_url).netloc.rpartition("@")[2]
        if provider == "openai" and not model and llm.base_url != llm.default_url:
            [names] = asyncio.run(listings([llm.base_url], llm.api_key))
            if not names:
                silent = f"{where} does not answer: does it run, and is the URL right?"
                empty = f"{where} lists no models: name one with --model"
                raise ValueError(silent if names is None else empty)
            llm.model = names[0]
        return llm, where + why
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    found = zip(asyncio.run(listings(urls)), urls, ports, strict=True)
    for listed, url, port in sorted(found, key=lambda server: model not in (server[0] or ())):
        if listed:
            return model_at(provider, model or listed[0], url), f"{ports[port]} (127.0.0.1:{port})"
    raise NoModel


async def listings(urls: Sequence[str], key: str | None = None) -> list[list[str] | None]:
    """The models that each server lists, but for embeddings; None: it does not answer soon."""
    import httpx

    async def listing(url: str) -> list[str] | None:
        content, local = b"", urlsplit(url).hostname in LOOPBACK
        with suppress(httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            async with (
                asyncio.timeout(PROBE_SECONDS if local else 10 * PROBE_SECONDS),
                httpx.AsyncClient(trust_env=not local) as client,
            ):
                headers = {"authorization": f"Bearer {key}"} if key else {}
                content = (await client.get(f"{url}/models", headers=headers)).content
        names = [text_in(model.get("id")) for model in objects(obj(loaded(content)).get("data"))]
        return [name for name in names if name and "embed" not in name.lower()] if content else None

    return await asyncio.gather(*map(listing, urls))


def model_at(
    provider: str,
    model: str,
    base_url: str | None,
    key: str | None = None,
    dump: str | None = None,
) -> HTTPModel:
    """A model of one of the three providers; `dump` is a folder for all bodies."""
    kinds: Mapping[str, type[HTTPModel]]
    kinds = {"openai": ChatOpenAI, "anthropic": ChatAnthropic, "google": ChatGoogle}
    tap = dump_to(dump) if dump else None
    return kinds[provider](model, base_url=base_url, api_key=key, dump=tap)
