"""The commands, each module one noun. `mq.tools.mqctl.cli` imports one when it is said."""
