"""Draws the cost and the lost values of each context strategy from saved results.

python -m tests.benchmarks.picture [FILE.json [FILE.svg]]

Requires matplotlib: pip install --group bench. A panel contains one kind of run. A large point is
the cost by Anthropic's rules; the small points above and below are the costs by the rules of other
providers. Open circles are budgets with a different ratio of tokens to the estimate. The id of a
point contains its numbers.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
CACHE = "Anthropic"
PROVIDERS = ("Anthropic from 4,096", "OpenAI", "OpenAI before GPT-5.6", "Google")
LOOKS = {  # strategy: colour, marker
    "per turn": ("#D55E00", "v"),
    "epochs": ("#009E73", "s"),
    "offload": ("#7A7A7A", "D"),
    "compaction 16k": ("#CC79A7", "^"),
    "budget 12k in 0.5.0": ("#E69F00", "P"),
    "budget 12k": ("#0072B2", "o"),
    "budget 16k": ("#000000", "*"),
}
RATES = {  # strategy: provider's tokens per estimated token
    "budget 12k at 0.8": 0.8,
    "budget 12k at 1.2": 1.2,
    "budget 12k at 1.6": 1.6,
}
COSTS = [0.125, 0.25, 0.5, 1, 2, 4]
GONE = [0, 0.5, 1, 2, 5, 10, 20, 40]  # percent; up to 1 the axis is linear


def points(saved):
    """Return for each kind of run: (strategy, workload, provider, cost, percent lost).

    The percentage is the larger of the shares of values and lines.
    """
    panels = {}
    for workload, found in saved.items():
        panel = panels.setdefault(found["kind"], [])
        for strategy in [*LOOKS, *RATES]:
            row = found["rows"].get(strategy)
            providers = [CACHE, *PROVIDERS] if strategy in LOOKS else [CACHE]
            for provider in providers if row else ():
                gone = 100 * max(row["values"], row["lines"])
                panel.append((strategy, workload, provider, row["costs"][provider], gone))
    return panels


def label(strategy, workload, provider, cost, gone):
    return f"{workload}: {strategy}, {provider}, cost {cost:.2f}, {gone:.1f} % gone"


def draw(saved, file):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "agentloop", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    panels = points(saved)
    rows = -(-(len(panels) + 1) // 3)  # the last place is for the legend
    figure, grid = pyplot.subplots(rows, 3, figsize=(10, 3.1 * rows), layout="constrained")
    places = [*grid.flat]
    for axes, (kind, found) in zip(places, panels.items(), strict=False):
        draw_panel(axes, kind, found)
    for axes in places[len(panels) :]:
        axes.axis("off")
    marks = [
        places[-1].scatter([], [], color=colour, marker=marker, label=strategy)
        for strategy, (colour, marker) in LOOKS.items()
    ]
    draw_point(places[-1], "budget 12k", PROVIDERS[0], [], [], label="by another provider's rules")
    draw_point(places[-1], next(iter(RATES)), CACHE, [], [], label="budget 12k at 0.8, 1.2 or 1.6")
    marks += places[-1].collections[len(marks) :]
    title = "a point for each workload, by Anthropic's rules"
    places[-1].legend(handles=marks, loc="center", title=title, frameon=False)
    figure.supxlabel("gone when a later call needs it: values or whole lines, % (the greater)")
    figure.supylabel("cost of the input (no pruning = 1)")
    figure.savefig(file, metadata={"Date": None, "Creator": None}, facecolor="white")
    pyplot.close(figure)


def draw_panel(axes, kind, found):
    axes.set_title(kind, fontsize=10)
    axes.axhline(1, color="#333333", linewidth=0.8, linestyle="--")
    for strategy, workload, provider, cost, gone in found:
        gid = label(strategy, workload, provider, cost, gone)
        draw_point(axes, strategy, provider, [gone], [cost], gid=gid)
    axes.set_xscale("symlog", linthresh=1, linscale=0.7)
    axes.set_yscale("log", base=2)
    axes.set_xlim(-0.15, 50)
    axes.set_ylim(COSTS[0], COSTS[-1] * 1.1)
    axes.set_xticks(GONE, [f"{each:g}" for each in GONE])
    axes.set_yticks(COSTS, [f"{each:g}" for each in COSTS])
    axes.minorticks_off()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.annotate(
        "better",
        xy=(0.72, 0.66),
        xytext=(0.84, 0.8),
        xycoords="axes fraction",
        color="#555555",
        arrowprops={"arrowstyle": "->", "color": "#555555"},
    )


def draw_point(axes, strategy, provider, x, y, **names):
    """Draw a point: open for a rate, small for a provider other than Anthropic."""
    if strategy in RATES:
        colour = LOOKS["budget 12k"][0]
        axes.scatter(x, y, s=26, facecolors="none", edgecolors=colour, linewidths=0.8, **names)
    elif provider == CACHE:
        colour, marker = LOOKS[strategy]
        axes.scatter(x, y, s=32, color=colour, marker=marker, alpha=0.8, **names)
    else:
        axes.scatter(x, y, s=4, color=LOOKS[strategy][0], alpha=0.6, **names)


def main(arguments):
    numbers = Path(arguments[0]) if arguments else FOLDER / "context_cost.json"
    file = Path(arguments[1]) if arguments[1:] else numbers.with_suffix(".svg")
    draw(json.loads(numbers.read_text(encoding="utf-8")), file)


if __name__ == "__main__":
    main(sys.argv[1:])
