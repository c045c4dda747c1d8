"""Forms that browsers send, read up to a size."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request


async def read_form(request: Request, most_bytes: int, most_fields: int) -> Mapping[str, str]:
    """Return the fields of a form, the first of each name, lines ended by a line feed; nothing if it is too large or no
    form.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            return {}
    try:
        read = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=most_fields)
    except ValueError:  # of no UTF-8, or with more fields
        return {}
    return {name: values[0].replace("\r\n", "\n") for name, values in read.items()}
