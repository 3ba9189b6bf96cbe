"""What a model sees: its flow, attention and features, and what each part of it is good for."""
