"""Real services for the tests, private to one run: nothing is mocked and nothing is shared."""
