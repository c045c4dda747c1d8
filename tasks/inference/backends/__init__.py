"""Who writes texts from public prompts: the model of this machine, or one behind an API (docs/external-models.md)."""
