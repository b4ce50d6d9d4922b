"""Ids as text, many at once: it takes a fraction of the time. Floor 0, pure."""

from collections.abc import Sequence
from typing import Final

from mq.limits import UUID_CHARS
from mq.names import UUIDS_END

_UUID_FORM: Final = b"00000000-0000-0000-0000-000000000000"
_DIGITS_TO_0: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
# Where a uuid has its version, 7, and its variant.
_VERSION: Final = 14
_VARIANT: Final = 19


def are_uuids(texts: Sequence[str]) -> bool:
    """Whether all of these are ids that are a uuid and nothing more: many at once, which takes a
    fraction of the time.
    """
    if set(map(len, texts)) != {UUID_CHARS}:
        return not texts
    joined = "".join(texts)
    return (
        joined.isascii()
        and joined.encode("ascii").translate(_DIGITS_TO_0) == _UUID_FORM * len(texts)
        and not joined[_VERSION::UUID_CHARS].strip("7")
        and not joined[_VARIANT::UUID_CHARS].strip("89ab")
        and max(texts) < UUIDS_END
    )
