"""assert_prefix_stable: comparison of each request with the previous request."""

import pytest

from agentloop import Request, UserMessage, assert_prefix_stable

from .test_loop import add

A, B = UserMessage("a"), UserMessage("b")


@pytest.mark.parametrize(
    ("requests", "change"),
    [
        ([Request([A]), Request([A, B]), Request((A, B))], None),
        ([Request([A]), Request([B])], r"(?s)request 2 changes messages\[0\].*'a'.*'b'"),
        ([Request([A, B]), Request([A])], "now gone"),
        ([Request([A]), Request([A], (add,))], "request 2 changes .*or the tools"),
    ],
)
def test_requests_whose_prefix_is_stable_pass_and_others_show_the_first_change(requests, change):
    assert_prefix_stable(requests, breaks=1)
    if change is None:
        assert_prefix_stable(requests)
    else:
        with pytest.raises(AssertionError, match=change):
            assert_prefix_stable(requests)
