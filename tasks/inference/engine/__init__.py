"""The engine: a language model's layers computed row by row, and rows, passes and sessions over them."""
