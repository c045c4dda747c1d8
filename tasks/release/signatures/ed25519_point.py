"""Validation of Ed25519 public keys: canonical points of prime order (RFC 8032, section 5.1).

OpenSSL verifies under any 32 bytes that decode, also under points of small order: under the identity, one signature
is valid for every message. Such a key would approve everything, so a key is a point of the prime-order subgroup, in its
one canonical encoding. All inputs are public, so nothing needs constant time.
"""

from functools import lru_cache
from typing import TypeAlias

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
_ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point: TypeAlias = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T: x = X/Z, y = Y/Z, xy = T/Z."""
IDENTITY: Point = (0, 1, 1, 0)


@lru_cache(maxsize=256)
def is_persons_key(encoded: bytes) -> bool:
    """Return whether `encoded` is a canonical curve point of prime order: not the identity, not of small order."""
    point = decode(encoded)
    return point is not None and not _equal(point, IDENTITY) and _equal(multiply(L, point), IDENTITY)


def decode(encoded: bytes) -> Point | None:
    """Decode a point (RFC 8032, section 5.1.3); None for another length, a non-canonical or impossible encoding."""
    if len(encoded) != 32:
        return None
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if y >= P:
        return None
    x = _x_of(y)
    if x is None or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def _x_of(y: int) -> int | None:
    """Return a square root of (y^2 - 1) / (d y^2 + 1); None where there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT_OF_MINUS_ONE % P
    return None if (x * x - square) % P else x


def add(a: Point, b: Point) -> Point:
    """Return the sum; the formulas are complete, so doubling is no special case (RFC 8032, section 5.1.4)."""
    u, v = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = v - u, d - c, d + c, v + u
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(times: int, point: Point) -> Point:
    """Return `times` copies of `point`, added up."""
    total = IDENTITY
    while times:
        if times & 1:
            total = add(total, point)
        point, times = add(point, point), times >> 1
    return total


def _equal(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0
