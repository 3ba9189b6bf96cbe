"""Training: one loop, its configuration, its checkpoints."""
