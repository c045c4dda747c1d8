"""Private evolution: samples chosen by private votes."""
