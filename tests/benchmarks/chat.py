"""The CPU time of the chat in a terminal: streamed code, long lists of sessions, many files.

    python -m tests.benchmarks.chat [--quick]

A chat runs in tmux with a scripted server that sends one token of four characters at a time. Its
CPU time comes from /proc, so this requires Linux. `--quick` uses small sizes, and only shows that
the benchmark works.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from agentloop import AssistantMessage, ToolMessage, UserMessage
from agentloop.common.records import dump_record
from agentloop.common.store import HEADER
from agentloop.messages import ToolCall
from tests.programs.chat.tmux import Tmux
from tests.programs.cli.held_double import HeldDouble

STREAMS = ((300, 110), (1200, 400))  # lines of code, and tokens per second
SIZES = ((80, 24), (120, 40))
SESSIONS, MEGABYTES = 40, 3
FOLDERS, FILES = 1_000, 100  # files per folder
LAST_WORDS = "That is all of it."
NEWEST = """
import sys, time
from pathlib import Path
from agentloop_chat.sessions import sessions_of

start = time.process_time()
found = sessions_of(Path(sys.argv[1]))
print(len(found), time.process_time() - start)
"""


class Stream(list):
    """The tokens of a reply, sent at a rate. `start` and `end` are the times of the stream."""

    rate = 1

    def __iter__(self):
        self.start = time.monotonic()
        for number, token in enumerate(super().__iter__()):
            time.sleep(max(0, self.start + number / self.rate - time.monotonic()))
            yield token
        self.end = time.monotonic()


def code(lines, rate):
    """Return a reply with a block of code."""
    rows = [f"    result_{n} = compute(value_{n}, factor={n}) + offset" for n in range(lines)]
    text = "\n".join(["Here it is:\n", "```python", *rows, "```", "", LAST_WORDS])
    stream = Stream(text[at : at + 4] for at in range(0, len(text), 4))
    stream.rate = rate
    return stream


@contextmanager
def chat(folder, *turns, size=(80, 24)):
    """Start a chat in a folder. Its home is a sibling of the folder."""
    columns, rows = size
    with HeldDouble(*turns) as server:
        at = ["--base-url", server.base_url, "-m", "m"]
        screen = Tmux(*at, cwd=folder, home=folder.parent / "home", columns=columns, rows=rows)
        try:
            screen.expect("\ncontext ")
            yield screen
        finally:
            screen.close()


def cpu_seconds(screen):
    """Return the CPU time of the chat in a terminal, including its ended child processes."""
    shell = screen.do("display-message", "-p", "#{pane_pid}").strip()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text()
    fields = Path(f"/proc/{children.split()[0]}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def visible(screen):
    return screen.do("capture-pane", "-p")


def streamed(folder, lines, rate, size):
    """Return the CPU time and the duration of a streamed answer, and the duration of its stream."""
    stream = code(lines, rate)
    with chat(folder, stream, size=size) as screen:
        before = cpu_seconds(screen)
        screen.enter("go")
        while LAST_WORDS not in visible(screen) or "Esc stops" in visible(screen):
            time.sleep(0.05)
        seconds = time.monotonic() - stream.start
        return cpu_seconds(screen) - before, seconds, stream.end - stream.start


def newest_of(folder, sessions, megabytes):
    """Return the CPU time of a list of sessions, which finds the newest session."""
    from agentloop_chat.sessions import stem

    kept = folder.parent / "home" / ".agentloop" / "sessions"
    kept.mkdir(parents=True, exist_ok=True)
    turn = [
        dump_record(UserMessage("What is in a?")),
        dump_record(AssistantMessage("", (ToolCall("1", "read", '{"path": "a"}'),))),
        dump_record(ToolMessage("1", "read", "some words\n" * 2_000)),
    ]
    turns = megabytes * 1_000_000 // sum(map(len, turn))
    for number in range(sessions):
        lines = b"\n".join([HEADER, *turn * turns, b""])
        (kept / f"{stem(folder)}-{number + 1}.jsonl").write_bytes(lines)
    env = os.environ | {"HOME": str(folder.parent / "home")}
    command = [sys.executable, "-c", NEWEST, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    count, seconds = done.stdout.split()
    assert int(count) == sessions
    return float(seconds)


def completed(folder, folders, files):
    """Return how many of six files Tab completes, and the CPU time of one completion."""
    for number in range(folders):
        below = folder / f"pkg{number // 10:03}" / f"mod{number % 10}"
        below.mkdir(parents=True)
        for file in range(files):
            (below / f"file_{number:04}_{file:02}.py").touch()
    found, before = 0, None
    with chat(folder) as screen:
        before = cpu_seconds(screen)
        for at in range(6):
            number = at * (folders - 1) // 5
            name = f"file_{number:04}_{at * (files - 1) // 5:02}.py"
            screen.type(f"@{name}")
            screen.press("Tab")
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if f"> @pkg{number // 10:03}/mod{number % 10}/{name}" in visible(screen):
                    found += 1
                    break
                time.sleep(0.05)
            screen.press("C-u")
        return found, (cpu_seconds(screen) - before) / 6


def rows(quick):
    """Yield the rows of the table: measure, CPU time, result, goal."""
    with tempfile.TemporaryDirectory() as name:
        folder, listed = (Path(name).resolve() / each for each in ("project", "listed"))
        for each in (folder, folder.parent / "home"):
            each.mkdir()
        for lines, rate in STREAMS:
            for size in SIZES:
                lines = 20 if quick else lines
                used, seconds, alone = streamed(folder, lines, rate, size)
                share = f"{used / seconds:.1%} of a core, {seconds / alone - 1:.1%} slower"
                columns, height = size
                label = f"{lines:,} lines at {rate} tokens/s, {columns}x{height}"
                yield label, used, share, "below 10 %, at most 5 % slower"
        sessions = 2 if quick else SESSIONS
        used = newest_of(listed, sessions, MEGABYTES)
        label = f"newest of {sessions} sessions of {MEGABYTES} MB"
        yield label, used, f"{used:.2f} s", "below 0.3 s"
        folders = 20 if quick else FOLDERS
        found, used = completed(folder, folders, FILES)
        yield f"Tab in {folders * FILES:,} files", used, f"{found} of 6", "6 of 6"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args().quick
    print("| measure | CPU, s | result | goal |\n| --- | ---: | --- | --- |")
    for label, used, result, goal in rows(quick):
        print(f"| {label} | {used:.2f} | {result} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
