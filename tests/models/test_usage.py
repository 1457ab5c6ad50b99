"""Usage as servers really report it: what is no number of tokens counts as none."""

import pytest

from agentloop.messages import Usage
from agentloop.models import anthropic, google, openai

JUNK = ["10", None, -5, 1.5, float("nan"), float("inf"), [], {}]
READ = [
    (openai.read_openai_usage, "prompt_tokens", "completion_tokens"),
    (anthropic.read_anthropic_usage, "input_tokens", "output_tokens"),
    (google.read_google_usage, "promptTokenCount", "candidatesTokenCount"),
]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(("read", "asked", "answered"), READ)
def test_junk_counts_as_nothing(read, asked, answered, junk):
    assert read({asked: junk, answered: 7}) == Usage(0, 7)
    assert read({asked: 7, answered: junk}) == Usage(7, 0)


@pytest.mark.parametrize("read", [each[0] for each in READ])
def test_absent_usage_stays_absent(read):
    assert read({}) is None
