"""Clips to train and measure on: where they are, and how low resolution is made of high."""
