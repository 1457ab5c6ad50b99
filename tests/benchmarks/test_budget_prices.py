"""What a budget costs at each model's prices: the published table, and who is warned."""

import json

import pytest

from agentloop import Agent, AssistantMessage, Request, UserMessage
from agentloop.common.model_info import CacheRules
from agentloop.common.tokens import message_tokens

from .budget_prices import MODELS, SAVED, bill, table
from .test_context_cost import PAGE

NUMBERS = json.loads(SAVED.read_text(encoding="utf-8"))


def test_the_table_contains_the_saved_numbers_at_the_prices_of_the_models():
    assert table(NUMBERS) in PAGE
    assert all(model.cache_rules.source for model in MODELS.values())


def test_a_budget_of_16_000_saves_in_each_long_run_of_the_table():
    assert max(costs[0] for found in NUMBERS.values() for costs in found.values()) < 1


@pytest.mark.parametrize("name", MODELS)
def test_only_models_that_read_their_cache_for_a_fortieth_warn_of_16_000(name, caplog):
    Agent(llm=MODELS[name], context_budget=16_000)
    assert ("context_budget=16000" in caplog.text) == name.startswith("Claude Fable 5.1")


def test_a_request_is_billed_for_what_it_reads_and_writes():
    messages = (UserMessage("word " * 4_000), AssistantMessage("word " * 500))
    sizes = [*map(message_tokens, messages)]
    requests = [Request(messages[:1], ()), Request(messages, ())]
    paid = bill(requests, CacheRules(1_024, 0.1, 1.25))
    assert paid == 1.25 * sizes[0] + 0.1 * sizes[0] + 1.25 * sizes[1]
    assert bill(requests, CacheRules(9_999, 0.1, 1.25)) == 2 * sizes[0] + sizes[1]
