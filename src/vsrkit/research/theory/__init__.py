"""The paper's theorems as experiments: what its two predictors can learn of k-bit patterns."""
