"""A tool that reads web pages of listed hosts.

Use `web_fetch` for agents that read documentation or an internal service. It's part of the program
agentloop_chat, which is installed together with agentloop; to change it, copy
examples/agentloop_chat/web_fetch.py. The model chooses among the hosts that you list. The tool
refuses a private address behind a public name, follows no redirects, and limits the size of a page.
Anybody may have written a page: see fence.py. In the chat, `web = ["docs.python.org"]` in the
config file adds the tool.
"""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from agentloop_chat.web_fetch import web_fetch

from agentloop import Agent, ScriptedModel, call


class Wiki(BaseHTTPRequestHandler):
    """A server on this machine, in place of the pages of a company."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>Tea</h1><script>track()</script><p>Green tea: 70 degrees.</p>")

    def log_message(self, *arguments: object) -> None: ...


if __name__ == "__main__":
    with HTTPServer(("127.0.0.1", 0), Wiki) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        pages = [f"http://{host}/tea", "http://127.0.0.1:9/private"]
        llm = ScriptedModel(*(call("web_fetch", url=url) for url in pages), "70 degrees.")
        agent = Agent(llm=llm, tools=[web_fetch([host])])
        print(agent.run_sync("How hot is the water for green tea?").text)
        print(*[message.text for message in agent.messages], sep="\n")
        server.shutdown()
