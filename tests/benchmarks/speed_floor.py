"""The floor of the speed benchmark: a hand-written agent on one httpx client.

The floor has no validation, retries, limits or storage: everything else is the cost of a library.
"""

import asyncio
import inspect
import json

import httpx


def connect(url):
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=60, limits=limits)


def declare(fn):
    names = list(inspect.signature(fn).parameters)
    numbers = {name: {"type": "integer"} for name in names}
    schema = {"type": "object", "properties": numbers, "required": names}
    about = {"name": fn.__name__, "description": fn.__doc__, "parameters": schema}
    return {"type": "function", "function": about}


async def ask(client, body):
    response = await client.post("/chat/completions", json=body)
    return response.raise_for_status().json()["choices"][0]["message"]


async def ask_streaming(client, on_text, body):
    texts, calls = [], {}
    body = {**body, "stream": True}
    async with client.stream("POST", "/chat/completions", json=body) as response:
        async for line in response.raise_for_status().aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                if text := choice["delta"].get("content"):
                    texts.append(text)
                    on_text(text)
                for piece in choice["delta"].get("tool_calls", ()):
                    call = calls.setdefault(piece.pop("index"), piece)
                    if call is not piece:
                        call["function"]["arguments"] += piece["function"]["arguments"]
    message = {"role": "assistant", "content": "".join(texts)}
    return {**message, "tool_calls": list(calls.values())} if calls else message


async def run_tool(tools, call):
    fn, arguments = tools[call["function"]["name"]], json.loads(call["function"]["arguments"])
    if inspect.iscoroutinefunction(fn):
        value = await fn(**arguments)
    else:
        value = await asyncio.to_thread(fn, **arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": str(value)}


async def loop(ask, model, tools, prompt):
    by_name = {fn.__name__: fn for fn in tools}
    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "messages": messages, "tools": [declare(fn) for fn in tools]}
    while calls := (reply := await ask(body)).get("tool_calls"):
        messages.append(reply)
        messages += await asyncio.gather(*(run_tool(by_name, call) for call in calls))
    return reply["content"]
