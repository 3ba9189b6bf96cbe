"""Experiments on the theorems of the paper: gradients and learning of k-bit patterns."""
