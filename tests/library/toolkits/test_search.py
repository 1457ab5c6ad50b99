"""Tool search: what a search finds is part of its result, and no request changes its prefix."""

import asyncio
import json

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    ChatOpenAI,
    CompactionConfig,
    Session,
    ToolMessage,
    tool,
)
from agentloop.common.summary import Summary
from agentloop.events import StepStartEvent, ToolCallEvent, ToolsChangedEvent
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.limits import Limits
from agentloop.models.scripted import ScriptedModel, call
from agentloop.toolkits.recall import recall
from agentloop.toolkits.search import ToolSearch, bm25
from agentloop.tools import Tool
from tests.core import test_loop
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import ANTHROPIC, RESPONSES, WIRES
from tests.recipes import load

Offload = load("offload").Offload
NATIVE = [(ANTHROPIC, "claude-opus-5-5"), (ANTHROPIC, "claude-sonnet-4-5"), (RESPONSES, "gpt-5.6")]

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


def through(name, **arguments):
    return call("call_tool", name=name, arguments=arguments)


def offered_tools(request):
    return [tool.name for tool in request.tools]


VISIBLE = ["here", "search_tools"]
SENT = [*VISIBLE, "call_tool"]


def calls_in(request):
    return [
        made
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for made in message.tool_calls
    ]


CREATE, WEATHER = "github__create_issue", "weather__forecast"


async def exact(query, tools):
    await asyncio.sleep(0)
    return [tool for tool in tools if tool.name == query]


class Loads(ScriptedModel):
    """A model that can load tools during a conversation."""

    loads_tools = True


class TestToolSearch(test_loop.TestLoop):
    agent_class = ToolSearch

    async def test_a_found_tool_is_called_through_one_tool_and_no_request_changes_the_tools(self):
        llm = ScriptedModel(search("open an issue"), through(CREATE), "Done.")
        agent = Searcher(llm=llm, tools=[here])
        assert await agent.query("x") == "Done."
        assert [offered_tools(request) for request in llm.requests] == [SENT] * 3
        found = llm.requests[1].messages[-1].text
        assert found.startswith(f"{CREATE}: Open a new issue in a repository.")
        assert "Arguments: {" in found
        assert llm.requests[2].messages[-1].text == f"{CREATE} ran"

    async def test_the_model_sees_its_calls_as_it_made_them_and_everybody_else_the_tool(self):
        events = []
        llm = ScriptedModel(through(CREATE, title="a"), "Done.")
        agent = Searcher(llm=llm, tools=[here], listeners=[events.append])
        await agent.query("x")
        asked, result = llm.requests[1].messages[-2:]
        [made] = asked.tool_calls
        assert (made.name, result.tool_name) == ("call_tool", "call_tool")
        assert made.parsed == {"name": CREATE, "arguments": {"title": "a"}}
        [called] = [event for event in events if isinstance(event, ToolCallEvent)]
        assert called.tool == CREATE
        [logged] = agent.messages[1].tool_calls
        assert (logged.name, logged.parsed) == (CREATE, {"title": "a"})

    async def test_a_rule_about_a_found_tool_judges_its_calls(self):
        llm = ScriptedModel(through(CREATE), call(CREATE), "Denied.")

        class Judged(Approval, Searcher): ...

        agent = Judged(llm=llm, tools=[here], approval_rules=[Rule("deny", CREATE)])
        await agent.query("x")
        results = [each for each in agent.messages if isinstance(each, ToolMessage)]
        assert [result.origin for result in results] == ["denied", "denied"]

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"name": CREATE, "arguments": '{"a": 1}'}, {"a": 1}),
            ({"name": CREATE}, {}),
            ({"name": CREATE, "arguments": None}, {}),
        ],
    )
    async def test_arguments_as_text_or_none_are_read(self, arguments, expected):
        agent = Searcher(llm=ScriptedModel(call("call_tool", **arguments), "Done."), tools=[here])
        await agent.query("x")
        [made] = agent.messages[1].tool_calls
        assert (made.name, made.parsed) == (CREATE, expected)

    async def test_a_call_of_no_tool_names_those_that_are_offered(self):
        llm = ScriptedModel(through("zzz"), "No.")
        await Searcher(llm=llm, tools=[here]).query("x")
        assert llm.requests[1].messages[-1].text.endswith(f"Available tools: {', '.join(SENT)}.")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({}, "name: Field required"),
            ({"name": 7, "arguments": {}}, "name: "),
            ({"name": CREATE, "title": "a"}, "title: "),
            ({"tool": CREATE, "arguments": {}}, "name: Field required"),
        ],
    )
    async def test_a_malformed_call_tool_says_what_is_wrong_with_it(self, arguments, expected):
        llm = ScriptedModel(call("call_tool", **arguments), "No.")
        await Searcher(llm=llm, tools=[here]).query("x")
        result = llm.requests[1].messages[-1]
        assert expected in result.text
        assert "vailable tools" not in result.text
        assert result.is_error

    async def test_a_call_tool_inside_a_call_tool_calls_the_tool(self):
        inner = {"name": CREATE, "arguments": {"a": 1}}
        llm = ScriptedModel(call("call_tool", name="call_tool", arguments=inner), "Done.")
        agent = Searcher(llm=llm, tools=[here])
        await agent.query("x")
        [made] = agent.messages[1].tool_calls
        assert (made.name, made.parsed) == (CREATE, {"a": 1})

    async def test_a_tool_of_your_own_named_call_tool_is_an_error(self):
        agent = Searcher(llm=ScriptedModel("Done."), tools=[NamedTool("call_tool", "Mine.")])
        with pytest.raises(ValueError, match="two tools named 'call_tool'"):
            await agent.query("x")
        agent = agent.fork(llm=Loads("Done."))
        assert await agent.query("x") == "Done.", "it's free if the model can load tools"

    @pytest.mark.parametrize("order", ["first", "last"])
    async def test_a_request_that_is_built_again_shows_calls_as_the_model_made_them(self, order):
        class First(ToolSearch, Agent): ...

        class Last(Agent, ToolSearch): ...

        cls = First if order == "first" else Last
        llm = ScriptedModel(through(CREATE), *[call("here")] * 4, "SUMMARY", "Done.")
        compaction = CompactionConfig(context_window=100_000, keep_turns=9)
        agent = cls(llm=llm, tools=[here], searchable_tools=MANY_TOOLS, compaction=compaction)

        def compact(event):
            if isinstance(event, StepStartEvent) and event.step_number == 5:
                agent.summary_is_due = True

        agent.listeners = [compact]
        await agent.query("x")
        assert any(isinstance(record, Summary) for record in agent.log)
        assert CREATE not in [made.name for made in calls_in(llm.requests[-1])]
        assert [offered_tools(request) for request in llm.requests] == [SENT] * len(llm.requests)

    async def test_a_summary_between_runs_declares_what_every_request_declares(self):
        llm = ScriptedModel(search(CREATE), through(CREATE), "Done.", "SUMMARY", "Bye.")
        agent = Searcher(llm=llm, tools=[here], tool_search=exact)
        await agent.query("x")
        assert await agent.compact()
        assert offered_tools(llm.requests[3]) == SENT
        assert {made.name for made in calls_in(llm.requests[3])} <= set(SENT)

    async def test_a_summary_between_runs_is_possible_after_a_run_that_reached_a_limit(self):
        class Limited(Limits, Searcher): ...

        llm = ScriptedModel(call("here"), call("here"), "SUMMARY")
        config = CompactionConfig(keep_turns=0)
        agent = Limited(llm=llm, tools=[here], max_requests=2, compaction=config)
        assert (await agent.run("x")).stop_reason == "limit:requests"
        assert await agent.compact()

    async def test_a_result_of_a_found_tool_that_is_in_view_is_not_recalled(self):
        llm = ScriptedModel(through(CREATE), call("recall", words=f"{CREATE} ran"), "Done.")
        agent = Searcher(llm=llm, tools=[here, recall])
        await agent.query("x")
        assert CREATE not in agent.messages[-2].text

    async def test_a_found_tool_that_is_always_allowed_stays_so_after_a_summary(self):
        class Judged(Approval, Searcher): ...

        llm = ScriptedModel(search(CREATE), "Found.", "SUMMARY", call(CREATE), "Done.")
        agent = Judged(llm=llm, tools=[here], tool_search=exact)
        await agent.query("x")
        agent.allow_always(CREATE)
        assert await agent.compact()
        assert await agent.query("y") == "Done."

    async def test_a_rule_about_a_searchable_tool_is_checked(self, caplog):
        class Judged(Approval, Searcher): ...

        class Inner(Searcher, Approval): ...

        for cls in Judged, Inner:
            rule = Rule("deny", CREATE)
            await cls(llm=ScriptedModel("Hi."), tools=[here], approval_rules=[rule]).query("x")
        assert "matches no tool" not in caplog.text

    async def test_a_model_that_loads_tools_gets_them_deferred_and_calls_them_by_name(self):
        events = []
        llm = Loads(search(CREATE), call(CREATE), "Done.")
        agent = Searcher(llm=llm, tools=[here], tool_search=exact, listeners=[events.append])
        assert await agent.query("x") == "Done."
        first = llm.requests[0].tools
        assert [tool.name for tool in first if not tool.deferred] == VISIBLE
        assert len(first) == len(MANY_TOOLS) + 2
        assert not any(tool.deferred for tool in MANY_TOOLS), "the tools are shared"
        assert all(request.tools == first for request in llm.requests)
        assert [part.name for part in llm.requests[1].messages[-1].content] == [CREATE]
        assert not [event for event in events if isinstance(event, ToolsChangedEvent)]

    async def test_a_later_search_returns_what_is_new_and_a_repeated_one_all(self):
        llm = Loads(search("customer 17"), search("customer 17 18"), search("customer 17"), "Done.")

        def tens(query, tools):
            return [tool for tool in tools if tool.name[-2:] in query]

        await Searcher(llm=llm, tools=[here], tool_search=tens).query("x")
        found = [
            [part.name for part in request.messages[-1].content if part.name[-3] == "_"]
            for request in llm.requests[1:]
        ]
        assert found == [["crm__get_field_17"], ["crm__get_field_18"], ["crm__get_field_17"]]

    async def test_what_was_found_before_a_summary_is_offered_like_the_other_tools(self):
        events = []
        script = [search(CREATE), "Found.", "SUMMARY", search(CREATE), call(CREATE), "Done."]
        llm = ScriptedModel(*script)
        agent = Searcher(llm=llm, tools=[here], tool_search=exact, listeners=[events.append])
        await agent.query("x")
        await agent.compact()
        assert await agent.query("y") == "Done."
        assert offered_tools(llm.requests[-1]) == [*SENT, CREATE]
        assert llm.requests[-2].messages[-1].text.startswith(CREATE), "it can be found again"
        assert [event for event in events if isinstance(event, ToolsChangedEvent)]

    async def test_a_fork_and_another_process_know_what_was_found(self, tmp_path):
        class SessionSearcher(Session, Searcher): ...

        settings = {"session": "s", "session_dir": tmp_path, "tool_search": exact, "tools": [here]}
        with SessionSearcher(llm=Loads(search(CREATE), "Found."), **settings) as first:
            await first.query("x")
            fork = first.fork(session="other")
        with SessionSearcher(llm=Loads(call(CREATE), "Done."), **settings) as second:
            assert await second.query("y") == "Done."
            [found] = second.messages[2].content
            assert found.name == CREATE
        with fork:
            assert fork.messages[2].content == (found,)

    async def test_a_session_describes_only_the_tools_that_are_offered(self, tmp_path):
        class SessionSearcher(Session, Searcher): ...

        llm = Loads(search(CREATE), call(CREATE), "Done.")
        with SessionSearcher(llm=llm, tools=[here], session="s", session_dir=tmp_path) as agent:
            await agent.query("x")
        assert [name for name, *_ in agent.log[0].tools] == VISIBLE

    async def test_a_search_without_matches_suggests_fewer_words(self):
        llm = ScriptedModel(search("xylophone"), "No.")
        await Searcher(llm=llm, tools=[here]).query("x")
        assert "fewer words" in llm.requests[1].messages[-1].text

    async def test_the_description_lists_all_tool_names_and_each_name_is_searchable(self):
        llm = Loads(search(f"{WEATHER}, {CREATE}"), "Done.")
        few = MANY_TOOLS[: len(CATALOG)]
        await Searcher(llm=llm, tools=[here], searchable_tools=few).query("x")
        assert all(name in llm.requests[0].tools[1].description for name in CATALOG)
        found = llm.requests[1].messages[-1].content
        assert [part.name for part in found] == [CREATE, WEATHER]

    async def test_the_first_request_with_300_tools_has_less_than_1_000_bytes(self):
        names = [f"{server}_get_thing_{n}" for server in ("github", "jira") for n in range(150)]
        llm = ScriptedModel("Done.")
        agent = Searcher(llm=llm, searchable_tools=[NamedTool(name, "") for name in names])
        await agent.query("x")
        [request] = llm.requests
        assert "github (150), jira (150)" in request.tools[0].description
        wire = ChatOpenAI("m", base_url="http://x/v1", api_key="k")
        assert len(wire.request_body(request.messages, request.tools)) < 1_000
        agent = agent.fork(searchable_tools=[NamedTool(f"t{n}", "") for n in range(1_000)])
        assert len(agent.toolset()[0].description) < 1_000

    @pytest.mark.parametrize("query", ["book a flight to Paris", "the", "", "with my"])
    def test_a_query_without_a_word_of_any_tool_matches_nothing(self, query):
        assert bm25(query, MANY_TOOLS) == []

    async def test_no_search_tool_is_added_without_searchable_tools(self):
        assert list(ToolSearch(llm=ScriptedModel(), tools=[here]).toolset()) == [here]

    def test_two_tools_with_the_same_name_are_an_error(self):
        with pytest.raises(ValueError, match="two tools named 'here'"):
            Searcher(llm=ScriptedModel(), tools=[here], searchable_tools=[here])

    @pytest.mark.parametrize("name", ["done", "read_offloaded", "search_tools"])
    async def test_a_searchable_tool_with_the_name_of_another_tool_is_never_found(
        self, name, tmp_path
    ):
        own = [NamedTool(name, "Close the ticket."), NamedTool("other", "Close the ticket.")]
        llm = Loads(search("close ticket"), call("other"), call("done", message="Closed."))

        class Own(ToolSearch, Offload, Agent): ...

        agent = Own(llm=llm, searchable_tools=own, require_done_tool=True, offload_dir=tmp_path)
        assert await agent.query("x") == "Closed."
        assert [part.name for part in llm.requests[1].messages[-1].content] == ["other"]

    async def test_a_tool_that_is_added_to_tools_later_is_offered_once(self):
        agent = Searcher(llm=Loads(search(CREATE), "Found.", "Done."), tool_search=exact)
        await agent.query("x")
        agent.tools = [MANY_TOOLS[0]]
        await agent.query("y")
        shown = [tool.name for tool in agent.llm.requests[2].tools if not tool.deferred]
        assert shown == [CREATE, "search_tools"]

    @pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
    @pytest.mark.parametrize("streaming", [False, True])
    async def test_every_provider_accepts_the_requests_and_each_begins_with_the_last(
        self, wire, streaming
    ):
        search_turn = calls(
            ("search_tools", {"query": "send an email"}, "c1"),
            ("search_tools", {"query": "mail"}, "c2"),
        )
        sends = calls(("call_tool", {"name": "mail__send", "arguments": {}}, "c3"))
        async with wire.double([search_turn, sends, Reply("Sent."), Reply("Bye.")]) as server:
            agent = Searcher(llm=wire.model(server), tools=[here], system_prompt="Be exact.")
            agent.listeners = [lambda event: None] if streaming else []
            assert await agent.query("Mail Ann.") == "Sent."
            assert await agent.query("Bye.") == "Bye."
            assert server.refusals == []
            assert server.prefix_breaks == []

    @pytest.mark.parametrize(
        ("wire", "model"), NATIVE, ids=lambda each: getattr(each, "name", each)
    )
    async def test_models_that_load_tools_accept_the_requests_and_call_by_name(self, wire, model):
        search_turn = calls(
            ("search_tools", {"query": "send an email"}, "c1"),
            ("here", {}, "c2"),
            ("search_tools", {"query": "weather"}, "c3"),
        )
        sends = calls(("mail__send", {}, "c4"))
        async with wire.double([search_turn, sends, Reply("Sent."), Reply("Bye.")]) as server:
            llm = wire.model(server, model=model)
            agent = Searcher(llm=llm, tools=[here], system_prompt="Be exact.")
            assert await agent.query("Mail Ann.") == "Sent."
            assert await agent.query("Bye.") == "Bye."
            assert server.refusals == []
            assert server.prefix_breaks == []
        assert "call_tool" not in json.dumps(server.requests)
        loaded = "tool_reference" if wire is ANTHROPIC else "additional_tools"
        assert loaded in json.dumps(server.requests[1])
        assert [each.text for each in agent.messages if isinstance(each, ToolMessage)][-1] == (
            "mail__send ran"
        )

    @pytest.mark.parametrize(
        ("wire", "model"), NATIVE, ids=lambda each: getattr(each, "name", each)
    )
    async def test_a_history_goes_on_with_other_tools_and_with_another_model(self, wire, model):
        first = Searcher(llm=Loads(search(WEATHER), call(WEATHER), "Done."), tools=[here])
        await first.query("x")
        for cls, name in (Agent, model), (Searcher, "m"), (Searcher, model):
            async with wire.double([Reply("Bye.")]) as server:
                agent = cls(llm=wire.model(server, model=name), tools=[here])
                agent.load_history([*first.messages])
                if cls is Searcher:
                    agent.searchable_tools = MANY_TOOLS[:3]
                assert await agent.query("y") == "Bye."
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
