"""Values of a parametrized test that only the slow run tries: the fast one keeps a first example of each."""

import pytest


def slow(*values):
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
