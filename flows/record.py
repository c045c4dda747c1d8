"""A signed checkpoint of the audit chain in a file of its own."""

from pathlib import Path

from flows.workspace import Workspace
from flows.written import new_file
from models_db.base import moment
from models_db.canonical import canonical
from models_db.services import audits


def checkpoint(workspace: Workspace, to: Path) -> dict[str, str | int]:
    """Sign the head of the chain, record it and write it to a new file.

    Raises:
        FileUnwritable: the file is there already or cannot be written.
    """
    with workspace.database.write() as session:
        head = audits.head(session)
        statement: dict[str, str | int] = {
            "format": "almoner-chain-head/1",
            "seq": head.seq,
            "hash": head.hash,
            "at": moment(),
        }
        signed = {
            **statement,
            "signature": workspace.key.sign(canonical(statement)),
            "public_key": workspace.key.public_key,
        }
        audits.record_checkpoint(session, head.hash, str(signed["signature"]), workspace.key.public_key)
        with new_file(to) as out:
            out.write(canonical(signed) + b"\n")
    return signed
