"""Promise 1: after any sequence of operations, the next request of an agent is valid.

A state machine performs operations in random order: prompts, replies with calls of every kind,
cancellations, abandoned streams, interrupts, forks, summaries, prunes, and restarts from the saved
log.
"""

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Depends,
    ScriptedModel,
    Session,
    Summary,
    SystemMessage,
    TaskComplete,
    ToolCall,
    UserMessage,
    current_call,
    dump_record,
    tool,
    validate_messages,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.completions import write_openai_messages
from tests.properties import settings, st

NAMES = ["works", "fails", "odd", "hangs", "page", "finish", "unknown"]
ARGUMENTS = ["{}", "", "null", "[]", '{"x": 1}', '{"x":', '"{}"', '{"text": "\\ud83d"}']
any_text = st.text(st.characters(exclude_categories=()), max_size=10)
ids = st.sampled_from(["", "a", "b", "\ud800"])
calls = st.builds(ToolCall, ids, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS))
replies = st.builds(
    AssistantMessage,
    st.sampled_from(["", " ", "text", "half \ud83d"]) | any_text,
    st.lists(calls, max_size=4).map(tuple),
    stop_reason=st.sampled_from([None] * 6 + ["length", "refused", "pause", "zzz"]),
)
scripts = st.lists(replies | st.just(RuntimeError("down")), max_size=5)
prompts = st.sampled_from(["question", "other", "tab\tnul\0"]) | any_text.filter(str.strip)


class Saved(Session, Agent):
    """An agent with a session."""


class AnyHistory(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.ledger: Counter[tuple[int, str]] = Counter()  # by agent and call
        self.script = iter(())
        self.llm = ScriptedModel(self.answer)
        self.checked = self.generation = self.sessions = 0
        self.folder = Path(tempfile.mkdtemp())
        machine = self

        @tool("Works")
        async def works(x: int = 0, call: ToolCall = Depends(current_call)) -> str:
            machine.ledger[machine.generation, call.id] += 1
            await asyncio.sleep(0)
            return f"{x}"

        @tool("Fails")
        def fails(text: str = "") -> str:
            raise ValueError(text or "\ud83d")

        @tool("Odd")
        def odd() -> dict:
            return {"nan": float("nan"), "half": "\ud83d"}

        @tool("Hangs", timeout=0.001)
        async def hangs() -> None:
            await asyncio.Event().wait()

        @tool("Page", ephemeral=1)
        async def page() -> str:
            return "word " * 40

        @tool("Finish")
        async def finish() -> None:
            raise TaskComplete("finished")

        self.settings = {
            "llm": self.llm,
            "tools": [works, fails, odd, hangs, page, finish],
            "system_prompt": "Be good.",
            "max_iterations": 4,
            "compaction": CompactionConfig(context_window=600),
            "session_dir": self.folder,
            "session_fsync": False,
        }
        self.agent = Saved(session="s0", **self.settings)

    def answer(self, messages, tools):
        if messages[-1].text == SUMMARY_PROMPT:
            return "SUMMARY"
        return next(self.script, AssistantMessage("the end"))

    def play(self, work, script):
        """Run a coroutine to its end, with these replies of the model."""
        self.script = iter(script)
        try:
            self.loop.run_until_complete(work)
        except RuntimeError as error:
            assert str(error) == "down"  # noqa: PT017

    # ---- operations

    @rule(prompt=prompts, script=scripts)
    def ask(self, prompt, script):
        self.play(self.agent.run(prompt), script)

    @rule(script=scripts)
    def continue_run(self, script):
        async def run():
            try:
                await self.agent.run()
            except ValueError as error:
                assert "nothing to continue" in str(error)  # noqa: PT017

        self.play(run(), script)

    @rule(prompt=prompts, script=scripts, turns=st.integers(0, 25), cancel=st.booleans())
    def end_early(self, prompt, script, turns, cancel):
        async def run():
            task = asyncio.ensure_future(self.agent.run(prompt))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel() if cancel else self.agent.interrupt("wait")
            await asyncio.wait([task])
            assert cancel or not task.cancelled()
            if not task.cancelled() and task.exception():
                raise task.exception()

        self.play(run(), script)

    @rule(prompt=prompts, script=scripts, events=st.integers(0, 8))
    def abandon_the_stream(self, prompt, script, events):
        async def run():
            async with self.agent.query_stream(prompt) as stream:
                for _ in range(events):
                    await anext(stream, None)

        self.play(run(), script)

    def next_session(self):
        self.sessions += 1
        return f"s{self.sessions}"

    @rule(share=st.floats(0, 1))
    def fork(self, share):
        parent, before = self.agent, self.file().read_bytes()
        place = round(share * len(parent.log))
        self.agent = parent.fork(at=place, session=self.next_session())
        assert (self.folder / f"{parent.session}.jsonl").read_bytes() == before
        parent.close()
        self.generation += 1

    @rule(torn=st.sampled_from([b"", b'{"type":"user","content":"to', b"\0\0\0"]))
    def kill_and_reload(self, torn):
        """Load the file in a new agent, with an incomplete line at the end of the file."""
        before, data = self.agent.log, self.file().read_bytes()
        self.agent.close()
        copy = self.folder / f"{self.next_session()}.jsonl"
        copy.write_bytes(data + torn)
        copy.chmod(0o600)
        self.agent = Saved(session=copy.stem, **self.settings)
        assert [*map(dump_record, self.agent.log)] == [*map(dump_record, before)]

    def file(self):
        return self.folder / f"{self.agent.session}.jsonl"

    @precondition(lambda self: self.agent.messages)
    @rule()
    def load_the_messages(self):
        before = self.agent.messages
        self.agent.load_history(before)
        assert self.agent.messages == before
        self.generation += 1

    @precondition(lambda self: self.agent.log)
    @rule(share=st.floats(0, 1))  # of the log, whose length depends on how busy the machine is
    def summarize_by_hand(self, share):
        self.agent.record(Summary("by hand", round(share * len(self.agent.log))))

    # ---- invariants

    @invariant()
    def the_view_is_valid_and_the_context_is_idempotent(self):
        assert validate_messages([*self.agent.messages, UserMessage("next")]) == []
        shown = self.loop.run_until_complete(self.agent.context())
        assert shown == self.loop.run_until_complete(self.agent.context())

    @invariant()
    def every_request_is_valid_for_providers(self):  # ScriptedModel rejects other violations
        for request in self.llm.requests[self.checked :]:
            assert request.messages[0] == SystemMessage("Be good.")
            wire = json.dumps(write_openai_messages(request.messages, "system"), allow_nan=False)
            for message in json.loads(wire.encode()):
                for call in message.get("tool_calls", ()):
                    assert isinstance(json.loads(call["function"]["arguments"]), dict)
        self.checked = len(self.llm.requests)

    @invariant()
    def no_call_ran_twice(self):
        assert max(self.ledger.values(), default=0) <= 1

    def teardown(self):
        self.agent.close()
        shutil.rmtree(self.folder)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(stateful_step_count=25)
