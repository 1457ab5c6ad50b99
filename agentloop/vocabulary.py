"""What to write instead of a name that doesn't exist, for error messages.

Copy with: nothing else.

Only an error loads this file. Each table belongs to one place, because the remedy depends on it:
`final_output` is `text` on a Result, and `output_type` among the settings of an agent. The names
come from pydantic-ai, openai-agents, LangChain, smolagents and LiteLLM; a few are names of this
library that belong elsewhere.
"""

from collections.abc import Iterable
from difflib import get_close_matches

# a table by place: alternating lines, names and then what to write

REMEDIES = {
    "import": """\
CacheRules
    it is in agentloop.common.model_info
as_text describe_error to_content
    it is in agentloop.content
Overrides
    it is in agentloop.depends
Delta Event OnDelta OverBudgetEvent PruneEvent SubAgentEvent ToolsChangedEvent events_of
    it is in agentloop.events
Ask Decision
    it is in agentloop.common.review
InnerCall InnerResult
    it is in agentloop.common.nested
JSON Prompt ToolChoice Unknown frozen text_of
    it is in agentloop.messages
Approval Rule plain_arguments
    it is in agentloop.mixins.approval
Continuation
    it is in agentloop.mixins.continuation
Durable
    it is in agentloop.mixins.durable
FinalSummary
    it is in agentloop.mixins.final_summary
ForcedTool
    it is in agentloop.mixins.forced_tool
Histories
    it is in agentloop.mixins.histories
Interruption
    it is in agentloop.mixins.interruption
NestedCalls
    it is in agentloop.mixins.nested_calls
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
UserAnswer UserQuestion answer_text ask_user question_text
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
Awaits CallEntry CallState Conversation Fold Log Records Reset RunEnd
    it is in agentloop.transcript
cancel_and_wait wait_for
    it is in agentloop.waiting
CacheMonitor Meter RequestEvent
    it is a recipe now: copy examples/recipes/cache_monitor.py
Channels
    it is a recipe now: copy examples/recipes/channels.py
LoopDetection Repetition
    it is a recipe now: copy examples/recipes/loop_detection.py
Offload
    it is a recipe now: copy examples/recipes/offload.py
RecordingModel ReplayMismatch ReplayModel
    it is a recipe now: copy examples/recipes/record_and_replay.py
Runner AgentExecutor AgentRunner
    use Agent(llm=...).run_sync(prompt), or await agent.run(prompt)
create_agent create_react_agent create_tool_calling_agent initialize_agent ToolCallingAgent
    use Agent(llm=..., tools=[search])
ReActAgent AsyncAgent Assistant Crew Swarm StateGraph LLMChain
    use Agent(llm=..., tools=[search])
CodeAgent PythonInterpreterTool
    copy the recipe examples/recipes/code_mode.py
RunContext RunContextWrapper ToolContext ToolRuntime InjectedToolArg InjectedState
    use Depends in a tool: db: Annotated[Database, Depends(get_database)]
ModelRetry ToolException
    use ToolError
function_tool StructuredTool BaseTool
    use @tool
BinaryContent ImageUrl DocumentUrl
    use ImagePart or FilePart
HumanMessage ModelRequest
    use UserMessage
AIMessage ModelResponse
    use AssistantMessage
OpenAI AzureOpenAI OpenAIModel OpenAIChatModel OpenAIResponsesModel OpenAIServerModel
    use ChatOpenAI("gpt-5")
LiteLLMModel LitellmModel ChatLiteLLM ChatOllama Ollama ChatGroq ChatMistralAI InferenceClientModel
    use ChatOpenAI("name", base_url="https://...") for servers with the API of OpenAI
ChatBedrock ChatBedrockConverse BedrockModel BedrockConverseModel GroqModel MistralModel Groq
    use ChatOpenAI("name", base_url="https://...") for servers with the API of OpenAI
Anthropic AnthropicModel Claude
    use ChatAnthropic("claude-sonnet-5")
GoogleModel GeminiModel Gemini ChatGoogleGenerativeAI ChatVertexAI
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
    set the parameters of the model, such as ChatOpenAI("gpt-5", temperature=0)
RunHooks AgentHooks
    use Hooks of agentloop.mixins.hooks
trace set_tracing_disabled instrument
    use Tracing of agentloop.mixins.tracing
WebSearchTool DuckDuckGoSearchTool
    use ChatOpenAI(provider_tools=[...]), with the search tool of the provider
web_fetch VisitWebpageTool
    copy the recipe examples/recipes/web_fetch.py
PromptTemplate ChatPromptTemplate
    use an f-string, or system_prompt=lambda agent: "..."
RunConfig RunnableConfig AgentConfig
    use the settings of Agent: help(Agent) describes them
RunResult AgentRunResult
    use Result
""",
    "setting": """\
model model_name model_id chat_model language_model
    use llm=ChatOpenAI("gpt-5")
instructions instruction system system_message prompt description
    use system_prompt="..."
functions
    use tools=[search], a list of functions decorated with @tool
max_turns max_steps max_loops recursion_limit
    use max_iterations=20
temperature top_p seed stop max_tokens reasoning_effort api_key base_url max_retries timeout
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
model_settings model_kwargs model_config parallel_tool_calls
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
name agent_name
    leave it out: agents have no name; as_tool(agent, name, description) names a sub-agent
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
session_id thread_id conversation_id
    derive from Session of agentloop: Chat(llm=..., session="ada")
memory checkpointer history messages chat_history
    derive from Session of agentloop.mixins.session, or use agent.load_history(messages)
guardrails input_guardrails output_guardrails hooks
    derive from Approval or Hooks of agentloop.mixins
require_approval requires_approval interrupt_on interrupt_before human_input_mode
    derive from Approval of agentloop.mixins.approval: approval_rules=[Rule("ask", "pay")]
approval_mode approval_rules approval_callback
    derive from Approval of agentloop.mixins.approval
session session_dir
    derive from Session of agentloop
max_cost max_requests max_tool_calls max_seconds
    derive from Limits of agentloop
max_time max_budget budget usage_limits max_execution_time max_rpm
    derive from Limits of agentloop: max_seconds=60, max_cost=1.0, max_requests=20
final_answer_checks output_validators
    derive from Loop, and override `finish`: return None to let the model try again
additional_authorized_imports executor_type code_execution_mode
    copy the recipe examples/recipes/code_mode.py
handoff_description
    use as_tool(agent, name, description) of agentloop.toolkits.subagent
reset_tool_choice
    leave it out: tool_choice applies to the first request after a prompt
history_processors
    derive from Loop, and override `context`
stream streaming
    use agent.query_stream(prompt)
retries
    raise ToolError in a tool: the model reads it and corrects its call
""",
    "value": """\
llm
    pass a chat model, such as llm=ChatOpenAI("gpt-5")
tools
    pass a list of functions decorated with @tool, such as tools=[search]
system_prompt
    pass text, or a function of the agent that returns text
tool_choice
    pass "auto", "required", "none" or the name of a tool
listeners
    pass a list of functions, such as listeners=[print]
dependency_overrides
    pass replacements by dependency, such as {get_database: fake_database}
compaction
    pass CompactionConfig(threshold_ratio=0.8), or None to never summarize
approval_rules
    pass a list of rules, such as [Rule("ask", "pay")]
approval_callback
    pass a function (call, why) that returns whether the call may run
""",
    "parameter": """\
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
    set it on the agent, such as Agent(llm=..., tools=[search], system_prompt="...")
n
    use agent.fork().run(prompt) for each reply
""",
    "ChatAnthropic": """\
max_completion_tokens max_output_tokens max_tokens_to_sample
    use max_tokens=16_000
""",
    "ChatGoogle": """\
max_completion_tokens max_tokens
    use max_output_tokens=16_000
""",
    "ChatOpenAI": """\
max_output_tokens
    use max_completion_tokens=16_000
""",
    "run": """\
usage_limits usage max_tokens_total
    derive from Limits of agentloop: max_requests=20, max_cost=1.0
reset
    use agent.clear_history() before the run, or agent.fork().run(prompt)
deps context dependencies run_context
    use Agent(dependency_overrides={...}), or a typed setting: agent.fork(customer="ada")
max_turns max_steps max_iterations recursion_limit
    use Agent(max_iterations=20), or agent.fork(max_iterations=20).run(prompt)
output_type result_type response_format response_model
    use agent.run_as(City, prompt), or Agent(output_type=City)
message_history messages history chat_history
    use agent.load_history(messages) before the run; the next prompt continues the conversation
model llm
    use agent.fork(llm=...).run(prompt)
system_prompt instructions tools
    use agent.fork(system_prompt="...", tools=[...]).run(prompt)
stream streaming
    use `async for event in agent.query_stream(prompt)`
session session_id thread_id config
    derive from Session of agentloop: Chat(llm=..., session="ada")
input task query message user_prompt text
    pass the prompt first: agent.run("...")
images files attachments
    pass parts: agent.run(["What is this?", ImagePart(data=..., media_type="image/png")])
timeout max_time
    use asyncio.timeout(60), or derive from Limits of agentloop: max_seconds=60
callbacks hooks listeners
    use Agent(listeners=[print])
temperature max_tokens model_settings
    set it on the model, such as llm=ChatOpenAI("gpt-5", temperature=0)
""",
    "tool": """\
requires_approval needs_approval approval human_in_the_loop
    use class A(Approval, Agent) of agentloop.mixins.approval
retries max_retries
    raise ToolError in the tool: the model reads it and corrects its call
return_direct result_as_answer is_final
    use ends_run=True
args_schema parameters input_schema params schema
    annotate the parameters of the function: the signature is the schema
desc doc title summary
    use @tool("What it does")
name_override tool_name
    use name="search"
strict
    use ChatOpenAI(..., strict=True)
timeout_seconds max_seconds
    use timeout=10
deps dependencies takes_ctx
    use Depends in the signature: db: Annotated[Database, Depends(get_database)]
""",
    "Settings": """\
invoke kickoff chat ask generate predict print_response execute start complete
    use agent.run_sync(prompt).text, or await agent.query(prompt)
ainvoke arun acall
    use await agent.run(prompt), or await agent.query(prompt)
stream astream run_stream run_streamed run_stream_events run_stream_sync astream_events iter
    use `async for event in agent.query_stream(prompt)`
batch abatch
    use agent.fork().run(prompt) for each prompt
tool_plain add_tool add_tools register_tool bind_tools
    decorate functions with @tool, and use Agent(tools=[search])
instructions
    use system_prompt="...", or a function: Agent(system_prompt=lambda agent: "...")
output_validator result_validator with_structured_output
    use Agent(output_type=City), or agent.run_as(City, prompt)
override clone copy with_config with_retry with_options bind configure
    use agent.fork(llm=...)
history memory all_messages get_messages
    use agent.messages
get_state state steps trajectory
    use agent.log, or agent.messages
approve reject allow deny approve_tool_call reject_tool_call resume
    use agent.decide(call_id, "allow"), then run() without a prompt
replay visualize draw get_graph
    derive from Session of agentloop, and run `agentloop view NAME`
to_a2a to_ag_ui to_web to_cli to_cli_sync serve as_mcp_server
    copy a recipe of examples/recipes: ag_ui_stream.py, fastapi_endpoint.py, notebook_cell.py
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
model
    use agent.llm
add_message add_messages append append_message
    use agent.load_history([*agent.messages, UserMessage("...")]), or give run() the next prompt
cancel stop abort
    use agent.interrupt()
on subscribe add_listener add_callback
    use Agent(listeners=[print])
result output last_message last_response final_output
    keep what run() returns: result = await agent.run(prompt)
tool_calls
    use agent.pending for the calls that wait, and agent.messages for the others
save load
    derive from Session of agentloop: it saves each record
""",
    "Result": """\
output final_output
    use result.text, or result.value with an output_type
content answer response message output_text final_answer 0 -1
    use result.text
data parsed structured_output structured_response object
    use result.value
messages all_messages new_messages to_input_list history new_items steps
    use agent.messages
tool_calls interrupts interruptions deferred_tool_requests requests
    use result.pending for the calls that wait, and agent.messages for the others
finish_reason status state reason
    use result.stop_reason
error errors exception is_error
    read result.stop_reason; if the model fails, run() raises a ModelError
cost total_cost
    derive from Cost of agentloop, and use agent.cost
tokens total_tokens input_tokens output_tokens token_usage
    use result.usage.total_tokens, input_tokens or output_tokens
result get_result
    it is the Result itself: use result.text or result.value
""",
    "ToolCall": """\
args input parameters params kwargs tool_input parsed_arguments
    use call.parsed, a dict, or call.arguments, the JSON text of the model
function tool tool_name func
    use call.name and call.parsed
call_id tool_call_id tool_use_id
    use call.id
result output content
    use the ToolMessage with tool_call_id == call.id in agent.messages
""",
    "MessageView": """\
append extend insert pop remove clear
    use agent.load_history([*agent.messages, UserMessage("...")]), or give run() the next prompt
""",
    "AssistantMessage": """\
message choices output output_text response
    use message.text
function_call tool_uses
    use message.tool_calls
reasoning reasoning_content thoughts
    use message.thinking
usage_metadata token_usage
    use message.usage
response_metadata model_name
    use message.model and message.finish_reason
additional_kwargs
    use message.raw, the provider's own blocks
""",
    "ToolMessage": """\
name tool
    use message.tool_name
result output response
    use message.content, or message.text
id call_id tool_use_id
    use message.tool_call_id
args arguments parsed
    use the ToolCall with this id: it is in the AssistantMessage before
error status success
    use message.is_error
""",
    "_Content": """\
type kind
    use message.role, or isinstance(message, UserMessage)
parts blocks body message
    use message.content, or message.text
tool_calls usage thinking
    only an AssistantMessage has it: test with isinstance(message, AssistantMessage)
tool_call_id tool_name is_error
    only a ToolMessage has it: test with isinstance(message, ToolMessage)
dict model_dump json to_dict model_dump_json
    use dump_record(message), or to_openai(messages) of agentloop
0
    use [message], a list of messages
pretty_print
    use print(message.role, message.text)
""",
    "Usage": """\
prompt_tokens request_tokens
    use usage.input_tokens
completion_tokens response_tokens
    use usage.output_tokens
total
    use usage.total_tokens
cached_tokens cache_read_input_tokens prompt_tokens_details
    use usage.cached_input_tokens
cache_creation_input_tokens
    use usage.cache_write_tokens
completion_tokens_details
    use usage.reasoning_tokens
cost total_cost
    derive from Cost of agentloop, and use agent.cost
""",
    "ToolCallEvent": """\
name tool_name function
    use event.tool
arguments input parameters
    use event.args, a dict
""",
    "ToolCallDeltaEvent": """\
name tool_name function
    use event.tool
args arguments delta
    use event.content, the next piece of the JSON text
""",
    "ToolResultEvent": """\
name tool_name
    use event.tool
content output text
    use event.result
args arguments
    use event.tool_call_id to find the ToolCallEvent, which has them
error status
    use event.is_error
""",
    "UsageEvent": """\
input_tokens output_tokens total_tokens
    use event.usage.input_tokens, output_tokens or total_tokens
""",
    "_Event": """\
type event kind
    use isinstance(event, TextDeltaEvent)
text delta token chunk data output result answer thinking
    use event.content
id call_id
    use event.tool_call_id
""",
    "EventStream": """\
text value output final_output get_output usage stop_reason pending get_final_result
    use stream.result after the last event, such as stream.result.text
text_stream stream_text stream_events stream_output events
    use `async for event in stream`, and isinstance(event, TextDeltaEvent)
close cancel stop
    use `await stream.aclose()`
""",
    "Tool": """\
invoke run ainvoke arun on_invoke_tool
    call the function itself, such as search("...")
args args_schema schema input_schema inputSchema parameters_json_schema json_schema
    use tool.parameters
func fn coroutine _func
    use tool.function
""",
    "HTTPModel": """\
invoke run chat complete generate predict acomplete chat_completion completion
    use Agent(llm=llm).run_sync(prompt), or `await llm.ainvoke([UserMessage(prompt)])`
stream astream
    use Agent(llm=llm).query_stream(prompt)
bind_tools with_tools
    use Agent(llm=llm, tools=[search])
with_structured_output
    use Agent(llm=llm).run_as(City, prompt)
messages responses chat_completions
    use Agent(llm=llm).run_sync(prompt)
model_name model_id
    use llm.model
""",
}


def advice(places: Iterable[str], name: str, known: Iterable[str] = (), default: str = "") -> str:
    """Say what to write instead of an unknown name: from a table, or the nearest known name."""
    for place in places:
        lines = REMEDIES.get(place, "").splitlines()
        for names, remedy in zip(lines[::2], lines[1::2], strict=True):
            if name in names.split():
                return remedy.strip()
    near = get_close_matches(name, known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else default


def attribute_advice(owner: object, name: str) -> str:
    """Say what to write instead of an unknown attribute of an object: "" if nobody knows."""
    places = [cls.__name__ for cls in type(owner).__mro__]
    return advice(places, name, [known for known in dir(owner) if known[0] != "_"])
