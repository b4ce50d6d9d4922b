"""mqctl: what HTTP does, from the shell. Floor 4, over `mq.client`; it never touches a root, but
for `doctor` and `fsck`, which are about one.
"""
