"""The networks: one paper, one file."""
