"""What a request shares with the one before it, and how many tokens a text has."""

import pytest

from agentloop import Request, UserMessage, assert_prefix_stable

from .test_loop import add


class TestAssertPrefixStable:
    def test_passes_where_each_request_begins_with_the_one_before(self):
        a, b = UserMessage("a"), UserMessage("b")
        assert_prefix_stable([Request([a]), Request([a, b]), Request((a, b))])

    def test_shows_the_first_message_that_changed(self):
        a, b = UserMessage("a"), UserMessage("b")
        with pytest.raises(AssertionError, match=r"(?s)request 2 changes messages\[0\].*'a'.*'b'"):
            assert_prefix_stable([Request([a]), Request([b])])
        with pytest.raises(AssertionError, match="gone"):
            assert_prefix_stable([Request([a, b]), Request([a])])

    def test_allows_so_many_breaks(self):
        a, b = UserMessage("a"), UserMessage("b")
        assert_prefix_stable([Request([a]), Request([b])], breaks=1)

    def test_tells_of_other_tools(self):
        a = UserMessage("a")
        with pytest.raises(AssertionError, match="request 2 changes .*or the tools"):
            assert_prefix_stable([Request([a]), Request([a], (add,))])
