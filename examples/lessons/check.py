"""Says whether an exercise is solved, and what is missing.

    python examples/lessons/check.py 3              # your change of lesson 3, in its own file
    python examples/lessons/check.py 3 my_own.py    # or in a copy of it

It runs the file and looks for what the exercise asks to be printed, in this order. No real model
is asked: the program does not get to see your keys.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SECONDS = 60
MODELS = re.compile("(OPENAI|ANTHROPIC|GEMINI|GOOGLE)_(API_KEY|BASE_URL)")
ONE_MORE = '"role": "user".*?"role": "assistant"'
EXERCISES = {  # what is printed, as regular expressions, and what to do if it is not
    "1": [
        (ONE_MORE, "print each message as JSON, as the lesson does"),
        (ONE_MORE, "append a second question to the messages and call the model again"),
    ],
    "1b": [("401: there is no such key", "answer a wrong key with 401, and print what is said")],
    "2": [
        ('"content": "12"', "ask for the eggs, as the lesson does"),
        ('"content": "900"', "add to SCRIPT a call that asks for the flour, before the answer"),
    ],
    "3": [
        (
            "LookupError: there is no egg; there are flour, eggs",
            "let `stock` raise a LookupError that lists the items",
        )
    ],
    "4": [
        ("limit 3: max_iterations, after 10 messages", "say why a run with a limit of 3 ended"),
        (
            "limit 4: completed, after 9 messages",
            "with a limit of 4 the model has answered: say so",
        ),
    ],
    "5": [(r"\b1_2\b", "give two calls the id 1, with ToolCall, and print each tool_call_id")],
    "6": [
        (
            r"items: Input should be a valid array \(got 'eggs'\)",
            "let `stock` take `items: list[str]`, and let a call send one text",
        )
    ],
    "7": [
        ("opened", "print that the pantry is opened before the `yield`"),
        ("closed", "print that it is closed, behind the `yield`"),
        ("opened.*?closed", "call `stock` for milk, too, and close behind `finally`"),
        ("KeyError: 'milk'", "print what the model is told of the milk"),
    ],
    "8": [
        (
            "Not run: the run ended before this call started",
            "leave the stream at the ToolCallEvent, and print the last message's text",
        ),
        ("stock runs", "go on with agent.run(), which runs the call"),
        ("There are 12 eggs", "print the answer"),
    ],
    "9": [
        (
            r"Verdict\(enough=True, left=2\)",
            "give the agent output_type=Verdict, call `done` with both fields, print result.value",
        )
    ],
    "10": [
        ("27,403", "all is sent: tokens times 0.1 if they were kept, times 1.25 if not"),
        ("34,221", "hidden each turn: the same sum"),
        ("25,485", "hidden when it pays: the same sum"),
    ],
    "11": [
        ("cheap model: 1\n", "count the requests of the model that the CompactionConfig names"),
        ("other: 4\n", "count the requests of the agent's own model"),
    ],
    "12": [
        (r"A dozen\.", "play the wrong answers, and print all messages"),
        (r"Twelve\.", "nudge at each wrong answer, and return None from `finish`"),
        (r"\b12\b", "let the right answer through"),
    ],
    "13": [
        (r"eggs\.jsonl[^\n]*\?", "print the questions that the first session's file holds"),
        (
            r"pancakes\.jsonl[^\n]*\?[^\n]*\?",
            "agent.fork(session='pancakes'), ask there, and print that file's questions, too",
        ),
    ],
    "14": [("the second says", "let Fallback(first, second) answer, and print each reply's model")],
    "15": [
        ("-assert eggs.20. == 10\n", "print the diff that an edit of check.py would make"),
        (
            r"-    return pancakes // 4\n\+    return pancakes // 2\n",
            "print the diff of pancakes.py; difflib.unified_diff makes it",
        ),
    ],
    "16": [
        ("0 messages so far", "bundle session, too, and run a class of your own with it"),
        ("2 messages so far", "run it once more, in the same folder"),
    ],
    "17": [
        ("It is 9:40", "tell the model the time in a message, and print the messages"),
        (r"\b0 tokens are billed again", "leave the system prompt as it is: append only"),
    ],
    "18": [
        (r"\A(?!.*sent to mallory)", "no mail goes to mallory: write a Rule that denies it"),
        (r"sent to \S+@bakery\.example", "a mail to the bakery goes out"),
        ("Denied: .*Mail the bakery only", "give the Rule a reason, and print the tool messages"),
    ],
    "19": [
        (r"\b0 of 10", "an answer without a ToolMessage in its conversation is not right"),
        ("10 of 10", "the prompt that says to look keeps its ten"),
    ],
}


def lesson(number):
    """The file of a lesson: 3 is 03_several_tools.py."""
    (file,) = FOLDER.glob(f"{number:0>{3 if number.endswith('b') else 2}}_*.py")
    return file


def lacking(number, printed):
    """What to do next, or None if all that the exercise asks for is there."""
    at = 0
    for pattern, advice in EXERCISES[number]:
        found = re.compile(pattern, re.DOTALL).search(printed, at)
        if not found:
            return advice
        at = found.end()
    return None


def explain(traceback, file):
    """The line of the learner's file, and what went wrong there."""
    lines = re.findall(rf'File "{re.escape(file)}", line (\d+)', traceback)
    last = traceback.rpartition("\n")[2] or "it says nothing"
    hint = " (has the script a reply for each request?)" if "IndexError" in last else ""
    return f"{f' in line {lines[-1]}' if lines else ''}: {last}{hint}"


def check(number, file):
    """One sentence about a file, and whether it solves the exercise."""
    environment = {name: value for name, value in os.environ.items() if not MODELS.match(name)}
    environment["PYTHONIOENCODING"] = "utf-8"
    command = [sys.executable, file]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", env=environment, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return False, f"it still runs after {SECONDS} seconds: does your loop end?"
    if done.returncode:
        return False, f"it ends with an error{explain(done.stderr.strip(), str(file))}"
    advice = lacking(number, done.stdout)
    return not advice, advice or f"compare it with solutions/{lesson(number).name}"


def main(number="", file=None, *_):
    number = number.lstrip("0")
    if number not in EXERCISES or (file and not Path(file).is_file()):
        raise SystemExit(f"which exercise, and of which file? {', '.join(EXERCISES)}: check.py 3")
    solved, sentence = check(number, Path(file or lesson(number)).resolve())
    print(f"Exercise {number} is {'solved' if solved else 'not solved yet'}: {sentence}.")
    raise SystemExit(not solved)


if __name__ == "__main__":
    main(*sys.argv[1:])
