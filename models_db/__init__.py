"""The nouns: amounts, events, errors, tables and the services over them."""
