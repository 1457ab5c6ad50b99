"""Rules for all mixins, so that any mixin can be added, omitted and reordered."""

import ast
import importlib
import inspect
import re
import textwrap
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

import agentloop
from agentloop import Agent, CompactionConfig, Loop, ScriptedModel, tool
from agentloop.common.gate import Gate
from agentloop.common.model_info import CacheRules
from agentloop.common.prices import Priced
from agentloop.common.request_size import MeasuresRequests
from agentloop.common.store import read_log
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.scripted import call
from agentloop.settings import settings_of
from tests.core import test_loop
from tests.core.test_loop import add

from .test_continuation import TestContinuation
from .test_final_summary import TestFinalSummary
from .test_forced_tool import TestForcedTool
from .test_histories import TestHistories
from .test_interruption import TestInterruption

SEAMS = {"context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"}
FOLDER = Path(agentloop.__file__).parent / "mixins"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
MIXINS = [
    cls
    for path in FILES
    for cls in vars(importlib.import_module(f"agentloop.mixins.{path.stem}")).values()
    if inspect.isclass(cls) and issubclass(cls, Loop) and cls.__module__.endswith(path.stem)
]
if not find_spec("dbos"):  # without it, Durable can't run
    MIXINS = [cls for cls in MIXINS if cls.__name__ != "Durable"]
OWN = {
    "add",
    "fork",
    "emit",
    "close",
    "load_records",
    "wait_for_cancelled_run",
}  # also overridden by Session
assert len(MIXINS) >= 3


def public(cls):
    inherited = set() if cls in Loop.__mro__ else inspect.signature(Loop).parameters.keys()
    return {name for name in vars(cls) if not name.startswith("_")} - inherited


@pytest.mark.parametrize("mixin", MIXINS)
class TestEveryMixin:
    def test_a_mixin_derives_from_loop_and_works_alone(self, mixin):
        assert mixin.__bases__[0] in (Loop, Gate, Priced, MeasuresRequests)
        settings = {"require_done_tool": False} if hasattr(mixin, "require_done_tool") else {}
        assert mixin(llm=ScriptedModel("hi"), **settings).run_sync("x").text == "hi"

    def test_a_mixin_overrides_seams_and_never_run(self, mixin):
        names = public(Loop) | public(Loop.__base__)
        inherited = {name for name in names if callable(getattr(Loop, name, None))}
        assert public(mixin) & inherited <= SEAMS | OWN

    def test_a_mixin_has_no_constructor(self, mixin):
        source = inspect.getsource(mixin)
        assert "def __init__" not in source
        if "__post_init__" in source:
            assert "super().__post_init__()" in source

    def test_settings_are_typed_have_defaults_and_are_documented(self, mixin):
        for name in inspect.get_annotations(mixin):
            assert not name.startswith("_"), "no hidden state"
            assert hasattr(mixin, name), "a default"
            assert f"{name}:" in mixin.__doc__

    def test_an_overridden_seam_calls_super(self, mixin):
        for node in ast.walk(ast.parse(inspect.getsource(mixin))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in SEAMS:
                assert f"super().{node.name}" in ast.unparse(node), node.name

    def test_the_wrong_base_order_is_a_type_error(self, mixin):
        with pytest.raises(TypeError, match="MRO|order"):
            type("Wrong", (Loop, mixin), {})


# ---- the contract of the loop (with a single mixin, it is part of the tests of the mixin)


class TestAgent(
    TestContinuation, TestFinalSummary, TestForcedTool, TestHistories, TestInterruption
):
    """The contract of the loop, and of what `Agent` adds to the run itself."""

    agent_class = Agent


class TestAllMixinsAtOnce(test_loop.TestLoop):
    """All mixins with a session file, which contains the log after each test."""

    agent_class = type("All", (*MIXINS,), {})
    largest_fork = 2400

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        self.folder, self.agents = tmp_path, []
        yield
        for agent in self.agents:
            agent.close()
            assert read_log(tmp_path / f"{agent.session}.jsonl") == agent.log

    def make(self, *script, **settings):
        settings |= {"session_dir": self.folder, "session_fsync": False, "approval_mode": "auto"}
        agent, llm = super().make(*script, session=f"s{len(self.agents)}", **settings)
        self.agents.append(agent)
        return agent, llm


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_tests_of_a_mixin_inherit_the_tests_of_the_loop(path):
    tests = importlib.import_module(f"tests.library.mixins.test_{path.stem}")
    classes = {cls for cls in vars(tests).values() if inspect.isclass(cls)}
    assert any(issubclass(cls, test_loop.TestLoop) for cls in classes - {test_loop.TestLoop})


def test_no_public_name_is_defined_by_two_mixins():
    names = [name for mixin in MIXINS for name in public(mixin) - SEAMS - OWN - {"judge"}]
    assert sorted(names) == sorted(set(names))


def private(cls):
    """Return the private names that a class defines, or assigns to `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    names = {*vars(cls)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return {name for name in names if re.match("_(?!_)", name)}


def test_no_private_name_is_defined_by_two_classes_of_an_agent():
    names = [name for cls in [Loop, Gate, *MIXINS] for name in private(cls)]
    assert "_judgments" in names
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_settings_of_all_bases_are_combined():
    agent = Agent(llm=ScriptedModel())
    names = settings_of(agent).keys()
    assert {name for cls in Agent.__mro__ for name in inspect.get_annotations(cls)} == names
    assert names <= vars(agent).keys()
    for name in names - {"llm"}:
        assert getattr(agent, name) == getattr(Agent, name)


@tool("Look", ephemeral=1)
async def look(n: int) -> str:
    return f"{n} " + "word " * 200


async def play(bases):
    """Run a long conversation with tools and compaction; return its answers and requests."""
    script = [call("look", n=1), "hm", call("look", n=2)]
    script += [[call("look", n=3), call("add", a=1, b=2)], call("done", message="first")]
    replies = iter([*script, call("look", n=4), call("done", message="second")])
    llm = ScriptedModel(
        lambda m, t: "SUM" if m[-1].text == SUMMARY_PROMPT else next(replies),
        cache_rules=CacheRules(0, read_price=0),  # without pruning
    )
    agent = type("Any", bases, {})(
        llm=llm,
        tools=[look, add],
        system_prompt="Be good.",
        compaction=CompactionConfig(context_window=1000),
        require_done_tool=True,
    )
    answers = [await agent.query("one"), await agent.query("two")]
    requests = [(tuple(r.messages), [t.name for t in r.tools], r.tool_choice) for r in llm.requests]
    return answers, requests


async def test_every_order_of_the_mixins_of_agent_gives_the_same_answers_and_requests():
    standard = [mixin for mixin in MIXINS if issubclass(Agent, mixin)]
    answers, requests = first = await play((*standard, Loop))
    assert answers == ["first", "second"]
    assert any(messages[-1].text == SUMMARY_PROMPT for messages, *_ in requests)
    shuffle = Random(1).sample
    for order in [standard[::-1], *(shuffle(standard, len(standard)) for _ in range(20))]:
        assert await play((*order, Loop)) == first


def test_a_mistyped_setting_is_an_error_at_class_creation():
    with pytest.raises((TypeError, AttributeError), match="max_requests"):
        type("A", (agentloop.Limits, Agent), {"max_request": 3})
