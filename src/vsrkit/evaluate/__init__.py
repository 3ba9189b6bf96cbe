"""Numbers: metrics, the protocols that make them comparable, and tables."""
