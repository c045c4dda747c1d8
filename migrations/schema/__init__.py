"""The schema of the ledger on both databases, a module for each concept.

Until almoner 1.0 these modules and `versions/0001_initial.py` are edited where the schema changes. With 1.0 they are
frozen; from then on each change is a further revision. So nothing here imports project code outside `migrations`, or
the schema of a revision would change with the code.
"""
