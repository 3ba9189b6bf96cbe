"""Measure the published tables again, and train the ablations of the paper at a small scale."""
