"""mqctl: what HTTP does, from the shell. Over `mq.client`; it never touches a root, but
for `doctor` and `fsck`, which are about one.
"""
