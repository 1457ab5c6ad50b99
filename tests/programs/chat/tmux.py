"""Control of a program in a real terminal: tmux sends keys and returns the screen."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.programs.cli.command import environment

SECONDS = 60.0
needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


class Tmux:
    """The command `agentloop` or a shell in tmux. Methods wait for text, not for a time."""

    def __init__(
        self, *arguments, cwd, home, columns=100, rows=50, term="screen", shell=False, **env
    ):
        self.folder = tempfile.TemporaryDirectory()
        self.raw = Path(self.folder.name, "raw")
        config = Path(self.folder.name, "conf")
        config.write_text("set -g escape-time 0\n")
        self.tmux = ["tmux", "-S", f"{self.folder.name}/socket", "-f", str(config)]
        # tmux does not always detect the end of a program
        then = '"$@"; echo "[left: $?]"; exec cat'
        program = ["env", f"TERM={term}", sys.executable, "-m", "agentloop", *arguments]
        command = ["sh", "-c", then, "sh", *program]
        if shell:
            command = ["bash", "--norc", "-i"]
        size = ["-x", str(columns), "-y", str(rows)]
        env = environment(HOME=str(home), **env)
        started = [*self.tmux, "new-session", "-d", *size, *command]
        subprocess.run(started, cwd=cwd, env=env, check=True)
        self.do("pipe-pane", f"cat > {self.raw}")

    def do(self, *command):
        done = subprocess.run([*self.tmux, *command], capture_output=True, check=True)
        return done.stdout.decode(errors="replace")

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True, check=False)
        self.folder.cleanup()

    def screen(self, *options):
        """Return the lines of the screen and of the scrollback."""
        text = self.do("capture-pane", "-p", "-S", "-", *options)
        return re.sub(r" +$", "", text, flags=re.MULTILINE)

    def expect(self, text, times=1):
        """Wait until the text is on the screen."""
        return self.wait(lambda screen: screen.count(text) >= times, f"{text!r} (x{times})")

    def wait(self, condition, text):
        """Wait until the screen meets a condition, which `text` describes."""
        end = time.monotonic() + SECONDS
        while not condition(screen := self.screen()):
            assert time.monotonic() < end, f"no {text} in:\n{screen}"
            time.sleep(0.02)
        return screen

    def type(self, text):
        self.do("send-keys", "-l", text)

    def press(self, *keys):
        self.do("send-keys", *keys)

    def paste(self, text, marked=True):
        """Paste text of any length. Line ends of an unmarked paste arrive as the key Enter."""
        buffer = Path(self.folder.name, "buffer")
        buffer.write_text(text)
        self.do("load-buffer", str(buffer))
        self.do("paste-buffer", *["-p"] * marked)

    def enter(self, line, text=None, times=1):
        """Type a line, press Enter once the line is visible, and wait for the text, if given.

        Enter that arrives together with a line would be a paste.
        """
        self.type(line)
        end = line.splitlines()[-1][-40:].strip()
        self.wait(lambda screen: screen.rstrip().endswith(end), f"{end!r} at the end")
        self.press("Enter")
        return self.expect(text, times) if text else None

    def kill(self):
        """Kill the program with SIGKILL."""
        shell = self.do("display-message", "-p", "#{pane_pid}").strip()
        subprocess.run(["pkill", "-KILL", "-P", shell], check=True)
        self.status()

    def leave(self):
        """Exit the chat and return the exit status."""
        self.press("C-u")
        self.enter("/exit")
        return self.status()

    def status(self):
        """Wait for the end of the program and return the exit status."""
        return int(re.search(r"\[left: (\d+)\]", self.expect("[left: "))[1])
