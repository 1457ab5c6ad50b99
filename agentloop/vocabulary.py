"""Names of other agent libraries, and their replacements, for error messages.

Copy with: advice.py.

The names are parameters and methods of pydantic-ai, openai-agents, LangChain, smolagents and
LiteLLM. imports.py contains names that `agentloop` does not export. Optional: the import of this
file adds the names to the tables of advice.py.
"""

from .advice import ATTRIBUTE_REMEDIES, PARAMETER_REMEDIES, SETTING_REMEDIES

# alternating lines: names, then the remedy

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
approval_mode approval_rules approval_callback
    derive from Approval of agentloop.mixins.approval
session session_dir
    derive from Session of agentloop
max_cost max_requests max_tool_calls max_seconds
    derive from Limits of agentloop
history_processors
    derive from Loop, and override `context`
stream streaming
    use agent.query_stream(prompt)
retries
    raise ToolError in a tool, so that the model corrects its call
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


def read_remedies(words: str) -> dict[str, str]:
    """Return the remedies of a table by name."""
    lines = words.splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return {name: remedy.strip() for names, remedy in pairs for name in names.split()}


SETTING_REMEDIES.update(read_remedies(AGENT_WORDS))
ATTRIBUTE_REMEDIES.update(read_remedies(ATTRIBUTE_WORDS))
PARAMETER_REMEDIES.update(read_remedies(MODEL_WORDS))
