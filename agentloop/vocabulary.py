"""Names of other agent libraries, and their replacements, for error messages.

Copy with: nothing else.

The names are parameters, methods and classes of pydantic-ai, openai-agents, LangChain, smolagents
and LiteLLM, and names that `agentloop` does not export.
"""

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])

# alternating lines: names, then the remedy

VALUES = """\
llm
    pass a chat model, such as llm=ChatOpenAI("gpt-5")
tools
    pass a list of functions that are decorated with @tool, such as tools=[search]
"""

AGENT_WORDS = """\
model model_name model_id chat_model language_model
    use llm=ChatOpenAI("gpt-5")
instructions instruction system system_message prompt description
    use system_prompt="..."
functions
    use tools=[search], a list of functions that are decorated with @tool
max_turns max_steps max_loops recursion_limit
    use max_iterations=20
temperature top_p seed stop max_tokens reasoning_effort api_key base_url max_retries timeout
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
model_settings model_kwargs model_config parallel_tool_calls
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
name agent_name
    omit it: agents have no name; as_tool(agent, name, description) names a sub-agent
verbose debug verbosity_level callbacks step_callbacks
    use listeners=[print]; agent.log contains the records
mcp_servers mcp toolsets
    use `async with mcp_tools(...) as tools` of agentloop.toolkits.mcp
result_type response_format response_model output_schema final_output
    use output_type=City
output_type
    derive from DoneTool of agentloop.mixins.done, or use Agent
deps deps_type context_type dependencies
    use Depends in a tool, and dependency_overrides={...}
handoffs managed_agents sub_agents agents
    use tools=[as_tool(agent, name, description)] of agentloop.toolkits.subagent
memory checkpointer session_id history messages chat_history
    derive from Session of agentloop.mixins.session, or use agent.load_history(messages)
guardrails input_guardrails output_guardrails hooks
    derive from Approval or Hooks of agentloop.mixins
stream streaming
    use agent.query_stream(prompt)
retries
    raise ToolError in a tool, so that the model corrects its call
"""

RUN_WORDS = """\
message_history messages history chat_history memory
    omit it: an agent keeps its conversation; agent.load_history(messages) replaces it
session session_id thread_id conversation_id
    derive from Session of agentloop, and pass session="..." to the agent
deps context ctx
    use Depends in a tool, and Agent(dependency_overrides={...})
max_turns max_steps recursion_limit
    use Agent(max_iterations=20)
usage_limits
    derive from Limits, and pass max_requests= or max_tokens= to the agent
output_type result_type response_format
    use agent.run_as(City, prompt)
model
    use agent.fork(llm=ChatOpenAI("gpt-5"))
tools toolsets instructions system_prompt
    pass it to Agent(...), or to agent.fork(...)
model_settings temperature max_tokens
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
images files attachments
    use a list as the prompt, such as ["Describe this.", ImagePart(url)]
stream streaming event_stream_handler
    use agent.query_stream(prompt)
callbacks hooks verbose
    use Agent(listeners=[print]), or derive from Hooks of agentloop.mixins.hooks
reset
    use agent.clear_history()
"""

ATTRIBUTE_WORDS = """\
invoke kickoff chat ask generate predict print_response
    use agent.run_sync(prompt).text, or await agent.query(prompt)
ainvoke arun acall
    use await agent.run(prompt), or await agent.query(prompt)
stream astream run_stream run_streamed run_stream_events astream_events iter
    use `async for event in agent.query_stream(prompt)`
batch abatch
    use agent.fork().run(prompt) for each prompt
tool_plain add_tool add_tools register_tool bind_tools
    decorate functions with @tool, and use Agent(tools=[search])
instructions
    use system_prompt="...", or a function: Agent(system_prompt=lambda agent: "...")
output_validator result_validator with_structured_output
    use Agent(output_type=City), or agent.run_as(City, prompt)
override clone copy
    use agent.fork(llm=...)
history memory all_messages get_messages
    use agent.messages
reset clear new_session
    use agent.clear_history()
as_tool
    use as_tool(agent, name, description) of agentloop.toolkits.subagent
run_mcp_servers
    use `async with mcp_tools(...) as tools` of agentloop.toolkits.mcp
send
    derive from MessageQueue of agentloop
cost bill
    derive from Cost of agentloop
decide
    derive from Approval of agentloop.mixins.approval
"""

RESULT_WORDS = """\
output final_output data content output_text final_output_as
    use result.text, or result.value with Agent(output_type=City)
messages all_messages new_messages new_items to_input_list message_history
    use agent.messages
last_agent get_output
    use result.text
total_usage context_wrapper token_usage
    use result.usage
interruptions
    use result.pending
"""

IMPORT_WORDS = """\
CacheRules
    it is in agentloop.common.model_info
as_text describe_error to_content
    it is in agentloop.content
Overrides
    it is in agentloop.depends
Delta Event OnDelta OverBudgetEvent PruneEvent SubAgentEvent ToolsChangedEvent events_of
    it is in agentloop.events
Ask Decision HistoryChange InnerCall InnerResult JSON Reset RunEnd
    it is in agentloop.messages
ToolChoice Unknown UserAnswer UserQuestion frozen text_of
    it is in agentloop.messages
Approval Rule plain_arguments
    it is in agentloop.mixins.approval
Durable
    it is in agentloop.mixins.durable
Hook HookEvent Hooks
    it is in agentloop.mixins.hooks
Sent Unread
    it is in agentloop.mixins.message_queue
SessionInfo
    it is in agentloop.mixins.session
Tracing
    it is in agentloop.mixins.tracing
HTTPModel
    it is in agentloop.models.http
SettingError check_settings settings_of
    it is in agentloop.settings
answer_text ask_user question_text
    it is in agentloop.toolkits.ask
Workspace
    it is in agentloop.toolkits.files
MCPConfig MCPError MCPServer MCPTools mcp_servers mcp_tools
    it is in agentloop.toolkits.mcp
recall
    it is in agentloop.toolkits.recall
ToolSearch bm25
    it is in agentloop.toolkits.search
Shell
    it is in agentloop.toolkits.shell
Skill Skills discover_skills
    it is in agentloop.toolkits.skills
as_tool run_sub_agent
    it is in agentloop.toolkits.subagent
Todo TodoList
    it is in agentloop.toolkits.todo
FunctionTool by_name find_tool
    it is in agentloop.tools
CallState Conversation Fold Records
    it is in agentloop.transcript
cancel_and_wait wait_for
    it is in agentloop.waiting
Runner AgentExecutor AgentRunner
    use Agent(llm=...).run_sync(prompt), or await agent.run(prompt)
create_agent create_react_agent create_tool_calling_agent initialize_agent ToolCallingAgent
    use Agent(llm=..., tools=[search])
CodeAgent PythonInterpreterTool
    copy the recipe examples/recipes/code_mode.py
RunContext RunContextWrapper ToolContext ToolRuntime InjectedToolArg InjectedState
    use Depends in a tool: db: Annotated[Database, Depends(get_database)]
ModelRetry ToolException
    use ToolError
function_tool StructuredTool BaseTool
    use @tool
HumanMessage ModelRequest
    use UserMessage
AIMessage ModelResponse
    use AssistantMessage
OpenAI AzureOpenAI OpenAIModel OpenAIChatModel OpenAIResponsesModel OpenAIServerModel
    use ChatOpenAI("gpt-5")
LiteLLMModel LitellmModel ChatLiteLLM ChatOllama ChatGroq ChatMistralAI InferenceClientModel
    use ChatOpenAI("name", base_url="https://...") for servers with the API of OpenAI
Anthropic AnthropicModel
    use ChatAnthropic("claude-sonnet-5")
GoogleModel GeminiModel ChatGoogleGenerativeAI ChatVertexAI
    use ChatGoogle("gemini-3-flash")
init_chat_model Model LLM
    use ChatOpenAI, ChatAnthropic or ChatGoogle
TestModel FunctionModel FakeListChatModel
    use ScriptedModel("Hello.")
SQLiteSession SQLAlchemySession InMemorySaver MemorySaver ConversationBufferMemory
    use Session
handoff Handoff
    use as_tool of agentloop.toolkits.subagent
input_guardrail output_guardrail guardrail InputGuardrail GuardrailFunctionOutput
    use Approval or Hooks of agentloop.mixins
MCPServerStdio MCPServerStreamableHttp MCPServerSse MCPServerSSE MultiServerMCPClient
    use mcp_tools of agentloop.toolkits.mcp
UsageLimits
    use Limits
ModelSettings
    set it on the model, such as ChatOpenAI("gpt-5", temperature=0)
RunHooks AgentHooks
    use Hooks of agentloop.mixins.hooks
trace set_tracing_disabled instrument
    use Tracing of agentloop.mixins.tracing
WebSearchTool DuckDuckGoSearchTool
    use ChatOpenAI(provider_tools=[...]), with the search tool of the provider
web_fetch VisitWebpageTool
    copy the recipe examples/recipes/web_fetch.py
"""

MODEL_WORDS = """\
model_name model_id
    use the first argument, such as ChatOpenAI("gpt-5")
openai_api_key anthropic_api_key google_api_key key token api_token
    use api_key="..."
api_base openai_api_base endpoint host
    use base_url="https://..."
extra_headers default_headers headers http_client http_async_client
    use client=httpx.AsyncClient(headers={...})
extra_body model_kwargs
    use extra={...}
request_timeout
    use timeout=60
num_retries retries
    use max_retries=4
response_format response_mime_type response_schema
    use Agent(output_type=City)
stream streaming
    use agent.query_stream(prompt)
system system_prompt instructions tools tool_choice max_iterations
    set it on the agent, such as Agent(llm=..., system_prompt="...")
"""

OWNERS = {  # the class for a model name, an API key or an environment variable, by its beginning
    "gpt-": "ChatOpenAI",
    "sk-proj-": "ChatOpenAI",
    "OPENAI_API_KEY": "ChatOpenAI",
    "claude-": "ChatAnthropic",
    "sk-ant-": "ChatAnthropic",
    "ANTHROPIC_API_KEY": "ChatAnthropic",
    "gemini-": "ChatGoogle",
    "AIza": "ChatGoogle",
    "GEMINI_API_KEY": "ChatGoogle",
    "GOOGLE_API_KEY": "ChatGoogle",
}


def owner(text: str) -> str:
    """Return the name of the class for a model name, an API key or an environment variable."""
    return next((name for start, name in OWNERS.items() if text.startswith(start)), "")


def advice(words: str, name: str, known: Iterable[str], default: str) -> str:
    """Return a remedy for an unknown parameter, from a table or by the nearest known name."""
    lines = words.splitlines()
    for names, remedy in zip(lines[::2], lines[1::2], strict=True):
        if name in names.split():
            return remedy.strip()
    near = get_close_matches(name, known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else default


def explain_keywords(words: str) -> Callable[[Method], Method]:
    """Return a decorator: the TypeError for an unknown keyword names the remedy of a table."""

    def decorate(function: Method) -> Method:
        known = inspect.signature(function).parameters

        def check(names: Iterable[str]) -> None:
            for name in names:
                if name not in known:
                    remedy = advice(words, name, known, f"known are {', '.join([*known][1:])}")
                    raise TypeError(f"{function.__name__}: unknown parameter {name}: {remedy}")

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            check(kwargs)
            return function(*args, **kwargs)

        @wraps(function)
        async def checked_async(*args: Any, **kwargs: Any) -> Any:
            check(kwargs)
            return await function(*args, **kwargs)

        wrapper = checked_async if inspect.iscoroutinefunction(function) else checked
        return cast(Method, wrapper)

    return decorate


def explain_attribute(words: str, owner: object, name: str) -> object:
    """Raise an AttributeError with the remedy of a table, or Python's error. For `__getattr__`."""
    if remedy := advice(words, name, (), ""):
        raise AttributeError(f"{type(owner).__name__} has no attribute {name}: {remedy}")
    return object.__getattribute__(owner, name)  # also raises the error of a failed property
