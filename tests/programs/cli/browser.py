"""A headless Chromium that tests control over WebDriver.

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
    """Return the source of axe, an accessibility checker; skip the test if axe is not installed."""
    places = os.environ.get("PATH", "").split(os.pathsep)  # contains npm's .bin, see .ci/run
    files = [Path(place).parent / "axe-core" / "axe.min.js" for place in places]
    source = next((file for file in files if file.is_file()), None)
    if not source:
        pytest.skip(
            "axe-core is not installed: npm install axe-core, add node_modules/.bin to PATH"
        )
    return source.read_text(encoding="utf-8")


@contextmanager
def chromium():
    """Yield a browser; skip the test if Chromium is not installed."""
    driver = shutil.which("chromedriver")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if not (driver and binary):
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        )
    options = {"binary": binary, "args": ARGUMENTS.split()}
    capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([driver, "--port=0"], **streams) as process:
        try:
            lines = iter(process.stdout.readline, "")
            port = next(filter(None, (re.search(r"successfully on port (\d+)", s) for s in lines)))
            url = f"http://127.0.0.1:{port[1]}/session"
            with httpx.Client(timeout=200, trust_env=False) as client:
                created = client.post(
                    url, json={"capabilities": {"alwaysMatch": capabilities}}
                ).json()
                session = f"{url}/{created['value']['sessionId']}"
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
        """Return the result of a script such as `return document.title`."""
        return self.ask("POST", "/execute/sync", script=script, args=[])

    def find(self, css):
        """Return the WebDriver paths of the matching elements."""
        elements = self.ask("POST", "/elements", using="css selector", value=css)
        return [f"/element/{element[ELEMENT]}" for element in elements]

    def click(self, css, text=""):
        """Click the first matching element containing the text."""
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
        """Send keys to the focused element."""
        values = [KEYS.get(key, key) for key in keys]
        actions = [{"type": t, "value": v} for v in values for t in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def wait(self, script):
        """Wait until a script returns a true value, and return the value."""
        return self.ask("POST", "/execute/async", script=WAIT % script, args=[])

    def faults(self, source):
        """Return the violations reported by axe in light and dark colours."""
        faults = []
        for scheme in ("light", "dark"):
            colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            call = {"cmd": "Emulation.setEmulatedMedia", "params": colours}
            self.ask("POST", "/goog/cdp/execute", **call)
            self.run(source)
            faults += self.ask("POST", "/execute/async", script=FAULTS, args=[])
        return faults

    def problems(self):
        """Return the console messages since the previous call."""
        entries = self.ask("POST", "/se/log", type="browser")
        return [entry["message"] for entry in entries]
