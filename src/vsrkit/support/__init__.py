"""The demo, and the self-test behind `vsrkit doctor`."""
