"""Language models: registry, prompts and the row-isolated batched engine."""
