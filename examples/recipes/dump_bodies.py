"""Request and response bodies of a model, saved unchanged to files.

Use the files to inspect the actual communication with a server, to document a bug of the server, or
to record a stream for a test. The model masks its API key in the bodies. Only the owner can read
the files.

    llm = ChatOpenAI("gpt-5-mini", dump=dump_to("bodies"))

File names are 0001-request.json, 0001-response.json (.sse for a stream), and so on.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from agentloop import Agent, ChatOpenAI


def dump_to(folder: str | Path) -> Callable[[str, str], None]:
    """Return a function for the setting `dump` of a model. The function saves bodies to files."""
    root = Path(folder)

    def dump(request: str, response: str) -> None:
        root.mkdir(0o700, parents=True, exist_ok=True)
        number = len([*root.glob("*-request.json")]) + 1
        for name, body in {"request": request, "response": response}.items():
            kind = "json" if body.lstrip()[:1] in "{[" else "sse"
            path = root / f"{number:04}-{name}.{kind}"
            path.touch(0o600)
            path.write_text(body, encoding="utf-8")

    return dump


def main() -> None:
    reply = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    server = httpx.MockTransport(lambda request: httpx.Response(200, json=reply))
    client = httpx.AsyncClient(transport=server)
    with tempfile.TemporaryDirectory() as folder:
        llm = ChatOpenAI("m", base_url="http://m", client=client, dump=dump_to(folder))
        print(Agent(llm=llm).run_sync("Hi").text)
        for path in sorted(Path(folder).iterdir()):
            print(path.name, path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
