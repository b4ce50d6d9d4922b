"""The model of a root, and the machine of hypothesis that holds a broker and the daemons to it."""
