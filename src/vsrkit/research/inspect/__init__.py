"""Show how a model works: its flow, attention and features, and what each part contributes."""
