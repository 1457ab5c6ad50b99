"""The published costs of tool search."""

from .tool_search import measure


def test_a_search_and_fewer_turns_cost_less_than_all_tools_in_each_request():
    everything, at_once, one_by_one = map(measure, (0, 1, 8))
    assert at_once["input"] < everything["input"] / 4
    for provider in ("Anthropic", "OpenAI"):
        assert at_once[provider] < one_by_one[provider] < 0.2 * everything[provider]
