"""The work: thin Prefect shells here, the rooms below never import Prefect."""
