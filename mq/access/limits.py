"""The bounds of access control."""

from typing import Final

from mq.model.limits import FIELD_BYTES_MAX, FILE_NAME_BYTES_MAX, MIB

# What a token is made of: nobody guesses 256 bits, whatever the hash costs.
TOKEN_BYTES: Final = 32
# A file of tokens: its bytes, its tokens, what one is called, and what one may do.
TOKENS_FILE_BYTES_MAX: Final = MIB
TOKENS_MAX: Final = 1000
CALLER_NAME_CHARS_MAX: Final = 64
GRANTS_MAX: Final = 64
PATTERN_CHARS_MAX: Final = 64
# For how long it is believed of a connection who is at its other end, without another look: so much
# later than its time a token may end.
CALLER_KNOWN_S: Final = 1.0
# A token as it is shown, of whatever kind: it is within a header.
TOKEN_SHOWN_CHARS_MAX: Final = 8 * 1024

_RELATIONS: Final = {
    "a shown token is within a header": TOKEN_SHOWN_CHARS_MAX < FIELD_BYTES_MAX,
    "a pattern is no longer than a name": PATTERN_CHARS_MAX <= FILE_NAME_BYTES_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
