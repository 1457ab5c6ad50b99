"""Tool search: found tools are appended to the tools that are always offered."""

import asyncio

import pytest

from agentloop import Agent, Session, tool
from agentloop.events import ToolsChangedEvent
from agentloop.models.scripted import ScriptedModel, call
from agentloop.toolkits.search import ToolSearch, bm25
from agentloop.tools import Tool
from tests.core import test_loop
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import WIRES
from tests.recipes import load

Offload = load("offload").Offload

CATALOG = {
    "github__create_issue": "Open a new issue in a repository.",
    "github__list_pull_requests": "List the pull requests of a repository.",
    "github__merge_pull_request": "Merge a pull request.",
    "slack__post_message": "Post a message to a channel.",
    "slack__list_channels": "List the channels of a workspace.",
    "calendar__createEvent": "Add an appointment to a calendar.",
    "calendar__free_busy": "Say when people have time.",
    "mail__send": "Send an e-mail.",
    "postgres__query": "Run a read-only SQL statement.",
    "weather__forecast": "Say what the weather will be.",
}


class NamedTool(Tool):
    async def execute(self, args, overrides=None):
        return f"{self.name} ran"


MANY_TOOLS = [NamedTool(name, text) for name, text in CATALOG.items()]
MANY_TOOLS += [
    NamedTool(f"crm__get_field_{n}", f"Read field {n} of a customer.") for n in range(290)
]


@tool
async def here() -> str:
    """Return a constant result."""
    return "done"


class Searcher(ToolSearch, Agent):
    searchable_tools = MANY_TOOLS


def search(query):
    return call("search_tools", query=query)


def offered_tools(request):
    return [tool.name for tool in request.tools]


VISIBLE = ["here", "search_tools"]
CREATE, WEATHER = "github__create_issue", "weather__forecast"


async def exact(query, tools):
    await asyncio.sleep(0)
    return [tool for tool in tools if tool.name == query]


class TestToolSearch(test_loop.TestLoop):
    agent_class = ToolSearch

    async def test_found_tools_are_offered_from_the_next_turn(self):
        script = [search("open an issue"), call(CREATE), "Done."]
        llm = ScriptedModel(*script)
        agent = Searcher(llm=llm, tools=[here])
        assert await agent.query("x") == "Done."
        assert offered_tools(llm.requests[0]) == VISIBLE
        assert offered_tools(llm.requests[1])[:3] == [*VISIBLE, CREATE]
        listing = llm.requests[1].messages[-1].text
        assert listing == f"{CREATE}: Open a new issue in a repository.", (
            "unrelated tools are not listed"
        )
        assert llm.requests[2].messages[-1].text == f"{CREATE} ran"

    async def test_found_tools_are_appended_and_a_repeated_search_changes_nothing(self):
        names = [WEATHER, CREATE, WEATHER, CREATE]
        llm = ScriptedModel([search(names[0]), search(names[1])], *map(search, names[2:]), "Done.")
        events = []
        agent = Searcher(llm=llm, tools=[here], tool_search=exact, listeners=[events.append])
        await agent.query("x")
        assert offered_tools(llm.requests[1]) == [*VISIBLE, WEATHER, CREATE]
        assert [offered_tools(request) for request in llm.requests[2:]] == [
            offered_tools(llm.requests[1])
        ] * 2
        changed = [event for event in events if isinstance(event, ToolsChangedEvent)]
        [names] = [event.tools for event in changed]
        assert {CREATE, WEATHER} <= {*names}

    async def test_a_fork_and_another_process_offer_the_found_tools(self, tmp_path):
        class SessionSearcher(Session, Searcher): ...

        settings = {"session": "s", "session_dir": tmp_path, "tool_search": exact, "tools": [here]}
        with SessionSearcher(llm=ScriptedModel(search(CREATE), "Found."), **settings) as first:
            await first.query("x")
            fork = first.fork(session="other")
        llm = ScriptedModel(search(WEATHER), call(CREATE), "Done.")
        with SessionSearcher(llm=llm, **settings) as second:
            assert await second.query("y") == "Done."
            assert offered_tools(llm.requests[0]) == [*VISIBLE, CREATE]
            assert offered_tools(llm.requests[1]) == [*VISIBLE, CREATE, WEATHER]
            second.clear_history()
            assert [tool.name for tool in second.toolset()] == VISIBLE
        with fork:
            assert [tool.name for tool in fork.toolset()] == [*VISIBLE, CREATE]

    async def test_a_search_without_matches_suggests_fewer_words(self):
        llm = ScriptedModel(search("xylophone"), "No.")
        await Searcher(llm=llm, tools=[here]).query("x")
        assert "fewer words" in llm.requests[1].messages[-1].text
        assert offered_tools(llm.requests[1]) == VISIBLE

    async def test_the_description_lists_all_tool_names_and_each_name_is_searchable(self):
        llm = ScriptedModel(search(f"{WEATHER}, {CREATE}"), "Done.")
        few = MANY_TOOLS[: len(CATALOG)]
        await Searcher(llm=llm, tools=[here], searchable_tools=few).query("x")
        first, second = (list(request.tools) for request in llm.requests)
        assert all(name in first[1].description for name in CATALOG)
        assert offered_tools(llm.requests[1]) == [*VISIBLE, CREATE, WEATHER]
        assert first == second[:2], "the description stays the same"

    async def test_of_many_tools_the_description_lists_how_their_names_begin(self):
        names = [f"{server}_get_thing_{n}" for server in ("github", "jira") for n in range(150)]
        agent = Searcher(
            llm=ScriptedModel("Done."), searchable_tools=[NamedTool(name, "") for name in names]
        )
        description = agent.toolset()[-1].description
        assert "github (150), jira (150)" in description
        assert len(description) < 843
        agent = agent.fork(searchable_tools=[NamedTool(f"t{n}", "") for n in range(1_000)])
        assert len(agent.toolset()[-1].description) < 1_000

    @pytest.mark.parametrize("query", ["book a flight to Paris", "the", "", "with my"])
    def test_a_query_without_a_word_of_any_tool_matches_nothing(self, query):
        assert bm25(query, MANY_TOOLS) == []

    async def test_a_tool_cannot_be_called_before_it_is_found(self):
        llm = ScriptedModel(call(CREATE), "No.")
        await Searcher(llm=llm, tools=[here]).query("x")
        assert llm.requests[1].messages[-1].text.endswith("Available tools: here, search_tools.")

    async def test_a_removed_tool_is_not_offered(self):
        agent = Searcher(llm=ScriptedModel(search(CREATE), "Found."), tool_search=exact)
        await agent.query("x")
        rest = agent.fork(searchable_tools=MANY_TOOLS[1:])
        assert [tool.name for tool in rest.toolset()] == ["search_tools"]

    async def test_no_search_tool_is_added_without_searchable_tools(self):
        assert list(ToolSearch(llm=ScriptedModel(), tools=[here]).toolset()) == [here]

    def test_two_tools_with_the_same_name_are_an_error(self):
        with pytest.raises(ValueError, match="two tools named 'here'"):
            Searcher(llm=ScriptedModel(), tools=[here], searchable_tools=[here])

    @pytest.mark.parametrize("bases", [(ToolSearch, Offload, Agent), (Offload, ToolSearch, Agent)])
    @pytest.mark.parametrize("name", ["done", "read_offloaded", "search_tools"])
    async def test_a_searchable_tool_with_the_name_of_another_tool_is_never_found(
        self, bases, name, tmp_path
    ):
        own = [NamedTool(name, "Close the ticket."), NamedTool("other", "Close the ticket.")]
        llm = ScriptedModel(search("close ticket"), call("other"), call("done", message="Closed."))
        agent = type("Own", bases, {})(
            llm=llm, searchable_tools=own, require_done_tool=True, offload_dir=tmp_path
        )
        assert await agent.query("x") == "Closed."
        assert llm.requests[1].messages[-1].text == "other: Close the ticket."
        assert set(offered_tools(llm.requests[1])) - set(offered_tools(llm.requests[0])) == {
            "other"
        }

    async def test_a_found_tool_that_is_added_to_tools_later_is_offered_once(self):
        agent = Searcher(llm=ScriptedModel(search(CREATE), "Found.", "Done."), tool_search=exact)
        await agent.query("x")
        agent.tools = [MANY_TOOLS[0]]
        await agent.query("y")
        assert offered_tools(agent.llm.requests[2]) == [CREATE, "search_tools"]

    @pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
    async def test_every_provider_accepts_the_requests(self, wire):
        search_turn = calls(("search_tools", {"query": "send an email"}, "c1"))
        script = [search_turn, calls(("mail__send", {}, "c2")), Reply("Sent.")]
        async with wire.double(script) as server:
            agent = Searcher(llm=wire.model(server), tools=[here], system_prompt="Be exact.")
            assert await agent.query("Mail Ann.") == "Sent."
            assert server.refusals == []


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("create issue github", CREATE),
        ("GitHub issues", CREATE),
        ("merge PR pull request", "github__merge_pull_request"),
        ("event in my calendar", "calendar__createEvent"),
        ("create event", "calendar__createEvent"),
        ("sql", "postgres__query"),
        ("weather__forecast", WEATHER),
        ("read field 17 of a customer", "crm__get_field_17"),
    ],
)
def test_the_best_match_comes_first(query, name):
    assert bm25(query, MANY_TOOLS)[0].name == name


def test_a_search_returns_at_most_five_tools_that_share_a_word():
    assert len(bm25("customer", MANY_TOOLS)) == 5
    assert bm25("xylophone ???", MANY_TOOLS) == []
    parameters = {"type": "object", "properties": {"iban": {"type": "string"}}}
    [only] = bm25("IBAN", [Tool("pay", "Send money.", parameters), *MANY_TOOLS])
    assert only.name == "pay"


def test_a_repeated_word_in_a_query_counts_once():
    assert bm25("issue " + 20_000 * "customer ", MANY_TOOLS)[0].name == CREATE


def test_chinese_and_japanese_texts_are_matched_by_characters():
    invoice, day = Tool("a", "创建客户发票", {}), Tool("b", "今日の天気を調べる", {})
    assert bm25("发票", [day, invoice]) == [invoice]
    assert bm25("天気予報", [invoice, day]) == [day]


def test_a_search_of_an_empty_list_returns_nothing():
    assert bm25("create issue", []) == []
