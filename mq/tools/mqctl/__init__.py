"""mqctl: mq's HTTP interface from the shell. Only doctor, fsck, upgrade and pipeline use the files
of a root.
"""
