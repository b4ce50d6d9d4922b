"""Bounds of callers, their tokens and certificates, and of what connections may use up.

Units stand last in the names.
"""

from typing import Final

from mq.model.limits import KEEPALIVE_S, KIB, MIB, WAIT_S_MAX

# What a caller is called in the log, by a token or a certificate of others.
CALLER_NAME_CHARS_MAX: Final = 256
# Tokens that another service signs: how far its clock may be from this one's, those remembered
# whose signature was good, and its keys.
JWT_LEEWAY_S_DEFAULT: Final = 30.0
JWT_LEEWAY_S_MAX: Final = 300.0
JWTS_KNOWN_MAX: Final = 1024
JWKS_BYTES_MAX: Final = 256 * KIB
JWKS_KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2048
# How often keys are asked for, how often at most, and how long that may take.
JWKS_EVERY_S: Final = 600.0
JWKS_AGAIN_S: Final = 30.0
JWKS_ANSWER_S: Final = 10.0

# The file that says who may do what with which certificate.
CLIENTS_BYTES_MAX: Final = 1024 * KIB
CLIENTS_MAX: Final = 10_000
# How long a client may take for its handshake, and to say a request's head.
HANDSHAKE_S_DEFAULT: Final = 10.0
HEAD_S_DEFAULT: Final = 10.0
# How long one who is hung up on has to end its side of TLS.
TLS_END_S: Final = 2.0
# Of a process, unless told.
CONNECTIONS_MAX_DEFAULT: Final = 10_000
WAITERS_MAX_DEFAULT: Final = 10_000
# Of heads that are not whole, and of what comes behind a request that is not answered yet: the
# bytes of one connection from which on no more is read, and those of all connections of a process.
PIPELINED_BYTES_MAX: Final = 32 * KIB
UNPARSED_BYTES_MAX: Final = 16 * MIB
# A kept-alive connection may be closed for another's sake that has said nothing for so long; those
# are looked for so often at most.
IDLE_S_MIN: Final = 1.0
IDLE_LOOK_EVERY_S: Final = 0.1
# A client that takes nothing for so long of what waits for it is given up.
UNREAD_S_DEFAULT: Final = 60.0
# Connections that were refused and are to see their answer, and for how long.
REFUSED_LINGER_MAX: Final = 256
REFUSED_LINGER_S: Final = 1.0
# Of the files that a process may have open: those that are left to its own work where there are
# many (operations that stand, histories, uploads), and the share of them where there are few; the
# share for refused connections; how often the log says that connections were refused.
DESCRIPTORS_KEPT: Final = 512
DESCRIPTORS_KEPT_SHARE: Final = 0.5
DESCRIPTORS_REFUSED_SHARE: Final = 0.1
REFUSALS_SAID_EVERY_S: Final = 60.0
# Of a root, unless told; how long a count of them is believed, and one that says it is full.
QUEUES_MAX_DEFAULT: Final = 100_000
QUEUES_COUNTED_S: Final = 60.0
QUEUES_FULL_S: Final = 1.0

_RELATIONS: Final = {
    "a head is heard sooner than a silent connection is closed": HEAD_S_DEFAULT < KEEPALIVE_S,
    "keys are asked for less often than an answer takes": JWKS_ANSWER_S < JWKS_AGAIN_S,
    "who waits is no slow head": HEAD_S_DEFAULT < WAIT_S_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
