"""Family of decoders that almoner does not know: names of its classes that act on each row by itself."""


def row_wise_classes() -> tuple[str, ...]:
    """Return the full names, after each class was read; a model of its own is registered with transformers here."""
    return ("transformers.models.biogpt.modeling_biogpt.BioGptAttention",)
