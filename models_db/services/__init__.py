"""Operations on the tables, each in one transaction."""
