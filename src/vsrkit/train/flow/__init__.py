"""Training the flow network."""
