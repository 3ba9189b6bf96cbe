"""The paper's theory as experiments: what its two layers can learn of k-patterns."""
