"""Checks whether you have solved the task of a lesson; if not, prints what to do next.

    python examples/lessons/check.py 3              # your changes, in the file of lesson 3
    python examples/lessons/check.py 3 my_own.py    # or in a copy

It runs the file and looks for the expected texts in the output, in order. It never asks a real
model, because the program doesn't get your API keys.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SECONDS = 60
MODELS = re.compile("(OPENAI|ANTHROPIC|GEMINI|GOOGLE)_(API_KEY|BASE_URL)")
ONE_MORE = r"\buser\b.*?\bassistant\b"
CONTENT = r"(\W+content\W[^\n]*|[^\n]*)\n"  # of a message, after the role
TASKS = {  # regular expressions of expected output, with advice for missing output
    "1": [
        (
            rf"\A(?!.*\bassistant\b{CONTENT}.*\bassistant\b\1\n)",
            "append to the same list: in a new list, the question gets the first reply again",
        ),
        (ONE_MORE, "print each message as JSON, as the lesson does"),
        (ONE_MORE, "append a second question to the messages and call the model again"),
    ],
    "1b": [(r"401\W+there is no such key", "answer a wrong key with 401, and print the error")],
    "2": [
        (r"content\W+12\b", "request the eggs, as the lesson does"),
        (
            r"content\W+900['\"}\n]",
            "add a call for the flour to SCRIPT, before the answer",
        ),
    ],
    "3": [
        (
            "LookupError: there is no egg; there are flour, eggs",
            "let `stock` raise a LookupError that lists the items",
        )
    ],
    "4": [
        (
            "(?=.*limit 3: max_iterations, after 10 messages)",
            "print why a run with a limit of 3 ended",
        ),
        (
            "(?=.*limit 4: completed, after 9 messages)",
            "with a limit of 4 the model answers: print that reason",
        ),
    ],
    "4b": [
        ("KeyError: ", "request an unknown item: `stock` and a JSON object"),
        (r"(?=.*content\W+12\b)(?=.*content\W+900\b)", "request the flour and the eggs"),
        (r"The answer: (?=[^\n]*\b12(?!\d))(?=[^\n]*\b900(?!\d))", "answer with both numbers"),
    ],
    "5": [
        (
            r"(?:\A|no turns left)(?:(?!400 flour).)*ask the cook first(?!.*400 flour)",
            "return result_of(call, ...) in `Polite.call_tool` for a recipe; print the messages",
        ),
        (
            "KeyError: 'oeuf'.*You have no turns left",
            "pass all other calls to the loop with super()",
        ),
    ],
    "6": [
        ("Input should be a valid array", "let a call send a text instead of a list"),
        (
            r"\b12\b.*\b900\b|\b900\b.*\b12\b",
            "let a call send a list of two items, and print its result",
        ),
    ],
    "6b": [
        (
            r"stock \W*item\W+flour\W+was interrupted",
            "let `view` build the placeholder from the call's function, and print the view",
        ),
    ],
    "6c": [
        ("(?=.*limit:calls)", "raise Stop in `call_tool`, and print its Result's stop_reason"),
        (r"(?=.*\benough\b)", "print the results in agent.messages, including the second call"),
        (r"\A(?!.*\b900\b.*\b12\b|.*\b12\b.*\b900\b)", "let at most one call run"),
    ],
    "7": [
        (r"\bopen", "print that the pantry is opened before the `yield`"),
        (r"\bclos", "print that it is closed, after the `yield`"),
        (r"\bopen.*?\bclos", "also call `stock` for milk, and close in `finally`"),
        ("KeyError: 'milk'", "print the result of the call for milk"),
    ],
    "8": [
        (
            "Not run: the run ended before this call started",
            "leave the stream at the ToolCallEvent, and print the last message's text",
        ),
        ("stock runs", "continue with agent.run(), which runs the call"),
        ("There are 12 eggs", "print the answer"),
    ],
    "9": [
        (
            r"\benough\W+True\W+left\W+2\b",
            "give the agent output_type=Verdict, call `done` with both fields, print result.value",
        )
    ],
    "10": [
        ("27[,_ .']?258", "no pruning: kept tokens times 0.1, other tokens times 1.25"),
        ("33[,_ .']?775", "pruned every turn: the same sum"),
        ("25[,_ .']?805", "pruned when cheaper: the same sum"),
    ],
    "11": [
        (r"cheap model\W+1\b", "count the requests of the model that the CompactionConfig names"),
        (r"other\W+4\b", "count the requests of the agent's own model"),
    ],
    "12": [
        (r"A dozen\.", "script the wrong answers, and print all messages"),
        (r"Twelve\.", "nudge after each wrong answer, and return None from `finish`"),
        (r"\b12\b", "accept the right answer"),
    ],
    "13": [
        (r"eggs\.jsonl[^\n]*\?", "print the questions in the first session's file"),
        (
            r"pancakes\.jsonl[^\n]*\?[^\n]*\?",
            "agent.fork(session='pancakes'), run a prompt there, and print the questions in its file",
        ),
    ],
    "14": [("the second says", "let Fallback(first, second) answer, and print each reply's model")],
    "15": [
        ("-assert eggs.20. == 10\n", "print the diff of an edit of check.py"),
        (
            r"-    return pancakes // 4\n\+    return pancakes // 2\n",
            "print the diff of pancakes.py; difflib.unified_diff makes it",
        ),
    ],
    "16": [
        ("0 messages so far", "bundle session too, and run your own class with it"),
        ("2 messages so far", "run it again in the same folder"),
    ],
    "17": [
        (r"\b9:40\b", "add the time as a message, and print the messages"),
        (r"\b0 tokens are billed again", "keep the system prompt unchanged: append only"),
    ],
    "18": [
        (
            r"\A(?!.*sent to mallory)",
            "no mail goes to mallory: deny it with a Rule, in each agent of the program",
        ),
        (r"sent to \S+@bakery\.example", "send a mail to the bakery"),
        ("Denied: .*Mail the bakery only", "give the Rule a reason, and print the tool messages"),
    ],
    "19": [
        (r"\b0 of 10", "do not count an answer without a ToolMessage"),
        ("10 of 10", "the other prompt keeps its ten"),
    ],
}


def lesson(number):
    """The file of a lesson: 03_several_tools.py for 3."""
    (file,) = FOLDER.glob(f"{number:0>{2 if number.isdigit() else 3}}_*.py")
    return file


def lacking(number, printed):
    """What to do next, or None if the output is complete."""
    at = 0
    for pattern, advice in TASKS[number]:
        match = re.compile(pattern, re.DOTALL).search(printed, at)
        if not match:
            return advice
        at = match.end()
    return None


def explain(traceback, file):
    """The line of your file that failed, and the error."""
    lines = re.findall(rf'File "{re.escape(file)}", line (\d+)', traceback)
    last = traceback.rpartition("\n")[2] or "no message"
    hint = " (does the script have a reply for every request?)" if "IndexError" in last else ""
    return f"{f' in line {lines[-1]}' if lines else ''}: {last}{hint}"


def check(number, file):
    """Whether a file solves the task, and a sentence of advice."""
    environment = {name: value for name, value in os.environ.items() if not MODELS.match(name)}
    environment["PYTHONIOENCODING"] = "utf-8"
    command = [sys.executable, file]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,  # lesson 4b would wait for keyboard input
            capture_output=True,
            encoding="utf-8",
            env=environment,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False, f"the program still runs after {SECONDS} seconds: does your loop end?"
    if done.returncode:
        return False, f"the program ends with an error{explain(done.stderr.strip(), str(file))}"
    advice = lacking(number, done.stdout)
    return not advice, advice or f"compare it with solutions/{lesson(number).name}"


def main(number="", file=None, *_):
    number = number.lstrip("0")
    if number not in TASKS or (file and not Path(file).is_file()):
        raise SystemExit(
            f"unknown task or file; tasks: {', '.join(TASKS)}; usage: check.py 3 [FILE]"
        )
    solved, sentence = check(number, Path(file or lesson(number)).resolve())
    print(f"Task {number} is {'solved' if solved else 'not solved yet'}: {sentence}.")
    raise SystemExit(not solved)


if __name__ == "__main__":
    main(*sys.argv[1:])
