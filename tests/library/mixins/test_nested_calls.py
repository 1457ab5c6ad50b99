"""NestedCalls as the only mixin; promises/test_inner_calls.py tests the calls themselves."""

from agentloop.mixins.nested_calls import NestedCalls
from tests.core import test_loop


class TestNestedCalls(test_loop.TestLoop):
    agent_class = NestedCalls
