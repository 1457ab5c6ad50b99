"""Properties: hypothesis with the profile of this project, or what skips their tests without it."""

import pytest

from . import SLOW

try:
    from hypothesis import HealthCheck, example, given, settings
    from hypothesis import strategies as st
except ModuleNotFoundError:

    class Missing:
        """Takes the place of any strategy, so that modules of properties can be imported."""

        def __getattr__(self, name):
            return self

        def __call__(self, *args, **kwargs):
            return self

        def __or__(self, other):
            return self

    st = Missing()

    def given(*strategies, **named):
        return pytest.mark.skip(reason="a property: pip install hypothesis")

    def example(*args, **kwargs):
        return lambda test: test

else:
    # No deadline: on a busy machine an example may take any time.
    settings.register_profile(
        "agentloop",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=100 if SLOW else 20,
    )
    settings.load_profile("agentloop")

__all__ = ["example", "given", "settings", "st"]
