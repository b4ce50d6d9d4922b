"""mqctl: mq's HTTP interface from the shell. Only doctor, fsck and pipeline use a root's files."""
