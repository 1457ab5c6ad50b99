"""Writes the page and the picture from `results.json`.

python -m tests.benchmarks.survival.page
"""

import html
import json
from pathlib import Path
from textwrap import fill

FOLDER = Path(__file__).parent
OURS = ("agentloop", "nano", "micro")
ROWS = {
    "step": ("Killed at a step", "SIGKILL before or after each payment, and during each request"),
    "write": ("Killed at a write", "SIGKILL just before a write to a file or a database"),
    "cancel": ("Cancelled", "the task is cancelled at a turn of the event loop"),
    "leave": ("Reader leaves", "the reader of the stream leaves after an event"),
    "model": ("Model fails", "from a request on, the model's server answers with status 500"),
    "denied": ("Call denied", "a person denies one of two parallel payments, also after a restart"),
    "sub_agent": (
        "Sub-agent asks",
        "a sub-agent's payment is approved, or denied, after a restart",
    ),
    "limit": ("Limit", "a limit of three requests ends the run in the middle"),
    "disk": (
        "Disk full",
        "from a payment on, writes fail until the run has ended; with and without a restart",
    ),
}
TABLES = {
    "twice": ("Paid twice", "Runs in which a payment happened twice, or although it was denied."),
    "forgotten": (
        "Forgotten",
        "Runs in which the next request doesn't mention a payment that happened.",
    ),
    "invalid": (
        "Next request invalid",
        "Runs whose next request breaks the provider's rules or is never sent.",
    ),
}


def programs(results):
    return results["programs"].items()


def row_of(program, row):
    return program["rows"].get(row)


def share(program, row, column):
    found = row_of(program, row)
    return f"{found[column]}/{found['runs']}" if found else "–"


def findings(program, row):
    found = row_of(program, row)
    if not found or not found["returned"]:
        return "–"
    return f"{found['kept'] / found['returned']:.0%}"


def table(results, cell):
    """Return a table with a line per row and a column per program."""
    titles = [program["title"] for _, program in programs(results)]
    yield f"| | {' | '.join(titles)} |"
    yield f"| --- |{' ---: |' * len(titles)}"
    for row, (title, _) in ROWS.items():
        cells = [cell(program, row) for _, program in programs(results)]
        yield f"| {title} | {' | '.join(cells)} |"


def clean(program):
    """Return the clean runs and all runs of a program."""
    rows = [row for row in program["rows"].values() if row]
    return sum(row["clean"] for row in rows), sum(row["runs"] for row in rows)


def rate(program, row):
    found = row_of(program, row)
    return found["clean"] / found["runs"] if found and found["runs"] else -1


def comparisons(results):
    """Return a sentence for each row in which a peer does better than agentloop."""
    ours = results["programs"]["agentloop"]
    for row, (title, _) in ROWS.items():
        for name, program in programs(results):
            if name in OURS or not row_of(program, row):
                continue
            runs, our_runs = share(program, row, "clean"), share(ours, row, "clean")
            if rate(program, row) > rate(ours, row):
                better = f"{program['title']} has {runs} clean runs"
                yield f"- **{title}**: {better}, agentloop {our_runs}."
            if kept(program, row) > kept(ours, row):
                yield (
                    f"- **{title}**: {program['title']} keeps {findings(program, row)} of the "
                    f"findings ({runs} clean runs), agentloop {findings(ours, row)} ({our_runs})."
                )


def kept(program, row):
    found = row_of(program, row)
    return found["kept"] / found["returned"] if found and found["returned"] else 0


def all_clean(results):
    """Return the titles of the programs that have every row, and only clean runs."""
    return [
        program["title"]
        for _, program in programs(results)
        if all(row_of(program, row) and rate(program, row) == 1 for row in ROWS)
    ]


def claim(results):
    """Return the sentence that the README may quote."""
    good, runs = clean(results["programs"]["agentloop"])
    best, libraries = all_clean(results), len(results["programs"]) - len(OURS) + 1
    text = (
        f"Killed, cancelled, denied or refused in the middle of {runs} runs, agentloop paid once "
        f"and told the model what had happened in {good} of them."
    )
    if "agentloop" in best:
        text += f" Of {libraries} programs, only {' and '.join(best)} did so in every row."
    return text


def page(results):
    return "\n".join(lines_of(results)) + "\n"


def lines_of(results):
    yield "# What a run survives"
    yield ""
    yield "<!-- `python -m tests.benchmarks.survival` writes this page: change `page.py`. -->"
    yield ""
    yield fill(claim(results), 100)
    yield ""
    yield INTRODUCTION
    yield ""
    yield "![the clean runs of all runs, per fault and program](survival.svg)"
    yield ""
    yield CLEAN
    for row, (title, what) in ROWS.items():
        runs = [found["runs"] for _, p in programs(results) if (found := row_of(p, row))]
        numbers = " to ".join(str(number) for number in sorted({min(runs), max(runs)}))
        counted = "1 run" if numbers == "1" else f"{numbers} runs"
        yield f"- **{title}** ({counted}): {what}."
    yield ""
    for column, (title, what) in TABLES.items():
        yield f"## {title}"
        yield ""
        yield what
        yield ""
        yield from table(results, lambda program, row, column=column: share(program, row, column))
        yield ""
    yield "## Findings kept"
    yield ""
    yield "The receipts that the next request contains, of all receipts that a tool had returned."
    yield ""
    yield from table(results, findings)
    yield ""
    yield "## Where a peer is better"
    yield ""
    better = list(comparisons(results))
    if better:
        yield "More clean runs, or more findings kept:"
        yield ""
    yield from better or ["In no row has a peer more clean runs, or keeps more findings."]
    yield ""
    yield NOTES
    yield "## Programs"
    yield ""
    yield f"Measured on {results['date']} with Python {results['python']}."
    yield ""
    yield "| program | lines | versions | follows |"
    yield "| --- | ---: | --- | --- |"
    for name, program in programs(results):
        versions = ", ".join(f"{package} {v}" for package, v in program["versions"].items())
        links = ", ".join(f"[{at}]({url})" for at, url in enumerate(program["docs"], 1))
        file = f"[{program['title']}](programs/{name}.py)"
        yield f"| {file} | {program['lines']} | {versions} | {links or 'README'} |"
    yield ""
    yield METHOD
    yield SPEED.rstrip()


INTRODUCTION = """\
An agent pays five invoices: one, two in parallel, one, one. Each program below is written as its
library's documentation recommends, with the persistence that the documentation names. Then
something happens to it in the middle, and it continues as the documentation says: a new process
resumes, or the same process sends the next prompt."""

CLEAN = """\
A run is clean if nothing was paid twice or left unpaid, the next request mentions every payment
that happened, and the provider accepts this request. A dash means that the documentation describes
no way to do this, that the program writes no file, or, for a program in DBOS workflows, that the
row is the same as outside of them.
"""

NOTES = """\
What the numbers don't show:

- A library that runs a call again after a kill is right for a tool that may run twice, because the
  result is known in the end. In agentloop, you declare such a tool: `@tool(idempotent=True)`.
- Strands survives a kill if the new process sends a prompt. Called without a prompt, it runs the
  interrupted calls again. agentloop's `run()` continues without a prompt.
- Temporal, Restate and Prefect, which some of these libraries document, need a server of their own
  and aren't measured.
"""

METHOD = """\
## How it's measured

```sh
python -m tests.benchmarks.survival                    # on Linux or macOS, about ten minutes
python -m tests.benchmarks.survival --only strands     # one program; the others stay
```

The command makes virtual environments in `build/survival`, and installs the pinned versions in
[`requirements`](requirements). Each experiment runs in processes of its own.

- [`server.py`](server.py) is the model: a strict server of Chat Completions that decides from the
  request alone. It pays a name without a result, asks the bank if the result has no receipt, and
  pays again if the bank says "not paid". All programs use their real model clients, with the
  client's retries off.
- [`world.py`](world.py) is the ledger, in memory that all processes share.
- [`rows.py`](rows.py) contains the faults. A row with many possible moments uses up to 24 of them,
  evenly spaced (12 with DBOS).
- A full disk is simulated with a limit on the size of files: every write fails.

If you know a library better, change its program: what its documentation recommends wins.
"""

SPEED = """\
## What it costs, and how fast it is

- [Overhead of the library](../README.md#overhead-of-the-library): CPU per call, first text and
  memory per agent, compared with a hand-written loop.
- [Cost of durable runs](../README.md#cost-of-durable-runs).
- [Cost of context strategies](../README.md#cost-and-information-loss-of-context-strategies):

![cost and information loss of each strategy](../context_cost.svg)
"""

# ---- the picture

CELL, ROW, LEFT, TOP = 86, 30, 130, 56
COLOURS = [(1.0, "#2e7d32"), (0.75, "#9e9d24"), (0.4, "#ef6c00"), (0.0, "#c62828")]


def colour(value):
    if value < 0:
        return "#bdbdbd"
    return next(colour for least, colour in COLOURS if value >= least)


def text(x, y, words, anchor="middle", fill="#222", size=12):
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">'
        f"{html.escape(words)}</text>"
    )


def box(x, y, width, height, fill):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'


def picture(results):
    """Return an SVG with a cell per row and program: the clean runs of all runs."""
    names = [program for _, program in programs(results)]
    width, height = LEFT + CELL * len(names) + 10, TOP + ROW * len(ROWS) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif">',
        box(0, 0, width, height, "white"),
    ]
    for at, program in enumerate(names):
        words = program["title"].split(" + ")
        for line, word in enumerate(words):
            shown = word if not line else f"+ {word}"
            parts.append(text(LEFT + CELL * (at + 0.5), TOP - 24 + 15 * line, shown, size=11))
    for line, (row, (title, _)) in enumerate(ROWS.items()):
        y = TOP + ROW * line
        parts.append(text(LEFT - 8, y + 19, title, "end"))
        for at, program in enumerate(names):
            x, found = LEFT + CELL * at, share(program, row, "clean")
            fill = colour(rate(program, row))
            parts.append(box(x + 1, y + 1, CELL - 2, ROW - 2, fill))
            parts.append(text(x + CELL / 2, y + 19, found, fill="white"))
    note = f"Clean runs of all runs, {results['date']}. –: not documented, or as in another column."
    parts.append(text(LEFT, height - 12, note, "start", size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(results, folder=FOLDER):
    (folder / "README.md").write_text(page(results), encoding="utf-8")
    (folder / "survival.svg").write_text(picture(results), encoding="utf-8")


if __name__ == "__main__":
    write(json.loads((FOLDER / "results.json").read_text(encoding="utf-8")))
