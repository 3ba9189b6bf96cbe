"""The demo and the report of `vsrkit doctor`."""
