"""Hash of a link, spelled out for its fixed set of fields: it is computed for every step and on every walk."""

import hashlib
from json.encoder import encode_basestring as quoted


def link_hash(
    seq: int, prev_hash: str, at: str, actor: str, kind: str, dataset: str | None, request_id: int | None, body: str
) -> str:
    """Return the SHA-256 hash of a link, as `Audit.computed_hash` does.

    Raises:
        TypeError: a value is of another type than its column's.
    """
    spelled = (
        f'{{"actor":{quoted(actor)},"at":{quoted(at)},"body":{quoted(body)},'
        f'"dataset":{"null" if dataset is None else quoted(dataset)},"kind":{quoted(kind)},'
        f'"prev_hash":{quoted(prev_hash)},"request_id":{"null" if request_id is None else request_id},"seq":"{seq}"}}'
    )
    return hashlib.sha256(spelled.encode()).hexdigest()
