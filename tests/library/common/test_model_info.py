"""Attributes of models: cache rules, output limit and compaction threshold."""

import pytest

from agentloop import ChatAnthropic, ChatGoogle, ChatOpenAI, Fallback, ScriptedModel
from agentloop.common.model_info import (
    CacheRules,
    cache_rules,
    compact_threshold,
    loads_tools,
    output_limit,
)
from agentloop.common.prices import genai_price
from agentloop.messages import Usage

UNKNOWN = CacheRules(4_096, 0.1, 1.25)


@pytest.mark.parametrize(
    ("kind", "model", "rules"),
    [
        (ChatAnthropic, "claude-opus-5", CacheRules(512)),
        (ChatAnthropic, "claude-opus-5-20260724", CacheRules(512)),
        (ChatAnthropic, "claude-sonnet-5", CacheRules(1_024)),
        (ChatAnthropic, "claude-opus-4-8", CacheRules(1_024)),
        (ChatAnthropic, "claude-opus-4-7", CacheRules(2_048)),
        (ChatAnthropic, "claude-haiku-4-5", UNKNOWN),
        (ChatAnthropic, "claude-opus-5-5", CacheRules(512, 0.05)),
        (ChatAnthropic, "claude-sonnet-5-5-20260928", CacheRules(512, 0.05)),
        (ChatAnthropic, "claude-fable-5-1", CacheRules(512, 0.025)),
        (ChatAnthropic, "claude-mythos-5-2", CacheRules(512, 0.025)),
        (ChatAnthropic, "claude-fable-5", CacheRules(512)),
        (ChatAnthropic, "claude-haiku-5-5", UNKNOWN),
        (ChatAnthropic, "a-new-model", UNKNOWN),
        (ChatGoogle, "gemini-2.5-pro", CacheRules(2_048, write_price=1.0)),
        (ChatGoogle, "gemini-3.8-flash", CacheRules(4_096, write_price=1.0)),
        (ChatGoogle, "gemini-4-argon", CacheRules(4_096, 0.05, 1.0)),
        (ChatOpenAI, "gpt-5.6", CacheRules(1_024, 0.1, 1.25)),
        (ChatOpenAI, "gpt-6", CacheRules(1_024, 0.1, 1.25)),
        (ChatOpenAI, "gpt-6.1-terra", CacheRules(1_024, 0.05, 1.25)),
        (ChatOpenAI, "gpt-6.2-astra", CacheRules(1_024, 0.05, 1.25)),
        (ChatOpenAI, "gpt-5.4-mini", CacheRules(1_024, 0.1, 1.0)),
        (ChatOpenAI, "gpt-4.1", CacheRules(1_024, 0.25, 1.0)),
        (ChatOpenAI, "gpt-4o-mini", CacheRules(1_024, 0.5, 1.0)),
        (ChatOpenAI, "qwen3", UNKNOWN),
    ],
)
def test_cache_rules_of_a_model_match_its_provider(kind, model, rules):
    assert cache_rules(kind(model, api_key="-")) == rules


@pytest.mark.parametrize(
    ("kind", "model"),
    [(ChatAnthropic, "claude-opus-5-5"), (ChatGoogle, "gemini-3.8-flash"), (ChatOpenAI, "gpt-6")],
)
def test_cache_rules_name_their_source_and_its_date(kind, model):
    source = cache_rules(kind(model, api_key="-")).source
    assert "https://" in source
    assert source.endswith("2026")


@pytest.mark.parametrize(
    "model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-2", "gpt-6.1-sol", "gpt-5.4"]
)
def test_the_price_of_a_read_agrees_with_the_price_list(model):
    pytest.importorskip("genai_prices")

    def price(**cached):
        return genai_price(model, Usage(100_000, **cached))

    kind = ChatAnthropic if model.startswith("claude") else ChatOpenAI
    rules = cache_rules(kind(model, api_key="-"))
    if price() is None:
        pytest.skip("the installed price list is older than the model")
    assert price(cached_input_tokens=100_000) / price() == pytest.approx(rules.read_price)
    assert price(cache_write_tokens=100_000) / price() == pytest.approx(rules.write_price)


def test_the_cache_setting_of_anthropic_changes_the_prices():
    longer, none = (ChatAnthropic("claude-opus-5", api_key="-", cache=c) for c in ("1h", False))
    assert longer.cache_rules == CacheRules(512, 0.1, 2.0)
    assert none.cache_rules.read_price == none.cache_rules.write_price


class Plain:
    """A custom model without these attributes."""

    model = "plain"

    async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
        raise NotImplementedError


class Stated(Plain):
    cache_rules = CacheRules(64, 0.25, 1.0)
    output_limit = 500
    compact_threshold = 90_000


def test_a_custom_model_may_state_cache_rules_and_limits():
    assert (cache_rules(Plain()), output_limit(Plain())) == (UNKNOWN, 0)
    assert (cache_rules(Stated()), output_limit(Stated())) == (Stated.cache_rules, 500)
    assert (compact_threshold(Plain()), compact_threshold(Stated())) == (0, 90_000)


def test_a_fallback_states_the_rules_of_its_first_model_and_the_largest_output():
    both = Fallback(ScriptedModel(cache_rules=CacheRules(7)), Stated())
    assert (cache_rules(both), output_limit(both)) == (CacheRules(7), 500)


def test_the_output_limit_is_the_setting_that_a_request_sends():
    assert output_limit(ChatAnthropic("claude-opus-5", api_key="-", max_tokens=9)) == 9
    assert output_limit(ChatOpenAI("gpt-5.6", api_key="-", max_completion_tokens=9)) == 9
    assert output_limit(ChatGoogle("gemini-3.8-flash", api_key="-", max_output_tokens=9)) == 9
    assert output_limit(ChatGoogle("gemini-3.8-flash", api_key="-")) == 0


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_tools_are_loaded_later_only_over_responses_by_newer_models(api):
    for name in ("gpt-5.5", "gpt-5.6"):
        llm = ChatOpenAI(name, api_key="-", api=api)
        assert loads_tools(llm) == (api == "responses" and name == "gpt-5.6")


def test_a_fallback_has_a_compact_threshold_only_if_all_its_models_have_one():
    settings = {"api_key": "-", "compact_threshold": 100_000}
    anthropic, openai = ChatAnthropic("claude-opus-5", **settings), ChatOpenAI("gpt-6", **settings)
    assert compact_threshold(Fallback(anthropic, openai)) == 100_000
    assert compact_threshold(Fallback(anthropic, Plain())) == 0
