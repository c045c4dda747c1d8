"""Private evolution: candidate texts selected by private votes."""
