"""The commands, each module one noun. `mq.mqctl.cli` imports one when it is said."""
