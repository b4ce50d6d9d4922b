"""Authentication and authorization: callers and their rights, tokens, certificates, TLS.

callers       rights, grants also as text, callers, what an operation needs
tokens        tokens, the header that shows one, and the file of them
claims, jwt   tokens that another service signs; keys, key_url: the keys of these
certificates  callers by client certificate
tls           TLS of servers and clients
"""
