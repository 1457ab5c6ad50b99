"""A headless Chromium at the hands of a test, over WebDriver: it opens, clicks, types, looks.

Source: https://www.w3.org/TR/webdriver2/
"""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}
KEYS |= {"ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011", "End": "\ue010"}
ARGUMENTS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
WAIT = """
const done = arguments[0], end = Date.now() + 20000;
const look = () => { const found = (() => { %s })();
  if (found || Date.now() > end) done(found); else setTimeout(look, 20); };
look();
"""

FAULTS = """
const done = arguments[0];
axe.run().then(({ violations }) => done(violations.map(({ id, nodes }) =>
  `${id}: ${nodes.map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`).join("; ")}`)),
  (error) => done([String(error)]));
"""


def axe():
    """The source of axe, which finds faults of accessibility. Its tests are skipped without it."""
    places = os.environ.get("PATH", "").split(os.pathsep)  # npm's .bin is on it, as in .ci/run
    files = [Path(place).parent / "axe-core" / "axe.min.js" for place in places]
    source = next((file for file in files if file.is_file()), None)
    if not source:
        pytest.skip("no axe-core: npm install axe-core, and put node_modules/.bin on the PATH")
    return source.read_text(encoding="utf-8")


@contextmanager
def chromium():
    """A Browser. Tests that need it are skipped where there is no Chromium."""
    driver = shutil.which("chromedriver")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if not (driver and binary):
        pytest.skip("no chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = {"binary": binary, "args": ARGUMENTS.split()}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([driver, "--port=0"], **streams) as process:
        try:
            lines = iter(process.stdout.readline, "")
            port = next(filter(None, (re.search(r"successfully on port (\d+)", s) for s in lines)))
            url = f"http://127.0.0.1:{port[1]}/session"
            with httpx.Client(timeout=200, trust_env=False) as client:
                made = client.post(url, json={"capabilities": {"alwaysMatch": wanted}}).json()
                session = f"{url}/{made['value']['sessionId']}"
                try:
                    yield Browser(client, session)
                finally:
                    client.delete(session)
        finally:
            process.terminate()


class Browser:
    def __init__(self, client, session):
        self.client, self.session = client, session

    def ask(self, method, path, **body):
        answer = self.client.request(
            method, f"{self.session}{path}", json=body if method == "POST" else None
        ).json()["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def open(self, path, width=1280):
        self.ask("POST", "/window/rect", width=width, height=900)
        self.ask("POST", "/url", url="about:blank")
        self.problems()
        self.ask("POST", "/url", url=path.as_uri())

    def run(self, script):
        """What a script returns: `return document.title`."""
        return self.ask("POST", "/execute/sync", script=script, args=[])

    def find(self, css):
        """The elements, as WebDriver names them."""
        elements = self.ask("POST", "/elements", using="css selector", value=css)
        return [f"/element/{one[ELEMENT]}" for one in elements]

    def click(self, css, text=""):
        """Click the first element that has this text in it."""
        for element in self.find(css):
            if text in self.ask("GET", f"{element}/text"):
                return self.ask("POST", f"{element}/click")
        raise AssertionError(f"no {css} with {text!r}")

    def text(self, css):
        return "\n".join(self.ask("GET", f"{element}/text") for element in self.find(css))

    def sees(self, css, *texts):
        content = self.text(css)
        assert all(text in content for text in texts), content

    def press(self, *keys):
        """Type keys, wherever the focus is."""
        values = [KEYS.get(key, key) for key in keys]
        actions = [{"type": t, "value": v} for v in values for t in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def wait(self, script):
        """Wait until a script gives something that is true, and return that."""
        return self.ask("POST", "/execute/async", script=WAIT % script, args=[])

    def faults(self, source):
        """What axe finds, in the light and in the dark colours."""
        faults = []
        for scheme in ("light", "dark"):
            colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            call = {"cmd": "Emulation.setEmulatedMedia", "params": colours}
            self.ask("POST", "/goog/cdp/execute", **call)
            self.run(source)
            faults += self.ask("POST", "/execute/async", script=FAULTS, args=[])
        return faults

    def problems(self):
        """What the console says since the last time."""
        entries = self.ask("POST", "/se/log", type="browser")
        return [entry["message"] for entry in entries]
