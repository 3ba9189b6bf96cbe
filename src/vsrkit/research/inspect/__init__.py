"""Show how a model works: its flow, attention and features, and the contribution of each part."""
