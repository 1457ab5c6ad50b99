"""The recipe for dumps: request and response bodies as transmitted, with the key masked."""

import json
import stat
import sys

import pytest

from agentloop import Agent, ModelError
from tests.doubles.fault_server import FaultServer, fin
from tests.doubles.openai_double import OpenAIDouble, Reply
from tests.doubles.wires import KEY, OPENAI, TOOLS
from tests.library.models.helpers import ask
from tests.recipes import load

dump_to = load("other_servers").dump_to


async def test_a_dump_contains_the_sent_bodies_with_the_key_masked(tmp_path):
    replies = [Reply(f"my key is {KEY}? ", [("add", {"a": 1, "b": 2})]), "3"]
    async with OpenAIDouble(replies) as server:
        llm = OPENAI.model(server, dump=dump_to(tmp_path / "new" / "d"))
        agent = Agent(llm=llm, tools=TOOLS, system_prompt=f"The key is {KEY}.")
        assert await agent.query("go") == "3"
    sent = json.dumps(server.requests[1])
    assert KEY in sent
    files = {path.name: path.read_text() for path in (tmp_path / "new" / "d").iterdir()}
    names = {f"000{n}-{kind}.json" for n in (1, 2) for kind in ("request", "response")}
    assert files.keys() == names
    assert json.loads(files["0002-request.json"]) == json.loads(sent.replace(KEY, "***"))
    assert KEY not in "".join(files.values())
    assert "my key is ***?" in files["0001-response.json"]


async def test_a_dumped_stream_contains_the_received_events(tmp_path):
    async with OpenAIDouble(["hello there"]) as server:
        await ask(OPENAI.model(server, dump=dump_to(tmp_path)), streaming=True)
    text = (tmp_path / "0001-response.sse").read_text()
    assert text.startswith("data: {")
    assert text.endswith("data: [DONE]\n\n")
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "0001-request.json").stat().st_mode) == 0o600


async def test_every_attempt_is_dumped_even_if_no_response_arrives(tmp_path):
    async with FaultServer(*[[fin()]] * 3) as server:
        llm = OPENAI.model(server, max_retries=2, dump=dump_to(tmp_path))
        with pytest.raises(ModelError):
            await ask(llm)
    assert len(list(tmp_path.glob("*-request.json"))) == 3
    assert (tmp_path / "0003-response.json").read_text() == ""
