"""Names that `agentloop` does not export, and their modules or replacements, for error messages.

Copy with: nothing else.

The names are those of other modules of the library, parts that are recipes now, and classes and
functions of pydantic-ai, openai-agents, LangChain, smolagents and LiteLLM.
"""

# alternating lines: names, then the remedy

IMPORT_WORDS = """\
CacheRules
    it is in agentloop.common.model_info
as_text describe_error to_content
    it is in agentloop.content
Overrides
    it is in agentloop.depends
Delta Event OnDelta OverBudgetEvent PruneEvent SubAgentEvent ToolsChangedEvent events_of
    it is in agentloop.events
Ask Decision
    it is in agentloop.common.gate
InnerCall InnerResult
    it is in agentloop.common.nested
HistoryChange
    it is in agentloop.history_change
Awaits JSON Reset RunEnd ToolChoice Unknown frozen text_of
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
CallState Conversation Fold Records
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
    set the parameters of the model, such as ChatOpenAI("gpt-5", temperature=0)
RunHooks AgentHooks
    use Hooks of agentloop.mixins.hooks
trace set_tracing_disabled instrument
    use Tracing of agentloop.mixins.tracing
WebSearchTool DuckDuckGoSearchTool
    use ChatOpenAI(provider_tools=[...]), with the search tool of the provider
web_fetch VisitWebpageTool
    copy the recipe examples/recipes/web_fetch.py
"""
