"""Which bytes are a key that a person can have."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tasks.release.signatures.ed25519 import (
    IDENTITY_POINT,
    L,
    P,
    add_points,
    decode_point,
    is_persons_key,
    multiply_point,
    verify,
)

SMALL_ORDER = {
    "the identity": (1).to_bytes(32, "little"),
    "order 2": (P - 1).to_bytes(32, "little"),
    "order 4": bytes(32),
    "order 4, other sign": (1 << 255).to_bytes(32, "little"),
    "order 8": bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    "order 8, other": bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
}
NOT_CANONICAL = {
    "p": P.to_bytes(32, "little"),
    "p + 1, the identity again": (P + 1).to_bytes(32, "little"),
    "the identity with a sign": (1 | 1 << 255).to_bytes(32, "little"),
    "all ones": b"\xff" * 32,
}


def encoded(point) -> bytes:
    x, y = (point[i] * pow(point[2], -1, P) % P for i in (0, 1))
    return (y | (x & 1) << 255).to_bytes(32, "little")


def test_every_key_that_is_drawn_is_one():
    for _ in range(20):
        public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        point = decode_point(public)
        assert point is not None
        assert encoded(point) == public
        assert is_persons_key(public)


@pytest.mark.parametrize("point", SMALL_ORDER.values(), ids=SMALL_ORDER)
def test_a_point_of_small_order_is_nobodys(point):
    found = decode_point(point)
    assert found is not None
    assert encoded(multiply_point(8, found)) == encoded(IDENTITY_POINT)
    assert not is_persons_key(point)


@pytest.mark.parametrize("point", [*NOT_CANONICAL.values(), b"", bytes(31), bytes(33)])
def test_what_is_not_canonical_decodes_to_nothing(point):
    assert decode_point(point) is None
    assert not is_persons_key(point)


def test_about_half_of_all_bytes_are_no_point():
    """y = 2 .. 41: whether x exists is decided by a square root; OpenSSL must agree where we say that it does."""
    found = [y for y in range(2, 42) if decode_point(y.to_bytes(32, "little"))]
    assert 10 < len(found) < 30
    for y in found:
        Ed25519PublicKey.from_public_bytes(y.to_bytes(32, "little"))


def test_a_key_with_a_part_of_small_order_is_nobodys():
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    own, small = decode_point(public), decode_point(SMALL_ORDER["order 8"])
    assert own is not None
    assert small is not None
    mixed = encoded(add_points(own, small))
    assert decode_point(mixed) is not None
    assert not is_persons_key(mixed)
    assert encoded(multiply_point(L, own)) == encoded(IDENTITY_POINT)


def test_one_signature_for_every_message_is_none():
    """OpenSSL takes it: under the identity, R = identity and s = 0 satisfy the equation whatever is signed."""
    key, signature = SMALL_ORDER["the identity"], SMALL_ORDER["the identity"] + bytes(32)
    for message in (b"approve 1", b"approve 2"):
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        assert not verify(key.hex(), signature.hex(), message)
