"""A headless Chromium at the hands of a test, over WebDriver: it opens, clicks, types, looks.

Source: https://www.w3.org/TR/webdriver2/
"""

import re
import shutil
import subprocess

import httpx
import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}


class Browser:
    """Use it with `with`. Tests that need it are skipped where there is no Chromium."""

    def __init__(self):
        driver = shutil.which("chromedriver")
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        if not (driver and binary):
            pytest.skip("no chromium and chromedriver (Debian: chromium, chromium-driver)")
        self.process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self._start(binary)
        except BaseException:
            self._stop()
            raise

    def _start(self, binary):
        for said in self.process.stdout:
            if found := re.search(r"started successfully on port (\d+)", said):
                break
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{found[1]}", timeout=200, trust_env=False
        )
        options = {
            "binary": binary,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self.client.post(
            "/session", json={"capabilities": {"alwaysMatch": wanted}}
        ).json()["value"]
        self.session = f"/session/{answer['sessionId']}"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stop()

    def _stop(self):
        if hasattr(self, "session"):
            self.client.delete(self.session)
        if hasattr(self, "client"):
            self.client.close()
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

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

    def run(self, script, *arguments):
        """What a script returns: `return document.title`."""
        return self.ask("POST", "/execute/sync", script=script, args=list(arguments))

    def find(self, css):
        """The elements, as WebDriver names them."""
        return [
            one[ELEMENT] for one in self.ask("POST", "/elements", using="css selector", value=css)
        ]

    def click(self, css, text=""):
        """Click the first element that has this text in it."""
        for element in self.find(css):
            if text in self.ask("GET", f"/element/{element}/text"):
                return self.ask("POST", f"/element/{element}/click")
        raise AssertionError(f"no {css} with {text!r}")

    def text(self, css):
        return "\n".join(self.ask("GET", f"/element/{one}/text") for one in self.find(css))

    def sees(self, css, *texts):
        shown = self.text(css)
        assert all(text in shown for text in texts), shown

    def press(self, *keys):
        """Type keys, wherever the focus is."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        source = {"type": "key", "id": "keys", "actions": actions}
        self.ask("POST", "/actions", actions=[source])

    def wait(self, script):
        """Wait until a script gives something that is true, and return that."""
        return self.ask(
            "POST",
            "/execute/async",
            script=f"const done = arguments[0], end = Date.now() + 20000;"
            f"const look = () => {{ const found = (() => {{ {script} }})();"
            "if (found || Date.now() > end) done(found); else setTimeout(look, 20); }; look();",
            args=[],
        )

    def problems(self):
        """What the console says since the last time."""
        found = self.ask("POST", "/se/log", type="browser")
        return [entry["message"] for entry in found]
