"""Row isolation: a row's bits must not depend on the other rows of a pass."""
